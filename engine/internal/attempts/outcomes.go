package attempts

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/ojsengine/ojs"
	"github.com/ojsengine/ojs/engine/internal/enqueue"
	"github.com/ojsengine/ojs/engine/internal/env"
	"github.com/ojsengine/ojs/engine/internal/joblog"
	"github.com/ojsengine/ojs/engine/internal/settle"
	"github.com/ojsengine/ojs/internal/draft"
	"github.com/ojsengine/ojs/internal/foreign"
	"github.com/ojsengine/ojs/internal/outcome"
	"github.com/ojsengine/ojs/internal/stored"
	"github.com/ojsengine/ojs/policy"
	"github.com/ojsengine/ojs/storage"
)

// Concluded ends the attempts whose outcomes are stored.
func (c *Attempts) Concluded(list []*settle.Settlement, settled []storage.Settled) {
	// The storage counts the jobs no more, also if their handlers go on.
	if len(list) > 0 && c.Admission.LimitsHold() {
		c.Available(env.Unknown)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for i, f := range list {
		a, _ := f.Owner.(*attempt)
		if a == nil || settled[i].Err != nil {
			continue
		}
		r := a.r
		if r.Stopping.Load() && f.Decision.Rule == policy.RuleInterrupted {
			r.returned = append(r.returned, f.Rec.ID)
		}
		if r.conclude(a) && a.reusable(f) {
			attempts.Put(a)
		}
	}
}

// store stores the outcomes of attempts whose handlers have returned.
func (r *Run) store(outcomes []*settle.Settlement, s *settle.Scratch) {
	n := len(outcomes)
	if r.c.Tracing() { // each call is an operation about one job
		n = 1
	}
	for batch := range slices.Chunk(outcomes, max(n, 1)) {
		if settled, err := r.c.Settle.Settle(r.Base, batch, s); err != nil {
			r.again(batch, err)
		} else {
			r.refused(batch, settled)
		}
	}
}

// refused gives up the outcomes of a list that the storage has refused, or stores
// failures in their place.
func (r *Run) refused(list []*settle.Settlement, settled []storage.Settled) {
	var failed []*settle.Settlement
	for i := range settled { // what was stored may have been reused
		switch err := settled[i].Err; {
		case err == nil:
		case list[i].RefusedThen(err):
			failed = append(failed, r.failed(list[i], err))
		default:
			r.dropped(list[i], err)
		}
	}
	if len(failed) > 0 {
		r.store(failed, new(settle.Scratch))
	}
}

// dropped gives up an outcome that was not stored.
func (r *Run) dropped(f *settle.Settlement, err error) {
	r.c.Settle.NotStored(f, err)
	r.c.mu.Lock()
	defer r.c.mu.Unlock()
	if r.Stopping.Load() && !settle.LostClaim(err) && !foreign.Is(err, ojs.ErrClosed) {
		r.unstored = append(r.unstored, f.Rec.ID)
	}
	f.Owner.(*attempt).cause = ojs.ErrLeaseLost // or the lease is going to run out
	r.conclude(f.Owner.(*attempt))
}

// again has outcomes that a call has failed to store stored by goroutines of their own,
// so that one that the storage can never take holds up no other.
func (r *Run) again(outcomes []*settle.Settlement, err error) {
	r.c.mu.Lock()
	for _, f := range outcomes {
		f.Tried, f.Owner.(*attempt).kept = true, true // the storage may still read the record
	}
	r.c.mu.Unlock()
	r.Pipe.Failed(len(outcomes))
	for _, f := range outcomes {
		go func() {
			r.persist(f, err)
			r.Pipe.Recovered()
			r.left()
		}()
	}
}

// persist stores an outcome that the storage has failed to take with an error, again and
// again until the engine stops.
func (r *Run) persist(f *settle.Settlement, err error) {
	list := []*settle.Settlement{f}
	for n := 1; !foreign.Is(err, ojs.ErrClosed) && r.pause(n); n++ {
		var settled []storage.Settled
		if settled, err = r.c.Settle.Settle(r.Base, list, new(settle.Scratch)); err == nil {
			r.refused(list, settled)
			return
		}
	}
	r.dropped(f, err)
}

// settleRunning settles an attempt that the caller has taken from running, while its
// handler goes on. It returns the error of a storage that has failed.
func (r *Run) settleRunning(a *attempt, kind policy.OutcomeKind) (f *settle.Settlement, err error) {
	r.c.mu.Lock()
	cause, said := a.cause, a.said()
	r.c.mu.Unlock()
	f = r.decide(a, cause, policy.Outcome{Kind: kind}, said, r.c.Now())
	refused, err := r.c.Settle.SettleOne(r.Base, f)
	if refused != nil {
		r.dropped(f, refused)
	}
	return f, err
}

// settleOverrun settles an attempt whose handler has not returned in the grace period
// after its timeout. Its caller, the chore of leases, waits for no storage that fails:
// the attempt's timer calls again. If the handler has returned meanwhile, a goroutine of
// its own does.
func (r *Run) settleOverrun(a *attempt) {
	if f, err := r.settleRunning(a, policy.TimedOut); err != nil && !r.resume(a) {
		r.again([]*settle.Settlement{f}, err)
	}
}

// resume gives an attempt that was not settled back to its handler and its timer. It
// reports false if the handler has returned or the attempt has lost its job.
func (r *Run) resume(a *attempt) bool {
	r.c.mu.Lock()
	defer r.c.mu.Unlock()
	if a.returned || a.phase != settling {
		return false
	}
	a.phase = running
	a.forceAt = r.c.Now().Add(env.StorageBackoff(1))
	a.arm()
	return true
}

// reported is what a handler has said of its attempt.
type reported struct {
	progress   float64
	checkpoint json.RawMessage
	result     json.RawMessage
	then       *enqueue.FollowUps
	lines      *joblog.Lines   // that it has logged; nil: none are kept
	traced     context.Context // what tracers made of ctx; nil: there are none
	alone      bool            // in a copy: the handler has returned, and no other goroutine reads the record
}

// decide decides on the job of an attempt, whose context was ended by an error, nil if
// it has not. If the handler has returned, and neither a caller nor a chore has the
// attempt, its own record takes the decision; otherwise a copy does.
func (r *Run) decide(a *attempt, by error, o policy.Outcome, said reported, at time.Time) *settle.Settlement {
	f := &a.settlement
	if said.alone && a.context.TakeBack() {
		f.Rec, f.Worker = a.rec, r.c.Worker
	} else {
		f = settle.NewSettlement(a.rec, r.c.Worker)
	}
	f.Owner = a
	f.Rec.Progress, f.Rec.Checkpoint = said.progress, said.checkpoint
	if said.traced != nil {
		f.Traced = context.WithoutCancel(said.traced)
	}
	log := stored.Log{Attempt: f.Rec.Attempt, Start: a.began(), End: at, Worker: f.Rec.Worker}
	r.c.Settle.Decide(f, outcome.EndedBy(by, o), log.Start, at, said.result)
	f.Follow(said.then)
	f.Log = r.c.Settle.EncodeLog(&f.Rec.JobHeader, log, said.lines)
	return f
}

// pause waits before a call of the storage is repeated that has failed n times. It ends
// early when the storage answers again. It reports false if the engine's stop ends the
// wait.
func (r *Run) pause(n int) bool { return r.sleeps.Pause(env.StorageBackoff(n), r.closing) }

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
		return draft.Invalid("tx",
			"the context carries no transaction; use one of postgres.WithTx or of Within of storage/sqlite")
	}
	if err := c.CheckTx(ctx); err != nil {
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

	f := a.r.decide(a, nil, policy.Outcome{Kind: policy.Returned}, said, c.Now())
	var stored storage.Settled
	err := error(ojs.ErrTimeout) // of the job as a whole
	if f.Rec.State == ojs.StateCompleted {
		stored, err = c.Settle.StoreIn(ctx, f)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if err == nil {
		a.completed, a.stores = f, stored
		return nil
	}
	a.inTx = a.completed != nil // by an earlier call
	a.arm()
	if settle.LostClaim(err) {
		a.r.lose(a.held(), ojs.ErrLeaseLost)
		return a.gone()
	}
	return err
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
func (r *Run) settleCompleted(a *attempt, o policy.Outcome, cause error, said reported) task {
	f, c := a.completed, r.c
	there, err := c.Settle.LookUp(r.Base, a.rec.ID, r.pause)
	switch {
	case err != nil && !foreign.Is(err, ojs.ErrNotFound): // the engine stops
		r.dropped(f, err)
	case err == nil && there.Version == a.rec.Version:
		if o.Kind == policy.Returned && o.Err == nil {
			o.Err = errUncommitted
		}
		return r.Pipe.Ended(r.decide(a, cause, o, said, c.Now()), c.Now())
	case err != nil || // only finished jobs are deleted
		there.Version == a.rec.Version+1 && there.State == ojs.StateCompleted:
		if o.Kind != policy.Returned || o.Err != nil {
			log := c.JobLog(&a.rec.JobHeader)
			log.Warn("handler failed after the commit of its completion; the job stays completed",
				"error", o.Err)
		}
		list := []*settle.Settlement{f}
		_, _ = c.Settle.StoreEnds(r.Base, list, new(settle.Scratch), func() ([]storage.Settled, error) {
			return []storage.Settled{a.stores}, nil
		})
	default:
		r.dropped(f, storage.ErrFenced)
	}
	return r.Pipe.Dropped()
}

// Then implements internal.Attempt.
func (a *attempt) Then(ctx context.Context, drafts []ojs.Draft) error {
	c := a.r.c
	list, err := c.Enqueue.FollowUps(ctx, drafts)
	if err != nil {
		return err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case a.phase != running:
		return a.gone()
	case a.inTx:
		return errCompleting
	}
	a.then = a.then.With(list)
	return nil
}

// Enqueuer implements internal.Attempt.
func (a *attempt) Enqueuer() ojs.Enqueuer { return a.r.c.Enqueue }

// failed decides on an attempt anew whose follow-ups were refused.
func (r *Run) failed(f *settle.Settlement, refused error) *settle.Settlement {
	r.c.Enqueue.Rejected(refused)
	a := f.Owner.(*attempt)
	r.c.mu.Lock()
	said := a.said()
	r.c.mu.Unlock()
	err := fmt.Errorf("ojs: a job of handler.Then was refused: %w", r.c.Enqueue.Explained(refused,
		f.Then.Batch))
	return r.decide(a, nil, policy.Outcome{Kind: policy.Returned, Err: err}, said, r.c.Now())
}

// mu is held in the rest.

// conclude ends an attempt whose outcome is stored or given up. It reports whether the
// handler has returned, and the attempt has left r.attempts.
func (r *Run) conclude(a *attempt) bool {
	a.phase = over
	if !a.returned || a.at >= len(r.attempts) || r.attempts[a.at] != a { // it goes on, or has left
		return false
	}
	r.retire(a)
	return true
}

// retire removes an attempt from r.attempts, once its handler has returned and its
// outcome is stored or its job is lost.
func (r *Run) retire(a *attempt) {
	last := len(r.attempts) - 1
	r.attempts[last].at, r.attempts[a.at] = a.at, r.attempts[last]
	r.attempts[last], r.attempts = nil, r.attempts[:last]
	if r.logging[a.rec.ID] == a {
		delete(r.logging, a.rec.ID)
	}
	r.c.Admission.LetIn(a.held())
	r.checkDrained() // the pipeline may be empty already
	r.c.book.Retire(a.rec.ID, a.claimed, a.cause == ojs.ErrLeaseLost)
}

func (a *attempt) said() reported {
	s := a.reported
	s.alone = a.returned && !a.kept
	return s
}
