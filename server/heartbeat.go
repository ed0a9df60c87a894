package server

import (
	"encoding/json"
	"errors"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/google/uuid"

	"github.com/ojsengine/ojs"
	"github.com/ojsengine/ojs/engine/fetch"
	"github.com/ojsengine/ojs/internal/versions"
	"github.com/ojsengine/ojs/storage"
)

// workers has what workers report of themselves (F078, F147). A worker is forgotten an
// hour after its last call.
type workers struct {
	mu   sync.Mutex // guards what follows
	byID map[string]*worker
	gone map[string]time.Time // when a worker was removed, which the engine remembers
}

// worker is what a worker has said.
type worker struct {
	id, hostname, version string
	owner                 string      // the principal that registered it
	state                 fetch.State // that it reports; "": none
	queues                []string
	concurrency           int
	startedAt, seen       time.Time
	metadata, labels, pid raw
	types                 []string // the handlers of job types, as fetch.Config has them; nil: all
	beats                 bool     // it has registered, or sent a heartbeat
}

const (
	forgetWorkers = time.Hour
	manyWorkers   = 10_000
	manyNames     = 100  // of the queues that a worker reports; more are left out
	manyHandlers  = 1000 // of a worker; more are refused
)

// short cuts a text that a worker reports to what is kept of it.
func short(s string) string { return strings.ToValidUTF8(s[:min(len(s), 255)], "") }

// with calls f with a worker and mu held. An unknown one is made.
func (ws *workers) with(id string, now time.Time, f func(w *worker)) {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	w := ws.byID[id]
	if w == nil {
		if ws.byID == nil {
			ws.byID = make(map[string]*worker)
		}
		for old, w := range ws.byID {
			if now.Sub(w.seen) > forgetWorkers || len(ws.byID) >= manyWorkers {
				delete(ws.byID, old)
			}
		}
		w = &worker{id: id, startedAt: now}
		ws.byID[id] = w
	}
	w.seen = now
	f(w)
}

// forget removes a worker.
func (ws *workers) forget(id string, now time.Time) {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	delete(ws.byID, id)
	if ws.gone == nil {
		ws.gone = make(map[string]time.Time)
	}
	for old, at := range ws.gone {
		if now.Sub(at) > forgetWorkers || len(ws.gone) >= manyWorkers {
			delete(ws.gone, old)
		}
	}
	ws.gone[id] = now
}

// removed reports whether a worker was removed, and not seen since.
func (ws *workers) removed(id string, seen time.Time) bool {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	at, ok := ws.gone[id]
	return ok && !seen.After(at)
}

// list returns copies of the workers.
func (ws *workers) list() []worker {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	var list []worker
	for _, w := range ws.byID {
		list = append(list, *w)
	}
	return list
}

// declare keeps the handlers that a call names, and returns those that the worker has
// (V004).
func (ws *workers) declare(id string, in *input) (types []string, err error) {
	if given := in.list("handlers"); given != nil {
		if len(given) > manyHandlers {
			return nil, invalid("handlers", "has "+strconv.Itoa(len(given))+" elements").
				expected("at most " + strconv.Itoa(manyHandlers))
		}
		types = []string{}
		for _, v := range given {
			if v[0] != '{' {
				return nil, invalid("handlers",
					"has an element that is not an object").expected("array of objects")
			}
			members, err := split(v, "handlers.")
			if err != nil {
				return nil, err
			}
			h := input{object: members, path: "handlers."}
			name, wanted := h.name("type"), h.text("versions")
			if h.err != nil {
				return nil, h.err
			}
			if wanted != "" && wanted != "*" {
				if _, err := versions.ParseRange(wanted); err != nil {
					return nil, invalid("handlers.versions", "is no range of versions").
						expected("*, 2.0, or bounds such as >=2.0 <3.0").received(clip(wanted))
				}
				name += "@" + wanted
			}
			types = append(types, name)
		}
	}
	if in.err != nil {
		return nil, in.err
	}
	ws.mu.Lock()
	defer ws.mu.Unlock()
	if w := ws.byID[id]; w != nil && types == nil {
		return w.types, nil
	}
	return types, nil
}

