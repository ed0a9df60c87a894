package storagetest_test

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/ojsengine/ojs"
	"github.com/ojsengine/ojs/storage"
)

// insertAs replaces Insert.
func insertAs(f func(*broken, context.Context, time.Time, inserts, results) (results, error)) func(*broken) {
	return func(b *broken) { b.insert = f }
}

// changeInserted changes the results of Insert.
func changeInserted(f func(batch []storage.Insert, out []storage.Inserted)) func(*broken) {
	return insertAs(func(b *broken, ctx Context, now Time, batch inserts, dst results) (results, error) {
		out, err := b.Storage.Insert(ctx, now, batch, nil)
		if err == nil {
			f(batch, out)
		}
		return append(dst, out...), err
	})
}

// changeDuplicate changes the errors about duplicates.
func changeDuplicate(f func(b *broken, batch []storage.Insert, dup *ojs.DuplicateError)) func(*broken) {
	return insertAs(func(b *broken, ctx Context, now Time, batch inserts, dst results) (results, error) {
		dst, err := b.Storage.Insert(ctx, now, batch, dst)
		var dup *ojs.DuplicateError
		if errors.As(err, &dup) {
			f(b, batch, dup)
		}
		return dst, err
	})
}

// changeDepths changes the bounds of queues, given the jobs there are in each. A bound
// below 1 is a full queue.
func changeDepths(f func(stored []storage.Record, batch []storage.Insert, i int) int) func(*broken) {
	return insertAs(func(b *broken, ctx Context, now Time, batch inserts, dst results) (results, error) {
		batch = slices.Clone(batch)
		for i := range batch {
			if batch[i].MaxDepth == 0 || batch[i].DropOldest {
				continue
			}
			q := batch[i].Record.Queue
			page, err := b.Storage.List(ctx, storage.Query{Queues: []string{q}})
			if err != nil {
				return dst, err
			}
			if batch[i].MaxDepth += f(page.Records, batch, i); batch[i].MaxDepth < 1 {
				return dst, &ojs.QueueError{Queue: q, Err: ojs.ErrQueueFull}
			}
		}
		return b.Storage.Insert(ctx, now, batch, dst)
	})
}

// forgetsDepth counts no jobs of a state.
func forgetsDepth(s ojs.State) func(*broken) {
	return changeDepths(func(stored []storage.Record, _ []storage.Insert, _ int) (n int) {
		for _, r := range stored {
			if r.State == s {
				n++
			}
		}
		return n
	})
}

func isJob(id string) func(storage.Insert) bool {
	return func(in storage.Insert) bool { return in.Record.ID == id }
}

// sameKey reports whether two jobs are equal.
func sameKey(a, b *storage.Record) bool { return a.Fingerprint != "" && a.Fingerprint == b.Fingerprint }

// updates reports whether a job gives its args to a scheduled equal one.
func updates(r *storage.Record) bool {
	return r.Unique != nil && r.Unique.OnConflict == ojs.ConflictReplaceExceptSchedule
}

// dropsFor moves the jobs that a queue gave up to the result of another of its records.
func dropsFor(which func(records []int) int) func(*broken) {
	return changeInserted(func(batch []storage.Insert, out []storage.Inserted) {
		records := make(map[string][]int) // by queue
		for i := range batch {
			records[batch[i].Record.Queue] = append(records[batch[i].Record.Queue], i)
		}
		for _, list := range records {
			var dropped []storage.Record
			for _, i := range list {
				dropped = append(dropped, out[i].Dropped...)
				out[i].Dropped = nil
			}
			out[which(list)].Dropped = dropped
		}
	})
}

