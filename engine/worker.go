package engine

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/ojsengine/ojs"
	"github.com/ojsengine/ojs/storage"
)

// WorkerState is what a worker may do (OJS worker protocol). It goes one way only.
type WorkerState string

// The states of a worker.
const (
	WorkerRunning   WorkerState = "running"
	WorkerQuiet     WorkerState = "quiet"     // it gets no more jobs and finishes those it has
	WorkerTerminate WorkerState = "terminate" // it gets no more jobs and should give back those it has
)

// Errors of Worker.Fetch.
var (
	ErrWorkerQuiet      = errors.New("ojs: worker is quiet")
	ErrWorkerTerminated = errors.New("ojs: worker is terminated")
)

// WorkerConfig says which jobs a worker takes.
type WorkerConfig struct {
	Queues []string // in order of preference; empty: those of the engine, in its order
	Types  []string // empty: all
}

// Worker takes jobs for somebody else to run: a goroutine of yours, a process behind HTTP. It holds each by the job's lease
// (ojs.WithLease), which its own calls have to renew (Heartbeat, say); one that lets it run out has lost the job, and the
// attempt counts as failed. Pauses and limits of queues and keys hold for workers too; those of handlers do not.
//
// Jobs become available to workers as to the engine. But only a Run, of any engine on the storage, promotes scheduled jobs and
// notices lost leases: an engine without handlers can run for that.
type Worker struct {
	core *core
	id   string
	cfg  WorkerConfig
}

// Worker returns the worker with the id, which is any name of 1 to 255 bytes. It may be asked for again and again, by each
// request to a bridge, say: it is the same. One that is unused for an hour and holds nothing may be forgotten.
func (e *Engine[T]) Worker(id string, cfg WorkerConfig) *Worker {
	cfg.Queues, cfg.Types = slices.Clone(cfg.Queues), slices.Clone(cfg.Types)
	return &Worker{e.core, id, cfg}
}

// ID returns the worker's id.
func (w *Worker) ID() string { return w.id }

// Fetch waits for a job and takes it. It returns ctx's error if that ends first, ErrWorkerQuiet or ErrWorkerTerminated if
// the worker gets no more, or the error of the storage.
func (w *Worker) Fetch(ctx context.Context) (*Delivery, error) {
	ds, err := w.FetchMany(ctx, 1)
	if err != nil {
		return nil, err
	}
	return ds[0], nil
}

// FetchMany waits for a job and takes up to n of those that are available then, at least one. Its errors are Fetch's.
func (w *Worker) FetchMany(ctx context.Context, n int) ([]*Delivery, error) {
	if n < 1 {
		return nil, invalid("max", fmt.Sprintf("%d is less than 1", n))
	}
	if !w.valid() {
		return nil, invalid("worker", "its id does not have 1 to 255 bytes")
	}
	c := w.core
	defer c.listen()()
	ask := wanted{queues: w.cfg.Queues, types: w.cfg.Types, all: len(w.cfg.Types) == 0, worker: w.id, lapses: true}
	for {
		state, changed := w.touch()
		switch state {
		case WorkerQuiet:
			return nil, ErrWorkerQuiet
		case WorkerTerminate:
			return nil, ErrWorkerTerminated
		}
		news := c.fetcher() // before the look, or what comes in between would go unnoticed
		ds, reopens, err := w.claim(ctx, ask, n)
		if len(ds) > 0 || err != nil {
			c.noFetcher(news)
			return ds, err
		}
		waits := c.workers.waits(w.id)
		err = w.wait(ctx, news, changed, reopens)
		c.workers.waited(waits, c.now())
		c.noFetcher(news)
		if err != nil {
			return nil, err
		}
	}
}

// wait waits until another look may find a job.
func (w *Worker) wait(ctx context.Context, news, changed <-chan struct{}, reopens time.Time) error {
	var reopened <-chan time.Time
	if !reopens.IsZero() {
		t := w.core.clock.Timer(max(reopens.Sub(w.core.now()), 1))
		defer t.Stop()
		reopened = t.C
	}
	select {
	case <-news:
	case <-changed:
	case <-reopened:
	case <-ctx.Done():
		return ctx.Err()
	}
	return nil
}