// report keeps what a heartbeat or a registration says.
func (s *Server) report(c *call, id string, in *input) error {
	types, err := s.serving.declare(id, in)
	if err != nil {
		return err
	}
	host, version, state := short(in.text("hostname")), short(in.text("version")), short(in.text("state"))
	queues, concurrency, started := in.texts("queues"), in.integer("concurrency", 0, 0, 1<<31),
		in.time("started_at")
	if in.err != nil {
		return in.err
	}
	if err := s.mayBe(c, id); err != nil {
		return err
	}
	queues = queues[:min(len(queues), manyNames)]
	for i := range queues {
		queues[i] = short(queues[i])
	}
	s.serving.with(id, s.now(), func(w *worker) {
		w.beats = true
		if c.who != nil && w.owner == "" {
			w.owner = c.who.Name
		}
		w.types = types
		if state == "drain" {
			state = string(fetch.Quiet)
		}
		for _, f := range []struct {
			to   *string
			from string
		}{{&w.hostname, host}, {&w.version, version}, {(*string)(&w.state), state}} {
			if f.from != "" {
				*f.to = f.from
			}
		}
		if queues != nil {
			w.queues = queues
		}
		if concurrency > 0 {
			w.concurrency = concurrency
		}
		if !started.IsZero() {
			w.startedAt = started
		}
		for name, to := range map[string]*raw{"metadata": &w.metadata, "labels": &w.labels, "pid": &w.pid} {
			if v := in.get(name); v != nil && len(v) <= 4<<10 {
				*to = append(raw(nil), v...)
			}
		}
	})
	return nil
}

// mayBe refuses a caller who speaks for a worker that another principal has registered,
// unless the caller may work on every queue.
func (s *Server) mayBe(c *call, id string) error {
	owner := ""
	s.serving.mu.Lock()
	if w := s.serving.byID[id]; w != nil {
		owner = w.owner
	}
	s.serving.mu.Unlock()
	if owner == "" || c.who == nil || owner == c.who.Name {
		return nil
	}
	return c.mayAll()
}

// listed are the jobs that a heartbeat names (F168). Ids that are no UUID are no jobs.
func (in *input) listed() (ids []string) {
	v := in.get("active_jobs")
	switch {
	case v != nil && v[0] == '[':
		ids = in.texts("active_jobs")
	case v != nil && kindOf(v) != "number":
		in.fail("active_jobs", "is neither a list nor a number", "array of ids, or number")
	case in.get("active_job_ids") != nil:
		ids = in.texts("active_job_ids")
	case in.get("job_id") != nil:
		ids = []string{in.text("job_id")}
	}
	for i, id := range ids {
		if u, err := uuid.Parse(id); err == nil && len(id) == 36 {
			ids[i] = u.String()
		}
	}
	return ids
}

// heartbeat answers POST /workers/heartbeat (F068, F077).
func (s *Server) heartbeat(c *call) error { return s.beatWith(c, c.in(), nil) }

// beat answers POST /workers/beat (F181).
func (s *Server) beat(c *call) error { return s.beatWith(c, c.in(), obj{"acknowledged", true}) }

func (s *Server) beatWith(c *call, in *input, first obj) error {
	id := in.registered()
	ids := in.listed()
	if in.err != nil {
		return in.err
	}
	if err := s.report(c, id, in); err != nil {
		return err
	}
	if eng, err := c.engine(); err == nil {
		switch w := workerOf(eng, id, fetch.Config{}); fetch.State(in.text("state")) {
		case fetch.Quiet, "drain":
			w.Quiet()
		case fetch.Terminate:
			w.Close()
		}
	}
	return s.renew(c, in, id, ids, first)
}

// renew extends the reservations of jobs, and answers with what the worker should do.
func (s *Server) renew(c *call, in *input, id string, ids []string, first obj) error {
	eng, err := c.engine()
	if err != nil {
		return err
	}
	lease := in.duration("visibility_timeout_ms")
	if in.err != nil {
		return in.err
	}
	if len(ids) == 0 { // a storage that has gone is told here, too (F031)
		if _, _, err := s.documents().Value(c.ctx, s.now(), progressPrefix); err != nil {
			return err
		}
	}
	held := make(map[string]bool)
	some, all := c.who.queues(c.rt.need)
	byWorker := make(map[string][]storage.Record)
	for _, job := range ids {
		rec, err := s.record(c.ctx, job)
		switch {
		case missing(err):
		case err != nil:
			return err
		case rec.State == ojs.StateActive && (all || slices.Contains(some, rec.Queue)):
			byWorker[rec.Worker] = append(byWorker[rec.Worker], rec)
		}
	}
	var state fetch.State
	for i, who := range []string{id, anonymous} { // a worker may have fetched without its id
		if i > 0 && len(byWorker[who]) == 0 {
			continue
		}
		b, err := workerOf(eng, who, fetch.Config{Lease: lease}).Renew(c.ctx, byWorker[who]...)
		if err != nil {
			return err
		}
		delete(byWorker, who)
		if who == id {
			state = b.State
		}
		for _, job := range b.Held {
			held[job] = true
		}
	}
	extended, lost := []string{}, []string{}
	for _, job := range ids {
		if held[job] {
			extended = append(extended, job)
		} else {
			lost = append(lost, job)
		}
	}
	directive := string(state)
	if state == fetch.Running {
		directive = ""
	}
	return c.reply(http.StatusOK, append(first, "state", string(state), "directive", directive,
		"jobs_extended", extended, "jobs_lost", lost, "server_time", s.now()))
}

