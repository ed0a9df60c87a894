package server

import (
	"cmp"
	"context"
	"net/http"
	"slices"
	"strconv"
	"strings"

	"github.com/ojsengine/ojs"
	"github.com/ojsengine/ojs/inspect"
	"github.com/ojsengine/ojs/internal/jsonvalue"
	"github.com/ojsengine/ojs/internal/stored"
	"github.com/ojsengine/ojs/operate"
	"github.com/ojsengine/ojs/storage"
)

var deadLetterRoutes = []route{
	{method: http.MethodGet, path: "/dead-letter", need: permInspect, serve: (*Server).listDeadLetters},
	{method: http.MethodGet, path: "/dead-letter/stats", need: permInspect, whole: true,
		serve: (*Server).deadLetterStats},
	{method: http.MethodGet, path: "/dead-letter/{id}", need: permInspect, serve: (*Server).getDeadLetter},
	{method: http.MethodPost, path: "/dead-letter/{id}/retry", need: permOperate, body: optionalBody,
		serve: (*Server).retryDeadLetter},
	{method: http.MethodPost, path: "/dead-letter/retry", need: permOperate, body: optionalBody,
		serve: (*Server).retryDeadLetters},
	{method: http.MethodDelete, path: "/dead-letter/{id}", need: permOperate,
		serve: (*Server).deleteDeadLetter},
	{method: http.MethodDelete, path: "/dead-letter", need: permPurge, body: optionalBody,
		serve: (*Server).purgeDeadLetters},
}

// listDeadLetters answers GET /dead-letter (F085).
func (s *Server) listDeadLetters(c *call) error {
	p, err := c.paging()
	if err != nil {
		return err
	}
	f, err := c.jobFilter()
	if err != nil {
		return err
	}
	f.DeadLettered = true
	recs, total, next, err := s.jobPage(c, &p, f)
	if err != nil {
		return err
	}
	return c.reply(http.StatusOK, p.answer("jobs", jobList(recs), len(recs), total, next))
}

// deadLetter looks up the dead letter that the path names.
func (s *Server) deadLetter(c *call) (rec storage.Record, err error) {
	id := c.value("id")
	if rec, err = s.jobOf(c, "dead_letter_job", id); err != nil {
		return rec, err
	}
	if !rec.DeadLettered() {
		return rec, notFound("dead_letter_job", id)
	}
	return rec, nil
}

// getDeadLetter answers GET /dead-letter/{id}.
func (s *Server) getDeadLetter(c *call) error {
	rec, err := s.deadLetter(c)
	if err != nil {
		return err
	}
	return c.replyJob(http.StatusOK, &rec)
}

// retryDeadLetter answers POST /dead-letter/{id}/retry (F086).
func (s *Server) retryDeadLetter(c *call) error {
	before, err := s.deadLetter(c)
	if err != nil {
		return err
	}
	args, opts, err := s.overrides(c, before.Unique)
	if err != nil {
		return err
	}
	if args == nil {
		err = s.op.DeadLetters().Retry(c.ctx, before.ID, opts...)
	} else {
		err = s.op.DeadLetters().RetryWithArgs(c.ctx, before.ID, *args, opts...)
	}
	if err != nil {
		return err
	}
	rec, err := s.record(c.ctx, before.ID)
	if err != nil {
		return err
	}
	c.audit("dead_letter.retried", rec.ID)
	return c.replyJob(http.StatusOK, &rec, "re_enqueued_at", rec.EnqueuedAt)
}

// overrides reads the override of a replay of a job with a unique policy, nil if it has
// none. nil args: there are none.
func (s *Server) overrides(c *call, p *ojs.UniquePolicy) (args *ojs.Args, opts []ojs.Option, err error) {
	in := c.in()
	over := in.within("override")
	for _, m := range over.object {
		if !slices.Contains([]string{"queue", "meta", "retry", "args"}, m.name) {
			over.fail(m.name, "is no member of an override", "queue, meta, retry or args")
		}
	}
	queue := over.filled("queue")
	if in.err != nil {
		return nil, nil, in.err
	}
	if over.err != nil {
		return nil, nil, over.err
	}
	if queue != "" {
		if err := c.mayQueue("override.queue", queue); err != nil {
			return nil, nil, err
		}
		opts = append(opts, ojs.WithQueue(queue))
	}
	if v := over.get("meta"); v != nil {
		decoded, err := jsonvalue.Decode(v)
		meta, ok := decoded.(map[string]any)
		if err != nil || !ok {
			return nil, nil, invalid("override.meta",
				"is not an object").expected("object").received(kindOf(v))
		}
		if err := strictMeta(p, v, "override.meta"); err != nil {
			return nil, nil, err
		}
		for key, value := range meta {
			opts = append(opts, ojs.WithMeta(key, value))
		}
	}
	if v := over.get("retry"); v != nil {
		p, err := retryOf(v)
		if err != nil {
			return nil, nil, err
		}
		opts = append(opts, ojs.WithRetry(p))
	}
	if v := over.get("args"); v != nil {
		given, err := s.args(v, "override.")
		if err != nil {
			return nil, nil, err
		}
		args = &given
	}
	return args, opts, nil
}

// filterNames are the members of a filter that may also be at the top of the body (F179),
// or parameters of a DELETE (F178).
var filterNames = []string{"queue", "type", "error_type", "since", "until", "enqueued_after",
	"enqueued_before", "older_than", "priority", "state", "states"}

