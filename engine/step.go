package engine

import (
	"context"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/benbjohnson/clock"

	"github.com/ojsengine/ojs"
	"github.com/ojsengine/ojs/engine/internal/eventlog"
	"github.com/ojsengine/ojs/engine/internal/pipeline"
	"github.com/ojsengine/ojs/event"
	"github.com/ojsengine/ojs/internal/foreign"
	"github.com/ojsengine/ojs/policy"
	"github.com/ojsengine/ojs/storage"
)

// The goroutines of a run do what its pipeline tells them: run a handler, make a step,
// give jobs back. A step stores the outcomes of attempts and claims jobs:
//
//  1. Outcomes and a claim are one call of a storage that is a storage.SettleClaimer.
//     Only such a claim takes jobs ahead, since an undone claim gives back all that it
//     takes. If that call fails, it may have done all of its work: each outcome is tried
//     again by itself, and jobs that it has claimed wait for the end of their leases.
//  2. Otherwise they are two calls. They are two while limits or weights have a say in
//     claims, too, and while a tracer follows.
//  3. The outcomes are published and logged, and waiters are told.
//  4. Claimed attempts enter run.attempts, unless they were lost in the meantime, and
//     then the local queue.

const (
	defaultPrefetch = 32
	durablePrefetch = 500 // a step of a durable storage takes long, and costs little more for many jobs
	maxPrefetch     = 1000
)

type (
	pipe = pipeline.Pipeline[*attempt, *settlement]
	task = pipeline.Task[*attempt, *settlement]
)

// birth is when the program began.
var birth = clock.New().Now()

// mostAhead is how many jobs are claimed ahead at most, while no limit and no weight
// forbids it.
//
// Nothing is claimed ahead with one slot, for which order is exact, nor under virtual
// time, under which everything is. A bubble of testing/synctest cannot be seen from
// inside, but its time begins in the year 2000.
func (c *core) mostAhead() int {
	if c.stepper == nil || c.concurrency == 1 || c.prefetch == 1 || c.mocked || c.tracing() ||
		c.clock.Now().Before(birth) {
		return 0
	}
	return c.prefetch
}

// newPipe makes the pipeline of a run.
func (r *run) newPipe() *pipe {
	c := r.c
	most := c.mostAhead()
	r.tick.Func = func(now time.Time) { r.pipe.Tick(now) }
	return pipeline.New[*attempt, *settlement](pipeline.Config{
		Slots:    c.concurrency,
		Slow:     c.durable || c.stepper == nil,
		Unclaims: c.stepper != nil,
		Joint:    c.joint,
		Ahead: func() int {
			if !c.gate.plain.Load() {
				return 0
			}
			return most
		},
		Now:   c.now,
		Work:  &r.busy,
		Start: func() { go r.work(nil) },
		Arm:   func(d time.Duration) { r.sched.Set(&r.tick, c.clock.Now().Add(d)) },
	})
}

// joint reports whether one call stores outcomes and claims.
func (c *core) joint() bool { return c.stepper != nil && c.gate.plain.Load() && !c.tracing() }

// scratch is memory that a goroutine uses for one step after another.
type scratch struct {
	changes []storage.Change
	settled []storage.Settled
	to      []*storage.Record
	into    []*storage.Record
	recs    []storage.Record
	claimed []*attempt
	spare   []*attempt // for the next jobs
	ids     []string
	limited storage.Limited
}

var scratches = sync.Pool{New: func() any { return new(scratch) }}

// maxScratch is how large a slice is kept for another step.
const maxScratch = 64

// clear empties the scratch, which would keep alive what is in it.
func (s *scratch) clear() {
	if max(cap(s.changes), cap(s.recs), cap(s.into)) > maxScratch {
		*s = scratch{}
		return
	}
	clear(s.changes)
	clear(s.settled)
	clear(s.to)
	clear(s.into)
	clear(s.recs)
	clear(s.claimed)
	clear(s.spare)
	clear(s.ids)
	s.limited = storage.Limited{}
	*s = scratch{s.changes[:0], s.settled[:0], s.to[:0], s.into[:0], s.recs[:0], s.claimed[:0], s.spare[:0],
		s.ids[:0], s.limited}
}

