package storagetest_test

import (
	"context"
	"errors"
	"slices"

	"github.com/ojsengine/ojs"
	"github.com/ojsengine/ojs/storage"
)

// changeOrdered changes new jobs with an ordering key.
func changeOrdered(f func(in *storage.Insert)) func(*broken) {
	return changeNew(func(in *storage.Insert) bool { return in.OrderingKey != "" }, f)
}

// lets runs the job behind another in its line, after a change for which when holds.
func lets(when func(to *storage.Record) bool) func(*broken) {
	return eachChange(func(b *broken, ctx Context, now Time, c storage.Change) (storage.Settled, error) {
		was, _ := b.Storage.Get(ctx, c.Record.ID)
		s, err := b.settleOne(ctx, now, c)
		d := was.Dependencies
		if err == nil && s.Err == nil && d != nil && d.OrderingKey != "" && when(&c.Record) {
			page, _ := b.Storage.List(ctx, storage.Query{States: []ojs.State{ojs.StatePending}, Limit: 100})
			at := slices.IndexFunc(page.Records, func(r storage.Record) bool {
				return r.InLine() && r.Dependencies.OrderingKey == d.OrderingKey
			})
			if at >= 0 {
				r := page.Records[at]
				r.State, r.EnqueuedAt = ojs.StateAvailable, now
				_, _ = b.Storage.Settle(ctx, now, settles{{Record: r}}, nil)
			}
		}
		return s, err
	})
}

// Storages that break the rules of Insert.OrderingKey.
var _ = register([]fault{
	{"keys are lost", "order-1 *", changeOrdered(func(in *storage.Insert) {
		in.OrderingKey, in.Record.State = "", ojs.StateAvailable
		if len(in.DependsOn) > 0 {
			in.Record.State = ojs.StatePending
		}
	})},
	{"each queue has an order of its own", "order-1 *",
		changeOrdered(func(in *storage.Insert) { in.OrderingKey += in.Record.Queue })},
	{"each type has an order of its own", "order-1 *",
		changeOrdered(func(in *storage.Insert) { in.OrderingKey += in.Record.Type })},
	{"jobs with a key wait for no others", "order-3 *",
		changeOrdered(func(in *storage.Insert) { in.DependsOn = nil })},
	{"the end of a job in line gives a turn", "order-2 *", lets(func(to *storage.Record) bool {
		return to.InLine() || to.State == ojs.StateCancelled && to.StartedAt.IsZero()
	})},
	{"a retry gives a turn", "order-3 *",
		lets(func(to *storage.Record) bool { return to.State == ojs.StateRetryable })},
	{"a job that replaces another has no key", "order-4 *", changeOrdered(func(in *storage.Insert) {
		if u := in.Record.Unique; u != nil && u.OnConflict == ojs.ConflictReplace {
			in.OrderingKey, in.Record.State = "", ojs.StateAvailable
		}
	})},
	{"a turn comes before what depends on the end", "order-5 *",
		changeMoved(func(moved records) records {
			slices.Reverse(moved)
			return moved
		})},
	{"what follows has no key", "order-6 *",
		eachChange(func(b *broken, ctx Context, now Time, c storage.Change) (storage.Settled, error) {
			c.Then = slices.Clone(c.Then)
			for i := range c.Then {
				if c.Then[i].OrderingKey != "" && len(c.Then[i].DependsOn) > 0 {
					c.Then[i].OrderingKey = ""
				}
			}
			return b.settleOne(ctx, now, c)
		})},
	{"a key that does not fit is dropped", "order-7 *",
		forgiving(func(err error) bool { return errors.Is(err, ojs.ErrInvalid) }, func(batch inserts) {
			for i := range batch {
				batch[i].OrderingKey = ""
			}
		})},
	{"a turn is told twice", "order-9 *",
		changeMoved(func(moved records) records { return append(moved, moved...) })},
	{"jobs in line have their turn at Reopen", "order-10 *", func(b *broken) {
		b.reopen = func(b *broken) storage.Storage {
			ctx := context.Background()
			p, _ := b.Storage.List(ctx, storage.Query{States: []ojs.State{ojs.StatePending}})
			for _, r := range p.Records {
				r.State = ojs.StateAvailable
				_, _ = b.Storage.Settle(ctx, r.CreatedAt, settles{{Record: r}}, nil)
			}
			return b
		}
	}},
	{"the end of a long line is lost", "order-11 *", func(b *broken) {
		b.insert = func(b *broken, ctx Context, now Time, batch inserts, dst results) (results, error) {
			batch = slices.Clone(batch)
			for i := range batch {
				if in := &batch[i]; i > 54 && in.OrderingKey != "" && len(in.DependsOn) == 0 {
					in.OrderingKey, in.Record.State = "", ojs.StateAvailable
				}
			}
			return b.Storage.Insert(ctx, now, batch, dst)
		}
	}},
	{"a job is told its own end twice", "order-12 *",
		eachChange(func(b *broken, ctx Context, now Time, c storage.Change) (storage.Settled, error) {
			out, err := b.settleOne(ctx, now, c)
			if d := c.Record.Dependencies; len(out.Moved) > 0 && d != nil && d.OrderingKey != "" &&
				d.Condition == ojs.AllSucceeded && out.Moved[0].State == ojs.StateCompleted {
				out.Version++
			}
			return out, err
		})},
	{"a job that comes back waits for its turn nowhere", "order-8 *",
		changeRevived(func(in *storage.Insert) {
			if in.OrderingKey != "" {
				in.OrderingKey, in.Record.State = "", ojs.StateAvailable
			}
		})},
})
