package storagetest_test

import (
	"context"
	"slices"
	"time"

	"github.com/ojsengine/ojs"
	"github.com/ojsengine/ojs/storage"
)

// changeKeyed changes new jobs with a fairness key.
func changeKeyed(f func(in *storage.Insert)) func(*broken) {
	return changeNew(func(in *storage.Insert) bool { return in.Record.Fairness.Key != "" }, f)
}

// enterAnew has an available job become available again, after the others.
func (b *broken) enterAnew(ctx Context, now Time, r storage.Record) {
	for _, d := range []int{1, -1} {
		r.Priority += d
		_, _ = b.Storage.Settle(ctx, now, settles{{Record: r}}, nil)
		r.Version++
	}
}

// forgetServed has the storage forget which rounds were claimed of.
func (b *broken) forgetServed(ctx Context, now Time) {
	claimed, _ := b.Storage.Claim(ctx, now, storage.Claim{Max: 1000}, nil)
	for _, r := range claimed { // in the end no job with a key is available
		_, _ = b.Storage.Unclaim(ctx, now, []storage.Held{{ID: r.ID, Version: r.Version}})
	}
}

// cancelPeers cancels the available jobs that records of a batch are to replace.
func (b *broken) cancelPeers(ctx Context, now Time, batch inserts) {
	page, _ := b.Storage.List(ctx, storage.Query{States: []ojs.State{ojs.StateAvailable}})
	for _, r := range page.Records {
		if slices.ContainsFunc(batch, func(in storage.Insert) bool {
			return in.Record.Fingerprint == r.Fingerprint && r.Fingerprint != "" && in.Record.ID != r.ID
		}) {
			r.State, r.FinishedAt = ojs.StateCancelled, now
			_, _ = b.Storage.Settle(ctx, now, settles{{Record: r}}, nil)
		}
	}
}

// Storages that break the rules of Fairness.
var _ = register([]fault{
	{"fairness keys are lost", "fair-1 fair-12 fair-14 fair-15 *",
		changeKeyed(func(in *storage.Insert) { in.Record.Fairness = ojs.Fairness{} })},
	{"each type has turns of its own", "fair-1 *",
		changeKeyed(func(in *storage.Insert) { in.Record.Fairness.Key += in.Record.Type })},
	{"each job has a key of its own", "fair-1 *",
		changeKeyed(func(in *storage.Insert) { in.Record.Fairness.Key += in.Record.ID })},
	{"jobs without a key share one", "fair-2 *",
		changeNew(func(in *storage.Insert) bool { return in.Record.Fairness.Key == "" },
			func(in *storage.Insert) { in.Record.Fairness.Key = "none" })},
	{"weights are lost", "fair-3 fair-13 *",
		changeKeyed(func(in *storage.Insert) { in.Record.Fairness.Weight = 0 })},
	{"all weigh two", "fair-3 *", changeKeyed(func(in *storage.Insert) { in.Record.Fairness.Weight = 2 })},
	{"the round under way takes all", "fair-4 *", func(b *broken) {
		b.insert = func(b *broken, ctx Context, now Time, batch inserts, dst results) (results, error) {
			if len(batch) > 0 && batch[0].Record.Fairness.Key != "" {
				b.forgetServed(ctx, now)
			}
			return b.Storage.Insert(ctx, now, batch, dst)
		}
	}},
	{"an edit leaves the key as it was", "fair-5 *",
		eachChange(func(b *broken, ctx Context, now Time, c storage.Change) (storage.Settled, error) {
			if was, err := b.Storage.Get(ctx, c.Record.ID); err == nil {
				c.Record.Fairness.Key = was.Fairness.Key
			}
			return b.settleOne(ctx, now, c)
		})},
	{"a job that is given back takes a new turn", "fair-6 *", func(b *broken) {
		b.unclaim = func(b *broken, ctx Context, now Time, held []storage.Held) (int, error) {
			n, err := b.Storage.Unclaim(ctx, now, held)
			for _, h := range held {
				if r, err := b.Storage.Get(ctx, h.ID); err == nil && r.Fairness.Key != "" {
					b.enterAnew(ctx, now, r)
				}
			}
			return n, err
		}
	}},
	{"a full queue drops none whose turn it is", "fair-7 *", func(b *broken) {
		b.insert = func(b *broken, ctx Context, now Time, batch inserts, dst results) (results, error) {
			batch = slices.Clone(batch)
			for i := range batch {
				in := &batch[i]
				if in.Record.Fairness.Key == "" || !in.DropOldest {
					continue
				}
				page, _ := b.Storage.List(ctx, storage.Query{Order: storage.OrderClaim, Limit: 1})
				for _, r := range page.Records {
					b.enterAnew(ctx, now, r)
				}
			}
			return b.Storage.Insert(ctx, now, batch, dst)
		}
	}},
	{"no job joins a round that a claim has skipped", "fair-8 *", func(b *broken) {
		skipped := false
		b.claim = func(b *broken, ctx Context, now Time, c storage.Claim, dst records) (records, error) {
			had := len(dst)
			dst, err := b.Storage.Claim(ctx, now, c, dst)
			skipped = len(dst) == had
			return dst, err
		}
		b.insert = func(b *broken, ctx Context, now Time, batch inserts, dst results) (results, error) {
			batch = slices.Clone(batch)
			for i := range batch {
				if skipped {
					batch[i].Record.Fairness = ojs.Fairness{}
				}
			}
			return b.Storage.Insert(ctx, now, batch, dst)
		}
	}},
	{"keys mean nothing after a cancel", "fair-10 *", func(b *broken) {
		after := false
		changeKeyed(func(in *storage.Insert) {
			if after {
				in.Record.Fairness.Key += in.Record.ID
			}
		})(b)
		eachChange(func(b *broken, ctx Context, now Time, c storage.Change) (storage.Settled, error) {
			after = after || c.Record.State == ojs.StateCancelled
			return b.settleOne(ctx, now, c)
		})(b)
	}},
	{"a job joins the round of the one that it replaces", "fair-11 *", func(b *broken) {
		b.insert = func(b *broken, ctx Context, now Time, batch inserts, dst results) (results, error) {
			added := slices.Clone(batch)
			for i := range added {
				added[i].Record.Unique = nil
			}
			dst, err := b.Storage.Insert(ctx, now, added, dst)
			b.cancelPeers(ctx, now, batch)
			return dst, err
		}
	}},
	{"replaced jobs leave their rounds before the batch comes", "fair-11 *", func(b *broken) {
		b.insert = func(b *broken, ctx Context, now Time, batch inserts, dst results) (results, error) {
			b.cancelPeers(ctx, now, batch)
			return b.Storage.Insert(ctx, now, batch, dst)
		}
	}},
	{"which round was claimed of is forgotten at Reopen", "fair-9 *", func(b *broken) {
		b.reopen = func(b *broken) storage.Storage {
			b.forgetServed(context.Background(), time.Time{})
			return b
		}
	}},
})