// work is a goroutine of the pipeline. It does the task that it is given, or asks for
// one.
func (r *run) work(given *task) {
	var t task
	if given != nil {
		t = *given
	} else {
		t = r.pipe.Enter()
	}
	s := scratches.Get().(*scratch)
	defer scratches.Put(s)
	var calling *attempt
	defer func() {
		if calling == nil {
			return
		}
		// The handler has called runtime.Goexit, which ends this goroutine after its
		// deferred calls. Another one goes on.
		next := r.finish(calling, policy.Outcome{Kind: policy.Exited})
		go r.work(&next)
	}()
	for {
		switch t.Kind {
		case pipeline.Run:
			a := t.Job
			t = task{} // a long handler keeps nothing else alive
			o := policy.Outcome{Kind: policy.Interrupted}
			if a.start() {
				calling = a
				o = a.perform()
				calling = nil
			}
			t = r.finish(a, o)
		case pipeline.Step:
			t = r.step(&t, s)
			s.clear()
		case pipeline.Unclaim:
			t = r.pipe.Unclaimed(r.giveBack(t.Jobs))
		default:
			r.left()
			return
		}
	}
}

// left follows the end of a goroutine of the pipeline.
func (r *run) left() {
	if r.stopping.Load() {
		r.c.mu.Lock()
		defer r.c.mu.Unlock()
		r.checkDrained()
	}
}

// finish takes in the outcome of an attempt whose handler has returned, and returns what
// its goroutine does next.
func (r *run) finish(a *attempt, o policy.Outcome) task {
	c := r.c
	now := c.now()
	c.mu.Lock()
	a.returns()
	if a.stuck {
		a.stuck = false
		r.stuck--
	}
	mine := a.phase == running
	if mine {
		a.phase = settling
	} else if a.phase == over {
		r.retire(a)
	}
	cause, said := a.cause, a.said()
	if c.held.now() { // the step that stores the outcome claims, too
		c.available(unknown)
	}
	c.mu.Unlock()
	if mine && a.completed != nil {
		return r.settleCompleted(a, o, cause, said)
	}
	if mine {
		return r.pipe.Ended(r.decide(a, endedBy(cause, o), said, now), now)
	}
	if c.logs(slog.LevelDebug) {
		c.jobLog(&a.rec.JobHeader).Debug("late result dropped", "cause", cause)
	}
	return r.pipe.Dropped()
}

// step stores outcomes and claims jobs. It returns what the goroutine does next.
func (r *run) step(t *task, s *scratch) task {
	var asked asked
	var now time.Time
	if t.Claim > 0 {
		now = r.c.now()
		r.c.mu.Lock()
		r.beginClaim(&asked, now)
		n := max(len(r.spare)-t.Claim, 0)
		s.spare = append(s.spare, r.spare[n:]...)
		clear(r.spare[n:])
		r.spare = r.spare[:n]
		r.c.mu.Unlock()
	}
	more := t.Free > 0 // a claim through the gate is wanted
	if t.Claim > 0 && !anyExtras(t.Outcomes) && r.c.joint() && len(r.c.registry.handled()) > 0 {
		more = r.exchange(t, s, now) && more
	} else {
		r.store(t.Outcomes, s)
	}
	empty := more && r.claim(t.Free, s, &asked)
	if t.Claim > 0 {
		r.enter(s, empty, &asked)
	}
	return r.pipe.Stepped(t, s.claimed, empty)
}

// exchange stores outcomes and claims jobs in one call. It reports whether a claim
// through the gate may find one although it has found none: it leaves out those that it
// could not give back.
func (r *run) exchange(t *task, s *scratch, now time.Time) (none bool) {
	c := r.c
	for _, f := range t.Outcomes {
		s.to = append(s.to, f.rec)
	}
	for i := range t.Claim { // the records go to where they stay
		var a *attempt
		if i < len(s.spare) {
			a = s.spare[i]
		} else {
			a = attempts.Get().(*attempt)
		}
		s.claimed = append(s.claimed, a)
		s.into = append(s.into, a.rec)
	}
	ask := storage.Claim{
		Queues: c.queues.Load().names, Types: c.registry.handled(), Max: t.Claim, Worker: c.worker,
		Lease: c.lease,
	}
	held := c.held.load()
	s.limited = storage.Limited{Now: max(t.Free, 1)}
	ask.Limits = &s.limited
	n := 0
	settled, err := c.storeEnds(r.base, t.Outcomes, s, func() (settled []storage.Settled, err error) {
		settled, n, err = c.stepper.SettleAndClaim(r.base, now, s.to, s.settled[:0], ask, s.into)
		if err != nil {
			*s = scratch{} // the storage may still use it
			r.claimFailed("settle and claim", now, err)
		}
		return settled, err
	})
	if err != nil {
		r.again(t.Outcomes, err)
		return false
	}
	s.settled = settled
	r.refused(t.Outcomes, settled)
	c.limitEvents(s.limited.Closed, n, func(i int) *storage.Record { return s.into[i] }, now)
	r.reopening.By(c.limited(&s.limited, held, now))
	for _, a := range s.claimed[n:] {
		attempts.Put(a)
	}
	s.claimed = s.claimed[:n]
	for _, a := range s.claimed {
		a.prepare(r)
	}
	return n == 0
}

