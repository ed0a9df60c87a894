package admission

import (
	"sync/atomic"
	"time"

	"github.com/ojsengine/ojs"
	"github.com/ojsengine/ojs/engine/internal/env"
	"github.com/ojsengine/ojs/engine/internal/eventlog"
	"github.com/ojsengine/ojs/event"
	"github.com/ojsengine/ojs/internal/locks"
	"github.com/ojsengine/ojs/storage"
)

// HeldBack is whether claims have found jobs that limits hold back. Its lowest bit is
// set if they have; the others count the claims that did. Claims overlap: one that has
// found no such job counts only if none has found any since it began.
type HeldBack struct{ state atomic.Uint64 }

func (h *HeldBack) Load() uint64 { return h.state.Load() }

func (h *HeldBack) now() bool { return h.state.Load()&1 == 1 }

// claimed takes in what a claim has found that began at a state. It reports whether the
// run has to claim again. If jobs are held back that were not before, an attempt may have
// ended since that has woken no claim. If none is held back now, a claim that was empty
// before may still say that nothing is available.
func (h *HeldBack) claimed(began uint64, held bool) (news bool) {
	if !held {
		return began&1 == 1 && h.state.CompareAndSwap(began, began&^1)
	}
	for {
		was := h.state.Load()
		if h.state.CompareAndSwap(was, (was|1)+2) {
			return was&1 == 0
		}
	}
}

// Limited follows what limits have done in a claim, which began at a state of Held.
// It returns when time next opens a limit.
func (c *Admission) Limited(l *storage.Limited, held uint64, now time.Time) (opens time.Time) {
	if c.Held.claimed(held, l.Held) {
		c.Available(env.Unknown)
	}
	if len(l.Dropped)+len(l.Postponed) == 0 {
		return l.Opens
	}
	var op *eventlog.Op
	if c.Events.Listening() {
		op = c.Events.Begin(eventlog.Ends)
	}
	// The call that has done it has succeeded, so that this one does, too.
	_ = c.Journal.Do(op, func() ([]storage.Record, error) { return l.Moved, nil }, func(op *eventlog.Op) {
		for i := range l.Dropped {
			r := &l.Dropped[i]
			c.Transition(op, r, r.Version, eventlog.None, now,
				event.Event{Type: event.LimitDropped, Failure: r.Error, Limit: &event.Limit{
					Key: r.RateLimit.Key, JobID: r.ID, JobType: r.Type,
				}},
				event.Event{Type: event.Discarded, Failure: r.Error, Reason: "rate_limited"})
		}
		for i := range l.Postponed {
			r := &l.Postponed[i]
			c.Transition(op, r, r.Version, eventlog.None, now, event.Event{Type: event.Scheduled})
		}
	}, func() {
		c.EndedOtherwise(l.Dropped)
		for i := range l.Postponed {
			c.WakeAt(l.Postponed[i].WakeAt())
		}
	})
	return l.Opens
}

// Events of limits. A claim returns the keys that it has found closed
// (storage.Limited.Closed), for which the engine publishes event.LimitExceeded. The
// next job of such a key that a claim of this engine takes makes
// event.LimitReleased.

// Exceeded are the keys that the engine has told as exceeded and has not started a job of
// since. If other engines start their jobs, keys stay: then some key makes room.
type exceeded struct {
	mu    locks.Mutex
	byKey map[string]exceededKey
}

type exceededKey struct {
	by    storage.LimitStrategy
	since time.Time // since then the key has held back each job that has not started
}

const mostExceeded = 10_000

// limitsHeard reports whether a listener wants the events of exceeded or released keys.
func (c *Admission) limitsHeard() bool {
	return c.Events.Wants(event.LimitExceeded, "", "") || c.Events.Wants(event.LimitReleased, "", "")
}

// LimitEvents publishes what a claim of n jobs has found of keys.
func (c *Admission) LimitEvents(
	closed []storage.ClosedKey, n int, rec func(i int) *storage.Record, now time.Time,
) {
	if !c.limitsHeard() {
		return
	}
	x := &c.exceeded
	x.mu.Lock()
	if len(closed)+len(x.byKey) == 0 {
		x.mu.Unlock()
		return
	}
	var events []event.Event
	since := make(map[string]time.Time) // of the keys that are released
	for i := range n {
		r := rec(i)
		if r.RateLimit == nil {
			continue
		}
		key := r.RateLimit.Key
		was, ok := x.byKey[key]
		if !ok {
			continue
		}
		ev := event.Event{Type: event.LimitReleased, Subject: key, Queue: r.Queue,
			Limit: &event.Limit{Key: key, Strategy: was.by, JobID: r.ID, JobType: r.Type}}
		if r.Attempt == 1 {
			from := was.since
			if r.EnqueuedAt.After(from) {
				from = r.EnqueuedAt
			}
			ev.Wait = max(now.Sub(from), 0)
		}
		events, since[key] = append(events, ev), was.since
	}
	for key := range since {
		delete(x.byKey, key)
	}
	for _, k := range closed {
		if _, ok := x.byKey[k.Key]; ok { // with other bounds, or others have started its jobs
			continue
		}
		from, ok := since[k.Key]
		if !ok {
			from = now
		}
		x.add(k.Key, exceededKey{k.Strategy, from})
		limit := &event.Limit{Key: k.Key, Strategy: k.Strategy, Bound: k.Bound, Current: k.Current}
		events = append(events, event.Event{Type: event.LimitExceeded, Subject: k.Key, Limit: limit})
	}
	x.mu.Unlock()
	for _, ev := range events {
		c.Emit(ev)
	}
}

func (x *exceeded) add(key string, k exceededKey) {
	if x.byKey == nil {
		x.byKey = make(map[string]exceededKey)
	}
	if len(x.byKey) >= mostExceeded {
		for some := range x.byKey {
			delete(x.byKey, some)
			break
		}
	}
	x.byKey[key] = k
}

// limiter counts starts and running attempts against the bounds of one queue or job type,
// by the rules of storages (storage.Opens). A token bucket would let twice the rate
// through where two periods meet; this remembers the starts themselves, so that no
// period, wherever it begins, has more of them than the rate allows.
type limiter struct {
	bounds  ojs.RateLimit
	running int
	starts  []int64 // ns since 1970 of as many as the rate counts, and of one at least; oldest first
}

// counted is how many starts the limiter remembers at most.
func (l *limiter) counted() int { return max(l.bounds.Rate.Limit, 1) }

// rebound gives the limiter other bounds. Earlier starts count against them.
func (l *limiter) rebound(to ojs.RateLimit) {
	l.bounds = to
	l.starts = l.starts[max(0, len(l.starts)-l.counted()):]
}

// open reports whether another one may start now. If not, at is when one may as far as
// time alone decides; zero if a running one has to end first.
func (l *limiter) open(now time.Time) (at time.Time, open bool) {
	ns := now.UnixNano()
	switch next, never := storage.Opens(&l.bounds, l.running, l.starts, ns); {
	case never:
		return time.Time{}, false
	case next <= ns:
		return time.Time{}, true
	default:
		return time.Unix(0, next).UTC(), false
	}
}

func (l *limiter) start(now time.Time) {
	l.running++
	at := now.UnixNano()
	if n := len(l.starts); n > 0 {
		at = max(at, l.starts[n-1])
	}
	switch n := l.counted(); {
	case n == 1:
		l.starts = l.starts[:0]
	case len(l.starts) >= n:
		l.starts = l.starts[len(l.starts)-n+1:]
	}
	l.starts = append(l.starts, at)
}

func (l *limiter) end() { l.running-- }