// bodyFilter reads the filter of an operation on many.
func (c *call) bodyFilter() (f inspect.Filter, err error) {
	in := c.in()
	from := in.within("filter")
	for _, m := range from.object { // a filter that ignored a misspelt member would take more jobs
		if !slices.Contains(filterNames, m.name) {
			return f, invalid("filter."+clip(m.name), "is no member of a filter").
				expected(strings.Join(filterNames, ", "))
		}
	}
	if in.get("filter") == nil {
		from = in
	}
	if err := c.only(append([]string{"filter", "confirm"}, filterNames...)...); err != nil {
		return f, err
	}
	for _, name := range filterNames {
		value := in.get(name)
		if text := c.param(name); value == nil && text != "" && c.r.Method == http.MethodDelete {
			switch n, err := strconv.Atoi(text); {
			case name == "states":
				value = marshal(append([]string{}, c.names(name)...)) // a comma alone names none
			case name == "priority" && err == nil:
				value = marshal(n)
			default:
				value = marshal(text)
			}
		}
		if value != nil && from != in && from.get(name) != nil {
			return f, givenTwice(name)
		}
		if value != nil {
			from.object = from.object.set(name, value)
		}
	}
	one := func(name string, to *[]string) {
		if v := from.filled(name); v != "" {
			*to = []string{v}
		}
	}
	one("queue", &f.Queues)
	one("type", &f.Types)
	one("error_type", &f.ErrorTypes)
	since, until := c.timeRange(&f)
	*since, *until = from.time("since"), from.time("until")
	f.CreatedFrom = cmp.Or(from.time("enqueued_after"), f.CreatedFrom)
	f.CreatedBefore = cmp.Or(from.time("enqueued_before"), f.CreatedBefore)
	if t := c.age(from); f.FinishedBefore.IsZero() || !t.IsZero() && t.Before(f.FinishedBefore) {
		f.FinishedBefore = t
	}
	var states []string
	if v := from.get("state"); v != nil && v[0] == '[' {
		states = from.texts("state")
	} else if v != nil {
		states = []string{from.text("state")}
	}
	if v := from.get("states"); v != nil {
		states = append(states, from.texts("states")...)
	}
	if len(states) == 0 && (from.get("state") != nil || from.get("states") != nil) {
		from.fail("state", "is empty", "states of jobs")
	}
	if n := from.get("priority"); n != nil {
		at := from.integer("priority", 0, -100, 100)
		f.Priority = &inspect.Range{Min: at, Max: at}
	}
	if in.err != nil {
		return f, in.err
	}
	if from.err != nil {
		return f, from.err
	}
	for _, name := range states {
		if !ojs.State(name).Valid() {
			return f, invalid("filter.state", "is no state of a job").received(clip(name))
		}
		f.States = append(f.States, ojs.State(name))
	}
	f.Queues, err = c.narrow(f.Queues)
	return f, err
}

// applied is what an operation on many has done.
type applied struct {
	matched, done int
	failed        []operate.Result
}

// apply does something to the jobs of a filter.
func (s *Server) apply(ctx context.Context, do operate.Action, f inspect.Filter) (a applied, err error) {
	for at, err := range s.op.Jobs().Apply(ctx, operate.Bulk{Do: do, On: f}) {
		if err != nil {
			return a, err
		}
		if at.ID == "" {
			continue
		}
		if a.matched++; at.Err == nil {
			a.done++
		} else if len(a.failed) < 1000 {
			a.failed = append(a.failed, at.Result)
		}
	}
	return a, nil
}

// applyDead does something to the dead letters of a filter that is confirmed.
func (s *Server) applyDead(c *call, do operate.Action, done string) (a applied, err error) {
	if err := c.confirmed(); err != nil {
		return a, err
	}
	f, err := c.bodyFilter()
	if err != nil {
		return a, err
	}
	f.DeadLettered = true
	if a, err = s.apply(c.ctx, do, f); err == nil {
		c.audit(done, f.String())
	}
	return a, err
}

// retryDeadLetters answers POST /dead-letter/retry (F086).
func (s *Server) retryDeadLetters(c *call) error {
	a, err := s.applyDead(c, operate.RetryJobs(), "dead_letter.bulk_retried")
	if err != nil {
		return err
	}
	return c.reply(http.StatusOK, obj{"matched", a.matched, "retried", a.done, "failed", a.matched - a.done})
}

// deleteDeadLetter answers DELETE /dead-letter/{id} (F087).
func (s *Server) deleteDeadLetter(c *call) error {
	rec, err := s.deadLetter(c)
	if err != nil {
		return err
	}
	if err := s.op.DeadLetters().Delete(c.ctx, rec.ID); err != nil {
		return err
	}
	c.audit("dead_letter.deleted", rec.ID)
	if c.admin() {
		return c.reply(http.StatusNoContent, nil)
	}
	return c.reply(http.StatusOK, obj{"deleted", true, "job_id", rec.ID})
}

// purgeDeadLetters answers DELETE /dead-letter (F087).
func (s *Server) purgeDeadLetters(c *call) error {
	a, err := s.applyDead(c, operate.DeleteJobs(), "dead_letter.purged")
	if err != nil {
		return err
	}
	return c.reply(http.StatusOK, obj{"matched", a.matched, "deleted", a.done, "purged_count", a.done,
		"failed", a.matched - a.done})
}

// deadLetterStats answers GET /dead-letter/stats (F087).
func (s *Server) deadLetterStats(c *call) error {
	n, err := s.op.DeadLetters().Stats(c.ctx)
	if err != nil {
		return err
	}
	return c.reply(http.StatusOK, obj{"total", n.Total, "total_count", n.Total, "by_queue", n.ByQueue,
		"by_type", n.ByType, "by_error_type", n.ByErrorType, "oldest_at", n.Oldest, "newest_at", n.Newest})
}

// reasonOf is why something was not done to a job, for an answer about many.
func (c *call) reasonOf(id string, err error) string {
	if stored.Missing(err) {
		return "job " + id + " is not found"
	}
	return c.refusalOf(err).message
}
