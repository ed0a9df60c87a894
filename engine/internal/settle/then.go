package settle

import (
	"context"

	"github.com/ojsengine/ojs"
	"github.com/ojsengine/ojs/engine/internal/enqueue"
	"github.com/ojsengine/ojs/storage"
	"github.com/ojsengine/ojs/storage/insert"
)

// Follow gives a settlement its follow-ups, if it completes its job.
func (f *Settlement) Follow(l *enqueue.FollowUps) {
	if l != nil && f.Rec.State == ojs.StateCompleted {
		l.EnqueueAt(f.at)
		f.Then = l
	}
}

// AnyExtras reports whether a settlement of a list is more than a record, so that
// SettleAndClaim cannot store it.
func AnyExtras(list []*Settlement) bool {
	for _, f := range list {
		if f.Then != nil || f.Log != nil {
			return true
		}
	}
	return false
}

// RefusedThen reports whether a settlement was refused for its follow-ups.
func (f *Settlement) RefusedThen(err error) bool {
	return f.Then != nil && insert.Refused(err)
}

// followed follows the follow-ups of outcomes that were stored, before their events.
func (c *Settler) followed(ctx context.Context, list []*Settlement, settled []storage.Settled) {
	for i, f := range list {
		if f.Then == nil || settled[i].Err != nil {
			continue
		}
		if len(settled[i].Then) != len(f.Then.Batch) { // the storage breaks its contract
			settled[i].Then = c.lookUpThen(ctx, f.Then)
		}
		c.Enqueue.Replaced(settled[i].Then)
	}
}

// enqueuedThen follows the follow-ups of outcomes that were stored, after their events.
func (c *Settler) enqueuedThen(list []*Settlement, settled []storage.Settled) {
	for i, f := range list {
		if f.Then != nil && settled[i].Err == nil {
			c.Enqueue.Inserted(f.Then.Batch, settled[i].Then, 0)
		}
	}
}

// lookUpThen returns the results of follow-ups that a call has stored which seemed to
// fail, as far as they can still be seen. The others have no version.
func (c *Settler) lookUpThen(ctx context.Context, l *enqueue.FollowUps) []storage.Inserted {
	found := make([]storage.Inserted, len(l.Inserts()))
	for i := range found {
		r := &l.Batch[i].Record
		if there, err := c.Store.Get(ctx, r.ID); err == nil && there.State == r.State && there.Attempt == 0 {
			found[i].Version = there.Version
		}
	}
	return found
}