// claim claims up to n jobs through the gate. It reports whether there was nothing to
// claim.
func (r *run) claim(n int, s *scratch, asked *asked) (empty bool) {
	c := r.c
	recs, reopens, err := c.claim(r.base, wanted{
		types: c.registry.handled(), worker: c.worker, max: n, run: r, asked: asked,
	}, s.recs[:0])
	if err != nil {
		s.recs = nil // a storage that has given up may still write to it
		return false
	}
	s.recs = recs
	r.reopening.By(reopens)
	for i := range recs {
		a := attempts.Get().(*attempt)
		*a.rec = recs[i]
		a.prepare(r)
		s.claimed = append(s.claimed, a)
	}
	return len(recs) == 0
}

// claimFailed keeps the pipeline from the storage for a while. The claim was made at now.
func (r *run) claimFailed(call string, now time.Time, err error) {
	r.c.failed(call, err)
	r.c.mu.Lock()
	defer r.c.mu.Unlock()
	r.failing(r.failures > 0, true)
	r.failures++
	r.failure = err
	r.c.unanswer(now, err)
	at := r.c.now().Add(storageBackoff(r.failures))
	r.pipe.Block()
	r.maintenance.due.By(at) // it may have claimed a job all the same
	r.unblocking.By(at)
}

// beginClaim says that a claim is under way, which enter ends. core.mu is held.
func (r *run) beginClaim(asked *asked, now time.Time) {
	r.claiming++
	r.c.claiming++
	r.c.ask(asked, now)
}

// enter enters the attempts of a claim in r.attempts, and drops those lost meanwhile.
// empty: it has found that there is nothing to claim.
func (r *run) enter(s *scratch, empty bool, asked *asked) {
	c := r.c
	c.mu.Lock()
	defer c.mu.Unlock()
	s.claimed = slices.DeleteFunc(s.claimed, func(a *attempt) bool {
		held := a.held()
		if c.lostEarly[held] {
			c.letIn(held)
			return true
		}
		r.begin(a)
		return false
	})
	if empty || len(s.claimed) > 0 {
		r.failing(r.failures > 0, false)
		r.failures = 0
	}
	r.claiming--
	c.endAsk(asked)
	if c.claiming--; c.claiming == 0 {
		clear(c.lostEarly)
	}
}