// claim takes up to n jobs that are available now. An error after the first of them is for the next call to find.
func (w *Worker) claim(ctx context.Context, ask wanted, n int) (ds []*Delivery, reopens time.Time, err error) {
	c := w.core
	for len(ds) < n {
		recs, at, err := c.claim(ctx, ask, nil)
		switch {
		case err != nil:
			c.uncertain(err) // also if ctx has ended: it may have ended after the storage took a job
			if len(ds) > 0 {
				return ds, at, nil
			}
			return nil, at, err
		case len(recs) == 0:
			return ds, at, nil
		}
		rec := &recs[0]
		c.logStarted(rec, w.id, rec.StartedAt)
		c.workers.hold(w.id, storage.Held{ID: rec.ID, Version: rec.Version}, rec.LeaseUntil)
		c.mu.Lock()
		c.wakeAt(rec.WakeAt())
		c.mu.Unlock()
		ds = append(ds, c.delivery(rec))
	}
	return ds, reopens, nil
}

// touch notes that the worker is there. It returns its state, and a channel that is closed when that changes.
func (w *Worker) touch() (WorkerState, <-chan struct{}) {
	c := w.core
	state, changed, isNew := c.workers.touch(w.id, c.now())
	if isNew {
		c.emit(ojs.Event{Type: ojs.EventWorkerStarted, Subject: w.id, WorkerID: w.id})
	}
	return state, changed
}

// Delivery finds a job that this worker holds, by the token of its Delivery. It returns ojs.ErrLeaseLost if the worker no
// longer holds it.
func (w *Worker) Delivery(ctx context.Context, token string) (*Delivery, error) {
	held, err := parseToken(token)
	if err != nil {
		return nil, err
	}
	rec, err := w.core.store.Get(ctx, held.ID)
	switch {
	case errors.Is(err, ojs.ErrNotFound):
		return nil, fmt.Errorf("%w: job %s is gone", ojs.ErrLeaseLost, held.ID)
	case err != nil:
		return nil, err
	case rec.State != ojs.StateActive || rec.Version != held.Version || rec.Worker != w.id:
		return nil, fmt.Errorf("%w: job %s is not worker %s's", ojs.ErrLeaseLost, held.ID, w.id)
	}
	return w.core.delivery(&rec), nil
}

// Heartbeat renews the lease of every job that the worker holds, as Delivery.Heartbeat does for one, and returns the state that
// the worker should be in, which Workers may have changed. Jobs that it has lost are left out; the error is the storage's.
func (w *Worker) Heartbeat(ctx context.Context) (WorkerState, error) {
	state, _ := w.touch()
	for _, held := range w.core.workers.heldBy(w.id) {
		d, err := w.Delivery(ctx, token(held))
		if err == nil {
			err = d.Heartbeat(ctx)
		}
		switch {
		case errors.Is(err, ojs.ErrLeaseLost), errors.Is(err, ojs.ErrTimeout):
			w.core.workers.drop(held)
		case err != nil:
			return state, err
		}
	}
	return state, nil
}

// Quiet makes the worker get no more jobs. A Fetch that waits returns ErrWorkerQuiet.
func (w *Worker) Quiet() { w.become(WorkerQuiet) }

// Close ends the worker: it gets no more jobs. It keeps those it holds until it settles them or their leases run out.
func (w *Worker) Close() { w.become(WorkerTerminate) }

// become moves the worker on to a state, which its first Fetch will find if there has been none.
func (w *Worker) become(to WorkerState) {
	if !w.core.workers.set(w.core, w.id, to) && w.valid() {
		w.touch()
		w.core.workers.set(w.core, w.id, to)
	}
}

func (w *Worker) valid() bool { return w.id != "" && len(w.id) <= 255 }

// Workers are those that fetch jobs from an engine.
type Workers struct{ core *core }

// Workers gives access to the workers that fetch jobs from this engine.
func (e *Engine[T]) Workers() *Workers { return &Workers{e.core} }

// WorkerStats is what is known of a worker.
type WorkerStats struct {
	ID    string
	State WorkerState
	Held  int       // jobs
	Seen  time.Time // when it last fetched or called Heartbeat
}

// List returns the workers, sorted by id.
func (w *Workers) List() []WorkerStats { return w.core.workers.list(w.core.now()) }

// Quiet tells a worker to take no more jobs: its Fetch returns ErrWorkerQuiet, its Heartbeat WorkerQuiet. It reports whether
// there is such a worker.
func (w *Workers) Quiet(id string) bool { return w.core.workers.set(w.core, id, WorkerQuiet) }

// Terminate tells a worker to end: its Fetch returns ErrWorkerTerminated, its Heartbeat WorkerTerminate.
func (w *Workers) Terminate(id string) bool { return w.core.workers.set(w.core, id, WorkerTerminate) }

// fetcher returns a channel that is closed when jobs may be available.
func (c *core) fetcher() chan struct{} {
	ch := make(chan struct{})
	c.mu.Lock()
	defer c.mu.Unlock()
	c.fetchers = append(c.fetchers, ch)
	return ch
}

