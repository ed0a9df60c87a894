package fetch

import (
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/ojsengine/ojs/engine/internal/claims"
	"github.com/ojsengine/ojs/engine/internal/env"
	"github.com/ojsengine/ojs/engine/internal/publish"
	"github.com/ojsengine/ojs/event"
	"github.com/ojsengine/ojs/internal/locks"
	"github.com/ojsengine/ojs/internal/times"
	"github.com/ojsengine/ojs/storage"
)

// firstSweep is the number of workers at which to forget old ones for the first time.
const firstSweep = 64

// book maps each remote worker to the jobs that it has claimed.
type book struct {
	mu    locks.Mutex // guards the fields below
	byID  map[string]*worker
	held  map[storage.Held]*worker
	sweep int // the number of workers at which to forget old ones
}

type worker struct {
	id      string
	state   State
	changed chan struct{} // closed and replaced when state changes
	seen    time.Time
	waiting int // fetches
	held    map[storage.Held]holding
	lost    []LostJob // to be named by the next heartbeat

	claims    claims.Book   // of its fetches
	deadAfter time.Duration // of silence; 0: never
	beats     bool          // it has renewed a lease: from then on its silence counts
	dead      bool
}

// holding is until when a worker may work on a job.
type holding struct {
	began   time.Time // when the claim had returned, or as stored if another engine claimed
	until   time.Time // its lease, as far as this engine knows
	timeout time.Time // the earlier one of its two timeouts

	lease time.Duration // as storage.Extension.Lease, of each renewal
}

// maxLost bounds how many jobs one heartbeat names; the latest count.
const maxLost = 1000

// forgetAfter is how long a worker that holds nothing is remembered.
const forgetAfter = time.Hour

// touch says that a worker is there. isNew: it was not known, or counted as dead.
func (ws *book) touch(
	id string, now time.Time, deadAfter time.Duration,
) (state State, changed <-chan struct{}, isNew bool) {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	w := ws.find(id, now)
	if w == nil {
		if len(ws.byID) >= max(ws.sweep, firstSweep) {
			ws.forget(now)
			ws.sweep = 2 * len(ws.byID)
		}
		isNew = true
		w = &worker{id: id, state: Running, changed: make(chan struct{}),
			held: make(map[storage.Held]holding)}
		ws.byID[id] = w
	}
	isNew = isNew || w.dead
	w.seen, w.deadAfter, w.dead = now, deadAfter, false
	return w.state, w.changed, isNew
}

// with calls f with the worker of an id, if it is known, and mu held.
func (ws *book) with(id string, f func(w *worker)) {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	if w := ws.byID[id]; w != nil {
		f(w)
	}
}

// waits says that a fetch of a worker begins to wait. Its result is for waited, when the
// wait is over.
func (ws *book) waits(id string) (waiting *worker) {
	ws.with(id, func(w *worker) {
		w.waiting++
		waiting = w
	})
	return waiting
}

// waited returns when to look at the worker next.
func (ws *book) waited(w *worker, now time.Time) time.Time {
	if w == nil {
		return time.Time{}
	}
	ws.mu.Lock()
	defer ws.mu.Unlock()
	w.waiting--
	w.seen = now
	return w.silence()
}

// beat says that the worker renews leases. It returns when to look at it next.
func (ws *book) beat(id string) (look time.Time) {
	ws.with(id, func(w *worker) {
		w.beats = true
		look = w.silence()
	})
	return look
}

// hold says that a worker holds a job under the lease that ends then, and for how long it
// is renewed. Unless that is known already, the worker could begin it at began. It
// returns when to look at the worker next.
func (ws *book) hold(
	id string, rec *storage.Record, began, until time.Time, lease time.Duration,
) (look time.Time) {
	ws.with(id, func(w *worker) {
		held := storage.Held{ID: rec.ID, Version: rec.Version}
		if h, known := w.held[held]; known {
			began = h.began
		}
		h := holding{began: began, until: until, timeout: env.TimesOut(rec, began), lease: lease}
		w.held[held] = h
		ws.held[held] = w
		look = times.Earliest(h.timeout, w.silence())
	})
	return look
}

// holding returns what this engine knows of a job that a worker holds. here is false if
// neither its claim nor a renewal was by this engine.
func (ws *book) holding(held storage.Held) (h holding, here bool) {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	w := ws.held[held]
	if w == nil {
		return h, false
	}
	return w.held[held], true
}

// renewedElsewhere notes when the lease of a job ends. It reports whether that is news:
// another engine has renewed the lease.
func (ws *book) renewedElsewhere(held storage.Held, until time.Time) bool {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	w := ws.held[held]
	if w == nil || w.held[held].until.Equal(until) {
		return false
	}
	h := w.held[held]
	h.until = until
	w.held[held] = h
	return true
}

// drop takes a job from the worker that holds it, if any. With a cause, the worker's next
// heartbeat names the job.
func (ws *book) drop(held storage.Held, cause error) {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	w := ws.held[held]
	if w == nil {
		return
	}
	delete(w.held, held)
	delete(ws.held, held)
	if cause != nil {
		w.tell(held, cause)
	}
}

// tell has the next heartbeat of a worker name a job.
func (ws *book) tell(id string, held storage.Held, cause error) {
	ws.with(id, func(w *worker) { w.tell(held, cause) })
}

