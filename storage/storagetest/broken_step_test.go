package storagetest_test

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/ojsengine/ojs"
	"github.com/ojsengine/ojs/storage"
)

// Storages that break the rules of SettleAndClaim and Unclaim.
var _ = register([]fault{
	{"attempts of a step not counted", "settleclaim-1 settleclaim-7 settleclaim-8",
		changeStepClaimed(func(claimed []*storage.Record) {
			for _, r := range claimed {
				r.Attempt--
			}
		})},
	{"a step forgets who asks", "settleclaim-1", changeStep(func(c *storage.Claim) { c.Worker = "" })},
	{"results of a step in place of what was there", "settleclaim-1", func(b *broken) {
		b.step = func(b *broken, ctx Context, now Time, to slots, _ outcomes, c storage.Claim,
			into slots) (outcomes, int, error) {
			return b.Storage.SettleAndClaim(ctx, now, to, nil, c, into)
		}
	}},
	{"outcomes all or nothing", "settleclaim-2", func(b *broken) {
		b.step = func(b *broken, ctx Context, now Time, to slots, dst outcomes, c storage.Claim,
			into slots) (outcomes, int, error) {
			for _, r := range to {
				if stored, err := b.Storage.Get(ctx, r.ID); len(to) > 1 &&
					(err != nil || stored.Version != r.Version) {
					for range to {
						dst = append(dst, storage.Settled{Version: stored.Version, Err: storage.ErrFenced})
					}
					return b.Storage.SettleAndClaim(ctx, now, nil, dst, c, into)
				}
			}
			return b.Storage.SettleAndClaim(ctx, now, to, dst, c, into)
		}
	}},
	{"nothing claimed after an outcome that was refused", "settleclaim-2", func(b *broken) {
		b.step = func(b *broken, ctx Context, now Time, to slots, dst outcomes, c storage.Claim,
			into slots) (outcomes, int, error) {
			first := len(dst)
			dst, _, err := b.Storage.SettleAndClaim(ctx, now, to, dst, c, nil)
			if err != nil ||
				slices.ContainsFunc(dst[first:], func(s storage.Settled) bool { return s.Err != nil }) {
				return dst, 0, err
			}
			return b.Storage.SettleAndClaim(ctx, now, nil, dst, c, into)
		}
	}},
	{"outcomes stored backwards", "settleclaim-2 settleclaim-3", func(b *broken) {
		b.step = func(b *broken, ctx Context, now Time, to slots, dst outcomes, c storage.Claim,
			into slots) (outcomes, int, error) {
			to = slices.Clone(to)
			slices.Reverse(to)
			out, n, err := b.Storage.SettleAndClaim(ctx, now, to, nil, c, into)
			slices.Reverse(out)
			return append(dst, out...), n, err
		}
	}},
	{"jobs under fresh ids found by the next call only", "settleclaim-14", func(b *broken) {
		var fresh string
		b.insert = func(b *broken, ctx Context, now Time, batch inserts, dst results) (results, error) {
			b.mu.Lock()
			if fresh = ""; len(batch) == 1 && batch[0].IDIsNew {
				fresh = batch[0].Record.ID
			}
			b.mu.Unlock()
			return b.Storage.Insert(ctx, now, batch, dst)
		}
		b.step = func(b *broken, ctx Context, now Time, to slots, dst outcomes, c storage.Claim,
			into slots) (outcomes, int, error) {
			b.mu.Lock()
			missed := len(to) == 1 && fresh != "" && to[0].ID == fresh
			b.mu.Unlock()
			if missed {
				return append(dst, storage.Settled{Err: ojs.ErrNotFound}), 0, nil
			}
			return b.Storage.SettleAndClaim(ctx, now, to, dst, c, into)
		}
	}},
	{"fencing lost in a step", "settleclaim-2", func(b *broken) {
		b.step = func(b *broken, ctx Context, now Time, to slots, dst outcomes, c storage.Claim,
			into slots) (outcomes, int, error) {
			to = slices.Clone(to)
			for i, r := range to {
				if stored, err := b.Storage.Get(ctx, r.ID); err == nil {
					current := r.Copy()
					current.Version, to[i] = stored.Version, &current
				}
			}
			return b.Storage.SettleAndClaim(ctx, now, to, dst, c, into)
		}
	}},
	{"claims, then settles", "settleclaim-3", func(b *broken) {
		b.step = func(b *broken, ctx Context, now Time, to slots, dst outcomes, c storage.Claim,
			into slots) (outcomes, int, error) {
			_, n, err := b.Storage.SettleAndClaim(ctx, now, nil, nil, c, into)
			if err != nil {
				return dst, 0, err
			}
			dst, _, err = b.Storage.SettleAndClaim(ctx, now, to, dst, c, nil)
			return dst, n, err
		}
	}},
	{"what a step makes available goes first", "settleclaim-3", func(b *broken) {
		b.step = func(b *broken, ctx Context, now Time, to slots, dst outcomes, c storage.Claim,
			into slots) (outcomes, int, error) {
			for _, r := range to {
				if r.State == ojs.StateAvailable {
					first := r.Copy()
					first.Priority += 100
					out, err := b.Storage.Settle(ctx, now, []storage.Change{{Record: first}}, nil)
					if err != nil {
						return dst, 0, err
					}
					dst = append(dst, out...)
					continue
				}
				var err error
				dst, _, err = b.Storage.SettleAndClaim(ctx, now, []*storage.Record{r}, dst, c, nil)
				if err != nil {
					return dst, 0, err
				}
			}
			return b.Storage.SettleAndClaim(ctx, now, nil, dst, c, into)
		}
	}},
	{"queues ignored by a step", "settleclaim-4",
		changeStep(func(c *storage.Claim) { c.Queues = nil })},
	{"types ignored by a step", "settleclaim-4 insert-17",
		changeStep(func(c *storage.Claim) { c.Types = nil })},
	{"queues of a step in their own order", "settleclaim-4",
		changeStep(func(c *storage.Claim) { c.Queues = slices.Sorted(slices.Values(c.Queues)) })},
	{"claimed in a step from the last to the first",
		"settleclaim-4 settleclaim-3 settleclaim-5 settleclaim-7 settleclaim-10 insert-17 settleclaim-14",
		changeStepClaimed(func(claimed []*storage.Record) {
			for i, j := 0, len(claimed)-1; i < j; i, j = i+1, j-1 {
				*claimed[i], *claimed[j] = *claimed[j], *claimed[i]
			}
		})},
	{"expired jobs claimed in a step", "settleclaim-5 settleclaim-1", func(b *broken) {
		b.step = func(b *broken, ctx Context, now Time, to slots, dst outcomes, c storage.Claim,
			into slots) (outcomes, int, error) {
			return b.Storage.SettleAndClaim(ctx, now.Add(-time.Minute), to, dst, c, into)
		}
	}},
	{"jobs with an enqueue TTL claimed in a step", "settleclaim-15", func(b *broken) {
		b.step = func(b *broken, ctx Context, now Time, to slots, dst outcomes, c storage.Claim,
			into slots) (outcomes, int, error) {
			dst, n, err := b.Storage.SettleAndClaim(ctx, now, to, dst, c, into)
			waiting, _ := b.Storage.List(ctx, storage.Query{States: []ojs.State{ojs.StateAvailable}})
			if err != nil || n == len(into) ||
				!slices.ContainsFunc(waiting.Records,
					func(r storage.Record) bool { return r.EnqueueTTL > 0 }) {
				return dst, n, err
			}
			c.Max = len(into) - n
			recs, err := b.Storage.Claim(ctx, now, c, nil)
			for i := range recs {
				*into[n+i] = recs[i]
			}
			return dst, n + len(recs), err
		}
	}},
	{"Max bounds a step", "settleclaim-7", func(b *broken) {
		b.step = func(b *broken, ctx Context, now Time, to slots, dst outcomes, c storage.Claim,
			into slots) (outcomes, int, error) {
			if c.Max > 0 {
				into = into[:min(len(into), c.Max)]
			}
			return b.Storage.SettleAndClaim(ctx, now, to, dst, c, into)
		}
	}},
	{"what a job has not is left as it was", "settleclaim-7 settleclaim-1", func(b *broken) {
		b.step = func(b *broken, ctx Context, now Time, to slots, dst outcomes, c storage.Claim,
			into slots) (outcomes, int, error) {
			var was []storage.Record
			for _, r := range into {
				was = append(was, *r)
			}
			out, n, err := b.Storage.SettleAndClaim(ctx, now, to, dst, c, into)
			for i, r := range into[:n] {
				if r.Meta == nil {
					r.Meta = was[i].Meta
				}
			}
			return out, n, err
		}
	}},
	{"a step that counts the records it was given",
		"settleclaim-7 settleclaim-3 settleclaim-4 settleclaim-5 settleclaim-10 settleclaim-13 settleclaim-15 insert-17 settleclaim-14",
		func(b *broken) {
			b.step = func(b *broken, ctx Context, now Time, to slots, dst outcomes, c storage.Claim,
				into slots) (outcomes, int, error) {
				out, n, err := b.Storage.SettleAndClaim(ctx, now, to, dst, c, into)
				if err != nil {
					return out, n, err
				}
				return out, len(into), nil
			}
		}},
	{"settles before it looks at the context", "settleclaim-9", func(b *broken) {
		b.step = func(b *broken, ctx Context, now Time, to slots, dst outcomes, c storage.Claim,
			into slots) (outcomes, int, error) {
			dst, _, err := b.Storage.SettleAndClaim(context.WithoutCancel(ctx), now, to, dst, c, nil)
			if err = errors.Join(err, ctx.Err()); err != nil {
				return dst, 0, err
			}
			return b.Storage.SettleAndClaim(ctx, now, nil, dst, c, into)
		}
	}},
	{"claims before it looks at the context", "settleclaim-9 general-1", func(b *broken) {
		b.step = func(b *broken, ctx Context, now Time, to slots, dst outcomes, c storage.Claim,
			into slots) (outcomes, int, error) {
			if ctx.Err() != nil {
				_, _, _ = b.Storage.SettleAndClaim(context.WithoutCancel(ctx), now, nil, nil, c, into)
			}
			return b.Storage.SettleAndClaim(ctx, now, to, dst, c, into)
		}
	}},
	{"undoes before it looks at the context", "settleclaim-9", func(b *broken) {
		b.unclaim = func(b *broken, ctx Context, now Time, held []storage.Held) (int, error) {
			n, err := b.Storage.Unclaim(context.WithoutCancel(ctx), now, held)
			if err = errors.Join(err, ctx.Err()); err != nil {
				return 0, err
			}
			return n, nil
		}
	}},
	{"paused queues delivered in a step", "settleclaim-10", func(b *broken) {
		b.step = func(b *broken, ctx Context, now Time, to slots, dst outcomes, c storage.Claim,
			into slots) (outcomes, int, error) {
			states, err := b.Storage.QueueStates(ctx)
			if err != nil {
				return dst, 0, err
			}
			for q, state := range states {
				if state == ojs.QueuePaused {
					_, _ = b.Storage.SetQueueState(ctx, q, ojs.QueueActive)
					defer b.Storage.SetQueueState(ctx, q, ojs.QueuePaused) //nolint:errcheck // a fault
				}
			}
			return b.Storage.SettleAndClaim(ctx, now, to, dst, c, into)
		}
	}},
	{"ends of a step not told", "settleclaim-11 settleclaim-12",
		changeStepNotice(func(n *storage.Notice) { n.Ended = nil })},
	{"what a step makes available not told", "settleclaim-11 unclaim-5",
		changeStepNotice(func(n *storage.Notice) { n.Available = false })},
	{"leases of a step not told", "settleclaim-11",
		changeStepNotice(func(n *storage.Notice) { n.Due = time.Time{} })},
	{"claims taken in a step not told", "settleclaim-11",
		changeStepNotice(func(n *storage.Notice) { n.Taken = nil })},
	{"claims that are undone not told", "unclaim-5", func(b *broken) {
		changeStepNotice(func(n *storage.Notice) { n.Available = false })(b)
		b.step = nil
	}},
	{"callers told of their own steps", "settleclaim-12", func(b *broken) {
		b.step = func(b *broken, ctx Context, now Time, to slots, dst outcomes, c storage.Claim,
			into slots) (outcomes, int, error) {
			return b.Storage.SettleAndClaim(storage.WithCaller(ctx, nil), now, to, dst, c, into)
		}
	}},
	{"callers told of the claims that they undo", "settleclaim-12", func(b *broken) {
		b.unclaim = func(b *broken, ctx Context, now Time, held []storage.Held) (int, error) {
			return b.Storage.Unclaim(storage.WithCaller(ctx, nil), now, held)
		}
	}},
	{"given back as a retry", "unclaim-1 settleclaim-10 unclaim-2", func(b *broken) {
		b.unclaim = func(b *broken, ctx Context, now Time, held []storage.Held) (n int, err error) {
			for _, h := range held {
				r, err := b.Storage.Get(ctx, h.ID)
				if err != nil || r.Version != h.Version || r.State != ojs.StateActive {
					continue
				}
				for _, s := range []ojs.State{ojs.StateRetryable, ojs.StateAvailable} {
					r.State, r.LeaseUntil, r.NextRetryAt = s, time.Time{}, time.Time{}
					out, err := b.Storage.Settle(ctx, now, []storage.Change{{Record: r}}, nil)
					if err != nil {
						return 0, err
					}
					if out[0].Err != nil {
						break
					}
					if r.Version = out[0].Version; s == ojs.StateAvailable {
						n++
					}
				}
			}
			_, err = b.Storage.Unclaim(ctx, now, nil)
			return n, err
		}
	}},
	{"the version before a claim that is undone", "unclaim-1 unclaim-2", func(b *broken) {
		undone := make(map[storage.Held]bool)
		b.unclaim = func(b *broken, ctx Context, now Time, held []storage.Held) (int, error) {
			b.mu.Lock()
			defer b.mu.Unlock()
			for _, h := range held {
				undone[h] = true
			}
			return b.Storage.Unclaim(ctx, now, held)
		}
		b.get = func(b *broken, ctx context.Context, id string) (storage.Record, error) {
			b.mu.Lock()
			defer b.mu.Unlock()
			r, err := b.Storage.Get(ctx, id)
			if undone[storage.Held{ID: id, Version: r.Version - 1}] && r.State == ojs.StateAvailable {
				r.Version--
			}
			return r, err
		}
	}},
	{"given back behind the others", "unclaim-2 settleclaim-10 unclaim-1", func(b *broken) {
		b.unclaim = func(b *broken, ctx Context, now Time, held []storage.Held) (int, error) {
			n, err := b.Storage.Unclaim(ctx, now, held)
			for _, h := range held {
				r, gerr := b.Storage.Get(ctx, h.ID)
				if gerr != nil || r.State != ojs.StateAvailable || r.Version != h.Version+1 {
					continue
				}
				for _, d := range []int{1, -1} {
					r.Priority += d
					_, _ = b.Storage.Settle(ctx, now, []storage.Change{{Record: r}}, nil)
					r.Version++
				}
			}
			return n, err
		}
	}},
	{"any claim undone", "unclaim-3", func(b *broken) {
		b.unclaim = func(b *broken, ctx Context, now Time, held []storage.Held) (int, error) {
			held = slices.Clone(held)
			for i, h := range held {
				if r, err := b.Storage.Get(ctx, h.ID); err == nil {
					held[i].Version = r.Version
				}
			}
			return b.Storage.Unclaim(ctx, now, held)
		}
	}},
	{"every claim that was named counted", "unclaim-3 unclaim-6", func(b *broken) {
		b.unclaim = func(b *broken, ctx Context, now Time, held []storage.Held) (int, error) {
			if _, err := b.Storage.Unclaim(ctx, now, held); err != nil {
				return 0, err
			}
			return len(held), nil
		}
	}},
	{"one claim that is not there keeps the others", "unclaim-3", func(b *broken) {
		b.unclaim = func(b *broken, ctx Context, now Time, held []storage.Held) (int, error) {
			for _, h := range held {
				if _, err := b.Storage.Get(ctx, h.ID); errors.Is(err, ojs.ErrNotFound) {
					return 0, ctx.Err()
				}
			}
			return b.Storage.Unclaim(ctx, now, held)
		}
	}},
	{"the lease of a claim that was undone", "unclaim-4", func(b *broken) {
		var until time.Time
		b.unclaim = func(b *broken, ctx Context, now Time, held []storage.Held) (int, error) {
			for _, h := range held {
				if r, err := b.Storage.Get(ctx, h.ID); err == nil {
					b.mu.Lock()
					until = r.LeaseUntil
					b.mu.Unlock()
				}
			}
			return b.Storage.Unclaim(ctx, now, held)
		}
		changeDue(func(d *storage.Due) {
			b.mu.Lock()
			defer b.mu.Unlock()
			if d.Next.IsZero() {
				d.Next = until
			}
		})(b)
	}},
	{"no deadline after a claim that was undone", "unclaim-4", func(b *broken) {
		b.unclaim = func(b *broken, ctx Context, now Time, held []storage.Held) (int, error) {
			b.mu.Lock()
			defer b.mu.Unlock()
			for _, h := range held {
				b.kept[h.ID] = storage.Record{}
			}
			return b.Storage.Unclaim(ctx, now, held)
		}
		changeDue(func(d *storage.Due) {
			b.mu.Lock()
			defer b.mu.Unlock()
			d.Expired = slices.DeleteFunc(d.Expired,
				func(r storage.Record) bool { _, undone := b.kept[r.ID]; return undone })
		})(b)
	}},
	{"claims of a step are gone when the storage is opened again", "settleclaim-16", func(b *broken) {
		var held []storage.Held
		b.step = func(b *broken, ctx Context, now Time, to slots, dst outcomes, c storage.Claim,
			into slots) (outcomes, int, error) {
			dst, n, err := b.Storage.SettleAndClaim(ctx, now, to, dst, c, into)
			for _, r := range into[:n] {
				held = append(held, storage.Held{ID: r.ID, Version: r.Version})
			}
			return dst, n, err
		}
		b.reopen = func(b *broken) storage.Storage {
			_, _ = b.Storage.Unclaim(context.Background(), time.Time{}, held)
			return b
		}
	}},
	{"claims from before the storage was opened again are not undone", "unclaim-7", func(b *broken) {
		opened := false
		b.reopen = func(b *broken) storage.Storage {
			opened = true
			return b
		}
		b.unclaim = func(b *broken, ctx Context, now Time, held []storage.Held) (int, error) {
			if opened {
				return 0, nil
			}
			return b.Storage.Unclaim(ctx, now, held)
		}
	}},
})
