package engine

import (
	"context"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/ojsengine/ojs"
	"github.com/ojsengine/ojs/codec"
	"github.com/ojsengine/ojs/engine/internal/eventlog"
	"github.com/ojsengine/ojs/event"
	"github.com/ojsengine/ojs/internal/iso8601"
	"github.com/ojsengine/ojs/operate"
	"github.com/ojsengine/ojs/policy"
	"github.com/ojsengine/ojs/storage"
)

// Limits that hold over all engines. The storage counts keys, queues and types in the
// step of the claim:
//
//  1. Each claim returns what limits did: jobs that were dropped or rescheduled, when
//     time next opens one, whether they hold jobs back.
//  2. The run claims again at that time (run.reopening).
//  3. While limits hold jobs back, each end of an attempt is followed by a claim, in the
//     same step if the storage has one.
//  4. Other engines hear of freed slots and of opening times by storage.Notice.
//
// The gate counts the limits of one engine: those of QueueConfig and
// handler.WithSlots.

// blocksUntil returns until when the error of a failed attempt blocks the key of its job
// (ojs.RateLimitedUntil, RateLimitedFor): zero if it does
// not.
func (c *core) blocksUntil(rec *storage.Record, failure *ojs.Failure, now time.Time) time.Time {
	if failure == nil || rec.RateLimit == nil {
		return time.Time{}
	}
	text, _ := failure.Details[ojs.DetailRateLimitUntil].(string)
	until, err := time.Parse(time.RFC3339, text)
	if err != nil {
		text, _ = failure.Details[ojs.DetailRateLimitFor].(string)
		wait, _ := iso8601.Parse(text)
		until = now.Add(wait)
	}
	if !until.After(now) {
		return time.Time{}
	}
	return until
}

// blockKeys blocks the keys that outcomes ask to block. The outcomes are stored after
// that, so that no other job of a key starts in between.
func (c *core) blockKeys(ctx context.Context, list []*settlement) {
	for _, f := range list {
		if f.blocks.IsZero() {
			continue
		}
		key := operate.LimitOfKey(f.rec.RateLimit.Key)
		err := c.store.BlockLimit(ctx, c.now(), key, f.blocks)
		if c.limitSet(key, f.blocks, "handler", err); err != nil {
			c.log.Warn("blocking the key of a rate limit failed",
				"key", key.Name, "until", f.blocks, "job_id", f.rec.ID, "error", err)
		}
	}
}

// setLimits stores the limits over all engines that this engine configures, while its
// queues do not change. It returns the handlers whose limits it has stored.
func (c *core) setLimits(ctx context.Context) *handlers {
	c.gate.turn <- struct{}{}
	defer func() { <-c.gate.turn }()
	queues := c.queues.Load()
	for _, name := range queues.names {
		qc := queues.config[name]
		c.setLimit(ctx, operate.LimitOfQueue(name), qc.GlobalBounds())
	}
	set := c.registry.handlers.Load()
	c.setTypeLimits(ctx, set.all())
	return set
}

// setTypeLimits stores the limits over all engines that handlers set.
func (c *core) setTypeLimits(ctx context.Context, types []*jobType) {
	for _, t := range types {
		c.setLimit(ctx, operate.LimitOfType(t.given.Type()), t.given.GlobalRateLimit())
	}
}

// setLimit stores a limit if it has bounds.
func (c *core) setLimit(ctx context.Context, name storage.LimitName, bounds ojs.RateLimit) {
	if !bounds.Bounds() {
		return
	}
	if err := c.operator.Limits().Set(ctx, name, bounds, time.Time{}); err != nil {
		c.log.Error("setting a limit failed", "kind", name.Kind, "name", name.Name, "error", err)
	}
}

// limitBy gives a job the limit of its value of a member (ojs.WithRateLimitBy).
func (c *core) limitBy(r *storage.Record, o *ojs.Options, fromElsewhere bool) error {
	if fromElsewhere && strings.HasPrefix(o.RateLimitBy, "args.") && codec.IsEncoded(r.Args, r.Meta) {
		return invalid("rate_limit_by",
			"names a member of args, which come encoded; give the key of the plain args by ojs.WithRateLimit")
	}
	key, err := policy.RateLimitKey(o.RateLimit.Key, o.RateLimitBy, &r.JobInfo)
	if err != nil {
		return err
	}
	l := *o.RateLimit // jobs share that of their type
	l.Key = key
	r.RateLimit = &l
	return nil
}

// heldBack is whether claims have found jobs that limits hold back. Its lowest bit is
// set if they have; the others count the claims that did. Claims overlap: one that has
// found no such job counts only if none has found any since it began.
type heldBack struct{ state atomic.Uint64 }

func (h *heldBack) load() uint64 { return h.state.Load() }
func (h *heldBack) now() bool    { return h.state.Load()&1 == 1 }

// claimed takes in what a claim has found that began at a state. It reports whether the
// run has to claim again. If jobs are held back that were not before, an attempt may have
// ended since that has woken no claim. If none is held back now, a claim that was empty
// before may still say that nothing is available.
func (h *heldBack) claimed(began uint64, held bool) (news bool) {
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

// limited follows what limits have done in a claim, which began at a state of core.held.
// It returns when time next opens a limit.
func (c *core) limited(l *storage.Limited, held uint64, now time.Time) (opens time.Time) {
	if c.held.claimed(held, l.Held) {
		c.available(unknown)
	}
	if len(l.Dropped)+len(l.Postponed) == 0 {
		return l.Opens
	}
	var op *eventlog.Op
	if c.events.Listening() {
		op = c.events.Begin(eventlog.Ends)
	}
	// The call that has done it has succeeded, so that this one does, too.
	_ = c.journal.Do(op, func() ([]storage.Record, error) { return l.Moved, nil }, func(op *eventlog.Op) {
		for i := range l.Dropped {
			r := &l.Dropped[i]
			c.transition(op, r, r.Version, eventlog.None, now,
				event.Event{Type: event.LimitDropped, Failure: r.Error, Limit: &event.Limit{
					Key: r.RateLimit.Key, JobID: r.ID, JobType: r.Type,
				}},
				event.Event{Type: event.Discarded, Failure: r.Error, Reason: "rate_limited"})
		}
		for i := range l.Postponed {
			r := &l.Postponed[i]
			c.transition(op, r, r.Version, eventlog.None, now, event.Event{Type: event.Scheduled})
		}
	}, func() {
		c.endedOtherwise(l.Dropped)
		for i := range l.Postponed {
			c.wakeAt(l.Postponed[i].WakeAt())
		}
	})
	return l.Opens
}

// Events of limits. A claim returns the keys that it has found closed
// (storage.Limited.Closed), for which the engine publishes event.LimitExceeded. The
// next job of such a key that a claim of this engine takes makes
// event.LimitReleased.

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
	return c.events.Wants(event.LimitExceeded, "", "") || c.events.Wants(event.LimitReleased, "", "")
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
