package server

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/ojsengine/ojs"
	"github.com/ojsengine/ojs/internal/draft"
	"github.com/ojsengine/ojs/policy"
	"github.com/ojsengine/ojs/storage"
)

var jobRoutes = []route{
	{method: http.MethodPost, path: "/jobs", need: permEnqueue, body: requiredBody, waits: true,
		serve: (*Server).enqueue},
	{method: http.MethodPost, path: "/jobs/batch", need: permEnqueue, body: requiredBody, large: true,
		waits: true,
		serve: (*Server).enqueueBatch},
	{method: http.MethodGet, path: "/jobs/{id}", need: permInspect, serve: (*Server).getJob},
	{method: http.MethodDelete, path: "/jobs/{id}", need: permCancel, serve: (*Server).cancelJob},
	{method: http.MethodPost, path: "/jobs/{id}/activate", need: permCancel, body: optionalBody,
		serve: (*Server).activateJob},
	{method: http.MethodPatch, path: "/jobs/{id}", need: permCancel, body: requiredBody,
		serve: (*Server).patchJob},
}

// enqueue answers POST /jobs (F041).
func (s *Server) enqueue(c *call) error {
	d, queue, err := s.draftOf(c.in())
	if err != nil {
		return err
	}
	if err := c.may(queue); err != nil {
		return err
	}
	tickets, err := s.enqueueAll(c, []ojs.Draft{d}, func(_ int, rec *storage.Record) {
		c.buf = appendAnswer(c.buf[:0], rec)
	})
	if err != nil {
		return err
	}
	if t := &tickets[0]; t.Deduplicated {
		return c.replyJSON(http.StatusOK, append(c.buf, `,"deduplicated":true}`...))
	}
	s.pressure(c, map[string]string{queue: tickets[0].ID})
	c.w.Header()["Location"] = []string{base + "/jobs/" + tickets[0].ID}
	return c.replyJSON(http.StatusCreated, append(c.buf, '}'))
}

// appendNext writes a job of a list to the answer.
func (c *call) appendNext(i int, rec *storage.Record) {
	if i > 0 {
		c.buf = append(c.buf, ',')
	}
	c.buf = appendJob(c.buf, rec)
}

// nearlyFull is how full a bounded queue is when its enqueues say so (F030).
const nearlyFull = 0.8

// pressure says in the header how full the fullest of the bounded queues of new jobs is,
// if that is nearly full. queues has a job of each queue. The jobs are stored, so the
// request succeeds even if this fails.
func (s *Server) pressure(c *call, queues map[string]string) {
	fullest := nearlyFull
	depths := make(map[*Server]map[string]int)
	for name, id := range queues {
		conf, err := s.config(c.ctx, name)
		if err != nil || conf.bound.MaxDepth == 0 {
			continue
		}
		cell, err := s.home(c.ctx, id)
		if err != nil {
			continue
		}
		if depths[cell] == nil {
			depths[cell], _ = cell.depths(c.ctx)
		}
		depth := depths[cell][name]
		full := float64(depth) / float64(conf.bound.MaxDepth)
		if full < fullest {
			continue
		}
		fullest = full
		h := c.w.Header()
		h.Set("X-OJS-Queue-Depth", strconv.Itoa(depth))
		h.Set("X-OJS-Queue-Bound", strconv.Itoa(conf.bound.MaxDepth))
		h.Set("X-OJS-Queue-Pressure", strconv.FormatFloat(min(full, 1), 'f', -1, 64))
	}
}

// depths are how many jobs of each queue have not ended.
func (s *Server) depths(ctx context.Context) (map[string]int, error) {
	list, err := s.op.Queues().List(ctx)
	depths := make(map[string]int, len(list))
	for i := range list {
		depths[list[i].Name] = list[i].Depth()
	}
	return depths, err
}

// enqueueBatch answers POST /jobs/batch (F048, F049).
func (s *Server) enqueueBatch(c *call) error {
	in := c.in()
	in.require("jobs")
	list := in.list("jobs")
	if in.err != nil {
		return in.err
	}
	if len(list) == 0 {
		return invalid("jobs", "is empty").expected("1 to " + strconv.Itoa(s.conf.maxBatch) + " jobs")
	}
	if len(list) > s.conf.maxBatch {
		return invalid("jobs", "has "+strconv.Itoa(len(list))+" jobs").
			expected("1 to " + strconv.Itoa(s.conf.maxBatch) + " jobs")
	}
	drafts, err := s.drafts(c, list)
	if err != nil {
		return err
	}
	c.buf = append(slices.Grow(c.buf[:0], 800*len(drafts)), `{"jobs":[`...)
	queues := make(map[string]string)
	tickets, err := s.enqueueAll(c, drafts, func(i int, rec *storage.Record) {
		queues[rec.Queue] = rec.ID
		c.appendNext(i, rec)
	})
	if err != nil {
		if r := c.refusalOf(err); len(drafts) == 1 && r.status < http.StatusInternalServerError {
			return ofMember(0, r) // refusedOf says it of more
		}
		return err
	}
	s.pressure(c, queues)
	b := appendNumber(append(c.buf, ']'), `,"count":`, int64(len(drafts)))
	if !slices.ContainsFunc(tickets, func(t ojs.Ticket) bool { return !t.Deduplicated }) {
		return c.replyJSON(http.StatusOK, append(b, `,"deduplicated":true}`...)) // as for one job (F046)
	}
	return c.replyJSON(http.StatusCreated, append(b, '}'))
}

