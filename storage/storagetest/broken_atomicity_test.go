package storagetest_test

import (
	"context"
	"slices"
	"strings"
	"time"

	"github.com/ojsengine/ojs"
	"github.com/ojsengine/ojs/internal/test/pace"
	"github.com/ojsengine/ojs/storage"
)

// Storages that do in several steps what the contract does in one.
var _ = register([]fault{
	{"batch stored one by one", "insert-2 insert-7 insert-9 unique-10 prune-4 queue-2 unique-13 insert-16 unique-15 insert-3 insert-4 insert-11 insert-12 insert-13 insert-14", func(b *broken) {
		b.insert = func(b *broken, ctx Context, now Time, batch inserts, dst results) (results, error) {
			for i := range batch {
				var err error
				if dst, err = b.Storage.Insert(ctx, now, batch[i:i+1], dst); err != nil {
					return nil, err
				}
			}
			return dst, ctx.Err()
		}
	}},
	{"two winners of a step", "settleclaim-13", func(b *broken) {
		b.step = func(b *broken, ctx Context, now Time, to slots, dst outcomes, c storage.Claim,
			into slots) (outcomes, int, error) {
			out, n, err := b.Storage.SettleAndClaim(ctx, now, to, dst, c, into)
			b.mu.Lock()
			defer b.mu.Unlock()
			if c.Worker == "racer" && n == len(into) {
				if old, ok := b.kept["last"]; ok {
					*into[0] = old.Copy()
				}
				b.kept["last"] = into[1].Copy()
			}
			return out, n, err
		}
	}},
	{"look, then undo", "unclaim-6", func(b *broken) {
		b.unclaim = func(b *broken, ctx Context, now Time, held []storage.Held) (int, error) {
			if len(held) != 1 {
				return b.Storage.Unclaim(ctx, now, held)
			}
			r, err := b.Storage.Get(ctx, held[0].ID)
			pace.Work(time.Millisecond)
			n, uerr := b.Storage.Unclaim(ctx, now, held)
			if err == nil && uerr == nil && r.Version == held[0].Version && r.State == ojs.StateActive {
				n = 1
			}
			return n, uerr
		}
	}},
	{"deleted one by one", "delete-2", func(b *broken) {
		b.remove = func(b *broken, ctx context.Context, ids []string) (n int, err error) {
			for _, id := range ids {
				one, err := b.Storage.Delete(ctx, []string{id})
				if n += one; err != nil {
					return 0, err
				}
			}
			if len(ids) == 0 {
				_, err = b.Storage.Delete(ctx, nil)
			}
			return n, err
		}
	}},
	{"two winners of a claim", "race-1", func(b *broken) {
		b.claim = func(b *broken, ctx Context, now Time, c storage.Claim, dst records) (records, error) {
			recs, err := b.Storage.Claim(ctx, now, c, nil)
			b.mu.Lock()
			defer b.mu.Unlock()
			if c.Max == 3 && c.Types == nil && c.Queues == nil {
				if old, ok := b.kept["last"]; ok && len(recs) > 0 {
					recs = append(recs, old)
					delete(b.kept, "last")
				} else if len(recs) > 0 {
					b.kept["last"] = recs[0]
				}
			}
			return append(dst, recs...), err
		}
	}},
	{"look, then settle", "race-2 race-3", func(b *broken) {
		b.settle = func(b *broken, ctx Context, now Time, changes settles, dst outcomes) (outcomes, error) {
			if len(changes) != 1 || changes[0].Record.Queue != "one" {
				return b.Storage.Settle(ctx, now, changes, dst)
			}
			r, err := b.Storage.Get(ctx, changes[0].Record.ID)
			pace.Work(time.Millisecond)
			out, serr := b.Storage.Settle(ctx, now, changes, nil)
			if err == nil && serr == nil && r.Version == changes[0].Record.Version {
				out[0] = storage.Settled{Version: r.Version + 1}
			}
			return append(dst, out...), serr
		}
	}},
	{"a lease that is over though the result came", "race-3", func(b *broken) {
		b.due = func(b *broken, ctx Context, now Time, max int, buf records) (storage.Due, error) {
			if max != 1000 {
				return b.Storage.Due(ctx, now, max, buf)
			}
			page, _ := b.Storage.List(ctx,
				storage.Query{States: []ojs.State{ojs.StateActive}, Queues: []string{"one"}})
			pace.Work(time.Millisecond)
			d, err := b.Storage.Due(ctx, now, max, buf)
			for _, r := range page.Records {
				if !r.LeaseUntil.After(now) &&
					!slices.ContainsFunc(d.Stalled, func(s storage.Record) bool { return s.ID == r.ID }) {
					d.Stalled = append(d.Stalled, r)
				}
			}
			return d, err
		}
	}},
	{"look, then insert", "race-4 unique-7 unique-11 settle-11 unique-13 unique-14", func(b *broken) {
		b.insert = func(b *broken, ctx Context, now Time, batch inserts, dst results) (results, error) {
			if len(batch) != 1 || batch[0].Record.Fingerprint == "" ||
				batch[0].Record.Unique.Strategy() != ojs.ConflictReject || batch[0].Record.Queue != "q" ||
				batch[0].Record.State != ojs.StateAvailable || batch[0].Record.Unique.States != nil ||
				batch[0].Record.Unique.Period > 0 {
				return b.Storage.Insert(ctx, now, batch, dst)
			}
			page, err := b.Storage.List(ctx, storage.Query{Queues: []string{"q"}})
			if err != nil {
				return dst, err
			}
			for _, r := range page.Records {
				if r.Fingerprint == batch[0].Record.Fingerprint &&
					batch[0].Record.Unique.Counts(r.State, r.CreatedAt, now) {
					return b.Storage.Insert(ctx, now, batch, dst)
				}
			}
			pace.Work(time.Millisecond)
			blind := []storage.Insert{batch[0]}
			blind[0].Record.Unique = nil
			return b.Storage.Insert(ctx, now, blind, dst)
		}
	}},
	{"replaces in two steps", "race-5", func(b *broken) {
		b.insert = func(b *broken, ctx Context, now Time, batch inserts, dst results) (results, error) {
			r := batch[:min(1, len(batch))]
			if len(batch) != 1 || r[0].Record.Unique == nil ||
				r[0].Record.Unique.OnConflict != ojs.ConflictReplace ||
				!strings.HasPrefix(r[0].Record.Queue, "f") {
				return b.Storage.Insert(ctx, now, batch, dst)
			}
			page, _ := b.Storage.List(ctx, storage.Query{Queues: []string{r[0].Record.Queue}})
			pace.Work(time.Millisecond)
			for _, old := range page.Records {
				old.Cancel(now)
				old.Version--
				_, _ = b.Storage.Settle(ctx, now, []storage.Change{{Record: old}}, nil)
			}
			blind := []storage.Insert{batch[0]}
			blind[0].Record.Unique = nil
			return b.Storage.Insert(ctx, now, blind, dst)
		}
	}},
})
