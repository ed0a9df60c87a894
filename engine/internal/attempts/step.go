package attempts

import (
	"context"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/ojsengine/ojs"
	"github.com/ojsengine/ojs/engine/internal/admission"
	"github.com/ojsengine/ojs/engine/internal/env"
	"github.com/ojsengine/ojs/engine/internal/eventlog"
	"github.com/ojsengine/ojs/engine/internal/pipeline"
	"github.com/ojsengine/ojs/engine/internal/publish"
	"github.com/ojsengine/ojs/engine/internal/settle"
	"github.com/ojsengine/ojs/event"
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
//  4. Claimed attempts enter Run.attempts, unless they were lost in the meantime, and
//     then the local queue.

const (
	DefaultPrefetch = 32
	DurablePrefetch = 500 // a step of a durable storage takes long, and costs little more for many jobs
	MaxPrefetch     = 1000
)

type (
	pipe = pipeline.Pipeline[*attempt, *settle.Settlement]
	task = pipeline.Task[*attempt, *settle.Settlement]
)

// MostAhead is how many jobs are claimed ahead at most, while no limit and no weight
// forbids it.
//
// Nothing is claimed ahead with one slot, for which order is exact, nor under virtual
// time, under which everything is.
func (c *Attempts) MostAhead() int {
	if c.Slots() == 1 {
		return 0
	}
	return c.mostAhead()
}

// mostAhead is MostAhead with several slots. It does not change.
func (c *Attempts) mostAhead() int {
	if c.Stepper == nil || c.Prefetch == 1 || c.Tracing() || c.Virtual() {
		return 0
	}
	return c.Prefetch
}

// newPipe makes the pipeline of a run.
func (r *Run) newPipe() *pipe {
	c := r.c
	most := c.mostAhead()
	r.tick.Func = func(now time.Time) { r.Pipe.Tick(now) }
	return pipeline.New[*attempt, *settle.Settlement](pipeline.Config{
		Slots:    c.Slots(),
		Slow:     c.Durable || c.Stepper == nil,
		Unclaims: c.Stepper != nil,
		Joint:    c.joint,
		Ahead: func() int {
			if !c.Admission.Unbounded() || c.Slots() == 1 {
				return 0
			}
			return most
		},
		Now:   c.Now,
		Work:  &r.Busy,
		Start: func() { go func() { r.work(r.Pipe.Enter()) }() },
		Arm:   func(d time.Duration) { r.Sched.Set(&r.tick, c.Clock.Now().Add(d)) },
	})
}

// joint reports whether one call stores outcomes and claims.
func (c *Attempts) joint() bool { return c.Stepper != nil && c.Admission.Unbounded() && !c.Tracing() }

// stepScratch is memory that a goroutine uses for one step after another.
type stepScratch struct {
	settle.Scratch
	to      []*storage.Record
	into    []*storage.Record
	asked   *asked
	recs    []storage.Record
	claimed []*attempt
	limited storage.Limited
}

var scratches = sync.Pool{New: func() any { return new(stepScratch) }}

// clear empties the scratch, which would keep alive what is in it.
func (s *stepScratch) clear() {
	if max(cap(s.recs), cap(s.into)) > settle.MaxScratch {
		*s = stepScratch{}
		return
	}
	s.Empty()
	clear(s.to)
	clear(s.into)
	clear(s.recs)
	clear(s.claimed)
	s.limited = storage.Limited{}
	s.to, s.into, s.recs, s.claimed = s.to[:0], s.into[:0], s.recs[:0], s.claimed[:0]
}

// work is a goroutine of the pipeline. It does one task after another.
func (r *Run) work(t task) {
	s := scratches.Get().(*stepScratch)
	defer scratches.Put(s)
	var calling *attempt
	defer func() {
		if calling == nil {
			return
		}
		// The handler has called runtime.Goexit, which ends this goroutine after its
		// deferred calls. Another one goes on.
		next := r.finish(calling, policy.Outcome{Kind: policy.Exited})
		go r.work(next)
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
			t = r.Pipe.Unclaimed(r.giveBack(t.Jobs))
		default:
			r.left()
			return
		}
	}
}

// left follows the end of a goroutine of the pipeline.
func (r *Run) left() {
	if r.Stopping.Load() {
		r.c.mu.Lock()
		defer r.c.mu.Unlock()
		r.checkDrained()
	}
}