// drafts reads the members of a batch. The error of one says which it is.
func (s *Server) drafts(c *call, list [][]byte) ([]ojs.Draft, error) {
	drafts, in := make([]ojs.Draft, len(list)), &input{path: anyJob + ".", call: c}
	for i, v := range list {
		var err error
		if drafts[i], err = s.member(in, v); err != nil {
			return nil, ofMember(i, c.refusalOf(err))
		}
	}
	return drafts, nil
}

// anyJob stands for the path of a member of a batch until ofMember says which it is.
const anyJob = "jobs[#]"

// member reads a member of a batch. The input is used again for the next one.
func (s *Server) member(in *input, v []byte) (d ojs.Draft, err error) {
	if v[0] != '{' {
		return d, invalid(anyJob, "is not an object").expected("object").received(kindOf(v))
	}
	in.err = nil
	if in.object, err = splitTo(in.object[:0], v, in.path); err != nil {
		return d, err
	}
	d, queue, err := s.draftOf(in)
	if err == nil {
		err = in.call.may(queue)
	}
	return d, err
}

// ofMember says in the refusal of a batch which member it is about (F049).
func ofMember(i int, err error) error {
	r, ok := err.(*refusal)
	if !ok {
		return err
	}
	job, field := "jobs["+strconv.Itoa(i)+"]", ""
	r.message = strings.ReplaceAll(r.message, anyJob, job)
	for k := 1; k < len(r.details); k += 2 {
		if text, ok := r.details[k].(string); ok {
			r.details[k] = strings.ReplaceAll(text, anyJob, job)
			if r.details[k-1] == "field" {
				field = text
			}
		}
	}
	r.details = append(obj{"index", i}, r.details...)
	if field == "" {
		r.with("field", job)
	}
	return r.with("validation", r.message)
}

// member is the index that ofMember has set.
func (r *refusal) member() (i int, known bool) {
	if len(r.details) > 1 && r.details[0] == "index" {
		i, known = r.details[1].(int)
	}
	return i, known
}

// enqueueAll enqueues drafts, all or none. see is called with each job, in the order of
// the drafts.
func (s *Server) enqueueAll(
	c *call, drafts []ojs.Draft, see func(i int, rec *storage.Record),
) ([]ojs.Ticket, error) {
	eng, err := c.engine()
	if err != nil {
		return nil, err
	}
	caller := &enqueuer{s: s, c: c, see: see, end: func() {}}
	defer func() { caller.end() }()
	tickets, err := eng.EnqueueMany(draft.WithCaller(c.ctx, caller), s.near(drafts, nil, false)...)
	if err != nil {
		return nil, s.refusedOf(c, drafts, err)
	}
	for i := range tickets {
		switch {
		case tickets[i].Dropped:
			return nil, ojs.ErrDropped
		case caller.seen > i:
		default: // the engine is none of package engine
			rec, err := s.record(c.ctx, tickets[i].ID)
			if err != nil {
				return nil, err
			}
			see(i, &rec)
		}
	}
	return tickets, nil
}

// enqueuer is a request that enqueues, with the bounds of queues. A wait for room ends
// after the seconds of OJS-Block-Timeout, or longestWait, and with the server (F030). The
// context itself does not end then: the storage may be storing the jobs.
type enqueuer struct {
	s     *Server
	c     *call
	see   func(i int, rec *storage.Record)
	seen  int             // jobs
	until <-chan struct{} // nil: it has not waited
	end   func()          // of a wait
}

// See implements draft.Caller.
func (e *enqueuer) See(i int, rec *storage.Record) {
	e.seen = i + 1
	e.see(i, rec)
}

// Bound implements draft.Caller.
func (e *enqueuer) Bound(queue string) draft.Bound {
	conf, _ := e.s.config(e.c.ctx, queue) // draftOf has just read it
	return conf.bound
}

// Until implements draft.Caller.
func (e *enqueuer) Until() <-chan struct{} {
	if e.until == nil {
		patience := longestWait
		if n, err := strconv.Atoi(e.c.r.Header.Get("OJS-Block-Timeout")); err == nil && n >= 0 {
			patience = min(time.Duration(min(n, 1000))*time.Second, longestWait)
		}
		wait, cancel := e.s.untilStopped(e.c.ctx, true)
		timer := e.s.clock.AfterFunc(patience, cancel)
		e.until, e.end = wait.Done(), func() { timer.Stop(); cancel() }
		if patience == 0 {
			cancel()
		}
	}
	return e.until
}

