package storagetest_test

import (
	"context"
	"slices"
	"time"

	"github.com/ojsengine/ojs"
	"github.com/ojsengine/ojs/storage"
)

// Storages that prune the wrong jobs, or report what they pruned wrongly.
var _ = register([]fault{
	{"pruned with the time itself", "prune-1 prune-5 prune-7 prune-8",
		changePrune(func(p *storage.Prune) { p.Before = p.Before.Add(1) })},
	{"number is no reason", "prune-2 prune-5 prune-6 prune-7 prune-8",
		changePrune(func(p *storage.Prune) { p.Beyond = 0 })},
	{"states ignored when pruning", "prune-3", changePrune(func(p *storage.Prune) { p.States = nil })},
	{"pruned within their period", "prune-5 prune-6 prune-9",
		changePrune(func(p *storage.Prune) { p.Now = p.Now.AddDate(1, 0, 0) })},
	{"kept after their period", "prune-5 prune-6 prune-9",
		changePrune(func(p *storage.Prune) { p.Now = time.Time{} })},
	{"released for good", "prune-9", keptAgain(0)},
	{"kept again once", "prune-9", keptAgain(1)},
	{"kept jobs are counted", "prune-5", func(b *broken) {
		b.prune = func(b *broken, ctx context.Context, p storage.Prune) (storage.Pruned, error) {
			page, _ := b.Storage.List(ctx,
				storage.Query{States: []ojs.State{ojs.StateCompleted, ojs.StateCancelled,
					ojs.StateDiscarded}})
			for _, r := range page.Records {
				if r.KeptUntil().After(p.Now) && p.Beyond > 1 {
					p.Beyond--
				}
			}
			return b.Storage.Prune(ctx, p)
		}
	}},
	{"pruned within the time for their results", "prune-6 prune-4 prune-9",
		pruneBy(func(r *storage.Record) { r.ResultTTL = 0 }, byFinish)},
	{"kept forever, but not for a time", "prune-6 prune-4 prune-9",
		pruneBy(func(r *storage.Record) { r.ResultTTL = min(r.ResultTTL, 0) }, byFinish)},
	{"the time for a result counts from the enqueue", "prune-6 prune-4", pruneBy(func(r *storage.Record) {
		if r.ResultTTL > 0 {
			r.ResultTTL -= min(r.FinishedAt.Sub(r.CreatedAt), r.ResultTTL-1)
		}
	}, byFinish)},
	{"pruning stops at the first job that is too young", "prune-7 prune-4 scale-2",
		pruneBy(asIs, func(a, b storage.Record) int { return 0 })},
	{"none is spared", "prune-8", changePrune(func(p *storage.Prune) { p.Spare = time.Time{} })},
	{"age spares too", "prune-8", changePrune(func(p *storage.Prune) {
		if !p.Spare.IsZero() && p.Spare.Before(p.Before) {
			p.Before = p.Spare
		}
	})},
	{"spared with the time itself", "prune-8", changePrune(func(p *storage.Prune) {
		if !p.Spare.IsZero() {
			p.Spare = p.Spare.Add(1)
		}
	})},
	{"all that is left is not counted", "prune-8 prune-1 prune-7 prune-9 scale-2", func(b *broken) {
		b.prune = func(b *broken, ctx context.Context, p storage.Prune) (storage.Pruned, error) {
			out, err := b.Storage.Prune(ctx, p)
			out.Left = min(out.Left, p.Beyond)
			return out, err
		}
	}},
	{"ids of pruned jobs in another order", "prune-1 prune-7 prune-8 scale-2", func(b *broken) {
		b.prune = func(b *broken, ctx context.Context, p storage.Prune) (storage.Pruned, error) {
			out, err := b.Storage.Prune(ctx, p)
			slices.Reverse(out.IDs)
			return out, err
		}
	}},
	{"workflows keep nothing", "prune-10", pruneBy(asIs, byFinish)},
	{"workflows keep until their end", "prune-10",
		keptByWorkflows(func(keeper *storage.Record) bool { return !keeper.State.Terminal() })},
	{"workflows keep while they are stored", "prune-10",
		keptByWorkflows(func(*storage.Record) bool { return true })},
	{"of one moment the first inserted pruned", "prune-4", pruneBy(asIs, byFinish)},
})
