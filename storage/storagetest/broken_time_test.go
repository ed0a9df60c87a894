package storagetest_test

import (
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/ojsengine/ojs"
	"github.com/ojsengine/ojs/policy"
	"github.com/ojsengine/ojs/storage"
)

// Storages that go wrong about deadlines, leases, due times and clocks that go back.
var _ = register([]fault{
	{"early visibility", "claim-10 lease-1 lease-3 due-1 due-3 due-6 general-6 prune-4 due-10",
		shiftDue(time.Second)},
	{"what a claim has found expired stays so when the clock goes back", "claim-13", func(b *broken) {
		var latest time.Time
		b.claim = func(b *broken, ctx Context, now Time, c storage.Claim, dst records) (records, error) {
			b.mu.Lock()
			if now.After(latest) {
				latest = now
			}
			now = latest
			b.mu.Unlock()
			return b.Storage.Claim(ctx, now, c, dst)
		}
	}},
	{"what a claim has found expired is not dropped when the clock goes back", "insert-10", func(b *broken) {
		var latest time.Time
		b.claim = func(b *broken, ctx Context, now Time, c storage.Claim, dst records) (records, error) {
			b.mu.Lock()
			latest = now
			b.mu.Unlock()
			return b.Storage.Claim(ctx, now, c, dst)
		}
		b.insert = func(b *broken, ctx Context, now Time, batch inserts, dst results) (results, error) {
			b.mu.Lock()
			if latest.After(now) {
				now = latest
			}
			b.mu.Unlock()
			return b.Storage.Insert(ctx, now, batch, dst)
		}
	}},
	{"a renewal renews nothing", "lease-1 due-7 due-9", func(b *broken) {
		b.extend = func(b *broken, ctx Context, now Time, xs []storage.Extension) ([]string, error) {
			return b.Storage.Extend(ctx, now.Add(-50*time.Second), xs)
		}
	}},
	{"a renewal for whoever asks", "lease-2 settle-12 durable-3", func(b *broken) {
		b.extend = func(b *broken, ctx Context, now Time, xs []storage.Extension) ([]string, error) {
			xs = slices.Clone(xs)
			for i := range xs {
				if r, err := b.Storage.Get(ctx, xs[i].ID); err == nil {
					xs[i].Version = r.Version
				}
			}
			return b.Storage.Extend(ctx, now, xs)
		}
	}},
	{"a lease over early", "lease-3 due-3", func(b *broken) {
		b.claim = func(b *broken, ctx Context, now Time, c storage.Claim, dst records) (records, error) {
			recs, err := b.Storage.Claim(ctx, now, c, dst)
			return recs, err
		}
		b.due = func(b *broken, ctx Context, now Time, max int, buf records) (storage.Due, error) {
			d, err := b.Storage.Due(ctx, now, max, buf)
			if err == nil && len(d.Stalled) == 0 && !d.Next.IsZero() && d.Next.Sub(now) <= time.Millisecond {
				active := storage.Query{States: []ojs.State{ojs.StateActive}}
				if r, lerr := b.Storage.List(ctx, active); lerr == nil && len(r.Records) > 0 {
					return b.Storage.Due(ctx, now.Add(time.Millisecond), max, buf)
				}
			}
			return d, err
		}
	}},
	{"a stalled job handed on once", "lease-4 due-7", changeDue(func(d *storage.Due) {
		d.Stalled = slices.DeleteFunc(d.Stalled, func(r storage.Record) bool { return r.Version > 3 })
	})},
	{"promoted late",
		"due-1 unique-12 claim-2 unclaim-3 unclaim-4 lease-3 lease-4 due-3 prune-4 queue-1 notify-1 notify-2 durable-1 general-6 settle-10 prune-6 due-7 due-8 insert-17 notify-8 due-9 due-10", shiftDue(-time.Millisecond)},
	{"promoted in the order of insertion", "due-2 due-7 due-9", changeDue(func(d *storage.Due) {
		slices.SortFunc(d.Promoted, func(a, b storage.Record) int { return strings.Compare(a.ID, b.ID) })
	})},
	{"pending jobs never expire", "due-3", changeInsert(func(r *storage.Record) {
		if r.State == ojs.StatePending {
			r.ExpiresAt = time.Time{}
		}
	})},
	{"promoted behind what was in buf",
		"due-1 unique-12 due-2 due-4 queue-1 general-5 durable-1 general-6 due-7 due-8 settle-13 due-9 settle-20",
		func(b *broken) {
			b.due = func(b *broken, ctx Context, now Time, max int, buf records) (storage.Due, error) {
				d, err := b.Storage.Due(ctx, now, max, nil)
				d.Promoted = append(buf, d.Promoted...)
				return d, err
			}
		}},
	{"max ignored", "due-4", func(b *broken) {
		b.due = func(b *broken, ctx Context, now Time, max int, buf records) (storage.Due, error) {
			return b.Storage.Due(ctx, now, max+1000, buf)
		}
	}},
	{"no next deadline", "due-5", changeDue(func(d *storage.Due) {
		if len(d.Promoted)+len(d.Expired)+len(d.Stalled) == 0 && d.Next.Minute() == 30 {
			d.Next = d.Next.Add(time.Hour)
		}
	})},
	{"leases end in the order of their claims", "due-7 due-9", changeDue(func(d *storage.Due) {
		slices.SortFunc(d.Stalled, func(a, b storage.Record) int { return strings.Compare(a.ID, b.ID) })
	})},
	{"a clock that goes back is an error", "due-6", func(b *broken) {
		var last time.Time
		b.due = func(b *broken, ctx Context, now Time, max int, buf records) (storage.Due, error) {
			b.mu.Lock()
			defer b.mu.Unlock()
			if now.Before(last.Add(-30*time.Minute)) ||
				now.Before(time.Date(2026, 3, 1, 11, 30, 0, 0, time.UTC)) {
				return storage.Due{}, errors.New("the clock went back")
			}
			last = now
			return b.Storage.Due(ctx, now, max, buf)
		}
	}},
	{"renewals of one call backwards", "due-9", func(b *broken) {
		b.extend = func(b *broken, ctx Context, now Time, xs []storage.Extension) ([]string, error) {
			xs = slices.Clone(xs)
			slices.Reverse(xs)
			lost, err := b.Storage.Extend(ctx, now, xs)
			slices.Reverse(lost)
			return lost, err
		}
	}},
	{"changes of one call backwards", "due-9 prune-4 settle-4 scale-1 scale-2", func(b *broken) {
		b.settle = func(b *broken, ctx Context, now Time, changes settles, dst outcomes) (outcomes, error) {
			changes = slices.Clone(changes)
			slices.Reverse(changes)
			out, err := b.Storage.Settle(ctx, now, changes, nil)
			slices.Reverse(out)
			return append(dst, out...), err
		}
	}},
	{"due jobs of one call in the order of their ids", "due-9 due-7 due-2", changeDue(func(d *storage.Due) {
		slices.SortStableFunc(d.Promoted, func(a, b storage.Record) int {
			if c := a.ScheduledAt.Compare(b.ScheduledAt); c != 0 {
				return c
			}
			return strings.Compare(a.ID, b.ID)
		})
	})},
	{"an enqueue TTL is a deadline like any other", "due-10 due-8 settleclaim-15 general-4",
		changeInsert(func(r *storage.Record) {
			if r.EnqueueTTL > 0 && r.ExpiresAt.IsZero() {
				r.ExpiresAt, r.EnqueueTTL = r.CreatedAt.Add(r.EnqueueTTL), 0
			}
		})},
	{"expired jobs are dead letters if their policy wants it", "due-10", changeGet(func(r *storage.Record) {
		if r.Error != nil && r.Error.Type == policy.ErrorTypeExpired &&
			r.Retry.OnExhaustion == ojs.ExhaustionDeadLetter {
			r.DeadLetteredAt = r.FinishedAt
		}
	})},
	{"no dead letters by total timeouts", "due-10", changeInsert(func(r *storage.Record) {
		if r.TotalTimeout == time.Minute {
			r.Retry.OnExhaustion = ojs.ExhaustionDiscard
		}
	})},
	{"a total timeout that ends before the scheduled time ends with it", "due-3 *",
		changeInsert(func(r *storage.Record) {
			if wait := r.ScheduledAt.Sub(r.CreatedAt); r.State == ojs.StateScheduled && r.TotalTimeout > 0 {
				r.TotalTimeout = max(r.TotalTimeout, wait)
			}
		})},
	{"due a nanosecond early", "due-1 due-3 due-6 lease-1 lease-3 general-6 claim-10 prune-4 due-10",
		shiftDue(1)},
	{"a deadline is over a nanosecond late for claims", "claim-9 * scale-3", func(b *broken) {
		b.claim = func(b *broken, ctx Context, now Time, c storage.Claim, dst records) (records, error) {
			return b.Storage.Claim(ctx, now.Add(-1), c, dst)
		}
	}},
	{"a period is over a nanosecond early", "unique-8", insertAs(
		func(b *broken, ctx Context, now Time, batch inserts, dst results) (results, error) {
			if len(batch) == 1 && batch[0].Record.Unique != nil && batch[0].Record.Unique.Period > 0 {
				now = now.Add(1)
			}
			return b.Storage.Insert(ctx, now, batch, dst)
		})},
})
