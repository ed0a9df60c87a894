package server

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/google/uuid"

	"github.com/ojsengine/ojs"
	"github.com/ojsengine/ojs/engine/fetch"
	"github.com/ojsengine/ojs/internal/document"
	"github.com/ojsengine/ojs/internal/stored"
	"github.com/ojsengine/ojs/internal/versions"
	"github.com/ojsengine/ojs/storage"
)

// The storage keeps the reports of workers (F078, F147), a value for each worker, so that
// all servers know them.
//
//  1. A heartbeat and a registration read the value and replace it. Of two at the same
//     time one is repeated.
//  2. A fetch goes by what this server has read within maxAge. It changes the value if it
//     names other handlers or another reservation.
//  3. There are about manyWorkers at most: calls that would store another are refused.
//  4. A worker is forgotten an hour after its last call. The value of a removed worker
//     says when that was, since engines remember the worker longer.

// worker is what a worker has said.
type worker struct {
	ID          string        `json:"id"`
	Hostname    string        `json:"hostname,omitempty"`
	Version     string        `json:"version,omitempty"`
	Owner       string        `json:"owner,omitempty"`     // the principal that registered it
	State       fetch.State   `json:"state,omitempty"`     // that it reports; "": none
	Directive   fetch.State   `json:"directive,omitempty"` // quiet or terminate: it gets no more jobs
	Queues      []string      `json:"queues,omitempty"`
	Concurrency int           `json:"concurrency,omitempty"`
	StartedAt   time.Time     `json:"started_at"`
	Seen        time.Time     `json:"seen"`
	Metadata    raw           `json:"metadata,omitempty"`
	Labels      raw           `json:"labels,omitempty"`
	PID         raw           `json:"pid,omitempty"`
	Types       []string      `json:"types"`           // its handlers, as fetch.Config has them; null: all
	Lease       time.Duration `json:"lease,omitempty"` // the reservation that it has asked for last
	Gone        time.Time     `json:"gone,omitzero"`   // when it was removed
}

const (
	workerPrefix  = "server/worker/"
	forgetWorkers = time.Hour
	manyWorkers   = 10_000
	countAge      = 10 * time.Second // of a count of them
	mostOfWorker  = 64 << 10         // bytes of a value
	manyTries     = 10               // of a change, before others
	manyNames     = 100              // of the queues that a worker reports; more are left out
	manyHandlers  = 1000             // of a worker; more are refused
	seenEvery     = time.Second
)

// short cuts a text that a worker reports to what is kept of it.
func short(s string) string { return strings.ToValidUTF8(s[:min(len(s), 255)], "") }

// workers are those that this server has read lately.
type workers struct {
	mu   sync.Mutex // guards read
	read map[string]known[worker]
}

// get returns a worker that was read within maxAge.
func (ws *workers) get(id string, now time.Time) (w worker, ok bool) {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	k, ok := ws.read[id]
	return k.value, ok && now.Sub(k.at).Abs() < maxAge
}

func (ws *workers) put(w worker, now time.Time) {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	if ws.read == nil || len(ws.read) >= manyWorkers {
		ws.read = make(map[string]known[worker])
	}
	ws.read[w.ID] = known[worker]{w, now}
}

func workerKey(id string) string { return workerPrefix + digest(id) }

// worker reads what is kept of a worker. If there is nothing, it is new. The engine is
// told what another server has told the worker to do, and forgets a removed one.
func (s *Server) worker(ctx context.Context, id string) (w worker, version uint64, err error) {
	before, _ := s.serving.get(id, s.now()) // ahead of the document, which is then as new or newer
	list, err := s.values().Documents(ctx, storage.KindValue,
		storage.DocumentQuery{Names: []string{workerKey(id)}})
	if err != nil {
		return w, 0, err
	}
	now := s.now()
	if len(list) > 0 {
		version = list[0].Version
		if now.Before(list[0].Due) {
			_ = json.Unmarshal(list[0].Data, &w) // or another program has written it
		}
	}
	removed := !w.Gone.IsZero() || before.Directive != "" && w.Directive == ""
	if s.eng != nil && removed {
		workerOf(s.eng, id, fetch.Config{}).Forget()
	}
	if w.ID != id || !w.Gone.IsZero() {
		w = worker{ID: id, StartedAt: now}
	}
	if s.eng != nil {
		switch w.Directive {
		case fetch.Quiet:
			workerOf(s.eng, id, fetch.Config{}).Quiet()
		case fetch.Terminate:
			workerOf(s.eng, id, fetch.Config{}).Close()
		}
	}
	s.serving.put(w, now)
	return w, version, nil
}

