package engine

import (
	"sync"
	"time"

	"github.com/ojsengine/ojs"
	"github.com/ojsengine/ojs/storage"
)

// Events of limits. A claim returns the keys that it has found closed
// (storage.Limited.Closed), for which the engine publishes ojs.EventLimitExceeded. The
// next job of such a key that a claim of this engine takes makes
// ojs.EventLimitReleased.

// exceeded are the keys that the engine has told as exceeded and has not started a job of
// since. If other engines start their jobs, keys stay: then some key makes room.
type exceeded struct {
	mu    sync.Mutex
	byKey map[string]exceededKey
}

type exceededKey struct {
	by    ojs.LimitStrategy
	since time.Time // since then the key has held back each job that has not started
}

const mostExceeded = 10_000

// limitsHeard reports whether a listener wants the events of exceeded or released keys.
func (c *core) limitsHeard() bool {
	return c.events.Wants(ojs.EventLimitExceeded, "", "") || c.events.Wants(ojs.EventLimitReleased, "", "")
}

// limitEvents publishes what a claim of n jobs has found of keys.
func (c *core) limitEvents(
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
	var events []ojs.Event
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
		ev := ojs.Event{Type: ojs.EventLimitReleased, Subject: key, Queue: r.Queue,
			Limit: &ojs.LimitEvent{Key: key, Strategy: was.by, JobID: r.ID, JobType: r.Type}}
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
		limit := &ojs.LimitEvent{Key: k.Key, Strategy: k.Strategy, Bound: k.Bound, Current: k.Current}
		events = append(events, ojs.Event{Type: ojs.EventLimitExceeded, Subject: k.Key, Limit: limit})
	}
	x.mu.Unlock()
	for _, ev := range events {
		c.emit(ev)
	}
}

// add: mu is held.
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
