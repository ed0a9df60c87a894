// Package admission decides what may start in an engine: by its own limits, weights and
// pauses, and by what its claims find of the limits that the storage counts.
//
// # Invariants
//
//  1. Claims through the gate go one at a time, and the answer of each is counted before
//     the next. So a limit of a queue or a handler is never exceeded.
//  2. A claim past the gate begins only while no queue or type has a limit or a weight,
//     and no pause holds. Jobs of claims that were under way then go back.
//  3. A job that counts in a limit leaves it once: at the end of its attempt, or when the
//     lease of a worker is over.
//  4. The turn and the look at the pauses may be held during a call of the storage. No
//     other lock is held then.
package admission

import (
	"context"
	"maps"
	"slices"
	"sync/atomic"
	"time"

	"github.com/ojsengine/ojs"
	"github.com/ojsengine/ojs/engine/internal/env"
	"github.com/ojsengine/ojs/engine/internal/eventlog"
	"github.com/ojsengine/ojs/engine/internal/jobtypes"
	"github.com/ojsengine/ojs/engine/internal/publish"
	"github.com/ojsengine/ojs/event"
	"github.com/ojsengine/ojs/inspect"
	"github.com/ojsengine/ojs/internal/locks"
	"github.com/ojsengine/ojs/internal/times"
	"github.com/ojsengine/ojs/storage"
)

// Admission decides what may start in one engine. It is safe for concurrent use.
type Admission struct {
	*env.Env
	Gate *Gate
	Held HeldBack // whether limits hold jobs back

	exceeded exceeded // the keys whose limits are exceeded
}

// Gate decides what a claim asks for: the queues and their order, and the types. It
// counts what has started, so that this engine's limits of queues and handlers hold
// exactly: claims go through it one at a time. While no queue or type has a limit or a
// weight, a step may claim past the gate. The storage counts all other limits.
type Gate struct {
	turn    chan struct{} // holds a token while a claim is under way
	holding chan struct{} // holds a token while pauses are read and obeyed
	plain   atomic.Bool   // no queue or type has a limit of this engine or a weight

	mu     locks.Mutex // guards the fields below
	queues []*queueGate
	past   map[string]*queueGate // that the engine serves no more: what runs of them still counts
	types  map[string]*limiter   // those with a limit, by their names in claims

	LimitName func(*storage.Record) string // of the handler of a job, in types; set before any claim

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

// NewGate makes a gate for the queues.
func NewGate(queues *jobtypes.QueueSet) *Gate {
	g := &Gate{
		turn:    make(chan struct{}, 1),
		holding: make(chan struct{}, 1),
		types:   make(map[string]*limiter),
		held:    make(map[storage.Held]hold),
	}
	g.Serve(queues)
	return g
}

// LimitType bounds how many attempts of a handler run at once, by the names that claims
// have for it.
func (g *Gate) LimitType(patterns []string, n int) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.looksAfterEach = true
	g.plain.Store(false)
	l := &limiter{bounds: ojs.RateLimit{Concurrency: n}}
	for _, pattern := range patterns {
		g.types[pattern] = l
	}
}

// Wanted is what a claimer asks for.
type Wanted struct {
	Queues []string // nil: the engine's
	Types  []string
	All    bool // every type, though types is empty
	Max    int  // how many jobs at most; 0: one
	Worker string
	Lapses bool    // the claimer may vanish: what it holds counts until its lease is over
	By     Claimer // nil: none keeps books of the claim

	Lease time.Duration // as storage.Claim.Lease, of a worker that fetches
}

// Claimer is a claimer that keeps books of its claims.
type Claimer interface {
	Stopping() bool                  // no more claims
	Asks(now time.Time)              // a claim is under way
	Failed(now time.Time, err error) // the claim has failed
}

