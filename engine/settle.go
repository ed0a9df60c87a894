package engine

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"time"

	"github.com/ojsengine/ojs"
	"github.com/ojsengine/ojs/engine/internal/eventlog"
	"github.com/ojsengine/ojs/engine/internal/joblog"
	"github.com/ojsengine/ojs/internal/foreign"
	"github.com/ojsengine/ojs/policy"
	"github.com/ojsengine/ojs/storage"
	"github.com/ojsengine/ojs/storage/insert"
	"github.com/ojsengine/ojs/telemetry"
)

// The completer stores the outcomes of attempts. Every outcome takes the same steps,
// whether a handler, a stop, a timeout, an ended lease or a remote worker brings it:
//
//  1. settle stores a list of outcomes in one call. A step of the pipeline that claims,
//     too, calls exchange instead (step.go).
//  2. storeEnds follows the outcomes that the storage has taken: events first, then logs,
//     waiters, and the attempts.
//  3. If the storage has refused an outcome, dropped gives it up. Follow-ups that were
//     refused make it a failure of the attempt instead, which is stored in its place.
//
// If the call itself fails, it may have stored everything. The outcomes are marked as
// tried, and the next settle of such an outcome recognises what is there. The callers
// differ in who calls next: a goroutine of its own for an outcome of a handler that has
// returned, the attempt's timer after a timeout, the worker for its delivery. After an
// ended lease and at the end of a stop there is no next call: the lease runs out.

// settle stores outcomes in one call, and follows each that is stored. The results are in
// the scratch, which the storage may keep if it fails. With a tracer it stores one
// outcome only.
func (c *core) settle(ctx context.Context, list []*settlement, s *scratch) ([]storage.Settled, error) {
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
		s.changes = append(s.changes, f.change())
	}
	return c.storeEnds(ctx, list, s, func() ([]storage.Settled, error) {
		settled, err := c.store.Settle(ctx, c.now(), s.changes, s.settled[:0])
		if err != nil {
			end(err)
			*s = scratch{recs: s.recs, claimed: s.claimed}
			for _, f := range list {
				f.tried = true
			}
			c.failed("settle", err, "jobs", len(list), "job_id", list[0].rec.ID)
			return nil, err
		}
		s.settled = settled
		end(settled[0].Err)
		for i, f := range list {
			if f.tried && c.storedBefore(ctx, f.rec, settled[i]) {
				settled[i].Err = nil
			}
		}
		return settled, nil
	})
}

// storeEnds makes a call that stores outcomes, and follows those that were stored.
func (c *core) storeEnds(ctx context.Context, list []*settlement, s *scratch,
	call func() ([]storage.Settled, error)) (settled []storage.Settled, err error) {
	c.blockKeys(ctx, list)
	err = c.journal.Do(c.beganEnds(list, s), func() (moved []storage.Record, err error) {
		if settled, err = call(); err != nil {
			return nil, err
		}
		c.followed(ctx, list, settled)
		c.meter.Ended(len(list), func(i int) (telemetry.Attempt, bool) {
			f := list[i]
			return telemetry.Attempt{Job: f.rec, Took: f.took, Returned: f.decision.Refunded,
				Completed: f.decision.State == ojs.StateCompleted}, settled[i].Err == nil
		})
		for i := range settled {
			moved = append(moved, settled[i].Moved...)
		}
		return moved, nil
	}, func(op *eventlog.Op) { c.publishEnds(op, list, settled) }, func() { c.stored(ctx, list, settled) })
	return settled, err
}

// settleOne is settle of one outcome. refused is why the storage has not taken it.
func (c *core) settleOne(ctx context.Context, f *settlement) (refused, err error) {
	settled, err := c.settle(ctx, []*settlement{f}, new(scratch))
	if err != nil {
		return nil, err
	}
	return settled[0].Err, nil
}

