package storagetest

import (
	"slices"
	"time"

	"github.com/ojsengine/ojs"
	"github.com/ojsengine/ojs/storage"
)

// ask is a claim that holds jobs of the default lease for 90 s.
var ask = storage.Claim{Max: 10, Worker: "w", Lease: 90 * time.Second}

// leased are jobs of the default lease and of two others.
func (c *C) leased() []storage.Record {
	lease := func(d time.Duration) func(*storage.Record) {
		return func(r *storage.Record) { r.Lease = d }
	}
	return []storage.Record{c.job(lease(ojs.DefaultLease)), c.job(lease(time.Minute)),
		c.job(lease(ojs.DefaultLease + time.Second))}
}

// heldFor wants the jobs of leased to be held until their leases end: that of the default
// for d from now.
func (c *C) heldFor(d time.Duration, recs []storage.Record) {
	c.tb.Helper()
	held := []time.Duration{d, time.Minute, ojs.DefaultLease + time.Second}
	if d < 0 {
		held = []time.Duration{-d, -d, -d}
	}
	for i, want := range held {
		if got := c.get(recs[i].ID).LeaseUntil; !got.Equal(c.now.Add(want)) {
			c.failf("a job with a lease of %v is held for %v, not %v", recs[i].Lease, got.Sub(c.now), want)
		}
	}
}

var heldCases = []Case{
	{"claim-18", "Claim/Lease", "Claim.Lease",
		"A claim holds jobs of the default lease for its own, and others for theirs; a negative one holds all.",
		needsNothing, func(c *C) {
			for _, lease := range []time.Duration{ask.Lease, 0, 2 * time.Hour, -5 * time.Second} {
				q := ask
				q.Lease = lease
				c.insert(c.leased()...)
				recs := c.claimOf(q)
				if len(recs) != 3 {
					c.failf("Claim returned %d jobs, not 3", len(recs))
				}
				held := ojs.DefaultLease
				if lease != 0 {
					held = lease
				}
				c.heldFor(held, recs)
				for i := range recs {
					c.same("the claimed job", recs[i], c.get(recs[i].ID))
					c.settled(recs[i], c.to(ojs.StateCompleted))
				}
			}
			c.insert(c.leased()...)
			c.claimOf(ask)
			c.pass(ask.Lease)
			if d := c.due(); len(d.Stalled) != 2 {
				c.failf("when 90 s were over Due has handed over %d jobs, not 2", len(d.Stalled))
			}
		}},
	{"settleclaim-17", "SettleClaim/Lease", "Claim.Lease",
		"A step holds jobs of the default lease for that of its claim.", needsSettleClaims, func(c *C) {
			c.insert(c.leased()...)
			_, recs := c.step(ask, 3)
			c.heldFor(ask.Lease, recs)
		}},
	{"insertclaim-5", "Insert/ClaimLease", "Claim.Lease",
		"An insert that claims its jobs holds those of the default lease for that of its claim.",
		needsNothing, func(c *C) {
			recs := c.leased()
			if claimed, _ := c.claiming(ask, recs...); claimed {
				c.heldFor(ask.Lease, recs)
			}
		}},
	{"lease-6", "Lease/ExtendLease", "Extension.Lease",
		"A renewal holds jobs of the default lease for its own, and others for theirs; a negative one holds all.",
		needsNothing, func(c *C) {
			c.insert(c.leased()...)
			recs := c.claimOf(storage.Claim{Max: 10, Worker: "w"})
			for _, lease := range []time.Duration{ask.Lease, 0, -5 * time.Second} {
				c.pass(time.Second)
				var xs []storage.Extension
				for i := range recs {
					xs = append(xs, storage.Extension{
						Held: storage.Held{ID: recs[i].ID, Version: recs[i].Version}, Lease: lease,
					})
				}
				lost, err := c.S.Extend(c.ctx, c.now, xs)
				if c.noErr("Extend", err); len(lost) > 0 {
					c.failf("lost %v", short(lost))
				}
				held := ojs.DefaultLease
				if lease != 0 {
					held = lease
				}
				c.heldFor(held, recs)
			}
		}},
	{"lease-7", "Lease/HandedOver", "Record.TakeOver",
		"A job that Due hands over is held for its lease, but for 90 s at most.", needsNothing, func(c *C) {
			recs := c.leased()
			c.insert(recs...)
			c.claimOf(ask)
			c.pass(2 * ojs.DefaultLease)
			if d := c.due(); len(d.Stalled) != 3 {
				c.failf("Due has handed over %d jobs, not 3", len(d.Stalled))
			}
			for i, want := range []time.Duration{storage.TakeOverLease, time.Minute, storage.TakeOverLease} {
				if got := c.get(recs[i].ID).LeaseUntil; !got.Equal(c.now.Add(want)) {
					c.failf("the job with a lease of %v is held for %v", recs[i].Lease, got.Sub(c.now))
				}
			}
			c.pass(time.Minute)
			if d := c.due(); len(d.Stalled) != 1 {
				c.failf("a minute later Due has handed over %d jobs, not 1", len(d.Stalled))
			}
		}},
	{"claimed-1", "Claim/ClaimedBy", "Storage.ClaimedBy",
		"ClaimedBy returns the active jobs that a worker claimed last, and no others.",
		needsNothing, func(c *C) {
			wants := func(worker string, want ...string) {
				c.tb.Helper()
				recs, err := c.S.ClaimedBy(c.ctx, worker)
				c.noErr("ClaimedBy", err)
				got := ids(recs)
				slices.Sort(got)
				slices.Sort(want)
				if !slices.Equal(got, want) {
					c.failf("ClaimedBy(%q) returned %v, not %v", worker, short(got), short(want))
				}
				for i := range recs {
					c.same("the job", recs[i], c.get(recs[i].ID))
				}
			}
			by := func(worker string) storage.Record {
				c.tb.Helper()
				recs := c.claimOf(storage.Claim{Max: 1, Worker: worker})
				if len(recs) != 1 {
					c.failf("Claim returned %d jobs, not 1", len(recs))
				}
				return recs[0]
			}
			meta := func(r *storage.Record) { r.Meta = map[string]any{"k": "v"} }
			c.insert(c.job(), c.job(queue("p"), meta), c.job(jobType("y")))
			c.insert(c.job(scheduled(time.Hour)), c.job())
			wants("w")
			a, b, other := by("w"), by("w"), by("ww")
			wants("w", a.ID, b.ID)
			wants("ww", other.ID)
			wants("")
			wants("W")
			c.settled(a, c.to(ojs.StateCompleted))
			wants("w", b.ID)
			again := c.settled(b, c.to(ojs.StateRetryable))
			wants("w")
			c.settled(again, c.to(ojs.StateAvailable))
			last := by("w")
			b = by("ww")
			wants("w", last.ID)
			wants("ww", other.ID, b.ID)
			c.pass(time.Minute)
			if d := c.due(); len(d.Stalled) != 3 {
				c.failf("Due has handed over %d jobs, not 3", len(d.Stalled))
			}
			wants("w", last.ID)
			wants("ww", other.ID, b.ID)
		}},
}
