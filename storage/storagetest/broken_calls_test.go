package storagetest_test

import (
	"context"
	"errors"
	"slices"

	"github.com/ojsengine/ojs"
	"github.com/ojsengine/ojs/storage"
)

// Storages that break what holds of every call: contexts, closing, empty arguments.
var _ = register([]fault{
	{"contexts ignored", "general-1", func(b *broken) {
		b.due = func(b *broken, _ Context, now Time, max int, buf records) (storage.Due, error) {
			return b.Storage.Due(context.Background(), now, max, buf)
		}
	}},
	{"contexts ignored in a step", "general-1 settleclaim-9", func(b *broken) {
		b.step = func(b *broken, ctx Context, now Time, to slots, dst outcomes, c storage.Claim,
			into slots) (outcomes, int, error) {
			return b.Storage.SettleAndClaim(context.WithoutCancel(ctx), now, to, dst, c, into)
		}
	}},
	{"nothing to undo when it is closed", "general-2", func(b *broken) {
		b.unclaim = func(b *broken, ctx Context, now Time, held []storage.Held) (int, error) {
			n, err := b.Storage.Unclaim(ctx, now, held)
			if errors.Is(err, ojs.ErrClosed) {
				return 0, nil
			}
			return n, err
		}
	}},
	{"closing twice is an error", "general-2", func(b *broken) {
		closed := false
		b.close = func(b *broken) error {
			b.mu.Lock()
			defer b.mu.Unlock()
			if closed {
				return errors.New("closed already")
			}
			closed = true
			return b.Storage.Close()
		}
	}},
	{"no job is no error", "general-3", func(b *broken) {
		b.get = func(b *broken, ctx context.Context, id string) (storage.Record, error) {
			r, err := b.Storage.Get(ctx, id)
			if errors.Is(err, ojs.ErrNotFound) && id == "nobody" {
				return storage.Record{}, nil
			}
			return r, err
		}
	}},
	{"a limit of nothing", "general-5", func(b *broken) {
		b.insert = func(b *broken, ctx Context, now Time, batch inserts, dst results) (results, error) {
			if len(batch) == 0 {
				return dst, errors.New("an empty batch")
			}
			return b.Storage.Insert(ctx, now, batch, dst)
		}
	}},
	{"durable as soon as a job has ended", "general-7", func(b *broken) {
		b.caps = func(b *broken, c *storage.Capabilities) {
			counts, _ := b.Storage.Counts(context.Background())
			ended := func(n storage.Count) bool { return n.State.Terminal() }
			if slices.ContainsFunc(counts, ended) {
				c.Mechanism = "mutexes"
			}
		}
	}},
})
