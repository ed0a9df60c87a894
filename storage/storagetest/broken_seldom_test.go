package storagetest_test

import (
	"errors"
	"slices"
	"sync/atomic"

	"github.com/ojsengine/ojs"
	"github.com/ojsengine/ojs/storage"
)

// Storages that go wrong where few calls come.
var _ = register([]fault{
	{"a claim right after an insert finds nothing", "insert-17", func(b *broken) {
		var inserted atomic.Bool // two fresh jobs, and nothing has been claimed since
		b.insert = func(b *broken, ctx Context, now Time, batch inserts, dst results) (results, error) {
			inserted.Store(len(batch) == 2 && batch[0].IDIsNew && batch[1].IDIsNew)
			return b.Storage.Insert(ctx, now, batch, dst)
		}
		b.claim = func(b *broken, ctx Context, now Time, c storage.Claim,
			dst []storage.Record) ([]storage.Record, error) {
			if inserted.Swap(false) {
				return dst, nil
			}
			return b.Storage.Claim(ctx, now, c, dst)
		}
	}},
	{"replaced jobs count in the depth", "insert-16", func(b *broken) {
		b.insert = func(b *broken, ctx Context, now Time, batch inserts, dst results) (results, error) {
			batch = slices.Clone(batch)
			for i := range batch {
				if u := batch[i].Record.Unique; u != nil && u.OnConflict == ojs.ConflictReplace &&
					batch[i].MaxDepth > 1 {
					batch[i].MaxDepth--
				}
			}
			return b.Storage.Insert(ctx, now, batch, dst)
		}
	}},
	{"the last of a batch is the newest", "unique-16", func(b *broken) {
		b.insert = func(b *broken, ctx Context, now Time, batch inserts, dst results) (results, error) {
			dst, err := b.Storage.Insert(ctx, now, batch, dst)
			var dup *ojs.DuplicateError
			if errors.As(err, &dup) && len(batch) == 3 && dup.ID == batch[0].Record.ID &&
				dup.Fingerprint == batch[1].Record.Fingerprint {
				dup.ID = batch[1].Record.ID
			}
			return dst, err
		}
	}},
	{"not in the way if cancelled by the same batch", "unique-15", func(b *broken) {
		b.insert = func(b *broken, ctx Context, now Time, batch inserts, dst results) (results, error) {
			batch = slices.Clone(batch)
			for i := range batch {
				if r := &batch[i].Record; i > 0 && r.Unique != nil &&
					slices.Equal(r.Unique.States, []ojs.State{ojs.StateCancelled}) {
					*r = r.Copy()
					r.Unique = nil
				}
			}
			return b.Storage.Insert(ctx, now, batch, dst)
		}
	}},
	{"worker of the first claim named", "claim-15", func(b *broken) {
		changeClaimed(func(recs []storage.Record) []storage.Record {
			b.mu.Lock()
			defer b.mu.Unlock()
			for i := range recs {
				if first, ok := b.kept[recs[i].ID]; ok {
					recs[i].Worker = first.Worker
				} else {
					b.kept[recs[i].ID] = recs[i].Copy()
				}
			}
			return recs
		})(b)
	}},
	{"key of a rate limit not changed", "claim-16 settle-13",
		changeSettle(func(to *storage.Record, stored storage.Record) {
			if to.RateLimit != nil && stored.RateLimit != nil {
				to.RateLimit = stored.RateLimit
			}
		})},
	{"callers told of their own calls while others listen", "notify-3 notify-7", func(b *broken) {
		listeners := 0
		b.notify = func(b *broken, self any, f func(storage.Notice)) func() {
			b.mu.Lock()
			defer b.mu.Unlock()
			listeners++
			stop := b.Storage.Notify(self, f)
			stopOwn := b.Storage.Notify(new(int), func(n storage.Notice) {
				b.mu.Lock()
				others := listeners > 1
				b.mu.Unlock()
				if others {
					f(n)
				}
			})
			return func() {
				stop()
				stopOwn()
				b.mu.Lock()
				defer b.mu.Unlock()
				listeners--
			}
		}
	}},
	{"a deadline that is gone still comes", "settle-20", func(b *broken) {
		had := make(map[string]Time) // deadlines that jobs had
		changeSettle(func(to *storage.Record, stored storage.Record) {
			b.mu.Lock()
			defer b.mu.Unlock()
			if to.ExpiresAt.IsZero() && !stored.ExpiresAt.IsZero() && to.State == ojs.StateAvailable {
				had[to.ID] = stored.ExpiresAt
			}
		})(b)
		changeDue(func(d *storage.Due) {
			b.mu.Lock()
			defer b.mu.Unlock()
			for _, at := range had {
				if d.Next.IsZero() || at.Before(d.Next) {
					d.Next = at
				}
			}
		})(b)
	}},
	{"deadlines of available jobs not told", "notify-8", func(b *broken) {
		b.settle = func(b *broken, ctx Context, now Time, changes []storage.Change,
			dst []storage.Settled) ([]storage.Settled, error) {
			if len(changes) == 1 && changes[0].Record.State == ojs.StateAvailable &&
				!changes[0].Record.ExpiresAt.IsZero() {
				ctx = storage.WithCaller(ctx, "other") // who listens
			}
			return b.Storage.Settle(ctx, now, changes, dst)
		}
	}},
})