// refusedOf is the error of an enqueue. Of a batch it says which member is refused
// (F049).
func (s *Server) refusedOf(c *call, drafts []ojs.Draft, err error) error {
	if len(drafts) == 1 {
		return err
	}
	var n, of int
	if _, bad := fmt.Sscanf(err.Error(), "ojs: draft %d of %d:", &n, &of); bad == nil {
		return ofMember(n-1, c.refusalOf(err))
	}
	var full *ojs.QueueError
	var duplicate *ojs.DuplicateError
	is := func(d ojs.Draft) bool {
		o := ojs.DefaultOptions()
		o.Apply(d.Options()...)
		switch {
		case errors.As(err, &full):
			return o.Queue == full.Queue
		case errors.As(err, &duplicate) && duplicate.Fingerprint == "":
			return o.ID == duplicate.ID
		case errors.As(err, &duplicate) && o.Unique != nil:
			args, _ := d.Args().(ojs.Args)
			header := ojs.JobHeader{Type: d.Type(), TypeVersion: o.TypeVersion, Queue: o.Queue, Meta: o.Meta}
			key, bad := policy.Fingerprint(o.Unique, &ojs.JobInfo{JobHeader: header, Args: args})
			return bad == nil && key == duplicate.Fingerprint
		}
		return false
	}
	for at := len(drafts) - 1; at >= 0; at-- { // of equal members the later one is refused
		if is(drafts[at]) {
			return ofMember(at, c.refusalOf(err))
		}
	}
	return err
}

// record looks a job up.
func (s *Server) record(ctx context.Context, id string) (rec storage.Record, err error) {
	if s, err = s.home(ctx, id); err != nil {
		return rec, err
	}
	return s.op.Jobs().Record(ctx, id)
}

// job looks up the job that the path names, and checks the permission for its queue. An
// id that is no UUID names none (F010).
func (s *Server) job(c *call) (rec storage.Record, err error) {
	return s.jobOf(c, "job", c.value("id"))
}

func (s *Server) jobOf(c *call, kind, id string) (rec storage.Record, err error) {
	c.about(kind, id)
	u, err := uuid.Parse(id)
	if err != nil || len(id) != 36 {
		return rec, notFound(kind, id)
	}
	if rec, err = s.record(c.ctx, u.String()); err != nil {
		return rec, err
	}
	return rec, c.may(rec.Queue)
}

// replyJob answers with a job, and with members that follow those of the job.
func (c *call) replyJob(status int, rec *storage.Record, further ...any) error {
	return c.replyJSON(status, append(appendAnswer(c.buf[:0], rec, further...), '}'))
}

// appendAnswer begins an answer with a job. The job's members follow it a second time,
// since some clients read them there (F185), unless one has the name of another member.
func appendAnswer(b []byte, rec *storage.Record, further ...any) []byte {
	b = append(b, `{"job":`...)
	first := len(b) + 1
	b = appendJob(b, rec, further...)
	if rec.Extra["job"] == nil && rec.Extra["deduplicated"] == nil {
		b = append(append(b, ','), b[first:len(b)-1]...)
	}
	return b
}

// getJob answers GET /jobs/{id} (F050).
func (s *Server) getJob(c *call) error {
	rec, err := s.job(c)
	if err != nil {
		return err
	}
	parents, err := s.parentResults(c.ctx, &rec.JobInfo)
	if err != nil {
		return err
	}
	return c.replyJob(http.StatusOK, &rec, parents...)
}

// cancelJob answers DELETE /jobs/{id} (F051).
func (s *Server) cancelJob(c *call) error {
	before, err := s.job(c)
	if err != nil {
		return err
	}
	if before.State == ojs.StateCancelled {
		return conflict(before.ID, before.State, "", "job %s is cancelled already", before.ID)
	}
	if err := s.op.Jobs().Cancel(c.ctx, before.ID); err != nil {
		return err
	}
	rec, err := s.record(c.ctx, before.ID)
	if err != nil {
		return err
	}
	c.audit("job.cancelled", rec.ID)
	return c.replyJob(http.StatusOK, &rec, "previous_state", string(before.State))
}

// activateJob answers POST /jobs/{id}/activate (F053).
func (s *Server) activateJob(c *call) error {
	before, err := s.job(c)
	if err != nil {
		return err
	}
	if before.State == ojs.StatePending && before.Dependencies != nil { // W021
		return conflict(before.ID, before.State, "", "job %s waits for other jobs", before.ID)
	}
	if err := s.op.Jobs().Activate(c.ctx, before.ID); err != nil {
		return err
	}
	at := s.now()
	rec, err := s.record(c.ctx, before.ID)
	if err != nil {
		return err
	}
	return c.replyJob(http.StatusOK, &rec, "activated_at", at, "previous_state", string(before.State))
}

// patchJob answers PATCH /jobs/{id} (F144, F153).
func (s *Server) patchJob(c *call) error {
	before, err := s.job(c)
	if err != nil {
		return err
	}
	in := c.in()
	in.require("priority")
	priority := in.integer("priority", 0, -100, 100)
	if in.err != nil {
		return in.err
	}
	if err := s.op.Jobs().SetPriority(c.ctx, before.ID, priority); err != nil {
		return err
	}
	c.audit("job.reprioritized", before.ID)
	return c.reply(http.StatusOK, obj{"id", before.ID, "priority", priority, "previous_priority",
		before.Priority})
}
