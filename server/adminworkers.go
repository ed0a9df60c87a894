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
	"github.com/ojsengine/ojs/internal/stored"
	"github.com/ojsengine/ojs/storage"
)

var adminWorkerRoutes = []route{
	{method: http.MethodGet, path: "/admin/workers", need: permAdminRead, whole: true,
		serve: (*Server).listWorkers},
	{method: http.MethodGet, path: "/workers", need: permAdminRead, whole: true,
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
	engine bool // and not a worker that fetches
}

// workersSeen returns stored workers, holders of jobs and engines that report, by their
// ids.
func (s *Server) workersSeen(c *call) ([]seenWorker, error) {
	byID, gone := make(map[string]*seenWorker), make(map[string]time.Time)
	err := s.eachWorker(c.ctx, func(w *worker) {
		if gone[w.ID] = w.Gone; w.Gone.IsZero() {
			byID[w.ID] = &seenWorker{worker: *w}
		}
	})
	if err != nil {
		return nil, err
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
			w = &seenWorker{worker: worker{ID: h.ID, StartedAt: now}}
			byID[h.ID] = w
		}
		w.active = h.Jobs
		if n := h.Node; n != nil {
			w.engine = true
			w.Hostname, w.Version, w.Queues, w.Concurrency = n.Host, n.Version, n.Queues, n.Slots
			w.StartedAt, w.Seen = n.Started, n.Seen
			if n.Quiet {
				w.State = fetch.Quiet
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
			if w == nil && !st.Seen.After(gone[st.ID]) {
				continue
			}
			if w == nil {
				w = &seenWorker{worker: worker{ID: st.ID, StartedAt: st.Seen}}
				byID[st.ID] = w
			}
			if st.State != fetch.Running {
				w.State = st.State
			}
			if !st.Seen.Before(w.Seen) { // and not with another server later
				w.dead, w.Seen = st.Dead, st.Seen
			}
		}
	}
	delete(byID, anonymous)
	var out []seenWorker
	for _, w := range byID {
		if w.Seen.IsZero() { // it holds jobs of another server, and no more is known
			w.Seen = now
		}
		out = append(out, *w)
	}
	slices.SortFunc(out, func(a, b seenWorker) int { return cmp.Compare(a.ID, b.ID) })
	return out, nil
}

// word is the state of a worker as administrators see it.
func (w *seenWorker) word(now time.Time) string {
	if w.dead || w.stale(now) {
		return "stale"
	}
	return string(cmp.Or(w.Directive, w.State, fetch.Running))
}

func (w *seenWorker) object(now time.Time) obj {
	metadata := w.Metadata
	if metadata == nil {
		metadata = raw("{}")
	}
	queues := w.Queues
	if queues == nil {
		queues = []string{}
	}
	o := obj{"id", w.ID, "hostname", w.Hostname, "state", w.word(now), "queues", queues,
		"concurrency", w.Concurrency, "active_jobs", w.active, "started_at", w.StartedAt,
		"last_heartbeat_at", w.Seen, "last_heartbeat", w.Seen, "directive", string(w.Directive),
		"version", w.Version, "metadata", metadata}
	return o.opt("labels", w.Labels).opt("pid", w.PID)
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
	page, next := pageOf(&p, list, func(w *seenWorker) string { return w.ID })
	out := []obj{}
	for i := range page {
		out = append(out, page[i].object(now))
	}
	answer := p.answer("items", out, len(out), len(list), next)
	return c.reply(http.StatusOK, append(answer, "workers", out, "summary", obj{"total", len(list),
		"running", n["running"], "quiet", n["quiet"], "terminate", n["terminate"], "stale", n["stale"]}))
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
		if w.ID == id {
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
	recs, err := s.jobsOf(c, w.ID)
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
	if err := s.op.Workers().Quiet(c.ctx, w.ID); err != nil && (w.engine || !stored.Missing(err)) {
		return err
	}
	if !w.engine {
		_, err := s.updateWorker(c.ctx, w.ID, func(w *worker) error {
			w.State, w.Directive = fetch.Quiet, cmp.Or(w.Directive, fetch.Quiet)
			return nil
		})
		if err != nil {
			return err
		}
		if s.eng != nil {
			workerOf(s.eng, w.ID, fetch.Config{}).Quiet()
		}
	}
	c.audit("worker.quiet", w.ID)
	w.State = fetch.Quiet
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
		r := refuse(http.StatusConflict, codeConflict, "worker %s is %s and not stale", clip(w.ID), word)
		return r.with("worker_id", w.ID).with("current_state", word).with("expected_state", "stale")
	}
	recs, err := s.jobsOf(c, w.ID)
	if err != nil {
		return err
	}
	for i := range recs {
		renewedAt := recs[i].LeaseUntil.Add(-cmp.Or(w.Lease, recs[i].Lease))
		if renewedAt.Before(recs[i].StartedAt) || s.now().Sub(renewedAt) < fetch.DefaultDeadAfter {
			r := refuse(http.StatusConflict, codeConflict, "worker %s may live: job %s is reserved until %s",
				clip(w.ID), recs[i].ID, recs[i].LeaseUntil.Format(time.RFC3339))
			return r.with("worker_id", w.ID).with("expected_state", "stale")
		}
	}
	recovered := 0
	for i := range recs {
		eng, err := c.engine()
		if err != nil {
			return err
		}
		d, err := workerOf(eng, w.ID, fetch.Config{}).DeliveryOfRecord(recs[i])
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
	if err := s.forget(c.ctx, w.ID); err != nil {
		return err
	}
	c.audit("worker.deleted", w.ID)
	return c.reply(http.StatusOK, obj{"deleted", true, "worker_id", w.ID, "jobs_recovered", recovered})
}
