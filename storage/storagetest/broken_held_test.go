package storagetest_test

import (
	"context"
	"slices"
	"time"

	"github.com/ojsengine/ojs"
	"github.com/ojsengine/ojs/storage"
)

// Storages that hold jobs for another time than they should, or that do not know whose
// they are.
var _ = register([]fault{
	{"leases of claims ignored", "claim-18", changeClaim(func(c *storage.Claim) { c.Lease = 0 })},
	{"leases of claims in steps ignored", "settleclaim-17",
		changeStep(func(c *storage.Claim) { c.Lease = 0 })},
	{"leases of claims of new jobs ignored", "insertclaim-5",
		afterInsert(func(b *broken, ctx Context, now Time, batch inserts, out results) {
			claimNew(b, ctx, now, batch, out, func(c *storage.Claim) { c.Lease = 0 })
		})},
	{"a claim without a lease has one", "claim-18", changeClaim(func(c *storage.Claim) {
		if c.Lease == 0 {
			c.Lease = 90 * time.Second
		}
	})},
	{"a claim's lease no longer than the job's", "claim-18", changeClaim(func(c *storage.Claim) {
		c.Lease = min(c.Lease, ojs.DefaultLease)
	})},
	{"a claim holds no other job than those of the default lease", "claim-18",
		changeClaim(func(c *storage.Claim) { c.Lease = max(c.Lease, -c.Lease) })},
	{"a renewal holds no other job than those of the default lease", "lease-6",
		changeExtend(func(x *storage.Extension, _ storage.Record) { x.Lease = max(x.Lease, -x.Lease) })},
	{"leases of renewals ignored", "lease-6", changeExtend(func(x *storage.Extension, _ storage.Record) {
		x.Lease = 0
	})},
	{"a renewal holds for as long as the claim", "lease-6",
		changeExtend(func(x *storage.Extension, r storage.Record) {
			x.Lease = r.LeaseUntil.Sub(r.StartedAt)
		})},
	{"handed over for the whole lease", "lease-7", func(b *broken) {
		b.due = func(b *broken, ctx Context, now Time, max int, buf records) (storage.Due, error) {
			d, err := b.Storage.Due(ctx, now, max, buf)
			for i := range d.Stalled {
				r := &d.Stalled[i]
				if _, err := b.Storage.Extend(ctx, now, []storage.Extension{{
					Held: storage.Held{ID: r.ID, Version: r.Version}}}); err == nil {
					r.LeaseUntil = now.Add(r.Lease)
				}
			}
			return d, err
		}
	}},
	{"claims of any worker", "claimed-1", changeClaimedBy(
		func(b *broken, ctx Context, _ string, _ records) records {
			page, _ := b.Storage.List(ctx, storage.Query{States: []ojs.State{ojs.StateActive}})
			return page.Records
		})},
	{"ended jobs are their workers' still", "claimed-1", changeClaimedBy(
		func(b *broken, ctx Context, worker string, recs records) records {
			page, _ := b.Storage.List(ctx, storage.Query{States: []ojs.State{ojs.StateCompleted}})
			for _, r := range page.Records {
				if r.Worker == worker {
					recs = append(recs, r)
				}
			}
			return recs
		})},
	{"one claim of a worker", "claimed-1", changeClaimedBy(
		func(_ *broken, _ Context, _ string, recs records) records { return recs[:min(len(recs), 1)] })},
	{"claims of a worker in one queue", "claimed-1", changeClaimedBy(
		func(_ *broken, _ Context, _ string, recs records) records {
			return slices.DeleteFunc(recs, func(r storage.Record) bool { return r.Queue != "q" })
		})},
	{"jobs that were handed over are nobody's", "claimed-1", changeClaimedBy(
		func(_ *broken, _ Context, _ string, recs records) records {
			return slices.DeleteFunc(recs, func(r storage.Record) bool {
				return r.LeaseUntil.Sub(r.StartedAt) > r.Lease
			})
		})},
})

// changeExtend changes renewals, given the jobs as they are stored.
func changeExtend(f func(x *storage.Extension, r storage.Record)) func(*broken) {
	return func(b *broken) {
		b.extend = func(b *broken, ctx Context, now Time, xs []storage.Extension) ([]string, error) {
			xs = slices.Clone(xs)
			for i := range xs {
				if r, err := b.Storage.Get(ctx, xs[i].ID); err == nil {
					f(&xs[i], r)
				}
			}
			return b.Storage.Extend(ctx, now, xs)
		}
	}
}

// changeClaimedBy changes what ClaimedBy returns.
func changeClaimedBy(f func(b *broken, ctx Context, worker string, recs records) records) func(*broken) {
	return func(b *broken) {
		b.claimedBy = func(b *broken, ctx context.Context, worker string) ([]storage.Record, error) {
			recs, err := b.Storage.ClaimedBy(ctx, worker)
			return f(b, ctx, worker, recs), err
		}
	}
}
