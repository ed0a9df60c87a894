package engine

import (
	"context"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/ojsengine/ojs"
	"github.com/ojsengine/ojs/engine/internal/eventlog"
	"github.com/ojsengine/ojs/event"
	"github.com/ojsengine/ojs/storage"
)

// gate decides what a claim asks for: the queues and their order, and the types. It
// counts what has started, so that this engine's limits of queues and handlers hold
// exactly: claims go through it one at a time. While no queue or type has a limit or a
// weight, a step may claim past the gate. The storage counts all other limits.
type gate struct {
	turn    chan struct{} // holds a token while a claim is under way
	holding chan struct{} // holds a token while pauses are read and obeyed
	plain   atomic.Bool   // no queue or type has a limit of this engine or a weight

	mu     sync.Mutex // guards the fields below
	queues []*queueGate
	past   map[string]*queueGate // that the engine serves no more: what runs of them still counts
	types  map[string]*limiter   // those with a limit, by their names in claims

	limitName func(*storage.Record) string // of the handler of a job, in types; set before any claim

	looksAfterEach bool // a queue or type has a limit of this engine or a weight
	holds          holds
	held           map[storage.Held]hold
	lapses         time.Time // the earliest hold.until; zero: none
}

// queueGate is a queue that the engine declares.
type queueGate struct {
	name   string
	weight int
	credit int // of a weighted queue: how much it is owed
	limiter
}

// hold is what a started job counts in.
type hold struct {
	limiters []*limiter
	until    time.Time // when it lapses unless renewed, for workers that may vanish; zero: never
}

func newGate(cfg *config) *gate {
	g := &gate{
		turn:    make(chan struct{}, 1),
		holding: make(chan struct{}, 1),
		types:   make(map[string]*limiter),
		held:    make(map[storage.Held]hold),
	}
	g.serve(&cfg.queues)
	return g
}

// limitType bounds how many attempts of a handler run at once, by the names that claims
// have for it.
func (g *gate) limitType(patterns []string, n int) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.looksAfterEach = true
	g.plain.Store(false)
	l := &limiter{bounds: ojs.RateLimit{Concurrency: n}}
	for _, pattern := range patterns {
		g.types[pattern] = l
	}
}

// wanted is what a claimer asks for.
type wanted struct {
	queues []string // nil: the engine's
	types  []string
	all    bool // every type, though types is empty
	max    int  // how many jobs at most; 0: one
	worker string
	lapses bool   // the claimer may vanish: what it holds counts until its lease is over
	run    *run   // that claims; nil: a worker
	asked  *asked // of the run's claim; nil: a worker
}

// claim claims up to w.max jobs, one if limits ask for a look after each, and appends
// them to dst. If there is none, reopens is when a limit that held some back will let
// them in, zero if no limit opens with time.
func (c *core) claim(
	ctx context.Context, w wanted, dst []storage.Record,
) (recs []storage.Record, reopens time.Time, err error) {
	g := c.gate
	select {
	case g.turn <- struct{}{}:
		defer func() { <-g.turn }()
	case <-ctx.Done():
		return nil, time.Time{}, ctx.Err()
	}
	if w.run != nil && w.run.stopping.Load() { // while it waited for its turn
		return nil, time.Time{}, nil
	}
	now := c.now()
	ask, order, reopens, ok := g.ask(w, now)
	if !ok {
		return nil, reopens, nil
	}
	if w.asked != nil {
		ask.Lease = c.lease
		c.mu.Lock()
		c.ask(w.asked, now)
		c.mu.Unlock()
	}
	ctx, end := c.traceFetch(ctx, w.queues, w.worker)
	var op *eventlog.Op // the attempts of this engine publish their start when their handlers start
	if w.lapses && (c.events.Wants(event.Started, "", "") ||
		c.events.Wants(event.WorkflowStarted, "", "")) {
		op = c.events.Begin(eventlog.Starts)
	}
	held := c.held.load()
	ask.Limits = new(storage.Limited)
	err = c.holding.Do(op, func() (none []storage.Record, err error) {
		recs, err = c.store.Claim(ctx, now, ask, dst)
		end(recs, err)
		if err != nil {
			g.takeBack(order)
		}
		if err != nil && w.run != nil {
			w.run.claimFailed("claim", now, err)
		}
		return nil, err
	}, func(op *eventlog.Op) {
		for i := range recs {
			c.transition(op, &recs[i], recs[i].Version, eventlog.None, now, startedEvent(&recs[i]))
		}
	}, func() {
		for i := range recs {
			if w.lapses {
				c.meter.Started(&recs[i])
			}
		}
		g.started(w, order, recs, now)
		c.limitEvents(ask.Limits.Closed, len(recs), func(i int) *storage.Record { return &recs[i] }, now)
	})
	if err != nil {
		return nil, time.Time{}, err
	}
	return recs, earliest(reopens, c.limited(ask.Limits, held, now)), nil
}

// overdue reports whether the deadline of a claimed job, its ExpiresAt or the end of its
// total timeout, has come before its attempt began: the claim may have been slow, and the
// attempt may have waited after it. Such an attempt does not begin, and ends as one that
// is given back: a job past its total timeout is discarded at once, an expired one by the
// storage. The claim itself is in time for an enqueue TTL.
func overdue(rec *storage.Record, now time.Time) bool {
	deadline := rec.Deadline()
	return !deadline.IsZero() && !now.Before(deadline)
}

