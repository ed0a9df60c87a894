package settle

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/ojsengine/ojs/engine/internal/claims"
	"github.com/ojsengine/ojs/policy"
	"github.com/ojsengine/ojs/storage"
)

// GiveBack gives back those of the active jobs of a worker that a failed claim has taken,
// by the book of its claims, and returns when to look again. mu guards the book and what
// has, which reports whether a job has an attempt, looks at.
func (c *Settler) GiveBack(ctx context.Context, now time.Time, worker string, mu sync.Locker,
	book *claims.Book, has func(id string) bool) (next time.Time, err error) {
	mu.Lock()
	failed := book.Failed()
	mu.Unlock()
	if !failed {
		return next, nil
	}
	active, err := c.Store.ClaimedBy(ctx, worker)
	if err != nil {
		return next, err
	}
	mu.Lock() // after the look: a claim that has returned meanwhile is in the books
	recs, waits := book.Unknown(active, c.Store.Capabilities().Precision, has)
	mu.Unlock()
	err = c.unclaim(ctx, worker, recs)
	c.Available(len(recs)) // also if that failed: the storage may have done it
	for i := range recs {
		recs[i].Unclaim()
		c.WakeAt(recs[i].WakeAt())
	}
	if err != nil {
		return next, err
	}
	mu.Lock()
	defer mu.Unlock()
	return book.Looked(now, waits), nil
}

// unclaim gives back jobs whose attempts have not begun.
func (c *Settler) unclaim(ctx context.Context, worker string, recs []storage.Record) error {
	if len(recs) == 0 {
		return nil
	}
	c.Log.Warn("claims whose answer was lost are given back", "worker_id", worker, "jobs", len(recs))
	now := c.Now()
	if stepper, ok := c.Store.(storage.SettleClaimer); ok {
		var held []storage.Held
		recs = slices.DeleteFunc(slices.Clone(recs), func(rec storage.Record) bool {
			undoes := rec.EnqueueTTL == 0 // Unclaim would have it count again
			if undoes {
				held = append(held, storage.Held{ID: rec.ID, Version: rec.Version})
			}
			return undoes
		})
		if len(held) > 0 {
			if _, err := stepper.Unclaim(ctx, now, held); err != nil {
				return err
			}
		}
	}
	for i := range recs {
		f := NewSettlement(&recs[i], worker)
		c.Decide(f, policy.Outcome{Kind: policy.Interrupted}, now, now, nil)
		if _, err := c.SettleOne(ctx, f); err != nil {
			return err
		}
	}
	return nil
}