func (c *core) noFetcher(ch chan struct{}) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.fetchers = slices.DeleteFunc(c.fetchers, func(other chan struct{}) bool { return other == ch })
}

// workerLost says that a job is no longer a worker's, if it was one's. mu is held.
func (c *core) workerLost(held storage.Held) {
	c.workers.drop(held)
	c.letIn(held)
}

// workers is who fetches jobs and what they hold.
type workers struct {
	mu    sync.Mutex // guards the fields below
	byID  map[string]*worker
	held  map[storage.Held]*worker
	sweep int // the number of workers at which to forget old ones
}

type worker struct {
	id      string
	state   WorkerState
	changed chan struct{} // closed and replaced when state changes
	seen    time.Time
	waiting int                        // fetches
	held    map[storage.Held]time.Time // and until when
}

// forgetAfter is how long a worker that holds nothing is remembered.
const forgetAfter = time.Hour

func (ws *workers) touch(id string, now time.Time) (state WorkerState, changed <-chan struct{}, isNew bool) {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	w := ws.find(id, now)
	if w == nil {
		if ws.byID == nil {
			ws.byID, ws.held = make(map[string]*worker), make(map[storage.Held]*worker)
		}
		if len(ws.byID) >= max(ws.sweep, firstSweep) {
			ws.forget(now)
			ws.sweep = 2 * len(ws.byID)
		}
		isNew = true
		w = &worker{id: id, state: WorkerRunning, changed: make(chan struct{}), held: make(map[storage.Held]time.Time)}
		ws.byID[id] = w
	}
	w.seen = now
	return w.state, w.changed, isNew
}

// find returns the worker with the id, nil if there is none any more. mu is held.
func (ws *workers) find(id string, now time.Time) *worker {
	if w := ws.byID[id]; w == nil || now.Sub(w.seen) <= forgetAfter {
		return w
	}
	ws.forget(now)
	return ws.byID[id]
}

// waits says that a fetch of a worker begins to wait. What it returns is for waited, when that is over.
func (ws *workers) waits(id string) *worker {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	w := ws.byID[id]
	if w != nil {
		w.waiting++
	}
	return w
}

func (ws *workers) waited(w *worker, now time.Time) {
	if w == nil {
		return
	}
	ws.mu.Lock()
	defer ws.mu.Unlock()
	w.waiting--
	w.seen = now
}

// forget: mu is held.
func (ws *workers) forget(now time.Time) {
	for id, w := range ws.byID {
		for held, until := range w.held {
			if now.After(until) {
				delete(w.held, held)
				delete(ws.held, held)
			}
		}
		if len(w.held) == 0 && w.waiting == 0 && now.Sub(w.seen) > forgetAfter {
			delete(ws.byID, id)
		}
	}
}

func (ws *workers) hold(id string, held storage.Held, until time.Time) {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	if w := ws.byID[id]; w != nil {
		w.held[held] = until
		ws.held[held] = w
	}
}

// drop says that a worker no longer holds a job.
func (ws *workers) drop(held storage.Held) {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	if w := ws.held[held]; w != nil {
		delete(w.held, held)
		delete(ws.held, held)
	}
}

func (ws *workers) heldBy(id string) []storage.Held {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	w := ws.byID[id]
	if w == nil {
		return nil
	}
	list := make([]storage.Held, 0, len(w.held))
	for held := range w.held {
		list = append(list, held)
	}
	slices.SortFunc(list, func(a, b storage.Held) int {
		if a.ID < b.ID {
			return -1
		}
		return 1
	})
	return list
}

var workerEvents = map[WorkerState]ojs.EventType{WorkerQuiet: ojs.EventWorkerQuiet, WorkerTerminate: ojs.EventWorkerStopped}

// set moves a worker on to a state, not back to one.
func (ws *workers) set(c *core, id string, to WorkerState) bool {
	ws.mu.Lock()
	w := ws.find(id, c.now())
	if w == nil || w.state == to || w.state == WorkerTerminate {
		ws.mu.Unlock()
		return w != nil
	}
	w.state = to
	close(w.changed)
	w.changed = make(chan struct{})
	ws.mu.Unlock()
	c.emit(ojs.Event{Type: workerEvents[to], Subject: id, WorkerID: id})
	return true
}

func (ws *workers) list(now time.Time) []WorkerStats {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	ws.forget(now)
	list := make([]WorkerStats, 0, len(ws.byID))
	for _, w := range ws.byID {
		list = append(list, WorkerStats{w.id, w.state, len(w.held), w.seen})
	}
	slices.SortFunc(list, func(a, b WorkerStats) int {
		if a.ID < b.ID {
			return -1
		}
		return 1
	})
	return list
}