// ask makes the claim for what w may have now. It reports false if that is nothing at
// all. order is that of the engine's queues if they are asked for.
func (g *gate) ask(
	w wanted, now time.Time,
) (ask storage.Claim, order []*queueGate, reopens time.Time, ok bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.lapse(now)
	reopens = g.lapses
	opensAt := func(at time.Time) { reopens = earliest(reopens, at) }
	ask = storage.Claim{Queues: w.queues, Types: w.types, Max: max(w.max, 1), Worker: w.worker,
		Remote: w.lapses}
	if g.looksAfterEach {
		ask.Max = 1
	}
	if len(ask.Types) == 0 && !w.all {
		return ask, nil, reopens, false // to a storage, no types are all types
	}
	if g.holds.any() && !g.holds.open(&w, &ask) {
		return ask, nil, reopens, false
	}
	if len(g.types) > 0 && !w.all && !w.lapses { // the limits of handlers, not of the types
		types := ask.Types
		ask.Types = make([]string, 0, len(types))
		for _, t := range types {
			if l := g.types[t]; l != nil {
				if _, open := l.open(now); !open {
					continue
				}
			}
			ask.Types = append(ask.Types, t)
		}
		if len(ask.Types) == 0 {
			return ask, nil, reopens, false
		}
	}
	if len(w.queues) > 0 {
		ask.Queues = slices.DeleteFunc(slices.Clone(w.queues), func(name string) bool {
			i := slices.IndexFunc(g.queues, func(q *queueGate) bool { return q.name == name })
			return i >= 0 && !g.queues[i].admits(now, opensAt)
		})
		if len(ask.Queues) == 0 {
			return ask, nil, reopens, false
		}
	} else if len(g.queues) > 0 {
		order = g.order(now, opensAt)
		if len(order) == 0 {
			return ask, nil, reopens, false
		}
		ask.Queues = make([]string, len(order))
		for i, q := range order {
			ask.Queues[i] = q.name
		}
	}
	return ask, order, reopens, true
}

func (q *queueGate) admits(now time.Time, opensAt func(time.Time)) bool {
	if !q.bounds.Bounds() {
		return true
	}
	at, open := q.open(now)
	opensAt(at)
	return open
}

// order returns the queues that admit something, in the order in which to look into them:
// as given, or by what they are owed if they have weights. mu is held.
//
// Weighted queues take turns smoothly: before each claim every queue is owed its weight
// more, the one that is owed most goes first, and the one that was served pays what all
// were owed together. An empty queue is owed nothing, or it would take every turn once it
// has jobs.
func (g *gate) order(now time.Time, opensAt func(time.Time)) []*queueGate {
	order := make([]*queueGate, 0, len(g.queues))
	for _, q := range g.queues {
		if q.admits(now, opensAt) {
			q.credit += q.weight
			order = append(order, q)
		}
	}
	slices.SortStableFunc(order, func(a, b *queueGate) int { return b.credit - a.credit })
	return order
}

// takeBack undoes what order has owed to queues that were not looked into.
func (g *gate) takeBack(order []*queueGate) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, q := range order {
		q.credit -= q.weight
	}
}

// charge makes the queue that was served pay.
func charge(order []*queueGate, recs []storage.Record) {
	if len(recs) == 0 {
		for _, q := range order {
			q.credit = 0
		}
		return
	}
	owed := 0
	var served *queueGate
	for _, q := range order {
		if served == nil {
			if q.name != recs[0].Queue {
				q.credit = 0 // it was empty
				continue
			}
			served = q
		}
		owed += q.weight
	}
	if served != nil {
		served.credit -= owed
	}
}

// started counts what a claim has brought.
func (g *gate) started(w wanted, order []*queueGate, recs []storage.Record, now time.Time) {
	g.mu.Lock()
	defer g.mu.Unlock()
	charge(order, recs)
	for i := range recs {
		r := &recs[i]
		var h hold
		count := func(l *limiter) {
			l.start(now)
			h.limiters = append(h.limiters, l)
		}
		if len(g.types) > 0 && !w.lapses { // the limits of handlers, not of the types
			if l := g.types[g.limitName(r)]; l != nil {
				count(l)
			}
		}
		for _, q := range g.queues {
			if q.name == r.Queue && (!w.lapses || q.bounds.Bounds()) {
				count(&q.limiter)
			}
		}
		if h.limiters == nil {
			continue
		}
		if w.lapses {
			h.until = r.LeaseUntil
			g.lapses = earliest(g.lapses, h.until)
		}
		g.held[storage.Held{ID: r.ID, Version: r.Version}] = h
	}
}

// ended says that a started job runs no more. It reports whether others may start now
// that could not before.
func (g *gate) ended(held storage.Held) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.end(held)
}

// end: mu is held.
func (g *gate) end(held storage.Held) (opens bool) {
	h, ok := g.held[held]
	if !ok {
		return false
	}
	delete(g.held, held)
	for _, l := range h.limiters {
		opens = opens || l.bounds.Concurrency > 0 && l.running >= l.bounds.Concurrency
		l.end()
	}
	return opens
}

// renewed says that a hold that would lapse goes on.
func (g *gate) renewed(held storage.Held, until time.Time) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if h, ok := g.held[held]; ok {
		h.until = until
		g.held[held] = h
		g.lapses = earliest(g.lapses, until)
	}
}

// lapse ends the holds of workers that let their leases run out. mu is held.
func (g *gate) lapse(now time.Time) {
	if g.lapses.IsZero() || now.Before(g.lapses) {
		return
	}
	g.lapses = time.Time{}
	for held, h := range g.held {
		switch {
		case h.until.IsZero():
		case now.Before(h.until):
			g.lapses = earliest(g.lapses, h.until)
		default:
			g.end(held)
		}
	}
}