// storedBefore reports whether a Settle that failed had stored rec all the same: the next
// try then finds the job one version on, and as rec would have it.
func (c *core) storedBefore(ctx context.Context, rec *storage.Record, s storage.Settled) bool {
	if !foreign.Is(s.Err, storage.ErrFenced) || s.Version != rec.Version+1 {
		return false
	}
	there, err := c.store.Get(ctx, rec.ID)
	return err == nil && there.Version == s.Version && there.State == rec.State &&
		there.FinishedAt.Equal(rec.FinishedAt) && there.NextRetryAt.Equal(rec.NextRetryAt)
}

// stored follows the outcomes of a list that were stored, after their events. The others
// stay as they are.
func (c *core) stored(ctx context.Context, list []*settlement, settled []storage.Settled) {
	c.enqueuedThen(list, settled)
	for i, f := range list {
		if settled[i].Err == nil {
			c.logOutcome(f, f.worker)
			if !f.rec.State.Terminal() {
				c.cancelWithWorkflow(ctx, f.rec)
			}
		}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(list) > 0 && c.held.now() { // the storage counts the jobs no more, also if their handlers go on
		c.available(unknown)
	}
	for i, f := range list {
		if settled[i].Err != nil {
			continue
		}
		if f.rec.State.Terminal() {
			c.jobEnded(f.rec)
		} else {
			c.wakeAt(f.rec.WakeAt())
		}
		if f.a == nil {
			c.workerLost(storage.Held{ID: f.rec.ID, Version: f.rec.Version}, nil)
			continue
		}
		r := f.a.r
		if r.stopping.Load() && f.decision.Rule == policy.RuleInterrupted {
			r.returned = append(r.returned, f.rec.ID)
		}
		if r.conclude(f.a) {
			r.reuse(f.a, f)
		}
	}
}

// conclude ends an attempt whose outcome is stored or given up. It reports whether the
// handler has returned, and the attempt has left r.attempts. core.mu is held.
func (r *run) conclude(a *attempt) bool {
	a.phase = over
	if !a.returned || a.at >= len(r.attempts) || r.attempts[a.at] != a { // it goes on, or has left
		return false
	}
	r.retire(a)
	return true
}

// retire removes an attempt from r.attempts, once its handler has returned and its
// outcome is stored or its job is lost. core.mu is held.
func (r *run) retire(a *attempt) {
	last := len(r.attempts) - 1
	r.attempts[a.at] = r.attempts[last]
	r.attempts[a.at].at = a.at
	r.attempts[last] = nil
	r.attempts = r.attempts[:last]
	r.c.letIn(a.held())
	r.checkDrained() // the pipeline may be empty already
	if len(r.c.unanswered)+len(r.c.asking) == 0 {
		r.c.handedOn = nil
	} else if a.cause == ojs.ErrLeaseLost {
		r.c.handOn(a)
	}
}

// handOn notes that others settle the job of an attempt. core.mu is held.
func (c *core) handOn(a *attempt) {
	if c.handedOn == nil {
		c.handedOn = make(map[string]int64)
	}
	c.handedOn[a.rec.ID] = a.claimed.UnixNano()
}

// reuse keeps the memory of an attempt for the next one, if that may have it. core.mu is
// held.
func (r *run) reuse(a *attempt, f *settlement) {
	switch {
	case !a.reusable(f):
	case len(r.spare) < maxScratch:
		r.spare = append(r.spare, a)
	default:
		attempts.Put(a)
	}
}

// store stores the outcomes of attempts whose handlers have returned.
func (r *run) store(outcomes []*settlement, s *scratch) {
	n := len(outcomes)
	if r.c.tracing() { // each call is an operation about one job
		n = 1
	}
	for batch := range slices.Chunk(outcomes, max(n, 1)) {
		if settled, err := r.c.settle(r.base, batch, s); err != nil {
			r.again(batch, err)
		} else {
			r.refused(batch, settled)
		}
	}
}

// refused gives up the outcomes of a list that the storage has refused, or stores
// failures in their place.
func (r *run) refused(list []*settlement, settled []storage.Settled) {
	var failed []*settlement
	for i := range settled { // what was stored may have been reused
		switch err := settled[i].Err; {
		case err == nil:
		case list[i].refusedThen(err):
			failed = append(failed, r.failed(list[i], err))
		default:
			r.dropped(list[i], err)
		}
	}
	if len(failed) > 0 {
		r.store(failed, new(scratch))
	}
}

// dropped gives up an outcome that was not stored.
func (r *run) dropped(f *settlement, err error) {
	c := r.c
	switch {
	case !foreign.Is(err, storage.ErrFenced):
		c.jobLog(&f.rec.JobHeader).Error("outcome not stored; the job runs again when its lease has run out",
			"error", err)
	case c.logs(slog.LevelDebug):
		c.jobLog(&f.rec.JobHeader).Debug("late result refused")
	}
	if f.a != nil {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.handOn(f.a)
		r.conclude(f.a)
	}
}

// again has outcomes that a call has failed to store stored by goroutines of their own,
// so that one that the storage can never take holds up no other.
func (r *run) again(outcomes []*settlement, err error) {
	r.c.mu.Lock()
	for _, f := range outcomes {
		f.tried, f.a.kept = true, true // the storage may still read the record
	}
	r.c.mu.Unlock()
	r.pipe.Failed(len(outcomes))
	for _, f := range outcomes {
		go func() {
			r.persist(f, err)
			r.pipe.Recovered()
			r.left()
		}()
	}
}

// persist stores an outcome that the storage has failed to take with an error, again and
// again until the engine stops.
func (r *run) persist(f *settlement, err error) {
	list := []*settlement{f}
	for n := 1; !foreign.Is(err, ojs.ErrClosed) && r.pause(n); n++ {
		var settled []storage.Settled
		if settled, err = r.c.settle(r.base, list, new(scratch)); err == nil {
			r.refused(list, settled)
			return
		}
	}
	r.dropped(f, err)
}

// settleRunning settles an attempt that the caller has taken from running, while its
// handler goes on. It returns the error of a storage that has failed.
func (r *run) settleRunning(a *attempt, kind policy.OutcomeKind) (f *settlement, err error) {
	r.c.mu.Lock()
	cause, said := a.cause, a.said()
	r.c.mu.Unlock()
	f = r.decide(a, endedBy(cause, policy.Outcome{Kind: kind}), said, r.c.now())
	refused, err := r.c.settleOne(r.base, f)
	if refused != nil {
		r.dropped(f, refused)
	}
	return f, err
}

// interrupt gives back the job of an attempt whose handler goes on after a stop.
func (r *run) interrupt(a *attempt) {
	if f, err := r.settleRunning(a, policy.Interrupted); err != nil {
		r.dropped(f, err)
	}
}

// settleOverrun settles an attempt whose handler has not returned in the grace period
// after its timeout. Maintenance calls it, and does not wait for a storage that fails:
// the attempt's timer calls again. If the handler has returned meanwhile, a goroutine of
// its own does.
func (r *run) settleOverrun(a *attempt) {
	if f, err := r.settleRunning(a, policy.TimedOut); err != nil && !r.resume(a) {
		r.again([]*settlement{f}, err)
	}
}

// resume gives an attempt that was not settled back to its handler and its timer. It
// reports false if the handler has returned or the attempt has lost its job.
func (r *run) resume(a *attempt) bool {
	r.c.mu.Lock()
	defer r.c.mu.Unlock()
	if a.returned || a.phase != settling {
		return false
	}
	a.phase = running
	a.forceAt = r.c.now().Add(storageBackoff(1))
	a.arm()
	return true
}

// settleStalled settles a job whose lease ran out and that was handed to this engine, or
// whose process has ended.
func (r *run) settleStalled(rec storage.Record, ended bool) {
	limit := rec.LeaseFor(r.c.lease)
	r.settleLost(rec, policy.Outcome{Kind: policy.LeaseExpired, Limit: limit, Ended: ended})
}

// settleLost decides and stores the outcome of a job whose lease is over, or whose holder
// is dead. If it cannot be stored now, the lease runs out in turn.
func (r *run) settleLost(rec storage.Record, o policy.Outcome) {
	now := r.c.now()
	o.Elapsed = now.Sub(rec.StartedAt)
	ctx, end := r.c.trace(r.base, OpVisibility, &rec)
	f := newSettlement(&rec, rec.Worker)
	f.traced = r.c.traced(ctx)
	r.c.decide(f, o, rec.StartedAt, now, nil)
	refused, err := r.c.settleOne(ctx, f)
	if err == nil {
		err = refused
	}
	end(err)
	if err != nil {
		r.dropped(f, err)
	}
}

// lostClaim reports whether a change was refused since its claim is not the job's latest.
func lostClaim(err error) bool {
	return foreign.Is(err, storage.ErrFenced) || foreign.Is(err, ojs.ErrNotFound) ||
		foreign.Is(err, ojs.ErrTransition)
}

// endedBy is the outcome of an attempt whose context ended with a cause before the
// handler returned.
func endedBy(cause error, o policy.Outcome) policy.Outcome {
	if o.Kind == policy.Returned && o.Err == nil ||
		o.Kind != policy.Returned && o.Kind != policy.Interrupted {
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
	log      []byte          // that is stored with it; nil: none
	blocks   time.Time       // until when the job's key is blocked; zero: it is not
	tried    bool            // a call that has failed may have stored it
}

// change is the settlement as the storage takes it.
func (f *settlement) change() storage.Change {
	return storage.Change{Record: *f.rec, AttemptFieldsOnly: true, Then: f.then.inserts(), Log: f.log}
}

// newSettlement makes the settlement of a job that is not decided on yet.
func newSettlement(rec *storage.Record, worker string) *settlement {
	own := *rec
	return &settlement{rec: &own, worker: worker}
}

// reported is what a handler has said of its attempt.
type reported struct {
	progress   float64
	checkpoint json.RawMessage
	result     json.RawMessage
	then       *followUps
	lines      *joblog.Lines   // that it has logged; nil: none are kept
	traced     context.Context // what tracers made of ctx; nil: there are none
	alone      bool            // in a copy: the handler has returned, and no other goroutine reads the record
}

// said: core.mu is held.
func (a *attempt) said() reported {
	s := a.reported
	s.alone = a.returned && !a.kept
	return s
}

// decide decides on the job of an attempt. If the handler has returned, and neither a
// caller nor maintenance has the attempt, its own record takes the decision; otherwise a
// copy does.
func (r *run) decide(a *attempt, o policy.Outcome, said reported, now time.Time) *settlement {
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
	n, began := f.rec.Attempt, a.began()
	r.c.decide(f, o, began, now, said.result)
	f.follow(said.then)
	f.log = r.c.encodeLog(f, n, began, said.lines)
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
	f.blocks = c.blocksUntil(rec, f.decision.Failure, now) // before details are encoded
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

// traced is ctx if there is a tracer, and nil if there is none.
func (c *core) traced(ctx context.Context) context.Context {
	if !c.tracing() {
		return nil
	}
	return ctx
}

// pause waits before a call of the storage is repeated that has failed n times. It ends
// early when the storage answers again. It reports false if the engine's stop ends the
// wait.
func (r *run) pause(n int) bool { return r.sleeps.Pause(storageBackoff(n), r.closing) }

// A handler may complete its job in a transaction of its own (handler.Complete):
//
//  1. The call stores the outcome of the attempt in the transaction, fenced by the claim
//     as every outcome is. From then on the transaction has the job's row, and the engine
//     leaves the attempt alone: a renewal of its lease would wait for the transaction.
//  2. The handler commits and returns. Only the storage knows whether the transaction was
//     committed: its answer to the handler may be lost.
//  3. The engine reads the job. If it has completed, the events of the completion are
//     published. If it is as it was, the attempt has failed. Otherwise it has lost its
//     job.

// Complete implements internal.Attempt.
func (a *attempt) Complete(ctx context.Context) error {
	c := a.r.c
	if storage.Tx(ctx) == nil {
		return invalid("tx",
			"the context carries no transaction; use one of postgres.WithTx or of Within of storage/sqlite")
	}
	if err := c.checkTx(ctx); err != nil {
		return err
	}
	c.mu.Lock()
	if a.phase != running {
		defer c.mu.Unlock()
		return a.gone()
	}
	said := a.said()
	a.inTx = true // no renewal from here on
	c.mu.Unlock()

	f := a.r.decide(a, policy.Outcome{Kind: policy.Returned}, said, c.now())
	var stored storage.Settled
	err := error(ojs.ErrTimeout) // of the job as a whole
	if f.rec.State == ojs.StateCompleted {
		stored, err = c.storeIn(ctx, f)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if err == nil {
		a.completed, a.stores = f, stored
		return nil
	}
	a.inTx = a.completed != nil // by an earlier call
	a.arm()
	if lostClaim(err) {
		a.r.lose(a.held(), ojs.ErrLeaseLost)
		return a.gone()
	}
	return err
}

// storeIn stores a completion in the transaction of a context.
func (c *core) storeIn(ctx context.Context, f *settlement) (stored storage.Settled, err error) {
	ctx, end := c.trace(ctx, OpAck, f.rec)
	settled, err := c.store.Settle(ctx, c.now(), []storage.Change{f.change()}, nil)
	if err == nil {
		stored, err = settled[0], settled[0].Err
	}
	if f.then != nil && insert.Refused(err) {
		err = fmt.Errorf("ojs: a job of handler.Then was refused: %w", c.explained(err, f.then.batch))
	}
	end(err)
	return stored, err
}

// errCompleting refuses what would have to wait for the transaction, or comes too late.
var errCompleting = fmt.Errorf("%w: the attempt has called handler.Complete, after which it only commits and returns",
	ojs.ErrUnsupported)

// errUncommitted is the failure of an attempt whose handler has returned without an error
// and without the commit of its completion.
var errUncommitted = errors.New(
	"ojs: the transaction of handler.Complete was not committed when the handler returned")

// settleCompleted finds out whether the transaction in which an attempt has completed its
// job was committed. It returns what the attempt's goroutine does next.
func (r *run) settleCompleted(a *attempt, o policy.Outcome, cause error, said reported) task {
	f, c := a.completed, r.c
	there, err := r.lookUp(a.rec.ID)
	switch {
	case err != nil && !foreign.Is(err, ojs.ErrNotFound): // the engine stops
		r.dropped(f, err)
	case err == nil && there.Version == a.rec.Version:
		if o.Kind == policy.Returned && o.Err == nil {
			o.Err = errUncommitted
		}
		return r.pipe.Ended(r.decide(a, endedBy(cause, o), said, c.now()), c.now())
	case err != nil || // only finished jobs are deleted
		there.Version == a.rec.Version+1 && there.State == ojs.StateCompleted:
		if o.Kind != policy.Returned || o.Err != nil {
			log := c.jobLog(&a.rec.JobHeader)
			log.Warn("handler failed after the commit of its completion; the job stays completed",
				"error", o.Err)
		}
		list := []*settlement{f}
		_, _ = c.storeEnds(r.base, list, new(scratch), func() ([]storage.Settled, error) {
			return []storage.Settled{a.stores}, nil
		})
	default:
		r.dropped(f, storage.ErrFenced)
	}
	return r.pipe.Dropped()
}

// lookUp reads a job, again and again until the storage answers or the engine stops.
func (r *run) lookUp(id string) (storage.Record, error) {
	for n := 1; ; n++ {
		rec, err := r.c.store.Get(r.base, id)
		answered := err == nil || foreign.Is(err, ojs.ErrNotFound) || foreign.Is(err, ojs.ErrClosed)
		if answered {
			r.c.answered()
			return rec, err
		}
		r.c.failed("get", err, "job_id", id)
		if !r.pause(n) {
			return rec, err
		}
	}
}
