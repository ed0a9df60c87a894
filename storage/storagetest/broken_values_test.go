package storagetest_test

import (
	"context"
	"encoding/json"
	"slices"
	"strings"
	"time"

	"github.com/ojsengine/ojs"
	"github.com/ojsengine/ojs/storage"
	"github.com/ojsengine/ojs/storage/memory"
)

// Storages that keep or return a job otherwise than it was given, at once or after
// Reopen.
var _ = register([]fault{
	{"priority forgotten at the insert",
		"insert-1 insert-9 claim-3 claim-4 claim-5 settleclaim-3 settleclaim-4 unclaim-2 general-4 claim-13 scale-3", changeInsert(func(r *storage.Record) { r.Priority = 0 })},
	{"what is handed out is what is stored", "insert-6 *", func(b *broken) {
		b.get = func(b *broken, ctx context.Context, id string) (storage.Record, error) {
			b.mu.Lock()
			defer b.mu.Unlock()
			r, err := b.Storage.Get(ctx, id)
			if err == nil {
				if old, ok := b.kept[id]; ok && old.Version == r.Version {
					return old, nil
				}
				b.kept[id] = r
			}
			return r, err
		}
	}},
	{"tokens of a deleted job fit the next one after the storage was opened again", "durable-3",
		func(b *broken) {
			opened := false
			tokensComeAgain(b, func() bool { return opened })
			b.reopen = func(b *broken) storage.Storage {
				opened = true
				return b
			}
		}},
	{"progress forgotten", "settle-8",
		changeSettle(func(to *storage.Record, stored storage.Record) { to.Progress = stored.Progress })},
	{"what a step was given is what is stored", "settleclaim-8 *", func(b *broken) {
		given := make(map[string]*storage.Record)
		b.step = func(b *broken, ctx Context, now Time, to slots, dst outcomes, c storage.Claim,
			into slots) (outcomes, int, error) {
			b.mu.Lock()
			defer b.mu.Unlock()
			for _, r := range to {
				c := *r // with the lists and maps of r
				given[r.ID] = &c
			}
			return b.Storage.SettleAndClaim(ctx, now, to, dst, c, into)
		}
		b.get = func(b *broken, ctx context.Context, id string) (storage.Record, error) {
			b.mu.Lock()
			defer b.mu.Unlock()
			r, err := b.Storage.Get(ctx, id)
			if to := given[id]; err == nil && to != nil && to.Version+1 == r.Version {
				r.Errors, r.Meta = to.Errors, to.Meta
			}
			return r, err
		}
	}},
	{"what a step hands out is what is stored", "settleclaim-8 *", func(b *broken) {
		b.step = func(b *broken, ctx Context, now Time, to slots, dst outcomes, c storage.Claim,
			into slots) (outcomes, int, error) {
			b.mu.Lock()
			defer b.mu.Unlock()
			out, n, err := b.Storage.SettleAndClaim(ctx, now, to, dst, c, into)
			for _, r := range into[:n] {
				b.kept[r.ID] = *r
			}
			return out, n, err
		}
		b.get = func(b *broken, ctx context.Context, id string) (storage.Record, error) {
			b.mu.Lock()
			defer b.mu.Unlock()
			r, err := b.Storage.Get(ctx, id)
			if old, ok := b.kept[id]; ok && err == nil && old.Version == r.Version {
				return old, nil
			}
			return r, err
		}
	}},
	{"checkpoints forgotten", "lease-5", func(b *broken) {
		b.extend = func(b *broken, ctx Context, now Time, xs []storage.Extension) ([]string, error) {
			xs = slices.Clone(xs)
			for i := range xs {
				xs[i].Checkpoint = nil
			}
			return b.Storage.Extend(ctx, now, xs)
		}
	}},
	{"big integers rounded", "general-4", changeGet(func(r *storage.Record) {
		var v any
		if json.Unmarshal([]byte(r.Args.String()), &v) == nil {
			r.Args, _ = ojs.NewArgs(v)
		}
	})},
	{"unknown strategies forgotten", "general-6", changeInsert(func(r *storage.Record) {
		if strings.HasPrefix(string(r.Retry.BackoffStrategy), "acme:") {
			r.Retry.BackoffStrategy = ojs.BackoffExponential
		}
	})},
	{"jitter is on or off", "general-6", changeInsert(func(r *storage.Record) {
		if r.Retry.Jitter == ojs.JitterFull {
			r.Retry.Jitter = ojs.JitterOn
		}
	})},
	{"times are nanoseconds since 1970", "general-8", changeInsert(func(r *storage.Record) {
		if !r.CreatedAt.IsZero() {
			r.CreatedAt = time.Unix(0, r.CreatedAt.UnixNano()).UTC()
		}
	})},
	{"the year 2106 is the last", "general-6", changeSettle(func(to *storage.Record, _ storage.Record) {
		if to.NextRetryAt.Unix() > 1<<32 {
			to.NextRetryAt = time.Unix(1<<32, 0).UTC()
		}
	})},
	{"forgets when it is opened again", "durable-1 durable-3", func(b *broken) {
		b.reopen = func(*broken) storage.Storage { return memory.New() }
	}},
	{"deleted jobs come back", "durable-2", func(b *broken) {
		var gone []storage.Record
		b.remove = func(b *broken, ctx context.Context, ids []string) (int, error) {
			for _, id := range ids {
				if r, err := b.Storage.Get(ctx, id); err == nil && r.State.Terminal() {
					gone = append(gone, r)
				}
			}
			return b.Storage.Delete(ctx, ids)
		}
		b.reopen = func(b *broken) storage.Storage {
			for _, r := range gone {
				r.State = ojs.StateAvailable
				_, _ = b.Storage.Insert(context.Background(), r.CreatedAt, []storage.Insert{{Record: r}}, nil)
			}
			return b
		}
	}},
})