// takeLost returns the jobs that a worker has lost, once.
func (ws *book) takeLost(id string) (lost []LostJob) {
	ws.with(id, func(w *worker) { lost, w.lost = w.lost, nil })
	return lost
}

// claimOf is a job that a worker holds.
type claimOf struct {
	worker string
	held   storage.Held
}

// silent is a worker that has said nothing since a time.
type silent struct {
	worker string
	since  time.Time
	limit  time.Duration
}

// due returns the held jobs whose timeouts have passed, the workers that are silent for
// too long, and when there will be more. A job whose lease ends no later than its timeout
// is the storage's to hand over.
func (ws *book) due(now time.Time) (late []claimOf, dead []silent, next time.Time) {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	for id, w := range ws.byID {
		for held, h := range w.held {
			switch {
			case !h.timeout.Before(h.until):
			case now.Before(h.timeout):
				next = times.Earliest(next, h.timeout)
			default:
				late = append(late, claimOf{id, held})
			}
		}
		switch at := w.silence(); {
		case at.IsZero():
		case now.Before(at):
			next = times.Earliest(next, at)
		default:
			dead = append(dead, silent{id, w.seen, w.deadAfter})
		}
	}
	slices.SortFunc(late, func(a, b claimOf) int { return strings.Compare(a.held.ID, b.held.ID) })
	slices.SortFunc(dead, func(a, b silent) int { return strings.Compare(a.worker, b.worker) })
	return late, dead, next
}

// heard says that a worker was heard of elsewhere. It returns when to look at it next.
func (ws *book) heard(id string, at time.Time) (look time.Time) {
	ws.with(id, func(w *worker) {
		if at.After(w.seen) {
			w.seen = at
		}
		look = w.silence()
	})
	return look
}

// bury counts a worker as dead, unless it has been heard of since it was found silent.
// running: it had not been told to end.
func (ws *book) bury(s silent) (buried, running bool) {
	ws.with(s.worker, func(w *worker) {
		if buried = w.seen == s.since && !w.silence().IsZero(); buried {
			w.dead, running = true, w.state != Terminate
		}
	})
	return buried, running
}

func (ws *book) heldBy(id string) (list []storage.Held) {
	ws.with(id, func(w *worker) { list = slices.Collect(maps.Keys(w.held)) })
	slices.SortFunc(list, func(a, b storage.Held) int { return strings.Compare(a.ID, b.ID) })
	return list
}

var workerEvents = map[State]event.Type{Quiet: event.WorkerQuiet,
	Terminate: event.WorkerStopped}

// Set moves a worker on to a state, not back to one.
func (c *Workers) Set(id string, to State) bool {
	ws := &c.workers
	ws.mu.Lock()
	w := ws.find(id, c.Now())
	if w == nil || w.state == to || w.state == Terminate {
		ws.mu.Unlock()
		return w != nil
	}
	w.state = to
	close(w.changed)
	w.changed = make(chan struct{})
	ev := event.Event{Type: workerEvents[to], Subject: id, WorkerID: id, Held: len(w.held)}
	ws.mu.Unlock()
	if to == Terminate {
		ev.Reason = publish.StoppedShutdown
	}
	c.Emit(ev)
	return true
}

// remove forgets a worker that gets no more jobs and is idle.
func (ws *book) remove(id string) {
	ws.with(id, func(w *worker) {
		if w.state != Running && len(w.held) == 0 && w.waiting == 0 && !w.claims.Failed() {
			delete(ws.byID, id)
		}
	})
}

// List returns what is known of the workers, by their ids.
func (c *Workers) List() []Stats {
	ws, now := &c.workers, c.Now()
	ws.mu.Lock()
	defer ws.mu.Unlock()
	ws.forget(now)
	list := make([]Stats, 0, len(ws.byID))
	for _, w := range ws.byID {
		list = append(list, Stats{w.id, w.state, len(w.held), w.seen, w.dead})
	}
	slices.SortFunc(list, func(a, b Stats) int { return strings.Compare(a.ID, b.ID) })
	return list
}

// mu is held in the rest.

// silence is when the worker counts as dead unless it is heard of, zero if never.
func (w *worker) silence() time.Time {
	if !w.beats || w.dead || w.deadAfter == 0 || w.waiting > 0 || len(w.held) == 0 {
		return time.Time{}
	}
	return w.seen.Add(w.deadAfter)
}

// tell has the next heartbeat of the worker name a job that it has lost, once.
func (w *worker) tell(held storage.Held, cause error) {
	lost := LostJob{ID: held.ID, Token: token(held), Cause: cause}
	if slices.ContainsFunc(w.lost, func(l LostJob) bool { return l.Token == lost.Token }) {
		return
	}
	if len(w.lost) == maxLost {
		w.lost = slices.Delete(w.lost, 0, 1)
	}
	w.lost = append(w.lost, lost)
}

// find returns the worker with the id, nil if it is unknown or forgotten.
func (ws *book) find(id string, now time.Time) *worker {
	if w := ws.byID[id]; w == nil || now.Sub(w.seen) <= forgetAfter {
		return w
	}
	ws.forget(now)
	return ws.byID[id]
}

func (ws *book) forget(now time.Time) {
	for id, w := range ws.byID {
		for held, h := range w.held {
			if now.After(h.until) {
				delete(w.held, held)
				delete(ws.held, held)
			}
		}
		if len(w.held) == 0 && w.waiting == 0 && now.Sub(w.seen) > forgetAfter {
			delete(ws.byID, id)
		}
	}
}