// finish takes in the outcome of an attempt whose handler has returned, and returns what
// its goroutine does next.
func (r *Run) finish(a *attempt, o policy.Outcome) task {
	c := r.c
	now := c.Now()
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
	if c.Admission.LimitsHold() { // the step that stores the outcome claims, too
		c.Available(env.Unknown)
	}
	c.mu.Unlock()
	if mine && a.completed != nil {
		return r.settleCompleted(a, o, cause, said)
	}
	if mine {
		return r.Pipe.Ended(r.decide(a, cause, o, said, now), c.Now()) // hooks and codecs take time
	}
	if c.Logs(slog.LevelDebug) {
		c.JobLog(&a.rec.JobHeader).Debug("late result dropped", "cause", cause)
	}
	return r.Pipe.Dropped()
}

// step stores outcomes and claims jobs. It returns what the goroutine does next.
func (r *Run) step(t *task, s *stepScratch) task {
	if s.asked == nil {
		s.asked = new(asked)
	}
	asked := s.asked
	if t.Claim > 0 {
		r.asks(asked, t.Began)
	}
	more := t.Free > 0 // a claim through the gate is wanted
	if t.Claim > 0 && !settle.AnyExtras(t.Outcomes) && r.c.joint() && len(r.c.Types.Registry.Handled()) > 0 {
		more = r.exchange(t, s) && more
	} else {
		r.store(t.Outcomes, &s.Scratch)
	}
	empty := more && r.claim(t.Free, s, asked)
	if t.Claim > 0 {
		r.enter(s, empty, asked)
	}
	return r.Pipe.Stepped(t, s.claimed, empty)
}

