package server

import (
	"cmp"
	"errors"
	"net/http"
	"strings"

	"github.com/ojsengine/ojs"
	"github.com/ojsengine/ojs/cron"
	"github.com/ojsengine/ojs/internal/draft"
)

var cronRoutes = []route{
	{method: http.MethodPost, path: "/cron", need: permOperate, body: requiredBody, serve: (*Server).setCron},
	{method: http.MethodGet, path: "/cron", need: permInspect, whole: true, serve: (*Server).listCrons},
	{method: http.MethodGet, path: "/cron/{name}", need: permInspect, whole: true,
		serve: (*Server).getCron},
	{method: http.MethodPatch, path: "/cron/{name}", need: permOperate, whole: true, body: requiredBody,
		serve: (*Server).patchCron},
	{method: http.MethodDelete, path: "/cron/{name}", need: permOperate, whole: true,
		serve: (*Server).deleteCron},
	{method: http.MethodPost, path: "/crons", need: permOperate, body: requiredBody,
		serve: (*Server).setCron},
	{method: http.MethodGet, path: "/crons", need: permInspect, whole: true, serve: (*Server).listCrons},
	{method: http.MethodGet, path: "/crons/{name}", need: permInspect, whole: true,
		serve: (*Server).getCron},
	{method: http.MethodPatch, path: "/crons/{name}", need: permOperate, whole: true, body: requiredBody,
		serve: (*Server).patchCron},
	{method: http.MethodDelete, path: "/crons/{name}", need: permOperate, whole: true,
		serve: (*Server).deleteCron},
}

// crons returns the recurring jobs.
func (s *Server) crons() (*cron.Entries, error) {
	if s.eng == nil {
		return nil, unsupported("this server has a storage and no engine: it knows no recurring jobs")
	}
	return s.eng.Cron(), nil
}

// setCron answers POST /cron (F092, F169).
func (s *Server) setCron(c *call) error {
	entries, err := s.crons()
	if err != nil {
		return err
	}
	in := c.in()
	e := cron.Entry{Name: in.name("name"), Description: in.text("description"), TimeZone: in.text("timezone")}
	field := "expression"
	for _, name := range []string{"expression", "cron", "schedule"} {
		text := in.text(name)
		if text != "" && e.Schedule != "" && text != e.Schedule {
			return invalid(name, "differs from "+field)
		}
		if text != "" {
			field, e.Schedule = name, text
		}
	}
	overlap := in.text("overlap_policy")
	if overlap == "cancel" {
		overlap = string(cron.OverlapCancelPrevious)
	}
	e.Overlap = cron.Overlap(overlap)
	e.Paused = in.get("enabled") != nil && !in.flag("enabled")
	if in.err == nil && !cron.ValidName(e.Name) {
		in.fail("name", "is no name of a recurring job", "lower-case letters, digits, hyphens and dots")
	}
	if in.err != nil {
		return in.err
	}
	if e.Schedule == "" {
		return invalid("expression", "is missing").expected("a cron expression")
	}
	template := in
	if in.get("job_template") != nil {
		template = in.within("job_template")
	} else {
		template = &input{object: cronJob(in.object)}
	}
	if in.err != nil {
		return in.err
	}
	if template.get("args") == nil {
		template.object = template.object.set("args", []byte("[]"))
	}
	d, queue, err := s.draftOf(template)
	if err != nil {
		return err
	}
	if err := c.may(queue); err != nil {
		return err
	}
	e.Job = d
	isNew, err := entries.Put(c.ctx, e, func(old cron.Entry) error { return c.may(queueOf(old.Job)) })
	if err != nil {
		return badCron(err, field)
	}
	set, err := entries.Get(c.ctx, e.Name)
	if err != nil {
		return err
	}
	c.audit("cron.set", e.Name)
	status := http.StatusOK
	if isNew {
		status = http.StatusCreated
		c.w.Header().Set("Location", base+"/cron/"+e.Name)
	}
	return s.replyCron(c, status, &set)
}

// cronJob are the members of a flat recurring job that are those of its job.
func cronJob(o object) (job object) {
	for _, m := range o {
		switch m.name {
		case "name", "description", "expression", "cron", "schedule", "timezone", "overlap_policy", "enabled",
			"job_template", "status", "last_run_at", "next_run_at", "run_count":
		default:
			job = append(job, m)
		}
	}
	return job
}

// badCron says which member an error of a recurring job is about.
func badCron(err error, field string) error {
	var bad *ojs.InvalidError
	if !errors.As(err, &bad) {
		return err
	}
	switch bad.Field {
	case "schedule":
		r := invalid(field, bad.Reason)
		r.hint = "five fields, six with seconds first, @daily and the like, or @every 5m"
		return r
	case "time_zone":
		return invalid("timezone", bad.Reason)
	case "overlap":
		return invalid("overlap_policy", bad.Reason)
	}
	return bad
}

// queueOf is the queue of a draft.
func queueOf(d ojs.Draft) string {
	o := ojs.DefaultOptions()
	o.Apply(d.Options()...)
	return o.Queue
}

