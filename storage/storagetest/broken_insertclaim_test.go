package storagetest_test

import (
	"math"

	"github.com/ojsengine/ojs"
	"github.com/ojsengine/ojs/storage"
)

// Storages that break the rules of Insert.Claim. Memory never claims: these do, and when
// they should not.
var _ = register([]fault{
	{"new jobs said to be claimed", "insertclaim-1 insertclaim-2 insertclaim-3 insertclaim-4",
		afterInsert(func(b *broken, ctx Context, now Time, batch inserts, out results) {
			for i := range out {
				out[i].Claimed = batch[0].Claim != nil
			}
		})},
	{"new jobs claimed for nobody", "insertclaim-1",
		afterInsert(func(b *broken, ctx Context, now Time, batch inserts, out results) {
			claimNew(b, ctx, now, batch, out, func(c *storage.Claim) { c.Worker = "" })
		})},
	{"versions of new jobs are those of their claims", "insertclaim-1",
		afterInsert(func(b *broken, ctx Context, now Time, batch inserts, out results) {
			claimNew(b, ctx, now, batch, out, func(*storage.Claim) {})
			for i := range out {
				if out[i].Claimed {
					out[i].Version++
				}
			}
		})},
	{"new jobs claimed long ago", "insertclaim-1",
		afterInsert(func(b *broken, ctx Context, now Time, batch inserts, out results) {
			claimNew(b, ctx, now.Add(-1e9), batch, out, func(*storage.Claim) {})
		})},
	{"new jobs claimed before others", "insertclaim-2", func(b *broken) {
		b.insert = func(b *broken, ctx Context, now Time, batch inserts, dst results) (results, error) {
			if len(batch) > 1 || batch[0].Claim == nil {
				return b.Storage.Insert(ctx, now, batch, dst)
			}
			batch[0].Record.Priority = math.MaxInt32
			dst, err := b.Storage.Insert(ctx, now, batch, dst)
			if err == nil {
				claimNew(b, ctx, now, batch, dst, func(*storage.Claim) {})
			}
			return dst, err
		}
	}},
	{"a part of a batch claimed", "insertclaim-3",
		afterInsert(func(b *broken, ctx Context, now Time, batch inserts, out results) {
			if batch[0].Claim != nil && len(batch) > 1 && batch[0].Record.State == ojs.StateAvailable {
				claimNew(b, ctx, now, batch[:1], out[:1], func(*storage.Claim) {})
			}
		})},
	{"jobs of paused queues claimed as they come", "insertclaim-4",
		afterInsert(func(b *broken, ctx Context, now Time, batch inserts, out results) {
			if batch[0].Claim == nil {
				return
			}
			states, _ := b.Storage.QueueStates(ctx)
			for queue := range states {
				_, _ = b.Storage.SetQueueState(ctx, queue, ojs.QueueActive)
			}
			claimNew(b, ctx, now, batch, out, func(*storage.Claim) {})
			for queue, state := range states {
				_, _ = b.Storage.SetQueueState(ctx, queue, state)
			}
		})},
})

// afterInsert has f follow each insert.
func afterInsert(f func(b *broken, ctx Context, now Time, batch inserts, out results)) func(*broken) {
	return func(b *broken) {
		b.insert = func(b *broken, ctx Context, now Time, batch inserts, dst results) (results, error) {
			first := len(dst)
			dst, err := b.Storage.Insert(ctx, now, batch, dst)
			if err == nil && len(batch) > 0 {
				f(b, ctx, now, batch, dst[first:])
			}
			return dst, err
		}
	}
}

// claimNew claims the jobs of a batch if they are the first that their claim takes.
func claimNew(b *broken, ctx Context, now Time, batch inserts, out results, change func(*storage.Claim)) {
	if batch[0].Claim == nil {
		return
	}
	c := *batch[0].Claim
	c.Max = len(batch)
	change(&c)
	recs, err := b.Storage.Claim(ctx, now, c, nil)
	claimed := err == nil && len(recs) == len(batch)
	is := make(map[string]bool)
	for i := range batch {
		is[batch[i].Record.ID] = true
	}
	for i := range recs {
		claimed = claimed && is[recs[i].ID]
	}
	if claimed {
		for i := range out {
			out[i].Claimed = true
		}
		return
	}
	var held []storage.Held
	for i := range recs {
		held = append(held, storage.Held{ID: recs[i].ID, Version: recs[i].Version})
	}
	_, _ = b.Storage.Unclaim(ctx, now, held)
}