// TakeTurn waits until no claim through the gate is under way. None begins until done.
func (c *Admission) TakeTurn(ctx context.Context) (done func(), err error) {
	select {
	case c.Gate.turn <- struct{}{}:
		return func() { <-c.Gate.turn }, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// Unbounded reports whether no queue or type has a limit of this engine or a weight, and
// no pause holds.
func (c *Admission) Unbounded() bool { return c.Gate.plain.Load() }

// Quiet reports whether the engine was told to take no more jobs.
func (c *Admission) Quiet() bool {
	c.Gate.mu.Lock()
	defer c.Gate.mu.Unlock()
	return c.Gate.holds.quiet
}

// SetQuiet has the engine take no more jobs, or take them again.
func (c *Admission) SetQuiet(quiet bool) { c.hold(func(h *holds) { h.quiet = quiet }) }

// LimitsHold reports whether limits hold jobs back, as far as claims have found.
func (c *Admission) LimitsHold() bool { return c.Held.now() }

// Claim claims up to w.Max jobs, one if limits ask for a look after each, and appends
// them to dst. If there is none, reopens is when a limit that held some back will let
// them in, zero if no limit opens with time.
func (c *Admission) Claim(
	ctx context.Context, w Wanted, dst []storage.Record,
) (recs []storage.Record, reopens time.Time, err error) {
	g := c.Gate
	done, err := c.TakeTurn(ctx)
	if err != nil {
		return nil, time.Time{}, err
	}
	defer done()
	if w.By != nil && w.By.Stopping() { // while it waited for its turn
		return nil, time.Time{}, nil
	}
	now := c.Now()
	ask, order, reopens, ok := g.ask(w, now)
	if !ok {
		return nil, reopens, nil
	}
	if !w.Lapses {
		ask.Lease = c.Lease
	}
	if w.By != nil {
		w.By.Asks(now)
	}
	ctx, end := c.TraceFetch(ctx, w.Queues, w.Worker)
	var op *eventlog.Op // the attempts of this engine publish their start when their handlers start
	if w.Lapses && (c.Events.Wants(event.Started, "", "") ||
		c.Events.Wants(event.WorkflowStarted, "", "")) {
		op = c.Events.Begin(eventlog.Starts)
	}
	held := c.Held.Load()
	ask.Limits = new(storage.Limited)
	err = c.Holding.Do(op, func() (none []storage.Record, err error) {
		recs, err = c.Store.Claim(ctx, now, ask, dst)
		end(recs, err)
		if err != nil {
			g.takeBack(order)
			if w.By != nil {
				w.By.Failed(now, err)
			}
		}
		return nil, err
	}, func(op *eventlog.Op) {
		for i := range recs {
			c.Transition(op, &recs[i], recs[i].Version, eventlog.None, now, publish.StartedEvent(&recs[i]))
		}
	}, func() {
		for i := range recs {
			if w.Lapses {
				c.Meter.Started(&recs[i])
			}
		}
		g.started(w, order, recs, now)
		c.LimitEvents(ask.Limits.Closed, len(recs), func(i int) *storage.Record { return &recs[i] }, now)
	})
	if err != nil {
		return nil, time.Time{}, err
	}
	return recs, times.Earliest(reopens, c.Limited(ask.Limits, held, now)), nil
}

// ask makes the claim for what w may have now. It reports false if that is nothing at
// all. order is that of the engine's queues if they are asked for.
func (g *Gate) ask(
	w Wanted, now time.Time,
) (ask storage.Claim, order []*queueGate, reopens time.Time, ok bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.lapse(now)
	reopens = g.lapses
	opensAt := func(at time.Time) { reopens = times.Earliest(reopens, at) }
	ask = storage.Claim{Queues: w.Queues, Types: w.Types, Max: max(w.Max, 1), Worker: w.Worker,
		Remote: w.Lapses, Lease: w.Lease}
	if g.looksAfterEach {
		ask.Max = 1
	}
	if len(ask.Types) == 0 && !w.All {
		return ask, nil, reopens, false // to a storage, no types are all types
	}
	if g.holds.any() && !g.holds.open(&w, &ask) {
		return ask, nil, reopens, false
	}
	if len(g.types) > 0 && !w.All && !w.Lapses { // the limits of handlers, not of the types
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
	if len(w.Queues) > 0 {
		ask.Queues = slices.DeleteFunc(slices.Clone(w.Queues), func(name string) bool {
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

// takeBack undoes what order has owed to queues that were not looked into.
func (g *Gate) takeBack(order []*queueGate) {
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
func (g *Gate) started(w Wanted, order []*queueGate, recs []storage.Record, now time.Time) {
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
		if len(g.types) > 0 && !w.Lapses { // the limits of handlers, not of the types
			if l := g.types[g.LimitName(r)]; l != nil {
				count(l)
			}
		}
		for _, q := range g.queues {
			if q.name == r.Queue && (!w.Lapses || q.bounds.Bounds()) {
				count(&q.limiter)
			}
		}
		if h.limiters == nil {
			continue
		}
		if w.Lapses {
			h.until = r.LeaseUntil
			g.lapses = times.Earliest(g.lapses, h.until)
		}
		g.held[storage.Held{ID: r.ID, Version: r.Version}] = h
	}
}

// Renewed says that a hold that would lapse goes on.
func (g *Gate) Renewed(held storage.Held, until time.Time) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if h, ok := g.held[held]; ok {
		h.until = until
		g.held[held] = h
		g.lapses = times.Earliest(g.lapses, until)
	}
}

// LetIn records that a claimed job has stopped running. If a limit of this engine kept
// other jobs out, it wakes a claim.
func (c *Admission) LetIn(held storage.Held) {
	c.Gate.mu.Lock()
	opens := c.Gate.end(held)
	c.Gate.mu.Unlock()
	if opens {
		c.Available(env.Unknown)
	}
}

// Serve has the gate ask for the queues of a set. Running attempts of a queue still
// count.
func (g *Gate) Serve(to *jobtypes.QueueSet) {
	g.mu.Lock()
	defer g.mu.Unlock()
	known := make(map[string]*queueGate)
	for _, q := range g.queues {
		known[q.name] = q
	}
	maps.Copy(known, g.past)
	g.queues, g.looksAfterEach = nil, len(g.types) > 0
	for _, name := range to.Names {
		qc := to.Config[name]
		q := known[name]
		if delete(known, name); q == nil {
			q = &queueGate{name: name}
		}
		q.weight, q.credit = qc.Weight, 0
		if q.bounds.Rate.Limit == 0 && q.bounds.Throttle.Limit == 0 {
			q.starts = nil // nothing has counted them
		}
		q.rebound(qc.Bounds)
		if qc.Bounds.Bounds() || qc.Weight > 0 {
			g.looksAfterEach = true
		}
		g.queues = append(g.queues, q)
	}
	maps.DeleteFunc(known, func(_ string, q *queueGate) bool { return q.running == 0 })
	g.past = known
	g.plain.Store(!g.looksAfterEach && !g.holds.any())
}

// Join counts the attempts of a queue that were claimed past the gate, or while the gate
// did not know the queue.
func (g *Gate) Join(queue string, list []storage.Held) {
	g.mu.Lock()
	defer g.mu.Unlock()
	i := slices.IndexFunc(g.queues, func(q *queueGate) bool { return q.name == queue })
	if i < 0 {
		return
	}
	l := &g.queues[i].limiter
	for _, held := range list {
		if h := g.held[held]; !slices.Contains(h.limiters, l) {
			l.running++
			h.limiters = append(h.limiters, l)
			g.held[held] = h
		}
	}
}

// Explain adds the limits that keep a job from being claimed now.
func (g *Gate) Explain(e *inspect.Explanation, rec *storage.Record, now time.Time) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.lapse(now)
	if h := &g.holds; h.quiet && !h.types[""] && !h.types[rec.Type] {
		e.Add(inspect.ObstacleNotRunning,
			"this engine takes no more jobs, since it was told to (Workers.Quiet)")
	}
	check := func(l *limiter, what string) {
		if l == nil {
			return
		}
		if at, open := l.open(now); !open {
			e.Add(inspect.ObstacleLimit, "the limit of %s is reached", what).Until = at
		}
	}
	for _, q := range g.queues {
		if q.name == rec.Queue {
			check(&q.limiter, "queue "+rec.Queue)
		}
	}
	check(g.types[g.LimitName(rec)], "type "+rec.Type)
}

// mu is held in the rest.

// order returns the queues that admit something, in the order in which to look into them:
// as given, or by what they are owed if they have weights. Weighted queues take turns
// smoothly: before each claim every queue is owed its weight more, the one that is owed
// most goes first, and the one that was served pays what all were owed together. An empty
// queue is owed nothing, or it would take every turn once it has jobs.
func (g *Gate) order(now time.Time, opensAt func(time.Time)) []*queueGate {
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

// end ends what a started job counts in. It reports whether others may start that could
// not before.
func (g *Gate) end(held storage.Held) (opens bool) {
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

// lapse ends the holds of workers that let their leases run out.
func (g *Gate) lapse(now time.Time) {
	if g.lapses.IsZero() || now.Before(g.lapses) {
		return
	}
	g.lapses = time.Time{}
	for held, h := range g.held {
		switch {
		case h.until.IsZero():
		case now.Before(h.until):
			g.lapses = times.Earliest(g.lapses, h.until)
		default:
			g.end(held)
		}
	}
}
