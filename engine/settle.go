package engine

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"time"

	"github.com/ojsengine/ojs"
	"github.com/ojsengine/ojs/engine/internal/eventlog"
	"github.com/ojsengine/ojs/policy"
	"github.com/ojsengine/ojs/storage"
)

// endedBy is the outcome of an attempt whose context ended with a cause before the
// handler returned.
func endedBy(cause error, o policy.Outcome) policy.Outcome {
	if o.Kind == policy.Returned && o.Err == nil || o.Kind != policy.Returned && o.Kind != policy.Interrupted {
		return o
	}
	switch cause {
	case ojs.ErrTimeout:
		o.Kind = policy.TimedOut
	case ojs.ErrShutdown:
		o.Kind = policy.Interrupted
	}
	return o
}

// interrupt settles an attempt that the caller has taken from running, while its handler
// goes on after a stop.
func (r *run) interrupt(a *attempt) {
	r.c.mu.Lock()
	cause, said := a.cause, a.said()
	r.c.mu.Unlock()
	f := r.decide(a, endedBy(cause, policy.Outcome{Kind: policy.Interrupted}), said, r.c.now())
	s, err := r.c.settleOnce(r.base, f)
	if err != nil {
		err = r.persist(f, err)
	} else {
		err = s.Err
	}
	r.c.mu.Lock()
	a.phase = over
	r.c.mu.Unlock()
	r.settled(f, err)
}

// settlement is the end of an attempt: the job as it is to be stored, and how that came
// about.
type settlement struct {
	a        *attempt        // nil: none of this engine's
	rec      *storage.Record // the attempt's own, or a copy; see decide
	decision policy.Decision
	kind     policy.OutcomeKind
	at       time.Time
	took     time.Duration
	worker   string
	traced   context.Context // of the attempt, without its end; nil: there is no tracer
	then     *followUps      // that are stored with it
}

// newSettlement makes the settlement of a job that is not decided on yet.
func newSettlement(rec *storage.Record, worker string) *settlement {
	own := *rec
	return &settlement{rec: &own, worker: worker}
}

// said is what a handler has said of its attempt.
type said struct {
	progress   float64
	checkpoint json.RawMessage
	result     json.RawMessage
	then       *followUps
	traced     context.Context
	alone      bool // the handler has returned, and no other goroutine reads the record
}

// said: core.mu is held.
func (a *attempt) said() said {
	return said{a.progress, a.checkpoint, a.result, a.then, a.traced, a.returned && !a.kept}
}

// decide decides on the job of an attempt. If the handler has returned, and neither a
// caller nor maintenance has the attempt, its own record takes the decision; otherwise a
// copy does.
func (r *run) decide(a *attempt, o policy.Outcome, said said, now time.Time) *settlement {
	f := &a.settlement
	if said.alone && a.context.TakeBack() {
		f.rec, f.worker = a.rec, r.c.worker
	} else {
		f = newSettlement(a.rec, r.c.worker)
	}
	f.a = a
	f.rec.Progress, f.rec.Checkpoint = said.progress, said.checkpoint
	if said.traced != nil {
		f.traced = context.WithoutCancel(said.traced)
	}
	r.c.decide(f, o, a.began(), now, said.result)
	f.follow(said.then)
	return f
}

// decide decides on the job of an attempt that began at a time and has ended now.
func (c *core) decide(f *settlement, o policy.Outcome, began, now time.Time, result json.RawMessage) {
	rec := f.rec
	o = policy.Timed(&rec.JobInfo, o, began, now)
	f.kind, f.at, f.took = o.Kind, now, now.Sub(began)
	if o.Kind == policy.Returned && o.Err == nil {
		f.decision = policy.Decide(&rec.JobInfo, o, now, 0, nil)
	} else {
		c.decideFailure(f, o, now)
	}
	c.encodeDetails(&f.decision)
	if d := &f.decision; d.Failure != nil {
		d.Failure.StartedAt, d.Failure.Worker = began, rec.Worker
	} else if d.Refunded {
		what := ojs.NoteSnoozed
		if d.Rule == policy.RuleInterrupted {
			what = ojs.NoteReturned
		}
		rec.Note(ojs.Note{At: now, What: what, Attempt: rec.Attempt, StartedAt: began, Worker: rec.Worker,
			Until: d.RunAt})
	}
	f.decision.Apply(&rec.JobInfo, now)
	rec.LeaseUntil = time.Time{}
	if rec.State == ojs.StateCompleted {
		if rec.ResultTTL != ojs.NoResult {
			rec.Result = result
		}
		rec.Progress = 1
	}
	if rec.State.Terminal() {
		rec.Checkpoint = nil
	}
}

