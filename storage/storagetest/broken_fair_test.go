package storagetest_test

import (
	"fmt"
	"slices"

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
	{"fairness keys are lost", "fair-1 *",
		changeKeyed(func(in *storage.Insert) { in.Record.Fairness = ojs.Fairness{} })},
	{"each type has turns of its own", "fair-1 *",
		changeKeyed(func(in *storage.Insert) { in.Record.Fairness.Key += in.Record.Type })},
	{"each job has a key of its own", "fair-1 *",
		changeKeyed(func(in *storage.Insert) { in.Record.Fairness.Key += in.Record.ID })},
	{"jobs without a key share one", "fair-2 *",
		changeNew(func(in *storage.Insert) bool { return in.Record.Fairness.Key == "" },
			func(in *storage.Insert) { in.Record.Fairness.Key = "none" })},
	{"weights are lost", "fair-3 *",
		changeKeyed(func(in *storage.Insert) { in.Record.Fairness.Weight = 0 })},
	{"all weigh two", "fair-3 *", changeKeyed(func(in *storage.Insert) { in.Record.Fairness.Weight = 2 })},
	{"a claim charges its key nothing", "fair-4 *", func(b *broken) {
		n := 0
		b.claim = func(b *broken, ctx Context, now Time, c storage.Claim, dst records) (records, error) {
			n++
			return b.Storage.Claim(ctx, now, c, dst)
		}
		changeKeyed(func(in *storage.Insert) { in.Record.Fairness.Key += fmt.Sprint(n) })(b)
	}},
	{"an edit leaves the key as it was", "fair-5 *",
		eachChange(func(b *broken, ctx Context, now Time, c storage.Change) (storage.Settled, error) {
			if was, err := b.Storage.Get(ctx, c.Record.ID); err == nil {
				c.Record.Fairness.Key = was.Fairness.Key
			}
			return b.settleOne(ctx, now, c)
		})},
	{"a job that is given back takes a new tag", "fair-6 *", func(b *broken) {
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
	{"a full queue drops none that is next", "fair-7 *", func(b *broken) {
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
	{"no job takes a tag after a claim that has skipped jobs", "fair-8 *", func(b *broken) {
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
	{"a job comes behind the one that it replaces", "fair-11 *", func(b *broken) {
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
	{"replaced jobs leave before the batch comes", "fair-11 *", func(b *broken) {
		b.insert = func(b *broken, ctx Context, now Time, batch inserts, dst results) (results, error) {
			b.cancelPeers(ctx, now, batch)
			return b.Storage.Insert(ctx, now, batch, dst)
		}
	}},
	{"what keys were charged is forgotten at Reopen", "fair-9 *", func(b *broken) {
		again := ""
		b.reopen = func(b *broken) storage.Storage {
			again = " again"
			return b
		}
		changeKeyed(func(in *storage.Insert) { in.Record.Fairness.Key += again })(b)
	}},
	{"a high weight counts tenfold", "fair-12 *", changeKeyed(func(in *storage.Insert) {
		if in.Record.Fairness.Weight > 1 {
			in.Record.Fairness.Weight *= 10
		}
	})},
	{"no weight is above four", "fair-13 *", changeKeyed(func(in *storage.Insert) {
		in.Record.Fairness.Weight = min(in.Record.Fairness.Weight, 4)
	})},
	{"a job that was set aside loses its place", "fair-14 *", func(b *broken) {
		b.claim = func(b *broken, ctx Context, now Time, c storage.Claim, dst records) (records, error) {
			page, _ := b.Storage.List(ctx, storage.Query{Order: storage.OrderClaim})
			for _, r := range page.Records {
				if r.Fairness.Key != "" && r.RateLimit != nil {
					b.enterAnew(ctx, now, r)
				}
			}
			return b.Storage.Claim(ctx, now, c, dst)
		}
	}},
})