// giveBack undoes the claims of attempts that have not started, and returns how many jobs
// are available again. It tries until it succeeds or the engine stops: a call that fails
// may have undone them, and then their handlers must not start.
func (r *run) giveBack(list []*attempt) int {
	c := r.c
	held := make([]storage.Held, len(list))
	for i, a := range list {
		held[i] = a.held()
	}
	n, err := c.stepper.Unclaim(r.base, c.now(), held)
	for tries := 1; err != nil && !foreign.Is(err, ojs.ErrClosed); tries++ {
		c.failed("unclaim", err, "jobs", len(list))
		n = unknown
		if !r.pause(tries) {
			break
		}
		_, err = c.stepper.Unclaim(r.base, c.now(), held)
	}
	if err == nil {
		c.answered()
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, a := range list {
		a.phase = over
		undone := *a.rec
		undone.Unclaim()
		c.wakeAt(undone.WakeAt()) // a look since its claim has not counted it
		r.retire(a)
	}
	return n
}

// start readies an attempt for its handler. It reports false if its context has ended
// before, while it waited or since the stop was over before the claim returned, or if
// its job is overdue: what follows is decided as if a stop had interrupted it.
//
// The attempt gets the time that it had when it was claimed, however long it has waited.
// Its job's total timeout stays.
//
// The operation of the event begins before the look at the context, and a loss of the
// job ends the context before its own event is published. So the event of the start is
// before that one, or is not.
func (a *attempt) start() bool {
	c := a.r.c
	now := c.now()
	if late := now.Sub(a.claimed); late > 0 {
		a.late.Store(int64(late))
		a.rec.StartedAt = a.began()
		a.context.PutOff(a.overdue().Sub(a.deadline))
	}
	if a.rec.Attempt > 1 && workflowOf(a.rec) != "" {
		c.cancelWithWorkflow(a.ctx, a.rec)
	}
	a.started.Store(true) // before the look at the context: see end
	op := c.began(a.rec, event.Started)
	ended := a.context.Err() != nil
	if ended && a.lost() {
		op.End()
		return false
	}
	c.meter.Started(a.rec)
	c.transition(op, a.rec, a.rec.Version, eventlog.None, now, startedEvent(a.rec))
	op.End()
	if ended || overdue(a.rec, now) {
		return false
	}
	if c.logs(slog.LevelDebug) {
		c.logStarted(a.rec, c.worker, a.began())
	}
	return true
}

// lost reports whether the attempt has lost its job.
func (a *attempt) lost() bool {
	a.r.c.mu.Lock()
	defer a.r.c.mu.Unlock()
	return a.phase == over
}

// An engine that enqueues jobs which it could start at once asks its storage to claim
// them in the call that stores them (storage.Insert.Claim):
//
//  1. The pipeline reserves a free slot for each job of the batch.
//  2. The storage claims all jobs of the batch, or none if other jobs are ahead of them.
//  3. After the events of the enqueue are published, the claimed jobs enter the local
//     queue.
//
// A slot is reserved only if a step could claim jobs ahead, and if no job is ahead of new
// ones as far as the pipeline knows.

// reserved are slots that are kept for the jobs of an enqueue.
type reserved struct {
	r     *run
	t     task
	asked asked
}

// reserve keeps slots for the jobs of a batch, and has the storage asked to claim them.
// It returns nil if the jobs cannot start at once. Otherwise start ends it.
func (c *core) reserve(ctx context.Context, now time.Time, batch []storage.Insert) *reserved {
	if !c.insertClaims {
		return nil
	}
	batch[0].Claim = nil // that of an earlier try
	if len(batch) > c.concurrency || !c.joint() || storage.Tx(ctx) != nil {
		return nil
	}
	claim := &storage.Claim{Types: c.registry.handled(), Worker: c.worker, Lease: c.lease}
	for i := range batch {
		r := &batch[i].Record
		if len(claim.Types) == 0 || r.State != ojs.StateAvailable || !claim.Takes(r.Type, r.TypeVersion) {
			return nil
		}
	}
	r := c.run.Load()
	if r == nil {
		return nil
	}
	t, ok := r.pipe.Reserve(len(batch))
	if !ok {
		return nil
	}
	v := &reserved{r: r, t: t}
	c.mu.Lock()
	r.beginClaim(&v.asked, now)
	c.mu.Unlock()
	claim.Queues = c.queues.Load().names // of now: a change has reserved jobs given back
	batch[0].Claim = claim
	return v
}

// start has the jobs started that the storage has claimed. If the call has failed, stored
// is nil.
func (v *reserved) start(batch []storage.Insert, stored []storage.Inserted, now time.Time, err error) {
	if err != nil {
		v.r.c.mu.Lock()
		v.r.c.unanswer(now, err)
		v.r.c.mu.Unlock()
	}
	s := scratches.Get().(*scratch)
	defer func() {
		s.clear()
		scratches.Put(s)
	}()
	for i := range stored {
		if !stored[i].Claimed {
			break
		}
		a := attempts.Get().(*attempt)
		*a.rec = batch[i].Record.Copy()
		a.rec.Version = stored[i].Version
		a.rec.Claim(now, v.r.c.worker, v.r.c.lease)
		a.prepare(v.r)
		s.claimed = append(s.claimed, a)
	}
	v.r.enter(s, false, &v.asked)
	if next := v.r.pipe.Reserved(&v.t, s.claimed); next.Kind != pipeline.Leave {
		go v.r.work(&next)
		return
	}
	v.r.left()
}