func (c *core) decideFailure(f *settlement, o policy.Outcome, now time.Time) {
	if f.traced != nil {
		_, end := c.trace(f.traced, OpRetryEvaluate, f.rec)
		defer end(nil)
	}
	drawn := jitter(c.jitter, f.rec.ID, f.rec.Attempt)
	f.decision = policy.Decide(&f.rec.JobInfo, o, now, drawn, c.retryHook(&f.rec.JobHeader))
}

// settleOverrun settles an attempt whose handler has not returned in the grace period
// after its timeout. Maintenance calls it, and does not wait for a storage that fails:
// the attempt's timer calls again.
func (r *run) settleOverrun(a *attempt) {
	r.c.mu.Lock()
	said := a.said()
	r.c.mu.Unlock()
	f := r.decide(a, policy.Outcome{Kind: policy.TimedOut}, said, r.c.now())
	s, err := r.c.settleOnce(r.base, f)
	r.c.mu.Lock()
	if err != nil && r.knows(a) && a.phase == settling {
		a.phase = running
		a.forceAt = r.c.now().Add(storageBackoff(1))
		a.arm()
		r.c.mu.Unlock()
		return
	}
	a.phase = over
	r.c.mu.Unlock()
	if err == nil {
		err = s.Err
	}
	r.settled(f, err)
}

// settleStalled decides and stores the settlement of a job whose lease ran out and that
// was handed to this engine. If it cannot be stored now, the new lease runs out in turn.
func (r *run) settleStalled(rec storage.Record) {
	now := r.c.now()
	o := policy.Outcome{Kind: policy.LeaseExpired, Limit: rec.Lease, Elapsed: now.Sub(rec.StartedAt)}
	ctx, end := r.c.trace(r.base, OpVisibility, &rec)
	f := newSettlement(&rec, rec.Worker)
	f.traced = r.c.traced(ctx)
	r.c.decide(f, o, rec.StartedAt, now, nil)
	s, err := r.c.settleOnce(ctx, f)
	if err == nil {
		err = s.Err
	}
	end(err)
	r.settled(f, err)
}

// traced is ctx if there is a tracer, and nil if there is none.
func (c *core) traced(ctx context.Context) context.Context {
	if !c.tracing() {
		return nil
	}
	return ctx
}

// tell writes down what has been stored, or why nothing was.
func (r *run) tell(f *settlement, err error) {
	switch {
	case err == nil:
		r.c.logOutcome(f, f.worker)
		if f.decision.Rule == policy.RuleInterrupted {
			r.noteReturned(f.rec.ID)
		}
	case !errors.Is(err, storage.ErrFenced):
		r.c.jobLog(&f.rec.JobHeader).Error("outcome not stored; the job runs again when its lease has run out", "error", err)
	case r.c.logs(slog.LevelDebug):
		r.c.jobLog(&f.rec.JobHeader).Debug("late result refused")
	}
}

// noteReturned notes a job that a stop has given back.
func (r *run) noteReturned(id string) {
	r.c.mu.Lock()
	defer r.c.mu.Unlock()
	if r.stopping {
		r.returned = append(r.returned, id)
	}
}

// settled tells the engine what has been stored, or why nothing was.
func (r *run) settled(f *settlement, err error) {
	r.tell(f, err)
	if err == nil {
		r.c.cancelRetry(r.base, f)
		r.c.mu.Lock()
		defer r.c.mu.Unlock()
		r.c.settled(f.rec)
	}
}

// settled follows the end of an attempt that has been stored. mu is held.
func (c *core) settled(to *storage.Record) {
	if to.State.Terminal() {
		c.jobEnded(to)
		return
	}
	c.wakeAt(to.WakeAt())
}

// settleOnce stores one settlement.
func (c *core) settleOnce(ctx context.Context, f *settlement) (storage.Settled, error) {
	settled, err := c.settleAll(ctx, []*settlement{f}, new(scratch))
	if err != nil {
		return storage.Settled{}, err
	}
	return settled[0], nil
}

