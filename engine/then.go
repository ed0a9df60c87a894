package engine

import (
	"context"
	"fmt"
	"time"

	"github.com/ojsengine/ojs"
	"github.com/ojsengine/ojs/internal/foreign"
	"github.com/ojsengine/ojs/policy"
	"github.com/ojsengine/ojs/storage"
	"github.com/ojsengine/ojs/storage/insert"
)

// The jobs of handler.Then and of Delivery.Ack are stored with the outcome of their
// attempt:
//
//  1. The call makes records of the drafts, under ids of their own.
//  2. If the attempt completes its job, the records get the times of its end, and go into
//     the change of its outcome (storage.Change.Then).
//  3. The storage makes the change and stores them, or does neither. A repeated settle
//     finds the job moved on, and stores nothing twice.
//  4. Their events are published after that of the completion, by the same operation.
//
// If the storage refuses one of them, the outcome is another: the attempt has failed.

// followUps are jobs that are stored if an attempt completes. Nil: there are none.
type followUps struct {
	batch []storage.Insert
	when  []drafted // of each of the batch
}

// drafted says when a follow-up was drafted, and which of its times count from its
// enqueue.
type drafted struct {
	at             time.Time
	delayed, lives bool
}

// Then implements internal.Attempt.
func (a *attempt) Then(ctx context.Context, drafts []ojs.Draft) error {
	c := a.r.c
	list, err := c.followUps(ctx, drafts)
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
	case list == nil:
	case a.then == nil:
		a.then = list
	default:
		a.then.batch = append(a.then.batch, list.batch...)
		a.then.when = append(a.then.when, list.when...)
	}
	return nil
}

// Enqueuer implements internal.Attempt.
func (a *attempt) Enqueuer() ojs.Enqueuer { return (*enqueuer)(a.r.c) }

type enqueuer core

// EnqueueMany implements ojs.Enqueuer.
func (c *enqueuer) EnqueueMany(ctx context.Context, drafts ...ojs.Draft) ([]ojs.Ticket, error) {
	return (*core)(c).enqueueMany(ctx, drafts)
}

// followUps makes follow-ups of drafts, nil if none are left.
func (c *core) followUps(ctx context.Context, drafts []ojs.Draft) (*followUps, error) {
	if len(drafts) == 0 {
		return nil, nil
	}
	if err := storage.CheckTx(ctx); err != nil {
		return nil, err
	}
	if tx := storage.Tx(ctx); tx != nil {
		return nil, fmt.Errorf("%w: the context carries a transaction (%T), "+
			"which does not include the end of the job; use a context without it", ojs.ErrUnsupported, tx)
	}
	now := c.now()
	list := new(followUps)
	var places []int
	for i := range drafts {
		in, when, err := c.followUp(ctx, &drafts[i], now)
		switch {
		case foreign.Is(err, ojs.ErrDropped):
		case err != nil && len(drafts) > 1:
			return nil, fmt.Errorf("ojs: draft %d of %d: %w", i+1, len(drafts), err)
		case err != nil:
			return nil, err
		default:
			list.batch, list.when = append(list.batch, in), append(list.when, when)
			places = append(places, i)
		}
	}
	if len(list.batch) == 0 {
		return nil, nil
	}
	if err := c.nameDependencies(list.batch, places, drafts); err != nil {
		return nil, err
	}
	_, end := c.traceEnqueue(ctx, list.batch)
	end(nil)
	return list, nil
}

func (c *core) followUp(
	ctx context.Context, d *ojs.Draft, now time.Time,
) (in storage.Insert, when drafted, err error) {
	var own plan
	if err = c.prepare(ctx, &in, d.Type(), d.Args(), d.Defaults(), d.Options(), now, &own); err != nil {
		return in, when, err
	}
	in.IDIsNew = false // a settle whose answer is lost is made again
	t, err := c.jobType(d.Type())
	if err != nil {
		return in, when, err
	}
	p, err := c.planFor(t, d.Defaults(), d.Options(), &own)
	if err != nil {
		return in, when, err
	}
	return in, drafted{now, p.options.Delay > 0, !in.Record.ExpiresAt.IsZero() && p.options.TTL > 0}, nil
}

// enqueueAt sets the times of follow-ups that are stored with the end of an attempt.
func (l *followUps) enqueueAt(now time.Time) {
	for i := range l.batch {
		r, when := &l.batch[i].Record, &l.when[i]
		since := now.Sub(when.at)
		when.at = now
		r.CreatedAt = now
		if when.delayed {
			r.ScheduledAt = r.ScheduledAt.Add(since)
		}
		if when.lives {
			r.ExpiresAt = r.ExpiresAt.Add(since)
		}
		switch {
		case r.State == ojs.StatePending:
		case r.ScheduledAt.After(now):
			r.State, r.EnqueuedAt = ojs.StateScheduled, time.Time{}
		default:
			r.State, r.EnqueuedAt = ojs.StateAvailable, now
		}
	}
}

// follow gives a settlement its follow-ups, if it completes its job.
func (f *settlement) follow(l *followUps) {
	if l != nil && f.rec.State == ojs.StateCompleted {
		l.enqueueAt(f.at)
		f.then = l
	}
}

// inserts returns the follow-ups as the storage takes them.
func (l *followUps) inserts() []storage.Insert {
	if l == nil {
		return nil
	}
	return l.batch
}

// anyExtras reports whether a settlement of a list is more than a record, so that
// SettleAndClaim cannot store it.
func anyExtras(list []*settlement) bool {
	for _, f := range list {
		if f.then != nil || f.log != nil {
			return true
		}
	}
	return false
}

// refusedThen reports whether a settlement was refused for its follow-ups.
func (f *settlement) refusedThen(err error) bool {
	return f.then != nil && insert.Refused(err)
}

// failed decides on an attempt anew whose follow-ups were refused.
func (r *run) failed(f *settlement, refused error) *settlement {
	r.c.rejected(refused)
	r.c.mu.Lock()
	said := f.a.said()
	r.c.mu.Unlock()
	err := fmt.Errorf("ojs: a job of handler.Then was refused: %w", r.c.explained(refused, f.then.batch))
	return r.decide(f.a, policy.Outcome{Kind: policy.Returned, Err: err}, said, r.c.now())
}

// followed follows the follow-ups of outcomes that were stored, before their events.
func (c *core) followed(ctx context.Context, list []*settlement, settled []storage.Settled) {
	for i, f := range list {
		if f.then == nil || settled[i].Err != nil {
			continue
		}
		if len(settled[i].Then) != len(f.then.batch) { // the storage breaks its contract
			settled[i].Then = c.lookUpThen(ctx, f.then)
		}
		c.replaced(settled[i].Then)
	}
}

// enqueuedThen follows the follow-ups of outcomes that were stored, after their events.
func (c *core) enqueuedThen(list []*settlement, settled []storage.Settled) {
	for i, f := range list {
		if f.then != nil && settled[i].Err == nil {
			c.inserted(f.then.batch, settled[i].Then, 0)
		}
	}
}

// lookUpThen returns the results of follow-ups that a call has stored which seemed to
// fail, as far as they can still be seen. The others have no version.
func (c *core) lookUpThen(ctx context.Context, l *followUps) []storage.Inserted {
	found := make([]storage.Inserted, len(l.inserts()))
	for i := range found {
		r := &l.batch[i].Record
		if there, err := c.store.Get(ctx, r.ID); err == nil && there.State == r.State && there.Attempt == 0 {
			found[i].Version = there.Version
		}
	}
	return found
}