// updateWorker changes what is kept of a worker. If f fails, nothing changes.
func (s *Server) updateWorker(ctx context.Context, id string, f func(w *worker) error) (worker, error) {
	for range manyTries {
		w, version, err := s.worker(ctx, id)
		if err != nil {
			return w, err
		}
		old := w
		if err := f(&w); err != nil {
			return w, err
		}
		if w.Seen.Sub(old.Seen) < seenEvery {
			after := w
			after.Seen = old.Seen
			if bytes.Equal(marshal(&old), marshal(&after)) {
				return w, nil
			}
		}
		stored, err := s.putWorker(ctx, &w, version)
		if err != nil || stored {
			return w, err
		}
	}
	return worker{}, unavailable(http.StatusServiceUnavailable, "other calls change the worker all the time",
		nil)
}

// workerCount is how many workers the storage has.
type workerCount struct {
	kept        atomic.Int64 // with removed ones, and with those that this server has stored since
	gone, stale int          // removed ones, and those that were silent
}

// countWorkers counts the workers at most once in countAge.
func (s *Server) countWorkers(ctx context.Context) (*workerCount, error) {
	now := s.now()
	return s.counted.get(now, false, func() (*workerCount, error) {
		n := new(workerCount)
		return n, s.eachWorker(ctx, func(w *worker) {
			n.kept.Add(1)
			switch {
			case !w.Gone.IsZero():
				n.gone++
			case w.stale(now):
				n.stale++
			}
		})
	})
}

// putWorker replaces a version of what is kept of a worker. It reports false if there is
// another. A new value takes the place of some that have expired.
func (s *Server) putWorker(ctx context.Context, w *worker, version uint64) (bool, error) {
	now, data := s.now(), marshal(w)
	if len(data) > mostOfWorker {
		return false, tooLarge(codeTooLarge, "worker", int64(len(data)), mostOfWorker)
	}
	var n *workerCount
	if version == 0 {
		var err error
		if n, err = s.countWorkers(ctx); err != nil {
			return false, err
		}
		if n.kept.Load() >= manyWorkers {
			r := refuse(http.StatusTooManyRequests, codeRateLimited,
				"there are %d workers: one is forgotten an hour after its last call", manyWorkers)
			r.retryable = true
			return false, r.with("limit", manyWorkers)
		}
	}
	stored, err := s.documents().Swap(ctx, now,
		document.Value{Key: workerKey(w.ID), Expires: now.Add(forgetWorkers), Data: data}, version)
	if err != nil || stored == 0 {
		return false, err
	}
	if n != nil {
		n.kept.Add(1)
	}
	s.serving.put(*w, now)
	return true, nil
}

// forget removes a worker.
func (s *Server) forget(ctx context.Context, id string) error {
	_, err := s.updateWorker(ctx, id, func(w *worker) error {
		now := s.now()
		*w = worker{ID: id, Seen: now, Gone: now}
		return nil
	})
	return err
}

// eachWorker calls f with the workers that the storage knows, removed ones too.
func (s *Server) eachWorker(ctx context.Context, f func(w *worker)) error {
	q := storage.DocumentQuery{Prefix: workerPrefix, Limit: 200}
	for v, err := range s.documents().EachValue(ctx, s.now(), q) {
		if err != nil {
			return err
		}
		var w worker
		if json.Unmarshal(v.Data, &w) == nil && w.ID != "" {
			f(&w)
		}
	}
	return nil
}

// handlersOf reads the handlers that a call names (V004); nil: it names none.
func handlersOf(in *input) (types []string, err error) {
	given := in.list("handlers")
	if given == nil {
		return nil, in.err
	}
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
	return types, in.err
}

// fetching is a worker that fetches, with the handlers and the reservation that the fetch
// names, if any.
func (s *Server) fetching(ctx context.Context, c *call, want *wanted) (w worker, err error) {
	id, types, lease := want.id, want.handlers, want.lease
	if id == anonymous {
		return worker{Types: types}, nil
	}
	w, ok := s.serving.get(id, s.now())
	if !ok {
		if w, _, err = s.worker(ctx, id); err != nil {
			return w, err
		}
	}
	if err := w.may(c); err != nil {
		return w, err
	}
	if (lease == 0 || lease == w.Lease) && (types == nil || slices.Equal(types, w.Types)) {
		return w, nil
	}
	return s.updateWorker(ctx, id, func(w *worker) error {
		if err := w.may(c); err != nil {
			return err
		}
		if types != nil {
			w.Types = types
		}
		w.Lease, w.Seen = cmp.Or(lease, w.Lease), s.now()
		return nil
	})
}

