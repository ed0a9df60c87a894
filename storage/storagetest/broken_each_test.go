package storagetest_test

import (
	"context"
	"runtime"
	"slices"
	"testing"
	"time"

	"github.com/ojsengine/ojs"
	"github.com/ojsengine/ojs/internal/document"
	"github.com/ojsengine/ojs/storage"
	"github.com/ojsengine/ojs/storage/storagetest"
)

// available are the jobs of a storage that are available.
func (b *broken) available(ctx Context) []storage.Record {
	page, _ := b.Storage.List(ctx, storage.Query{States: []ojs.State{ojs.StateAvailable}})
	return page.Records
}

// Storages that treat one job of a call, or of many, otherwise than the others.
var _ = register([]fault{
	{"a job that its own call cancels counts in the depth", "depend-16 *",
		changeInserted(func(batch []storage.Insert, out []storage.Inserted) {
			for i := range out {
				for _, r := range out[len(out)-1].Moved {
					if batch[i].MaxDepth > 0 && r.State.Terminal() && r.Queue == batch[i].Record.Queue {
						out[i].Depth++
					}
				}
			}
		})},
	{"only the first dropped job moves others", "each-1 *",
		changeInserted(func(_ []storage.Insert, out []storage.Inserted) {
			if last := &out[len(out)-1]; len(last.Dropped) > 1 {
				last.Moved = last.Moved[:min(len(last.Moved), 2)]
			}
		})},
	{"only the first lease of a call may be lost", "each-2 *", func(b *broken) {
		b.extend = func(b *broken, ctx Context, now Time, xs []storage.Extension) ([]string, error) {
			lost, err := b.Storage.Extend(ctx, now, xs)
			if len(lost) > 0 && lost[0] != xs[0].ID {
				lost = nil
			}
			return lost, err
		}
	}},
	{"only the first end of a call is told", "each-3 *", func(b *broken) {
		b.notify = func(b *broken, self any, f func(storage.Notice)) func() {
			return b.Storage.Notify(self, func(n storage.Notice) {
				n.Ended = n.Ended[:min(len(n.Ended), 1)]
				f(n)
			})
		}
	}},
	{"no end of a job that waits is told", "each-3 *", func(b *broken) {
		b.notify = func(b *broken, self any, f func(storage.Notice)) func() {
			return b.Storage.Notify(self, func(n storage.Notice) {
				n.Ended = n.Ended[:min(len(n.Ended), 3)]
				f(n)
			})
		}
	}},
	{"only the first claim that a call takes is told", "each-3 *", func(b *broken) {
		b.notify = func(b *broken, self any, f func(storage.Notice)) func() {
			return b.Storage.Notify(self, func(n storage.Notice) {
				n.Taken = n.Taken[:min(len(n.Taken), 1)]
				f(n)
			})
		}
	}},
	{"the third job is revived by any version", "each-4 *", func(b *broken) {
		b.revive = func(b *broken, ctx Context, now Time, batch inserts) (records, error) {
			batch = slices.Clone(batch)
			for i := 2; i < len(batch); i++ {
				if r, err := b.Storage.Get(ctx, batch[i].Record.ID); err == nil {
					batch[i].Record.Version = r.Version
				}
			}
			return b.Storage.Revive(ctx, now, batch)
		}
	}},
	{"a paused queue hands out jobs with a fairness key", "queue-4 *", func(b *broken) {
		b.claim = func(b *broken, ctx Context, now Time, c storage.Claim, dst records) (records, error) {
			states, _ := b.Storage.QueueStates(ctx)
			for _, r := range b.available(ctx) {
				if len(c.Queues) == 0 && r.Fairness.Key != "" && states[r.Queue] == ojs.QueuePaused {
					_, _ = b.Storage.SetQueueState(ctx, r.Queue, ojs.QueueActive)
				}
			}
			return b.Storage.Claim(ctx, now, c, dst)
		}
	}},
	{"a claim gives up behind 256 jobs", "claim-19 *", func(b *broken) {
		b.claim = func(b *broken, ctx Context, now Time, c storage.Claim, dst records) (records, error) {
			if len(b.available(ctx)) > 256 {
				return dst, nil
			}
			return b.Storage.Claim(ctx, now, c, dst)
		}
	}},
	{"jobs that Settle makes active count in no limit", "limit-18 *", func(b *broken) {
		b.claim = func(b *broken, ctx Context, now Time, c storage.Claim, dst records) (records, error) {
			page, _ := b.Storage.List(ctx, storage.Query{States: []ojs.State{ojs.StateActive}})
			for _, r := range page.Records {
				if r.Attempt == 0 && r.RateLimit != nil {
					name := storage.LimitName{Kind: storage.LimitKey, Name: r.RateLimit.Key}
					_ = b.Storage.SetLimit(ctx, now, name, ojs.RateLimit{Concurrency: 1000}, Time{})
				}
			}
			return b.Storage.Claim(ctx, now, c, dst)
		}
	}},
	{"the job at which a long page ends is lost", "scale-5 *", func(b *broken) {
		b.list = func(b *broken, ctx Context, q storage.Query) (storage.Page, error) {
			page, err := b.Storage.List(ctx, q)
			if page.Looked >= 1024 && page.Next != "" && len(page.Records) < 1000 {
				skipped, _ := b.Storage.List(ctx, storage.Query{Order: q.Order, DeadLetters: q.DeadLetters,
					Cursor: page.Next, Limit: 1})
				page.Next = skipped.Next
			}
			return page, err
		}
	}},
	{"values are put one by one", "values-8 *", func(b *broken) {
		b.put = func(b *broken, ctx Context, values []storage.Document) (versions []uint64, err error) {
			for i := range values {
				version, err := b.Storage.PutDocuments(ctx, storage.KindValue, values[i:i+1])
				if err != nil {
					return nil, err
				}
				versions = append(versions, version...)
				runtime.Gosched()
			}
			return versions, nil
		}
	}},
	{"queues are active when opened again", "durable-4 *", func(b *broken) { b.reopen = resumeAll }},
})