// exchange stores outcomes and claims jobs in one call. It reports whether a claim
// through the gate may find one although it has found none: it leaves out those that it
// could not give back.
func (r *Run) exchange(t *task, s *stepScratch) (none bool) {
	c, now := r.c, t.Began
	for _, f := range t.Outcomes {
		s.to = append(s.to, f.Rec)
	}
	for range t.Claim { // the records go to where they stay
		a := attempts.Get().(*attempt)
		s.claimed = append(s.claimed, a)
		s.into = append(s.into, a.rec)
	}
	ask := storage.Claim{
		Queues: c.Types.Queues.Load().Names, Types: c.Types.Registry.Handled(), Max: t.Claim,
		Worker: c.Worker,
		Lease:  c.Lease,
	}
	held := c.Admission.Held.Load()
	s.limited = storage.Limited{Now: max(t.Free, 1)}
	ask.Limits = &s.limited
	n := 0
	call := func() (settled []storage.Settled, err error) {
		settled, n, err = c.Stepper.SettleAndClaim(r.Base, now, s.to, s.Settled[:0], ask, s.into)
		if err != nil {
			*s = stepScratch{} // the storage may still use it
			r.claimFailed("settle and claim", now, err)
		}
		return settled, err
	}
	settled, err := c.Settle.StoreEnds(r.Base, t.Outcomes, &s.Scratch, call)
	if err != nil {
		r.again(t.Outcomes, err)
		return false
	}
	s.Settled = settled
	r.refused(t.Outcomes, settled)
	c.Admission.LimitEvents(s.limited.Closed, n, func(i int) *storage.Record { return s.into[i] }, now)
	r.Reopening.By(c.Admission.Limited(&s.limited, held, now))
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
func (r *Run) claim(n int, s *stepScratch, asked *asked) (empty bool) {
	c := r.c
	ask := admission.Wanted{Types: c.Types.Registry.Handled(), Worker: c.Worker, Max: n, By: asked}
	recs, reopens, err := c.Admission.Claim(r.Base, ask, s.recs[:0])
	if err != nil {
		s.recs = nil // a storage that has given up may still write to it
		return false
	}
	s.recs = recs
	r.Reopening.By(reopens)
	for i := range recs {
		a := attempts.Get().(*attempt)
		*a.rec = recs[i]
		a.prepare(r)
		s.claimed = append(s.claimed, a)
	}
	return len(recs) == 0
}

// claimFailed keeps the pipeline from the storage for a while. The claim was made at now.
func (r *Run) claimFailed(call string, now time.Time, err error) {
	r.c.Failed(call, err)
	r.unanswer(now, err)
	r.c.mu.Lock()
	defer r.c.mu.Unlock()
	r.c.Failing(&r.Busy, r.failures > 0, true)
	r.failures++
	r.failure = err
	at := r.c.Now().Add(env.StorageBackoff(r.failures))
	r.Pipe.Block()
	r.c.WakeAt(at) // it may have claimed a job all the same
	r.unblocking.By(at)
}

// enter enters the attempts of a claim in r.attempts, and drops those lost meanwhile.
// empty: it has found that there is nothing to claim.
func (r *Run) enter(s *stepScratch, empty bool, asked *asked) {
	c := r.c
	c.mu.Lock()
	defer c.mu.Unlock()
	s.claimed = slices.DeleteFunc(s.claimed, func(a *attempt) bool {
		held := a.held()
		if c.book.WasLost(held) {
			c.Admission.LetIn(held)
			return true
		}
		r.begin(a)
		return false
	})
	if empty || len(s.claimed) > 0 {
		r.c.Failing(&r.Busy, r.failures > 0, false)
		r.failures = 0
	}
	r.claiming.Add(-1)
	if asked.End() {
		r.Claims.Poke() // a job that it has left to this claim may belong to no attempt
	}
}

// giveBack undoes the claims of attempts that have not started, and returns how many jobs
// are available again.
func (r *Run) giveBack(list []*attempt) int {
	c := r.c
	recs := make([]*storage.Record, len(list))
	for i, a := range list {
		recs[i] = a.rec
	}
	n := c.Settle.Unclaim(r.Base, recs, r.pause)
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, a := range list {
		a.phase = over
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
	now := c.Now()
	if late := now.Sub(a.claimed); late > 0 {
		a.late.Store(int64(late))
		a.rec.StartedAt = a.began()
		a.context.PutOff(a.overdue().Sub(a.deadline))
	}
	c.Settle.CancelBeforeStart(a.ctx, a.rec)
	a.started.Store(true) // before the look at the context: see end
	op := c.Began(a.rec, event.Started)
	ended := a.context.Err() != nil
	if ended && a.lost() {
		op.End()
		return false
	}
	c.Meter.Started(a.rec)
	c.Transition(op, a.rec, a.rec.Version, eventlog.None, now, publish.StartedEvent(a.rec))
	op.End()
	if ended || env.Overdue(a.rec, now) {
		return false
	}
	if c.Logs(slog.LevelDebug) {
		c.LogStarted(a.rec, c.Worker, a.began())
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

// Reserve keeps slots for the jobs of a batch, and has the storage asked to claim them.
// It returns nil if the jobs cannot start at once. Otherwise start has those started that
// the storage has claimed.
func (c *Attempts) Reserve(
	ctx context.Context, now time.Time, batch []storage.Insert,
) (start func(stored []storage.Inserted, err error)) {
	if !c.InsertClaims {
		return nil
	}
	batch[0].Claim = nil // that of an earlier try
	r := c.Run.Load()
	if r == nil || len(batch) > c.Slots() || !c.joint() || storage.Tx(ctx) != nil {
		return nil
	}
	claim := &storage.Claim{Types: c.Types.Registry.Handled(), Worker: c.Worker, Lease: c.Lease}
	for i := range batch {
		rec := &batch[i].Record
		if len(claim.Types) == 0 || rec.State != ojs.StateAvailable ||
			!claim.Takes(rec.Type, rec.TypeVersion) {
			return nil
		}
	}
	t, ok := r.Pipe.Reserve(len(batch))
	if !ok {
		return nil
	}
	asked := new(asked)
	r.asks(asked, now)
	claim.Queues = c.Types.Queues.Load().Names // of now: a change has reserved jobs given back
	batch[0].Claim = claim
	return func(stored []storage.Inserted, err error) {
		if err != nil {
			r.unanswer(now, err)
		}
		s := scratches.Get().(*stepScratch)
		defer scratches.Put(s)
		defer s.clear()
		for i := range stored { // none, if the call has failed
			if !stored[i].Claimed {
				break
			}
			a := attempts.Get().(*attempt)
			*a.rec = batch[i].Record.Copy()
			a.rec.Version = stored[i].Version
			a.rec.Claim(now, c.Worker, c.Lease)
			a.prepare(r)
			s.claimed = append(s.claimed, a)
		}
		r.enter(s, false, asked)
		if next := r.Pipe.Reserved(&t, s.claimed); next.Kind != pipeline.Leave {
			go r.work(next)
			return
		}
		r.left()
	}
}