// Storages that go wrong about the jobs of one batch.
var _ = register([]fault{
	{"results of Insert in place of what was there", "insert-3", insertAs(
		func(b *broken, ctx Context, now Time, batch inserts, _ results) (results, error) {
			return b.Storage.Insert(ctx, now, batch, nil)
		})},
	{"results of Insert backwards",
		"insert-3 settle-12 unique-10 insert-12 insert-13 prune-4 insert-16 unique-15", changeInserted(
			func(_ []storage.Insert, out []storage.Inserted) { slices.Reverse(out) })},
	{"the state of the first record of an id that is twice", "insert-4", changeDuplicate(
		func(_ *broken, batch []storage.Insert, dup *ojs.DuplicateError) {
			for _, in := range slices.Backward(batch) {
				if in.Record.ID == dup.ID && dup.Fingerprint == "" && len(batch) > 1 {
					dup.State = in.Record.State
				}
			}
		})},
	{"an equal job of the batch is named as available", "unique-10 unique-15", changeDuplicate(
		func(_ *broken, batch []storage.Insert, dup *ojs.DuplicateError) {
			if dup.Fingerprint != "" && slices.ContainsFunc(batch, isJob(dup.ID)) {
				dup.State = ojs.StateAvailable
			}
		})},
	{"of equal jobs of one time the first inserted is named", "unique-9", changeDuplicate(
		func(b *broken, _ []storage.Insert, dup *ojs.DuplicateError) {
			named, err := b.Storage.Get(context.Background(), dup.ID)
			if err != nil || dup.Fingerprint == "" {
				return
			}
			page, _ := b.Storage.List(context.Background(), storage.Query{})
			for _, r := range slices.Backward(page.Records) {
				if sameKey(&r, &named) && r.State == named.State && r.CreatedAt.Equal(named.CreatedAt) {
					dup.ID = r.ID
				}
			}
		})},
	{"jobs of the batch dropped for others of it", "insert-11 insert-7 insert-9", insertAs(
		func(b *broken, ctx Context, now Time, batch inserts, dst results) (results, error) {
			out, err := b.Storage.Insert(ctx, now, batch, dst)
			if !errors.Is(err, ojs.ErrQueueFull) || len(batch) == 1 {
				return out, err
			}
			for i := range batch {
				if dst, err = b.Storage.Insert(ctx, now, batch[i:i+1], dst); err != nil {
					return dst, err
				}
			}
			return dst, nil
		})},
	{"a queue counts the records after one", "insert-12 insert-7 insert-9", changeDepths(
		func(_ []storage.Record, batch []storage.Insert, i int) (n int) {
			for _, later := range batch[i+1:] {
				if later.Record.Queue == batch[i].Record.Queue {
					n--
				}
			}
			return n
		})},
	{"scheduled jobs take no room", "insert-12 insert-7 quarantine-7 insert-9",
		forgetsDepth(ojs.StateScheduled)},
	{"pending jobs take no room", "insert-12 insert-9", forgetsDepth(ojs.StatePending)},
	{"active jobs take no room", "insert-12 insert-7", forgetsDepth(ojs.StateActive)},
	{"retryable jobs take no room", "insert-12", forgetsDepth(ojs.StateRetryable)},
	{"ended jobs take room", "insert-12 insert-7", changeDepths(
		func(stored []storage.Record, _ []storage.Insert, _ int) (n int) {
			for _, r := range stored {
				if r.State.Terminal() {
					n--
				}
			}
			return n
		})},
	{"replaced jobs take room", "insert-12 insert-9 insert-16", changeDepths(
		func(stored []storage.Record, batch []storage.Insert, i int) (n int) {
			for _, r := range stored {
				if sameKey(&r, &batch[i].Record) && !r.State.Terminal() {
					n--
				}
			}
			return n
		})},
	{"dropped for the first record of the queue", "insert-13 prune-4",
		dropsFor(func(list []int) int { return list[0] })},
	{"dropped for the last record of the queue", "insert-13 prune-4",
		dropsFor(func(list []int) int { return list[len(list)-1] })},
	{"a draining queue is named before an equal job", "insert-14", insertAs(
		func(b *broken, ctx Context, now Time, batch inserts, dst results) (results, error) {
			out, err := b.Storage.Insert(ctx, now, batch, dst)
			states, _ := b.Storage.QueueStates(ctx)
			for _, in := range batch {
				if errors.Is(err, ojs.ErrDuplicate) && states[in.Record.Queue] == ojs.QueueDraining {
					return dst, &ojs.QueueError{Queue: in.Record.Queue, Err: ojs.ErrQueueDraining}
				}
			}
			return out, err
		})},
	{"a full queue is named before a draining one", "insert-14", insertAs(
		func(b *broken, ctx Context, now Time, batch inserts, dst results) (results, error) {
			out, err := b.Storage.Insert(ctx, now, batch, dst)
			counts, _ := b.Storage.Counts(ctx)
			for _, in := range batch {
				for _, n := range counts {
					if errors.Is(err, ojs.ErrQueueDraining) && in.MaxDepth == 1 &&
						n.Queue == in.Record.Queue {
						return dst, &ojs.QueueError{Queue: n.Queue, Err: ojs.ErrQueueFull}
					}
				}
			}
			return out, err
		})},
	{"ids are looked at after equal jobs", "insert-14", insertAs(
		func(b *broken, ctx Context, now Time, batch inserts, dst results) (results, error) {
			out, err := b.Storage.Insert(ctx, now, batch, dst)
			var dup *ojs.DuplicateError
			if !errors.As(err, &dup) || dup.Fingerprint != "" {
				return out, err
			}
			for _, in := range batch {
				if in.Record.Fingerprint == "" {
					continue
				}
				_, other := b.Storage.Insert(ctx, now, inserts{in}, nil)
				if errors.Is(other, ojs.ErrDuplicate) {
					return dst, other
				}
			}
			return out, err
		})},
	{"fresh jobs are counted by the next call", "insert-15", func(b *broken) {
		unseen := ""
		b.insert = func(b *broken, ctx Context, now Time, batch inserts, dst results) (results, error) {
			b.mu.Lock()
			defer b.mu.Unlock()
			if unseen = ""; len(batch) == 1 && batch[0].IDIsNew {
				unseen = batch[0].Record.Queue
			}
			return b.Storage.Insert(ctx, now, batch, dst)
		}
		b.counts = func(b *broken, ctx context.Context) ([]storage.Count, error) {
			b.mu.Lock()
			defer b.mu.Unlock()
			list, err := b.Storage.Counts(ctx)
			list = slices.DeleteFunc(list,
				func(n storage.Count) bool { return n.Queue == unseen && n.N == 1 })
			unseen = ""
			return list, err
		}
	}},
	{"fresh jobs are listed once they were claimed", "insert-15 insert-17", func(b *broken) {
		changeFresh(func(b *broken, in *storage.Insert) {
			b.mu.Lock()
			defer b.mu.Unlock()
			b.kept[in.Record.ID] = in.Record
		})(b)
		b.list = func(b *broken, ctx context.Context, q storage.Query) (storage.Page, error) {
			p, err := b.Storage.List(ctx, q)
			b.mu.Lock()
			defer b.mu.Unlock()
			p.Records = slices.DeleteFunc(p.Records, func(r storage.Record) bool {
				_, fresh := b.kept[r.ID]
				return fresh && r.Attempt == 0
			})
			return p, err
		}
	}},
	{"the oldest of several scheduled jobs takes over", "unique-14 due-7", insertAs(
		func(b *broken, ctx Context, now Time, batch inserts, dst results) (results, error) {
			for _, in := range batch {
				if !updates(&in.Record) {
					continue
				}
				page, _ := b.Storage.List(ctx, storage.Query{States: []ojs.State{ojs.StateScheduled}})
				for _, r := range page.Records {
					if len(page.Records) > 1 && r.Fingerprint == in.Record.Fingerprint {
						r.CreatedAt = r.CreatedAt.Add(time.Hour)
						_, _ = b.Storage.Settle(ctx, now, []storage.Change{{Record: r}}, nil)
						break
					}
				}
			}
			return b.Storage.Insert(ctx, now, batch, dst)
		})},
	{"the others stay where a scheduled job takes over", "unique-14", insertAs(
		func(b *broken, ctx Context, now Time, batch inserts, dst results) (results, error) {
			for _, in := range batch {
				if in.KeepActive || !updates(&in.Record) {
					continue
				}
				page, _ := b.Storage.List(ctx, storage.Query{})
				scheduled := slices.ContainsFunc(page.Records, func(r storage.Record) bool {
					return r.Fingerprint == in.Record.Fingerprint && r.State == ojs.StateScheduled
				})
				for _, r := range page.Records {
					if scheduled && r.State == ojs.StateAvailable && r.Fingerprint == in.Record.Fingerprint {
						r.Fingerprint = ""
						_, _ = b.Storage.Settle(ctx, now, []storage.Change{{Record: r}}, nil)
					}
				}
			}
			return b.Storage.Insert(ctx, now, batch, dst)
		})},
	{"a draining queue refuses what would be stored only", "queue-2", insertAs(
		func(b *broken, ctx Context, now Time, batch inserts, dst results) (results, error) {
			out, err := b.Storage.Insert(ctx, now, batch, dst)
			if !errors.Is(err, ojs.ErrQueueDraining) || len(batch) > 1 || batch[0].Record.Fingerprint == "" {
				return out, err
			}
			page, _ := b.Storage.List(ctx, storage.Query{})
			for _, r := range page.Records {
				if r.Fingerprint == batch[0].Record.Fingerprint {
					return append(dst, storage.Inserted{Existing: &r}), nil
				}
			}
			return out, err
		})},
})