// resumeAll makes all queues active.
func resumeAll(b *broken) storage.Storage {
	states, _ := b.Storage.QueueStates(context.Background())
	for q := range states {
		_, _ = b.Storage.SetQueueState(context.Background(), q, ojs.QueueActive)
	}
	return b
}

// A storage that loses something when it is opened again fails cases that know nothing of
// that, if they are run on a storage that is opened again between calls.
func TestReopenedFaultsAreCaught(t *testing.T) {
	storagetest.SkipWatched(t)
	limits := func(f func(s storage.LimitStore, l storage.Limit)) func(b *broken) storage.Storage {
		return func(b *broken) storage.Storage {
			for _, kind := range []storage.LimitKind{"key", "queue", "type"} {
				list, _ := b.Storage.ListLimits(context.Background(), time.Time{}, kind, "", 1000)
				for _, l := range list {
					f(b.Storage, l)
				}
			}
			return b
		}
	}
	for name, f := range map[string]struct {
		id     string
		reopen func(b *broken) storage.Storage
	}{
		"states of queues": {"queue-1", resumeAll},
		"settings of limits": {"limit-6", limits(func(s storage.LimitStore, l storage.Limit) {
			_ = s.SetLimit(context.Background(), time.Time{}, l.LimitName, ojs.RateLimit{}, time.Time{})
		})},
		"blocks of limits": {"limit-9", limits(func(s storage.LimitStore, l storage.Limit) {
			_ = s.BlockLimit(context.Background(), time.Time{}, l.LimitName, time.Time{})
		})},
		"recurring entries": {"cron-5", func(b *broken) storage.Storage {
			list, _ := document.Of(b.Storage).Crons(context.Background(), storage.DocumentQuery{})
			for _, e := range list {
				_, _ = document.Of(b.Storage).DeleteCron(context.Background(), e.Name)
			}
			return b
		}},
		"values": {"values-1", func(b *broken) storage.Storage {
			gone := []document.Value{{Key: "a"}}
			_ = document.Of(b.Storage).PutValues(context.Background(), time.Time{}, gone)
			return b
		}},
	} {
		cfg := brokenConfig(func(b *broken) { b.reopen = f.reopen })
		if len(storagetest.ProveReopened(cfg, find(f.id))) == 0 {
			t.Errorf("%s does not notice that the %s are lost", f.id, name)
		}
		if failures := storagetest.Prove(cfg, find(f.id)); len(failures) > 0 {
			t.Errorf("%s, which opens nothing again, fails: %v", f.id, failures)
		}
	}
	sound := brokenConfig(func(*broken) {})
	for _, c := range storagetest.Cases() {
		if !storagetest.Reopens(sound, c) {
			continue
		}
		if failures := storagetest.ProveReopened(sound, c); len(failures) > 0 {
			t.Errorf("%s fails a sound storage: %v", c.ID, failures)
		}
	}
}
