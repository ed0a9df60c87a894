package server

import (
	"cmp"
	"errors"
	"net/http"
	"slices"
	"time"

	"github.com/ojsengine/ojs"
	"github.com/ojsengine/ojs/engine/fetch"
	"github.com/ojsengine/ojs/inspect"
	"github.com/ojsengine/ojs/storage"
)

var adminWorkerRoutes = []route{
	{method: http.MethodGet, path: "/admin/workers", need: permAdminRead, whole: true,
		serve: (*Server).listWorkers},
	{method: http.MethodGet, path: "/admin/workers/{id}", need: permAdminRead, whole: true,
		serve: (*Server).getWorker},
	{method: http.MethodPost, path: "/admin/workers/{id}/quiet", need: permAdminWrite, whole: true,
		body:  optionalBody,
		serve: (*Server).quietWorker},
	{method: http.MethodDelete, path: "/admin/workers/{id}", need: permAdminWrite, whole: true,
		serve: (*Server).deleteWorker},
}

// seenWorker is a worker as administrators see it: an engine, or one that fetches.
type seenWorker struct {
	worker
	active int
	dead   bool
}

// workersSeen returns the workers that have spoken to this server, those that hold jobs,
// and the engines that report, by their ids.
func (s *Server) workersSeen(c *call) ([]seenWorker, error) {
	byID := make(map[string]*seenWorker)
	for _, w := range s.serving.list() {
		byID[w.id] = &seenWorker{worker: w}
	}
	holding, err := s.op.Workers().List(c.ctx)
	if err != nil {
		return nil, err
	}
	now := s.now()
	for i := range holding {
		h := &holding[i]
		if h.Node != nil && len(h.Node.Types) == 0 && h.Jobs == 0 { // an engine without handlers
			continue
		}
		w := byID[h.ID]
		if w == nil {
			w = &seenWorker{worker: worker{id: h.ID, seen: now, startedAt: now}}
			byID[h.ID] = w
		}
		w.active = h.Jobs
		if n := h.Node; n != nil {
			w.hostname, w.version, w.queues, w.concurrency = n.Host, n.Version, n.Queues, n.Slots
			w.startedAt, w.seen = n.Started, n.Seen
			if n.Quiet {
				w.state = fetch.Quiet
			}
		}
		w.dead = h.Silent > 0
	}
	if s.eng != nil {
		stats, err := s.eng.Stats(c.ctx)
		if err != nil {
			return nil, err
		}
		for _, st := range stats.Workers {
			w := byID[st.ID]
			if w == nil && s.serving.removed(st.ID, st.Seen) {
				continue
			}
			if w == nil {
				w = &seenWorker{worker: worker{id: st.ID, startedAt: st.Seen}}
				byID[st.ID] = w
			}
			if st.State != fetch.Running {
				w.state = st.State
			}
			w.dead, w.seen = st.Dead, st.Seen
		}
	}
	delete(byID, anonymous)
	var out []seenWorker
	for _, w := range byID {
		out = append(out, *w)
	}
	slices.SortFunc(out, func(a, b seenWorker) int { return cmp.Compare(a.id, b.id) })
	return out, nil
}

// word is the state of a worker as administrators see it.
func (w *seenWorker) word(now time.Time) string {
	if w.dead || w.stale(now) {
		return "stale"
	}
	return cmp.Or(string(w.state), string(fetch.Running))
}

func (w *seenWorker) object(now time.Time) obj {
	metadata := w.metadata
	if metadata == nil {
		metadata = raw("{}")
	}
	queues := w.queues
	if queues == nil {
		queues = []string{}
	}
	o := obj{"id", w.id, "hostname", w.hostname, "state", w.word(now), "queues", queues,
		"concurrency", w.concurrency, "active_jobs", w.active, "started_at", w.startedAt,
		"last_heartbeat_at", w.seen, "version", w.version, "metadata", metadata}
	return o.opt("labels", w.labels).opt("pid", w.pid)
}

// listWorkers answers GET /admin/workers (F147).
func (s *Server) listWorkers(c *call) error {
	p, err := c.paging()
	if err != nil {
		return err
	}
	list, err := s.workersSeen(c)
	if err != nil {
		return err
	}
	now := s.now()
	n := make(map[string]int)
	for i := range list {
		n[list[i].word(now)]++
	}
	page, next := pageOf(&p, list, func(w *seenWorker) string { return w.id })
	out := []obj{}
	for i := range page {
		out = append(out, page[i].object(now))
	}
	answer := p.answer("items", out, len(out), len(list), next)
	return c.reply(http.StatusOK, append(answer, "summary", obj{"total", len(list), "running", n["running"],
		"quiet", n["quiet"], "terminate", n["terminate"], "stale", n["stale"]}))
}

