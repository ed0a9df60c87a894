package enqueue

import (
	"cmp"
	"context"
	"fmt"
	"time"

	"github.com/ojsengine/ojs"
	"github.com/ojsengine/ojs/engine/internal/jobtypes"
	"github.com/ojsengine/ojs/internal/foreign"
	"github.com/ojsengine/ojs/storage"
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

// FollowUps are jobs that are stored if an attempt completes. Nil: there are none.
type FollowUps struct {
	Batch []storage.Insert
	when  []drafted // of each of the batch
}

// With returns the follow-ups and others.
func (l *FollowUps) With(more *FollowUps) *FollowUps {
	if l == nil || more == nil {
		return cmp.Or(l, more)
	}
	l.Batch, l.when = append(l.Batch, more.Batch...), append(l.when, more.when...)
	return l
}

// drafted says when a follow-up was drafted, and which of its times count from its
// enqueue.
type drafted struct {
	at             time.Time
	delayed, lives bool
}

// FollowUps makes follow-ups of drafts, nil if none are left.
func (c *Enqueuer) FollowUps(ctx context.Context, drafts []ojs.Draft) (*FollowUps, error) {
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
	now := c.Now()
	list := new(FollowUps)
	var names []string
	for i := range drafts {
		var in storage.Insert
		d := &drafts[i]
		p, err := c.Types.Prepare(ctx, &in, d.Type(), d.Args(), d.Defaults(), d.Options(), now,
			new(jobtypes.Plan))
		switch {
		case foreign.Is(err, ojs.ErrDropped):
		case err != nil && len(drafts) > 1:
			return nil, fmt.Errorf("ojs: draft %d of %d: %w", i+1, len(drafts), err)
		case err != nil:
			return nil, err
		default:
			in.IDIsNew = false // a settle whose answer is lost is made again
			when := drafted{now, p.Options.Delay > 0, !in.Record.ExpiresAt.IsZero() && p.Options.TTL > 0}
			list.Batch, list.when = append(list.Batch, in), append(list.when, when)
			names = append(names, p.Options.Name)
		}
	}
	if len(list.Batch) == 0 {
		return nil, nil
	}
	if err := jobtypes.NameDependencies(list.Batch, names); err != nil {
		return nil, err
	}
	_, end := c.TraceEnqueue(ctx, list.Batch)
	end(nil)
	return list, nil
}

// EnqueueAt sets the times of follow-ups that are stored with the end of an attempt.
func (l *FollowUps) EnqueueAt(now time.Time) {
	for i := range l.Batch {
		r, when := &l.Batch[i].Record, &l.when[i]
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

// Inserts returns the follow-ups as the storage takes them.
func (l *FollowUps) Inserts() []storage.Insert {
	if l == nil {
		return nil
	}
	return l.Batch
}
