package storagetest_test

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/ojsengine/ojs"
	"github.com/ojsengine/ojs/policy"
	"github.com/ojsengine/ojs/storage"
)

// changeWaiting changes new jobs that wait for others.
func changeWaiting(f func(in *storage.Insert)) func(*broken) {
	return changeNew(func(in *storage.Insert) bool { return len(in.DependsOn) > 0 }, f)
}

// changeNew changes the new jobs for which when holds.
func changeNew(when func(in *storage.Insert) bool, f func(in *storage.Insert)) func(*broken) {
	all := func(batch inserts) inserts {
		batch = slices.Clone(batch)
		for i := range batch {
			if when(&batch[i]) {
				f(&batch[i])
			}
		}
		return batch
	}
	return func(b *broken) {
		b.insert = func(b *broken, ctx Context, now Time, batch inserts, dst results) (results, error) {
			return b.Storage.Insert(ctx, now, all(batch), dst)
		}
		eachChange(func(b *broken, ctx Context, now Time, c storage.Change) (storage.Settled, error) {
			c.Then = all(c.Then)
			return b.settleOne(ctx, now, c)
		})(b)
	}
}

// changeMoved changes what calls say of the jobs that they have moved.
func changeMoved(f func(moved records) records) func(*broken) {
	return func(b *broken) {
		b.insert = func(b *broken, ctx Context, now Time, batch inserts, dst results) (results, error) {
			dst, err := b.Storage.Insert(ctx, now, batch, dst)
			for i := range dst {
				dst[i].Moved = f(dst[i].Moved)
			}
			return dst, err
		}
		eachChange(func(b *broken, ctx Context, now Time, c storage.Change) (storage.Settled, error) {
			s, err := b.settleOne(ctx, now, c)
			s.Moved = f(s.Moved)
			return s, err
		})(b)
		changeDue(func(d *storage.Due) { d.Moved = f(d.Moved) })(b)
	}
}

// afterMoves calls f for each job that a change has made available because it waits for
// nothing more.
func afterMoves(f func(b *broken, ctx Context, now Time, r storage.Record)) func(*broken) {
	return eachChange(func(b *broken, ctx Context, now Time, c storage.Change) (storage.Settled, error) {
		s, err := b.settleOne(ctx, now, c)
		for _, r := range s.Moved {
			if r.State == ojs.StateAvailable {
				f(b, ctx, now, r)
			}
		}
		return s, err
	})
}

// forgiving inserts a batch once more, changed, if it was refused for its DependsOn.
func forgiving(refused func(error) bool, f func(batch inserts)) func(*broken) {
	return func(b *broken) {
		b.insert = func(b *broken, ctx Context, now Time, batch inserts, dst results) (results, error) {
			out, err := b.Storage.Insert(ctx, now, batch, dst)
			if err != nil && storage.DependsOn(batch) && refused(err) {
				batch = slices.Clone(batch)
				f(batch)
				return b.Storage.Insert(ctx, now, batch, dst)
			}
			return out, err
		}
	}
}

func condition(c ojs.Condition) func(*storage.Insert) {
	return func(in *storage.Insert) {
		d := *in.Record.Dependencies
		d.Condition = c
		in.Record.Dependencies = &d
	}
}