// report keeps what a heartbeat or a registration says.
func (s *Server) report(c *call, id string, in *input) (w worker, err error) {
	types, err := handlersOf(in)
	if err != nil {
		return w, err
	}
	host, version, state := short(in.text("hostname")), short(in.text("version")), short(in.text("state"))
	queues, concurrency, started := in.texts("queues"), in.integer("concurrency", 0, 0, 1<<31),
		in.time("started_at")
	lease := in.duration("visibility_timeout_ms")
	in.within("metadata")
	if in.err != nil {
		return w, in.err
	}
	queues = queues[:min(len(queues), manyNames)]
	for i := range queues {
		queues[i] = short(queues[i])
	}
	switch fetch.State(state) {
	case fetch.Running, fetch.Quiet, fetch.Terminate:
	case "drain":
		state = string(fetch.Quiet)
	default: // no word of the binding
		state = ""
	}
	return s.updateWorker(c.ctx, id, func(w *worker) error {
		if err := w.may(c); err != nil {
			return err
		}
		if c.who != nil && w.Owner == "" {
			w.Owner = c.who.Name
		}
		w.Seen = s.now()
		w.Hostname, w.Version = cmp.Or(host, w.Hostname), cmp.Or(version, w.Version)
		w.State, w.Lease = cmp.Or(fetch.State(state), w.State), cmp.Or(lease, w.Lease)
		if w.Directive != fetch.Terminate && (w.State == fetch.Quiet || w.State == fetch.Terminate) {
			w.Directive = w.State
		}
		if types != nil {
			w.Types = types
		}
		if queues != nil {
			w.Queues = queues
		}
		if concurrency > 0 {
			w.Concurrency = concurrency
		}
		if !started.IsZero() {
			w.StartedAt = started
		}
		for name, to := range map[string]*raw{"metadata": &w.Metadata, "labels": &w.Labels, "pid": &w.PID} {
			if v := in.get(name); v != nil && len(v) <= 4<<10 {
				*to = append(raw(nil), v...)
			}
		}
		return nil
	})
}

// may refuses a caller who speaks for a worker that another principal has registered,
// unless the caller may work on every queue.
func (w *worker) may(c *call) error {
	if w.Owner == "" || c.who == nil || w.Owner == c.who.Name {
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
	w, err := s.report(c, id, in)
	if err != nil {
		return err
	}
	if eng, err := c.engine(); err == nil {
		switch e := workerOf(eng, id, fetch.Config{}); w.Directive {
		case fetch.Quiet:
			e.Quiet()
		case fetch.Terminate:
			e.Close()
		}
	}
	return s.renew(c, in, id, w.Lease, ids, first)
}

// renew extends the reservations of jobs, and answers with what the worker should do.
// asked is the reservation that the worker has asked for, of any server.
func (s *Server) renew(c *call, in *input, id string, asked time.Duration, ids []string, first obj) error {
	eng, err := c.engine()
	if err != nil {
		return err
	}
	lease := in.duration("visibility_timeout_ms")
	if in.err != nil {
		return in.err
	}
	held := make(map[string]bool)
	some, all := c.who.queues(c.rt.need)
	byWorker := make(map[string][]storage.Record)
	for _, job := range ids {
		rec, err := s.record(c.ctx, job)
		switch {
		case stored.Missing(err):
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
		cfg := fetch.Config{Lease: lease, LeaseElsewhere: asked}
		b, err := workerOf(eng, who, cfg).Renew(c.ctx, byWorker[who]...)
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
	if _, err := s.report(c, id, in); err != nil {
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
	w, _, err := s.worker(c.ctx, id)
	if err != nil {
		return err
	}
	if err := w.may(c); err != nil {
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
	if err := s.forget(c.ctx, id); err != nil {
		return err
	}
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
	t := progressNote{Fraction: max(percentage/100, rec.Progress), At: s.now()}
	if err := s.progress(c, d, t); err != nil {
		return err
	}
	return c.reply(http.StatusOK, obj{"job_id", rec.ID, "progress", t.Fraction})
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
	id = cmp.Or(id, rec.Worker, anonymous)
	w, err := s.fetching(c.ctx, c, &wanted{id: id})
	if err != nil {
		return err
	}
	return s.renew(c, in, id, w.Lease, []string{rec.ID}, nil)
}

// workerHealth answers GET /workers/{id}/health (F181).
func (s *Server) workerHealth(c *call) error {
	id := c.value("id")
	w, _, err := s.worker(c.ctx, id)
	if err != nil {
		return err
	}
	if w.Seen.IsZero() {
		return notFound("worker", id)
	}
	return c.reply(http.StatusOK, obj{"worker_id", id, "status", healthWord(&w, s.now()),
		"last_heartbeat_at", w.Seen, "server_time", s.now()})
}

func healthWord(w *worker, now time.Time) string {
	if w.stale(now) {
		return "stale"
	}
	return "ok"
}

// stale reports whether a worker has been silent for too long (F079).
func (w *worker) stale(now time.Time) bool { return now.Sub(w.Seen) >= fetch.DefaultDeadAfter }

// jsonRaw is JSON that a worker has sent as its result. Its memory is the request's.
func jsonRaw(v []byte) json.RawMessage { return json.RawMessage(strings.Clone(string(v))) }