// settleAll stores settlements in one call, and publishes the stored ones. The results
// are in the scratch, which the storage may keep if it fails. With a tracer it stores one
// settlement only.
func (c *core) settleAll(ctx context.Context, list []*settlement, s *scratch) ([]storage.Settled, error) {
	if len(list) == 0 {
		return nil, nil
	}
	end := nothing
	if f := list[0]; c.tracing() {
		if f.traced != nil {
			ctx = f.traced
		}
		kind := OpNack
		if f.rec.State == ojs.StateCompleted {
			kind = OpAck
		}
		ctx, end = c.trace(ctx, kind, f.rec)
	}
	s.changes = s.changes[:0]
	for _, f := range list {
		s.changes = append(s.changes, storage.Change{Record: *f.rec, AttemptFieldsOnly: true, Then: f.then.inserts()})
	}
	op := c.beganEnds(list, s)
	settled, err := c.store.Settle(ctx, c.now(), s.changes, s.settled[:0])
	if err != nil {
		end(err)
		op.End()
		*s = scratch{recs: s.recs, claimed: s.claimed}
		for _, f := range list {
			c.jobLog(&f.rec.JobHeader).Error("settle failed", "error", err)
		}
		c.uncertain(err)
		return nil, err
	}
	s.settled = settled
	end(settled[0].Err)
	c.announce(ctx, op, list, settled)
	return settled, nil
}

// announce publishes settlements that were stored, and follows the jobs that were stored
// or moved with them.
func (c *core) announce(
	ctx context.Context, op *eventlog.Op, list []*settlement, settled []storage.Settled,
) {
	c.followed(ctx, list, settled)
	c.publishEnds(op, list, settled)
	c.enqueuedThen(list, settled)
	c.dependentsSettled(settled)
}

// beganEnds begins the operation of attempts' ends. It returns nil if no listener wants
// their events.
func (c *core) beganEnds(list []*settlement, s *scratch) *eventlog.Op {
	if !c.events.Listening() {
		return nil
	}
	s.ids = s.ids[:0]
	effect := c.endsOthers()
	for _, f := range list {
		if f.then != nil {
			s.ids, effect = c.insertEffect(f.then.batch, s.ids, effect)
		}
		if f.decision.State == ojs.StateCompleted && c.wanted(f.rec, ojs.EventCompleted) ||
			f.decision.State != ojs.StateCompleted && c.wanted(f.rec) {
			s.ids = append(s.ids, f.rec.ID)
		}
	}
	if effect == eventlog.None && len(s.ids) == 0 {
		return nil
	}
	return c.events.Begin(effect, s.ids...)
}

// publishEnds counts the attempts' ends that were stored, and ends the operation with
// their transitions. Their claims have returned, except that of a job whose lease ran
// out.
func (c *core) publishEnds(op *eventlog.Op, list []*settlement, settled []storage.Settled) {
	c.meter.ended(list, settled)
	if op == nil {
		if op = c.lateOp(settled); op == nil {
			return
		}
	}
	for i, f := range list {
		switch {
		case settled[i].Err != nil:
		case f.decision.State == ojs.StateCompleted:
			c.transition(op, f.rec, f.rec.Version+1, eventlog.None, f.at, ojs.Event{Type: ojs.EventCompleted, Duration: f.took})
			if f.then != nil {
				c.enqueuedEvents(op, f.then.batch, settled[i].Then, f.at, 0)
			}
		case f.kind == policy.LeaseExpired:
			c.transition(op, f.rec, f.rec.Version+1, eventlog.Starts, f.at, endedEvents(f.rec, f.kind, f.decision, f.took)...)
		default:
			c.transition(op, f.rec, f.rec.Version+1, eventlog.None, f.at, endedEvents(f.rec, f.kind, f.decision, f.took)...)
		}
		c.dependentEvents(op, settled[i].Moved, f.at)
	}
	op.End()
}

// publishEnd publishes an attempt's end that a call had stored which seemed to fail.
func (c *core) publishEnd(ctx context.Context, f *settlement) {
	list := []*settlement{f}
	var stored storage.Settled
	op := c.beganEnds(list, new(scratch))
	if op != nil {
		stored.Then = c.lookUpThen(ctx, f.then)
	}
	c.publishEnds(op, list, []storage.Settled{stored})
}

// storedBefore reports whether a Settle that failed had stored rec all the same: the next
// try then finds the job one version on, and as rec would have it.
func (c *core) storedBefore(ctx context.Context, rec *storage.Record, s storage.Settled) bool {
	if !errors.Is(s.Err, storage.ErrFenced) || s.Version != rec.Version+1 {
		return false
	}
	there, err := c.store.Get(ctx, rec.ID)
	return err == nil && there.Version == s.Version && there.State == rec.State &&
		there.FinishedAt.Equal(rec.FinishedAt) && there.NextRetryAt.Equal(rec.NextRetryAt)
}

// pause waits on the engine's clock. It reports false if the engine's stop ends the wait.
func (r *run) pause(d time.Duration) bool {
	r.c.mu.Lock()
	s := r.newSleep(d, true)
	r.c.mu.Unlock()
	select {
	case <-s.over:
		return true
	case <-r.closing:
	}
	r.sched.Cancel(&s.timer)
	r.c.mu.Lock()
	s.end()
	r.c.mu.Unlock()
	return false
}