// Storages that break the rules of Insert.DependsOn.
var _ = register([]fault{
	{"edges are lost", "depend-1 *",
		changeWaiting(func(in *storage.Insert) { in.DependsOn = nil })},
	{"the last edge is lost", "depend-1 *",
		changeWaiting(func(in *storage.Insert) {
			in.DependsOn = in.DependsOn[:max(1, len(in.DependsOn)-1)]
		})},
	{"a job does not wait", "depend-1 *", changeWaiting(func(in *storage.Insert) {
		in.DependsOn, in.Record.State = nil, ojs.StateAvailable
	})},
	{"the scheduled time of a job that waits is lost", "depend-1 *",
		changeWaiting(func(in *storage.Insert) { in.Record.ScheduledAt = time.Time{} })},
	{"every condition is that all have ended", "depend-2 *", changeWaiting(condition(ojs.AllEnded))},
	{"every condition is that all succeed", "depend-2 *", changeWaiting(condition(ojs.AllSucceeded))},
	{"a job is moved twice", "depend-1 *",
		afterMoves(func(b *broken, ctx Context, now Time, r storage.Record) {
			_, _ = b.Storage.Settle(ctx, now, settles{{Record: r}}, nil)
		})},
	{"a job that may run is cancelled", "depend-2 *",
		afterMoves(func(b *broken, ctx Context, now Time, r storage.Record) {
			v := r.Version
			r.Cancel(now)
			r.Version = v
			_, _ = b.Storage.Settle(ctx, now, settles{{Record: r}}, nil)
		})},
	{"what has moved is not returned", "depend-3 *", changeMoved(func(records) records { return nil })},
	{"only the first that has moved is returned", "depend-6 *",
		changeMoved(func(moved records) records { return moved[:min(1, len(moved))] })},
	{"what has moved is returned in another order", "depend-6 *",
		changeMoved(func(moved records) records { slices.Reverse(moved); return moved })},
	{"the failure does not say which job it was", "depend-2 *", changeGet(func(r *storage.Record) {
		if r.Error != nil && r.Error.Type == policy.ErrorTypeDependency {
			r.Error.Details = nil
		}
	})},
	{"what a batch makes of ended jobs is in the result of its first", "depend-3 *",
		changeInserted(func(_ []storage.Insert, out []storage.Inserted) {
			if last := len(out) - 1; last > 0 {
				out[0].Moved, out[last].Moved = out[last].Moved, nil
			}
		})},
	{"a job that is not stored is waited for no more than one that has ended", "depend-4 *",
		forgiving(func(err error) bool { return errors.Is(err, ojs.ErrDependency) }, func(batch inserts) {
			for i := range batch {
				batch[i].DependsOn = nil
			}
		})},
	{"jobs may wait for each other in a circle", "depend-4 *",
		forgiving(func(err error) bool { return errors.Is(err, ojs.ErrInvalid) }, func(batch inserts) {
			for i := range batch {
				batch[i].DependsOn = nil
			}
		})},
	{"a job of the batch has to come before those that wait for it", "depend-3 *", func(b *broken) {
		b.insert = func(b *broken, ctx Context, now Time, batch inserts, dst results) (results, error) {
			for i := range batch {
				for _, later := range batch[i+1:] {
					if slices.Contains(batch[i].DependsOn, later.Record.ID) {
						return dst, &ojs.DependencyError{ID: batch[i].Record.ID, Dependency: later.Record.ID}
					}
				}
			}
			return b.Storage.Insert(ctx, now, batch, dst)
		}
	}},
	{"a deadline moves nothing", "depend-5 *", changeDue(func(d *storage.Due) { d.Moved = nil })},
	{"a step moves nothing", "depend-5 *", func(b *broken) {
		b.step = func(b *broken, ctx Context, now Time, to slots, dst outcomes, c storage.Claim,
			into slots) (outcomes, int, error) {
			dst, n, err := b.Storage.SettleAndClaim(ctx, now, to, dst, c, into)
			for i := range dst {
				dst[i].Moved = nil
			}
			return dst, n, err
		}
	}},
	{"what a replacement moves is lost", "depend-5 *",
		changeInserted(func(batch []storage.Insert, out []storage.Inserted) {
			if !storage.DependsOn(batch) && len(out) > 0 {
				out[len(out)-1].Moved = nil
			}
		})},
	{"a stale end says that it has moved a job", "depend-7 *",
		eachChange(func(b *broken, ctx Context, now Time, c storage.Change) (storage.Settled, error) {
			s, err := b.settleOne(ctx, now, c)
			if errors.Is(s.Err, storage.ErrFenced) {
				p, _ := b.Storage.List(ctx, storage.Query{States: []ojs.State{ojs.StatePending}})
				s.Moved = p.Records
			}
			return s, err
		})},
	{"a job that waits cannot be activated", "depend-7 *",
		changeSettle(func(to *storage.Record, r storage.Record) {
			if r.State == ojs.StatePending && r.Dependencies != nil && to.State == ojs.StateAvailable {
				to.State = ojs.StatePending
			}
		})},
	{"a join runs", "depend-8 *", changeWaiting(func(in *storage.Insert) {
		d := *in.Record.Dependencies
		d.Join = false
		in.Record.Dependencies = &d
	})},
	{"a change sets the counts", "depend-9 *", func(b *broken) {
		said := make(map[string]*ojs.Dependencies)
		changeSettle(func(to *storage.Record, r storage.Record) {
			if r.Dependencies != nil {
				said[r.ID] = to.Dependencies
			}
		})(b)
		b.get = func(b *broken, ctx Context, id string) (storage.Record, error) {
			r, err := b.Storage.Get(ctx, id)
			if d, ok := said[id]; ok {
				r.Dependencies = d
			}
			return r, err
		}
	}},
	{"what follows a change does not wait", "depend-10 *",
		eachChange(func(b *broken, ctx Context, now Time, c storage.Change) (storage.Settled, error) {
			c.Then = slices.Clone(c.Then)
			for i := range c.Then {
				c.Then[i].DependsOn = nil
			}
			return b.settleOne(ctx, now, c)
		})},
	{"what a Then moves is in its results", "depend-10 *",
		eachChange(func(b *broken, ctx Context, now Time, c storage.Change) (storage.Settled, error) {
			s, err := b.settleOne(ctx, now, c)
			if n := len(s.Then); n > 0 {
				s.Then[n-1].Moved, s.Moved = s.Moved, nil
			}
			return s, err
		})},
	{"what waits for a job moves before what follows it is stored", "depend-10 *",
		eachChange(func(b *broken, ctx Context, now Time, c storage.Change) (storage.Settled, error) {
			return b.inTwo(ctx, now, c, keepsQuiet)
		})},
	{"a job that has moved is returned twice", "depend-11 *",
		changeMoved(func(moved records) records { return append(moved, moved...) })},
	{"what a job waits for is lost at Reopen", "depend-12 *", func(b *broken) {
		b.reopen = func(b *broken) storage.Storage {
			ctx := context.Background()
			p, _ := b.Storage.List(ctx, storage.Query{States: []ojs.State{ojs.StatePending}})
			for _, r := range p.Records {
				r.State = ojs.StateCancelled
				_, _ = b.Storage.Settle(ctx, r.CreatedAt, settles{{Record: r}}, nil)
				_, _ = b.Storage.Delete(ctx, []string{r.ID})
				r.State, r.Version = ojs.StatePending, 0
				_, _ = b.Storage.Insert(ctx, r.CreatedAt, inserts{{Record: r}}, nil)
			}
			return b
		}
	}},
	{"what has moved is not told", "depend-13 *", func(b *broken) {
		b.notify = func(b *broken, self any, f func(storage.Notice)) func() {
			return b.Storage.Notify(self, func(n storage.Notice) {
				if len(n.Ended) > 0 { // with the end that has moved others
					n.Available, n.Due, n.Ended = false, time.Time{}, n.Ended[:1]
				}
				f(n)
			})
		}
	}},
	{"a job that waits has no deadline", "depend-14 *",
		changeWaiting(func(in *storage.Insert) { in.Record.ExpiresAt = time.Time{} })},
	{"a delay of a job that waits is lost", "depend-15 *", changeWaiting(func(in *storage.Insert) {
		d := *in.Record.Dependencies
		d.Delay = 0
		in.Record.Dependencies = &d
	})},
	{"a time to live of a job that waits is lost", "depend-15 *", changeWaiting(func(in *storage.Insert) {
		d := *in.Record.Dependencies
		d.TTL = 0
		in.Record.Dependencies = &d
	})},
	{"the times of a job that has moved are not stored", "depend-15 *", changeGet(func(r *storage.Record) {
		if r.Dependencies != nil && r.State.Terminal() && r.Retimed() {
			r.ScheduledAt, r.ExpiresAt = time.Time{}, time.Time{}
		}
	})},
})
