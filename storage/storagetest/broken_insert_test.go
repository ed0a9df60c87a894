package storagetest_test

import (
	"slices"

	"github.com/ojsengine/ojs"
	"github.com/ojsengine/ojs/storage"
)

// Storages that break the rules of Insert: batches, ids, depths.
var _ = register([]fault{
	{"batch stored backwards",
		"insert-3 insert-9 unique-10 prune-4 settle-12 insert-16 insert-17 scale-1 scale-3 scale-4 unique-15 unique-16 insert-4 insert-12 insert-13 due-9 list-8",
		func(b *broken) {
			b.insert = func(b *broken, ctx Context, now Time, batch inserts, dst results) (results, error) {
				batch = slices.Clone(batch)
				slices.Reverse(batch)
				out, err := b.Storage.Insert(ctx, now, batch, nil)
				slices.Reverse(out)
				return append(dst, out...), err
			}
		}},
	{"ids of ended jobs used again", "insert-4", func(b *broken) {
		b.insert = func(b *broken, ctx Context, now Time, batch inserts, dst results) (results, error) {
			for i := range batch {
				if r, err := b.Storage.Get(ctx, batch[i].Record.ID); err == nil && r.State.Terminal() {
					_, _ = b.Storage.Delete(ctx, []string{r.ID})
				}
			}
			return b.Storage.Insert(ctx, now, batch, dst)
		}
	}},
	{"any state to begin in", "insert-5 insert-2 insert-14", changeInsert(func(r *storage.Record) {
		if !slices.Contains([]ojs.State{ojs.StateScheduled, ojs.StatePending}, r.State) {
			r.State = ojs.StateAvailable
		}
	})},
	{"no bounds", "insert-7 insert-9 insert-16 insert-3 insert-12", func(b *broken) {
		b.insert = func(b *broken, ctx Context, now Time, batch inserts, dst results) (results, error) {
			batch = slices.Clone(batch)
			for i := range batch {
				if !batch[i].DropOldest {
					batch[i].MaxDepth = 0
				}
			}
			return b.Storage.Insert(ctx, now, batch, dst)
		}
	}},
	{"full though something could be dropped",
		"insert-8 unclaim-2 prune-4 insert-10 insert-16 insert-17 notify-8 insert-13",
		func(b *broken) {
			b.insert = func(b *broken, ctx Context, now Time, batch inserts, dst results) (results, error) {
				batch = slices.Clone(batch)
				for i := range batch {
					batch[i].DropOldest = false
				}
				return b.Storage.Insert(ctx, now, batch, dst)
			}
		}},
	{"no look at whether a fresh job is unique", "insert-9",
		changeFresh(func(b *broken, in *storage.Insert) { in.Record.Unique = nil })},
	{"no bounds for fresh jobs", "insert-9",
		changeFresh(func(b *broken, in *storage.Insert) { in.MaxDepth = 0 })},
	{"fresh jobs go first", "insert-9 settleclaim-3 insert-17 settleclaim-14",
		changeFresh(func(b *broken, in *storage.Insert) { in.Record.Priority++ })},
	{"ids of fresh jobs not kept", "insert-9 insert-17", func(b *broken) {
		changeFresh(func(b *broken, in *storage.Insert) { b.kept[in.Record.ID] = storage.Record{} })(b)
		insert := b.insert
		b.insert = func(b *broken, ctx Context, now Time, batch inserts, dst results) (results, error) {
			if len(batch) == 1 {
				if _, fresh := b.kept[batch[0].Record.ID]; fresh {
					return append(dst, storage.Inserted{Version: 1}), ctx.Err()
				}
			}
			return insert(b, ctx, now, batch, dst)
		}
	}},
})