// missing reports whether a lookup has found no job.
func missing(err error) bool { return errors.Is(err, ojs.ErrNotFound) || errors.Is(err, ojs.ErrPruned) }

// registered reads the worker_id of a worker that names itself.
func (in *input) registered() string {
	in.name("worker_id")
	return in.workerID()
}

// register answers POST /workers/register (F078).
func (s *Server) register(c *call) error {
	in := c.in()
	id := in.registered()
	if in.err != nil {
		return in.err
	}
	if err := s.report(c, id, in); err != nil {
		return err
	}
	return c.reply(http.StatusOK, obj{"ok", true, "worker_id", id, "server_time", s.now(),
		"heartbeat_interval", 5,
		"heartbeat_timeout", 30, "visibility_timeout_default", 1800})
}

// deregister answers POST /workers/deregister (F078).
func (s *Server) deregister(c *call) error {
	in := c.in()
	id := in.registered()
	if in.err != nil {
		return in.err
	}
	if err := s.mayBe(c, id); err != nil {
		return err
	}
	eng, err := c.engine()
	if err != nil {
		return err
	}
	recs, err := s.jobsOf(c, id)
	if err != nil {
		return err
	}
	for i := range recs {
		d, err := workerOf(eng, id, fetch.Config{}).DeliveryOfRecord(recs[i])
		if err == nil {
			err = d.Release(c.ctx)
		}
		if err != nil && !errors.Is(err, ojs.ErrLeaseLost) {
			return err
		}
	}
	s.serving.forget(id, s.now())
	return c.reply(http.StatusOK, obj{"ok", true, "worker_id", id, "server_time", s.now()})
}

// workerProgress answers POST /workers/progress (F181).
func (s *Server) workerProgress(c *call) error {
	in := c.in()
	in.require("percentage")
	var percentage float64
	if v := in.get("percentage"); v != nil && json.Unmarshal(v, &percentage) != nil {
		in.fail("percentage", "is not a number", "a number from 0 to 100")
	}
	if in.err == nil && !(percentage >= 0 && percentage <= 100) {
		in.fail("percentage", "is out of range", "a number from 0 to 100")
	}
	d, rec, err := s.held(c, in)
	if err != nil {
		return err
	}
	if err := d.Progress(c.ctx, percentage/100); err != nil {
		return s.lost(c, rec.ID, err)
	}
	if err := s.tell(c, rec.ID, progressNote{At: s.now()}); err != nil {
		return err
	}
	return c.reply(http.StatusOK, obj{"job_id", rec.ID, "progress", percentage / 100})
}

// jobHeartbeat answers POST /jobs/{id}/heartbeat (F181).
func (s *Server) jobHeartbeat(c *call) error {
	in := c.in()
	rec, err := s.jobOf(c, "job", c.value("id"))
	if err != nil {
		return err
	}
	id := in.text("worker_id")
	if in.err != nil {
		return in.err
	}
	if id == "" {
		id = rec.Worker
	}
	return s.renew(c, in, id, []string{rec.ID}, nil)
}

// workerHealth answers GET /workers/{id}/health (F181).
func (s *Server) workerHealth(c *call) error {
	id := c.value("id")
	for _, w := range s.serving.list() {
		if w.id == id {
			return c.reply(http.StatusOK, obj{"worker_id", id, "status", healthWord(&w, s.now()),
				"last_heartbeat_at", w.seen, "server_time", s.now()})
		}
	}
	return notFound("worker", id)
}

func healthWord(w *worker, now time.Time) string {
	if w.stale(now) {
		return "stale"
	}
	return "ok"
}

// stale reports whether a worker has been silent for too long (F079).
func (w *worker) stale(now time.Time) bool { return now.Sub(w.seen) >= fetch.DefaultDeadAfter }

// jsonRaw is JSON that a worker has sent as its result. Its memory is the request's.
func jsonRaw(v []byte) json.RawMessage { return json.RawMessage(strings.Clone(string(v))) }