// seenWorker returns the worker that the path names.
func (s *Server) seenWorker(c *call) (w seenWorker, err error) {
	id := c.value("id")
	c.about("worker", id)
	list, err := s.workersSeen(c)
	if err != nil {
		return w, err
	}
	for _, w := range list {
		if w.id == id {
			return w, nil
		}
	}
	return w, notFound("worker", id)
}

// jobsOf are the jobs that a worker holds, as far as the caller may see them.
func (s *Server) jobsOf(c *call, id string) (recs []storage.Record, err error) {
	f := inspect.Filter{States: []ojs.State{ojs.StateActive}, Workers: []string{id}}
	if f.Queues, err = c.narrow(nil); err != nil {
		return nil, err
	}
	for rec, err := range s.op.Jobs().Records(c.ctx, f) {
		if err != nil {
			return nil, err
		}
		if recs = append(recs, *rec); len(recs) == 1000 {
			break
		}
	}
	return recs, nil
}

// getWorker answers GET /admin/workers/{id}.
func (s *Server) getWorker(c *call) error {
	w, err := s.seenWorker(c)
	if err != nil {
		return err
	}
	recs, err := s.jobsOf(c, w.id)
	if err != nil {
		return err
	}
	return c.reply(http.StatusOK, append(w.object(s.now()), "jobs", jobList(recs)))
}

// quietWorker answers POST /admin/workers/{id}/quiet: its next heartbeat says so.
func (s *Server) quietWorker(c *call) error {
	w, err := s.seenWorker(c)
	if err != nil {
		return err
	}
	if err := s.op.Workers().Quiet(c.ctx, w.id); err != nil {
		if !missing(err) || s.eng == nil {
			return err
		}
		workerOf(s.eng, w.id, fetch.Config{}).Quiet()
	}
	s.serving.with(w.id, s.now(), func(w *worker) { w.state = fetch.Quiet })
	c.audit("worker.quiet", w.id)
	w.state = fetch.Quiet
	return c.reply(http.StatusOK, append(w.object(s.now()), "acknowledged", true))
}

// deleteWorker answers DELETE /admin/workers/{id}: a stale one is forgotten, and its jobs
// are recovered. It is refused while a reservation may have been renewed through another
// server: one that was renewed lately, or for less than the job says, so that nothing
// tells when.
func (s *Server) deleteWorker(c *call) error {
	w, err := s.seenWorker(c)
	if err != nil {
		return err
	}
	if word := w.word(s.now()); word != "stale" {
		r := refuse(http.StatusConflict, codeConflict, "worker %s is %s and not stale", clip(w.id), word)
		return r.with("worker_id", w.id).with("current_state", word).with("expected_state", "stale")
	}
	recs, err := s.jobsOf(c, w.id)
	if err != nil {
		return err
	}
	for i := range recs {
		if renewedAt := recs[i].LeaseUntil.Add(-recs[i].Lease); renewedAt.Before(recs[i].StartedAt) ||
			s.now().Sub(renewedAt) < fetch.DefaultDeadAfter {
			r := refuse(http.StatusConflict, codeConflict, "worker %s may live: job %s is reserved until %s",
				clip(w.id), recs[i].ID, recs[i].LeaseUntil.Format(time.RFC3339))
			return r.with("worker_id", w.id).with("expected_state", "stale")
		}
	}
	recovered := 0
	for i := range recs {
		eng, err := c.engine()
		if err != nil {
			return err
		}
		d, err := workerOf(eng, w.id, fetch.Config{}).DeliveryOfRecord(recs[i])
		if err == nil {
			err = d.Abandon(c.ctx)
		}
		switch {
		case err == nil:
			recovered++
		case !errors.Is(err, ojs.ErrLeaseLost):
			return err
		}
	}
	s.serving.forget(w.id, s.now())
	c.audit("worker.deleted", w.id)
	return c.reply(http.StatusOK, obj{"deleted", true, "worker_id", w.id, "jobs_recovered", recovered})
}
