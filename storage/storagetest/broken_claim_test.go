package storagetest_test

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/ojsengine/ojs"
	"github.com/ojsengine/ojs/storage"
)

// Storages that claim the wrong jobs, or in the wrong order.
var _ = register([]fault{
	{"attempt not counted", "claim-1 settle-1 settle-3 unclaim-1 lease-1 lease-3 settle-12 durable-3 scale-3", changeClaimed(func(recs []storage.Record) []storage.Record {
		for i := range recs {
			recs[i].Attempt--
		}
		return recs
	})},
	{"last in first out",
		"claim-2 insert-1 insert-8 insert-9 claim-3 settle-5 settleclaim-1 settleclaim-2 settleclaim-3 settleclaim-5 settleclaim-7 unclaim-3 due-2 durable-1 claim-13 settle-9 settle-10 due-7 settleclaim-15 settleclaim-14 claim-9",
		changeInsert(func(r *storage.Record) {
			if r.Priority == 0 && r.Queue == "q" && r.Type == "x" && r.Fingerprint == "" &&
				r.RateLimit == nil && r.Meta == nil && r.ExpiresAt.IsZero() && r.TotalTimeout == 0 {
				var n int
				_, _ = fmt.Sscanf(r.ID[len(r.ID)-4:], "%x", &n)
				r.Priority = n
			}
		})},
	{"lowest priority first",
		"claim-3 insert-1 insert-9 claim-4 claim-5 settleclaim-3 settleclaim-4 settleclaim-5 unclaim-2 queue-1 general-4 durable-1 claim-13 settleclaim-15 scale-3", changeInsert(func(r *storage.Record) { r.Priority = -r.Priority })},
	{"queues in their own order", "claim-4 claim-7 scale-3", changeClaim(func(c *storage.Claim) {
		c.Queues = slices.Sorted(slices.Values(c.Queues))
		slices.Reverse(c.Queues)
	})},
	{"all queues one after the other", "claim-5 unclaim-2 scale-3 queue-2", func(b *broken) {
		b.claim = func(b *broken, ctx Context, now Time, c storage.Claim, dst records) (records, error) {
			if len(c.Queues) == 0 {
				counts, err := b.Storage.Counts(ctx)
				if err != nil {
					return dst, err
				}
				names := make(map[string]bool)
				for _, n := range counts {
					names[n.Queue] = true
				}
				if c.Queues = slices.Sorted(maps.Keys(names)); len(c.Queues) == 0 {
					return dst, nil
				}
			}
			return b.Storage.Claim(ctx, now, c, dst)
		}
	}},
	{"types ignored", "claim-6 settle-9 settle-10 insert-17 scale-3 settle-13",
		changeClaim(func(c *storage.Claim) { c.Types = nil })},
	{"Max for each queue", "claim-7 scale-3", func(b *broken) {
		b.claim = func(b *broken, ctx Context, now Time, c storage.Claim, dst records) (records, error) {
			if len(c.Queues) < 2 || c.Max < 2 {
				return b.Storage.Claim(ctx, now, c, dst)
			}
			var err error
			for _, q := range c.Queues {
				one := c
				one.Queues = []string{q}
				if dst, err = b.Storage.Claim(ctx, now, one, dst); err != nil {
					return dst, err
				}
			}
			return dst, nil
		}
	}},
	{"pending jobs claimed", "claim-8 insert-4 settle-1 unique-7", func(b *broken) {
		b.insert = func(b *broken, ctx Context, now Time, batch inserts, dst results) (results, error) {
			batch = slices.Clone(batch)
			for i := range batch {
				if r := &batch[i].Record; r.State == ojs.StatePending && strings.HasPrefix(r.Queue, "reach") {
					r.State = ojs.StateAvailable
				}
			}
			return b.Storage.Insert(ctx, now, batch, dst)
		}
	}},
	{"expired jobs claimed",
		"claim-9 claim-1 unclaim-3 unclaim-4 lease-3 due-5 insert-10 claim-13 settle-10 settleclaim-5 scale-3",
		func(b *broken) {
			b.claim = func(b *broken, ctx Context, now Time, c storage.Claim, dst records) (records, error) {
				return b.Storage.Claim(ctx, now.Add(-time.Minute), c, dst)
			}
		}},
	{"expired jobs claimed if types are given", "claim-9 scale-3", func(b *broken) {
		b.claim = func(b *broken, ctx Context, now Time, c storage.Claim, dst records) (records, error) {
			if len(c.Types) > 0 && len(c.Queues) == 0 {
				now = now.Add(-time.Minute)
			}
			return b.Storage.Claim(ctx, now, c, dst)
		}
	}},
})
