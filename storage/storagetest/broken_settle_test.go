package storagetest_test

import (
	"errors"
	"slices"
	"time"

	"github.com/ojsengine/ojs"
	"github.com/ojsengine/ojs/storage"
)

// Storages that apply the wrong changes, or lose what follows from one.
var _ = register([]fault{
	{"an illegal transition made", "settle-1", func(b *broken) {
		b.settle = func(b *broken, ctx Context, now Time, changes settles, dst outcomes) (outcomes, error) {
			out, err := b.Storage.Settle(ctx, now, changes, nil)
			for i := range out {
				if r := changes[i].Record; errors.Is(out[i].Err, ojs.ErrTransition) &&
					r.State == ojs.StateCompleted {
					out[i] = storage.Settled{Version: r.Version + 1}
				}
			}
			return append(dst, out...), err
		}
	}},
	{"fencing lost", "settle-2 unique-3 settle-3 unclaim-1 lease-3 race-2 race-3 settle-12 durable-3",
		changeSettle(func(to *storage.Record, stored storage.Record) { to.Version = stored.Version })},
	{"fencing by the attempt number", "settle-3 lease-3 race-3 settle-12 durable-3",
		changeSettle(func(to *storage.Record, stored storage.Record) {
			if to.Attempt == stored.Attempt && stored.State == ojs.StateActive {
				to.Version = stored.Version
			}
		})},
	{"another type costs an available job its place", "settle-9",
		costsPlace(func(r, stored *storage.Record) bool { return r.Type != stored.Type })},
	{"another rate limit costs an available job its place", "settle-9",
		costsPlace(func(r, stored *storage.Record) bool {
			return (r.RateLimit == nil) != (stored.RateLimit == nil)
		})},
	{"another fingerprint costs an available job its place", "settle-9",
		costsPlace(func(r, stored *storage.Record) bool {
			return r.Fingerprint != stored.Fingerprint
		})},
	{"another deadline costs an available job its place", "settle-9 settle-10",
		costsPlace(func(r, stored *storage.Record) bool {
			return !r.Deadline().Equal(stored.Deadline())
		})},
	{"another time of creation costs an available job its place", "settle-9",
		costsPlace(func(r, stored *storage.Record) bool {
			return !r.CreatedAt.Equal(stored.CreatedAt)
		})},
	{"a deadline that does not move", "settle-10 notify-8 settle-20",
		changeSettle(func(to *storage.Record, stored storage.Record) {
			if stored.State.Waiting() {
				to.ExpiresAt = stored.ExpiresAt
			}
		})},
	{"an enqueue TTL that starts do not end", "due-8",
		changeSettle(func(to *storage.Record, stored storage.Record) {
			if to.EnqueueTTL > 0 && to.State.Waiting() {
				to.ExpiresAt = to.CreatedAt.Add(to.EnqueueTTL)
			}
		})},
	{"a fingerprint for life", "settle-11 insert-16",
		changeSettle(func(to *storage.Record, stored storage.Record) {
			to.Fingerprint = stored.Fingerprint
		})},
	{"a time of creation for life", "settle-11",
		changeSettle(func(to *storage.Record, stored storage.Record) { to.CreatedAt = stored.CreatedAt })},
	{"tokens of a deleted job fit the next one", "settle-12 durable-3",
		func(b *broken) { tokensComeAgain(b, func() bool { return true }) }},
	{"changes all or nothing", "settle-4", func(b *broken) {
		b.settle = func(b *broken, ctx Context, now Time, changes settles, dst outcomes) (outcomes, error) {
			for i := range changes {
				if r, err := b.Storage.Get(ctx, changes[i].Record.ID); len(changes) > 1 &&
					(err != nil || r.Version != changes[i].Record.Version) {
					for range changes {
						dst = append(dst, storage.Settled{Err: storage.ErrFenced})
					}
					return dst, nil
				}
			}
			return b.Storage.Settle(ctx, now, changes, dst)
		}
	}},
	{"a change costs an available job its place", "settle-5 settle-1 settle-9 settle-10", func(b *broken) {
		b.settle = func(b *broken, ctx Context, now Time, changes settles, dst outcomes) (outcomes, error) {
			for _, ch := range changes {
				r := ch.Record
				if stored, err := b.Storage.Get(ctx, r.ID); err == nil &&
					stored.State == ojs.StateAvailable && r.State == stored.State &&
					r.Priority == stored.Priority && r.Queue == stored.Queue && r.Version == stored.Version {
					r.Priority++
					_, _ = b.Storage.Settle(ctx, now, []storage.Change{{Record: r}}, nil)
					r.Version++
					r.Priority--
					out, err := b.Storage.Settle(ctx, now, []storage.Change{{Record: r}}, nil)
					if err != nil {
						return dst, err
					}
					out[0].Version--
					dst = append(dst, out...)
					continue
				}
				var err error
				if dst, err = b.Storage.Settle(ctx, now, []storage.Change{ch}, dst); err != nil {
					return dst, err
				}
			}
			return dst, ctx.Err()
		}
	}},
	{"a job keeps its queue", "settle-6",
		changeSettle(func(to *storage.Record, stored storage.Record) { to.Queue = stored.Queue })},
	{"a replayed job goes first", "settle-7", changeSettle(func(to *storage.Record, stored storage.Record) {
		if stored.DeadLettered() && to.State == ojs.StateAvailable {
			to.Priority++
		}
	})},
	{"a job that is tried again goes first", "claim-2 settle-1 settle-8 fields-1", changeSettle(
		func(to *storage.Record, stored storage.Record) {
			if to.State == ojs.StateRetryable && stored.State == ojs.StateActive {
				to.Priority++
			}
		})},
	{"jobs found by the types that inserts have named", "settle-13 settle-9", func(b *broken) {
		types := make(map[string]bool)
		changeInsert(func(r *storage.Record) { types[r.Type] = true })(b)
		changeClaim(func(c *storage.Claim) {
			known := slices.DeleteFunc(slices.Clone(c.Types), func(t string) bool { return !types[t] })
			if len(c.Types) > 0 {
				c.Types = append(known, "none")
			}
		})(b)
	}},
	{"the next deadline forgets that a job was put off", "settle-13", func(b *broken) {
		early := make(map[string]time.Time)
		changeSettle(func(to *storage.Record, stored storage.Record) {
			if to.State == ojs.StateScheduled && to.ScheduledAt.After(stored.ScheduledAt) {
				early[to.ID] = stored.ScheduledAt
			}
		})(b)
		b.due = func(b *broken, ctx Context, now Time, max int, buf records) (storage.Due, error) {
			d, err := b.Storage.Due(ctx, now, max, buf)
			for _, at := range early {
				if at.After(now) && at.Before(d.Next) {
					d.Next = at
				}
			}
			return d, err
		}
	}},
})
