package engine

import (
	"context"
	"errors"
	"fmt"

	"github.com/ojsengine/ojs"
	"github.com/ojsengine/ojs/internal/foreign"
	"github.com/ojsengine/ojs/policy"
	"github.com/ojsengine/ojs/storage"
	"github.com/ojsengine/ojs/storage/insert"
)

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
func (r *run) settleCompleted(a *attempt, o policy.Outcome, cause error, said said) task {
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