// cronName reads the name of the recurring job in the path.
func (s *Server) cronName(c *call) (*cron.Entries, string, error) {
	entries, err := s.crons()
	name := c.value("name")
	c.about("cron", name)
	if err == nil && !cron.ValidName(name) {
		err = notFound("cron", name)
	}
	return entries, name, err
}

// getCron answers GET /cron/{name}.
func (s *Server) getCron(c *call) error {
	entries, name, err := s.cronName(c)
	if err != nil {
		return err
	}
	e, err := entries.Get(c.ctx, name)
	if err != nil {
		return err
	}
	return s.replyCron(c, http.StatusOK, &e)
}

// patchCron answers PATCH /cron/{name} (F092).
func (s *Server) patchCron(c *call) error {
	entries, name, err := s.cronName(c)
	if err != nil {
		return err
	}
	in := c.in()
	in.require("enabled")
	on := in.flag("enabled")
	if in.err != nil {
		return in.err
	}
	set := entries.Pause
	if on {
		set = entries.Resume
	}
	if err := set(c.ctx, name); err != nil {
		return err
	}
	e, err := entries.Get(c.ctx, name)
	if err != nil {
		return err
	}
	c.audit("cron.set", name)
	return s.replyCron(c, http.StatusOK, &e)
}

// deleteCron answers DELETE /cron/{name}.
func (s *Server) deleteCron(c *call) error {
	entries, name, err := s.cronName(c)
	if err != nil {
		return err
	}
	e, err := entries.Get(c.ctx, name)
	if err != nil {
		return err
	}
	if err := entries.Remove(c.ctx, name); err != nil {
		return err
	}
	c.audit("cron.deleted", name)
	return c.reply(http.StatusOK, obj{"deleted", true, "name", name, "cron", s.cronObject(&e)})
}

// listCrons answers GET /cron.
func (s *Server) listCrons(c *call) error {
	entries, err := s.crons()
	if err != nil {
		return err
	}
	p, err := c.paging()
	if err != nil {
		return err
	}
	all, err := entries.List(c.ctx)
	if err != nil {
		return err
	}
	var list []cron.Entry
	for _, e := range all {
		switch c.param("enabled") {
		case "":
		case "true":
			if e.Paused {
				continue
			}
		case "false":
			if !e.Paused {
				continue
			}
		default:
			return invalid("enabled", "is neither true nor false")
		}
		list = append(list, e)
	}
	page, next := pageOf(&p, list, func(e *cron.Entry) string { return e.Name })
	out := []obj{}
	for i := range page {
		out = append(out, s.cronObject(&page[i]))
	}
	answer := append(obj{"crons", out, "cron_jobs", out, "entries", out, "count", len(out)},
		p.answer("crons", out, len(out), len(list), next)[2:]...)
	return c.reply(http.StatusOK, answer)
}

// replyCron answers with a recurring job. Under /crons its members are the answer's too
// (F184).
func (s *Server) replyCron(c *call, status int, e *cron.Entry) error {
	o := s.cronObject(e)
	if strings.HasPrefix(c.r.URL.Path, base+"/crons") {
		return c.reply(status, o)
	}
	answer := obj{"cron", o, "cron_job", o}
	for i := 0; i < len(o); i += 2 { // for clients that read them there (F185)
		if o[i] != "cron" {
			answer = append(answer, o[i:i+2]...)
		}
	}
	return c.reply(status, answer)
}

// cronObject is a recurring job (F169).
func (s *Server) cronObject(e *cron.Entry) obj {
	o := ojs.DefaultOptions()
	o.Apply(e.Job.Defaults()...)
	o.Apply(e.Job.Options()...)
	args, _ := e.Job.Args().(ojs.Args)
	meta := o.Meta
	as := sentOf(&ojs.JobInfo{Extra: o.Extra})
	options := obj{"queue", o.Queue, "priority", o.Priority, "tags", raw(appendTags(nil, meta["tags"])),
		"timeout_ms", draft.Milliseconds(o.Timeout), "visibility_timeout_ms", draft.Milliseconds(o.Lease),
		"retry", raw(appendRetry(nil, o.Retry.Inherit(defaultRetry)))}
	if o.Unique != nil {
		options = append(options, "unique", raw(marshal(o.Unique)))
	}
	if o.RateLimit != nil {
		options = append(options, "rate_limit", raw(marshal(o.RateLimit)))
	}
	job := obj{"type", e.Job.Type(), "args", raw(marshal(args)), "meta", raw(appendMeta(nil, meta, as.Tags)),
		"options", options}
	status := "active"
	if e.Paused {
		status = "paused"
	}
	out := obj{"id", e.Name, "name", e.Name, "expression", e.Schedule, "cron", e.Schedule,
		"schedule", e.Schedule}
	out = append(append(out, job...), "queue", o.Queue, "job_template", job)
	out = append(out, "timezone", cmp.Or(e.TimeZone, "UTC"),
		"overlap_policy", cmp.Or(string(e.Overlap), string(cron.OverlapSkip)), "enabled", !e.Paused,
		"status", status, "last_run_at", e.LastRun, "next_run_at", e.NextRun, "run_count", e.Runs,
		"created_at", e.CreatedAt)
	return out.opt("description", e.Description)
}
