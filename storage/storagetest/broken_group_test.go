package storagetest_test

import (
	"errors"
	"runtime"
	"slices"

	"github.com/ojsengine/ojs"
	"github.com/ojsengine/ojs/storage"
)

// changeRevived changes the jobs that are revived.
func changeRevived(f func(in *storage.Insert)) func(*broken) {
	return func(b *broken) {
		b.revive = func(b *broken, ctx Context, now Time, batch inserts) (records, error) {
			batch = slices.Clone(batch)
			for i := range batch {
				f(&batch[i])
			}
			return b.Storage.Revive(ctx, now, batch)
		}
	}
}

// changeAwaited changes the new jobs that stored ones are to wait for.
func changeAwaited(f func(in *storage.Insert)) func(*broken) {
	return func(b *broken) {
		b.insert = func(b *broken, ctx Context, now Time, batch inserts, dst results) (results, error) {
			batch = slices.Clone(batch)
			for i := range batch {
				if len(batch[i].AwaitedBy) > 0 {
					f(&batch[i])
				}
			}
			return b.Storage.Insert(ctx, now, batch, dst)
		}
	}
}

// Storages that break the rules of storage.GroupStore.
var _ = register([]fault{
	{"the last of the jobs is not cancelled", "group-1 *", func(b *broken) {
		b.cancelAll = func(b *broken, ctx Context, now Time, ids []string) (records, records, error) {
			return b.Storage.CancelAll(ctx, now, ids[:max(1, len(ids)-2)])
		}
	}},
	{"what a cancel of all has moved is not returned", "group-1 *", func(b *broken) {
		b.cancelAll = func(b *broken, ctx Context, now Time, ids []string) (records, records, error) {
			cancelled, _, err := b.Storage.CancelAll(ctx, now, ids)
			return cancelled, nil, err
		}
	}},
	{"jobs are cancelled one by one", "group-1 *", func(b *broken) {
		b.cancelAll = func(b *broken, ctx Context, now Time, ids []string) (records, records, error) {
			var cancelled, moved records
			for i, id := range ids {
				c, m, err := b.Storage.CancelAll(ctx, now, []string{id})
				if err != nil && i == 0 {
					return nil, nil, err
				}
				cancelled, moved = append(cancelled, c...), append(moved, m...)
			}
			return cancelled, moved, nil
		}
	}},
	{"the others are cancelled if the first cannot be", "group-2 *", func(b *broken) {
		b.cancelAll = func(b *broken, ctx Context, now Time, ids []string) (records, records, error) {
			cancelled, moved, err := b.Storage.CancelAll(ctx, now, ids)
			if errors.Is(err, ojs.ErrTransition) && len(ids) > 1 {
				_, _, _ = b.Storage.CancelAll(ctx, now, ids[1:])
			}
			return cancelled, moved, err
		}
	}},
	{"jobs are revived in another order", "group-3 *", func(b *broken) {
		b.revive = func(b *broken, ctx Context, now Time, batch inserts) (records, error) {
			batch = slices.Clone(batch)
			slices.Reverse(batch)
			return b.Storage.Revive(ctx, now, batch)
		}
	}},
	{"a revived job keeps its queue", "group-3 *",
		changeRevived(func(in *storage.Insert) { in.Record.Queue = "q" })},
	{"jobs are revived until one cannot be", "group-4 *", func(b *broken) {
		b.revive = func(b *broken, ctx Context, now Time, batch inserts) (moved records, err error) {
			if moved, err = b.Storage.Revive(ctx, now, batch); err != nil && len(batch) > 1 {
				_, _ = b.Storage.Revive(ctx, now, batch[:1])
			}
			return moved, err
		}
	}},
	{"an error of Revive names no job", "group-4", func(b *broken) {
		b.revive = func(b *broken, ctx Context, now Time, batch inserts) (records, error) {
			moved, err := b.Storage.Revive(ctx, now, batch)
			if errors.Is(err, ojs.ErrDependency) {
				err = new(ojs.DependencyError)
			}
			return moved, err
		}
	}},
	{"Revive reads in one step and writes in another", "group-8", func(b *broken) {
		b.revive = func(b *broken, ctx Context, now Time, batch inserts) (records, error) {
			was, err := b.Storage.Get(ctx, batch[0].Record.ID)
			if err != nil || was.CanRevive(&batch[0].Record) != nil {
				return b.Storage.Revive(ctx, now, batch)
			}
			runtime.Gosched()
			moved, err := b.Storage.Revive(ctx, now, batch)
			if errors.Is(err, storage.ErrFenced) && len(batch) == 1 {
				err = nil
			}
			return moved, err
		}
	}},
	{"a revived job waits for nothing", "group-5 *",
		changeRevived(func(in *storage.Insert) { in.DependsOn = nil })},
	{"what Revive has moved is not returned", "group-5 *", func(b *broken) {
		b.revive = func(b *broken, ctx Context, now Time, batch inserts) (records, error) {
			_, err := b.Storage.Revive(ctx, now, batch)
			return nil, err
		}
	}},
	{"no stored job waits for a new one", "group-6 *",
		changeAwaited(func(in *storage.Insert) { in.AwaitedBy = nil })},
	{"only the first stored job waits for a new one", "group-6 *",
		changeAwaited(func(in *storage.Insert) { in.AwaitedBy = in.AwaitedBy[:1] })},
	{"a new job that is awaited by none is stored", "group-7 *", func(b *broken) {
		b.insert = func(b *broken, ctx Context, now Time, batch inserts, dst results) (results, error) {
			out, err := b.Storage.Insert(ctx, now, batch, dst)
			if errors.Is(err, ojs.ErrDependency) && storage.Awaited(batch) {
				batch = slices.Clone(batch)
				for i := range batch {
					batch[i].AwaitedBy = nil
				}
				return b.Storage.Insert(ctx, now, batch, dst)
			}
			return out, err
		}
	}},
})
