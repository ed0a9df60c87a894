package storagetest_test

import (
	"context"
	"slices"
	"sync/atomic"
	"time"

	"github.com/ojsengine/ojs"
	"github.com/ojsengine/ojs/storage"
)

// The parts of faults.

// changeInsert changes each record before it is stored.
func changeInsert(f func(r *storage.Record)) func(*broken) {
	return func(b *broken) {
		b.insert = func(b *broken, ctx Context, now Time, batch inserts, dst results) (results, error) {
			batch = slices.Clone(batch)
			for i := range batch {
				batch[i].Record = batch[i].Record.Copy()
				f(&batch[i].Record)
			}
			return b.Storage.Insert(ctx, now, batch, dst)
		}
	}
}

// changePolicy changes the unique policy of each record before it is stored.
func changePolicy(f func(p *ojs.UniquePolicy)) func(*broken) {
	return changeInsert(func(r *storage.Record) {
		if r.Unique != nil {
			f(r.Unique)
		}
	})
}

func changeNotice(f func(n *storage.Notice)) func(*broken) {
	return func(b *broken) {
		b.notify = func(b *broken, self any, hear func(storage.Notice)) func() {
			return b.Storage.Notify(self, func(n storage.Notice) {
				f(&n)
				hear(n)
			})
		}
	}
}

// changeClaim changes each claim before it is made. It calls f under broken.mu.
func changeClaim(f func(c *storage.Claim)) func(*broken) {
	return func(b *broken) {
		b.claim = func(b *broken, ctx Context, now Time, c storage.Claim, dst records) (records, error) {
			b.mu.Lock()
			f(&c)
			b.mu.Unlock()
			return b.Storage.Claim(ctx, now, c, dst)
		}
	}
}

func changeClaimed(f func(recs []storage.Record) []storage.Record) func(*broken) {
	return func(b *broken) {
		b.claim = func(b *broken, ctx Context, now Time, c storage.Claim, dst records) (records, error) {
			recs, err := b.Storage.Claim(ctx, now, c, nil)
			return append(dst, f(recs)...), err
		}
	}
}

// changeSettle changes what is settled, given what is stored.
func changeSettle(f func(to *storage.Record, stored storage.Record)) func(*broken) {
	return func(b *broken) {
		b.settle = func(b *broken, ctx Context, now Time, changes settles, dst outcomes) (outcomes, error) {
			changes = slices.Clone(changes)
			for i := range changes {
				if stored, err := b.Storage.Get(ctx, changes[i].Record.ID); err == nil {
					f(&changes[i].Record, stored)
				}
			}
			return b.Storage.Settle(ctx, now, changes, dst)
		}
	}
}

// tokensComeAgain lets each version of a deleted job stand for one of the next job under
// its id, counted from their first ones.
func tokensComeAgain(b *broken, on func() bool) {
	first, ahead := make(map[string]uint64), make(map[string]uint64)
	b.insert = func(b *broken, ctx Context, now Time, batch inserts, dst results) (results, error) {
		n := len(dst)
		dst, err := b.Storage.Insert(ctx, now, batch, dst)
		for i := range dst[n:] {
			id, v := batch[i].Record.ID, dst[n+i].Version
			if _, known := first[id]; !known {
				first[id] = v
			}
			ahead[id] = v - first[id]
		}
		return dst, err
	}
	changeSettle(func(to *storage.Record, stored storage.Record) {
		if v := to.Version + ahead[to.ID]; on() && v == stored.Version {
			to.Version = v
		}
	})(b)
}

// costsPlace moves an available job behind the others when it changes in a way.
func costsPlace(changes func(r, stored *storage.Record) bool) func(*broken) {
	return func(b *broken) {
		b.settle = func(b *broken, ctx Context, now Time, all settles, dst outcomes) (outcomes, error) {
			for _, ch := range all {
				stored, err := b.Storage.Get(ctx, ch.Record.ID)
				if err != nil || len(all) > 1 || stored.State != ojs.StateAvailable ||
					ch.Record.State != stored.State || !changes(&ch.Record, &stored) {
					continue
				}
				stored.Priority++
				risen, _ := b.Storage.Settle(ctx, now, []storage.Change{{Record: stored}}, nil)
				if risen[0].Err != nil {
					continue
				}
				ch.Record.Version++
				out, err := b.Storage.Settle(ctx, now, []storage.Change{ch}, nil)
				return append(dst, out...), err
			}
			return b.Storage.Settle(ctx, now, all, dst)
		}
	}
}

// changeFresh changes each fresh insert before it is done.
func changeFresh(f func(b *broken, in *storage.Insert)) func(*broken) {
	return func(b *broken) {
		b.insert = func(b *broken, ctx Context, now Time, batch inserts, dst results) (results, error) {
			batch = slices.Clone(batch)
			for i := range batch {
				if batch[i].IDIsNew {
					f(b, &batch[i])
				}
			}
			return b.Storage.Insert(ctx, now, batch, dst)
		}
	}
}

// changeStep changes what SettleAndClaim is asked for.
func changeStep(f func(c *storage.Claim)) func(*broken) {
	return func(b *broken) {
		b.step = func(b *broken, ctx Context, now Time, to slots, dst outcomes, c storage.Claim,
			into slots) (outcomes, int, error) {
			f(&c)
			return b.Storage.SettleAndClaim(ctx, now, to, dst, c, into)
		}
	}
}

// changeStepClaimed changes what SettleAndClaim has claimed.
func changeStepClaimed(f func(claimed []*storage.Record)) func(*broken) {
	return func(b *broken) {
		b.step = func(b *broken, ctx Context, now Time, to slots, dst outcomes, c storage.Claim,
			into slots) (outcomes, int, error) {
			out, n, err := b.Storage.SettleAndClaim(ctx, now, to, dst, c, into)
			f(into[:n])
			return out, n, err
		}
	}
}

// changeNoticeOf changes the notices of some calls, for as long as they are under way:
// the memory storage tells before it returns.
func changeNoticeOf(calls func(b *broken, during func() (end func())),
	f func(n *storage.Notice)) func(*broken) {
	return func(b *broken) {
		var under atomic.Bool
		changeNotice(func(n *storage.Notice) {
			if under.Load() {
				f(n)
			}
		})(b)
		calls(b, func() func() {
			under.Store(true)
			return func() { under.Store(false) }
		})
	}
}

func duringSettle(b *broken, during func() (end func())) {
	b.settle = func(b *broken, ctx Context, now Time, changes settles, dst outcomes) (outcomes, error) {
		defer during()()
		return b.Storage.Settle(ctx, now, changes, dst)
	}
}

// changeStepNotice changes the notices of what SettleAndClaim and Unclaim do.
func changeStepNotice(f func(n *storage.Notice)) func(*broken) {
	return changeNoticeOf(func(b *broken, during func() (end func())) {
		b.step = func(b *broken, ctx Context, now Time, to slots, dst outcomes, c storage.Claim,
			into slots) (outcomes, int, error) {
			defer during()()
			return b.Storage.SettleAndClaim(ctx, now, to, dst, c, into)
		}
		b.unclaim = func(b *broken, ctx Context, now Time, held []storage.Held) (int, error) {
			defer during()()
			return b.Storage.Unclaim(ctx, now, held)
		}
	}, f)
}

func changeDue(f func(d *storage.Due)) func(*broken) {
	return func(b *broken) {
		b.due = func(b *broken, ctx Context, now Time, max int, buf records) (storage.Due, error) {
			d, err := b.Storage.Due(ctx, now, max, buf)
			f(&d)
			return d, err
		}
	}
}

func shiftDue(shift time.Duration) func(*broken) {
	return func(b *broken) {
		b.due = func(b *broken, ctx Context, now Time, max int, buf records) (storage.Due, error) {
			return b.Storage.Due(ctx, now.Add(shift), max, buf)
		}
	}
}

func changeGet(f func(r *storage.Record)) func(*broken) {
	return func(b *broken) {
		b.get = func(b *broken, ctx context.Context, id string) (storage.Record, error) {
			r, err := b.Storage.Get(ctx, id)
			f(&r)
			return r, err
		}
	}
}

func changeQuery(f func(q *storage.Query)) func(*broken) {
	return func(b *broken) {
		b.list = func(b *broken, ctx context.Context, q storage.Query) (storage.Page, error) {
			f(&q)
			return b.Storage.List(ctx, q)
		}
	}
}

func changePage(f func(p *storage.Page)) func(*broken) {
	return func(b *broken) {
		b.list = func(b *broken, ctx context.Context, q storage.Query) (storage.Page, error) {
			p, err := b.Storage.List(ctx, q)
			f(&p)
			return p, err
		}
	}
}

func changePrune(f func(p *storage.Prune)) func(*broken) {
	return func(b *broken) {
		b.prune = func(b *broken, ctx context.Context, p storage.Prune) (storage.Pruned, error) {
			f(&p)
			return b.Storage.Prune(ctx, p)
		}
	}
}

// pruneBy prunes in an order of its own, and goes by records as it sees them. At equal
// places the one that was inserted first goes first.
func pruneBy(seen func(*storage.Record), order func(a, b storage.Record) int) func(*broken) {
	return func(b *broken) {
		b.prune = func(b *broken, ctx context.Context, p storage.Prune) (storage.Pruned, error) {
			out, err := b.Storage.Prune(ctx, storage.Prune{}) // which prunes nothing, and fails if it has to
			page, _ := b.Storage.List(ctx,
				storage.Query{States: []ojs.State{ojs.StateCompleted, ojs.StateCancelled,
					ojs.StateDiscarded}})
			var ended []storage.Record
			for _, r := range page.Records {
				seen(&r)
				if r.DeadLettered() == p.DeadLetters &&
					(len(p.States) == 0 || slices.Contains(p.States, r.State)) &&
					!r.KeptUntil().After(p.Now) {
					ended = append(ended, r)
				}
			}
			slices.SortStableFunc(ended, order)
			for _, r := range ended {
				out.Oldest, out.Left = r.FinishedAt, len(ended)-len(out.IDs)
				if err != nil || len(out.IDs) == p.Max || !p.Selects(r.FinishedAt, out.Left) {
					return out, err
				}
				_, err = b.Storage.Delete(ctx, []string{r.ID})
				out.IDs = append(out.IDs, r.ID)
			}
			out.Oldest, out.Left = time.Time{}, 0
			return out, err
		}
	}
}

// keptByWorkflows prunes by records, and keeps those whose Keeper is stored and keeps
// them.
func keptByWorkflows(keeps func(keeper *storage.Record) bool) func(*broken) {
	return func(b *broken) {
		b.prune = func(b *broken, ctx context.Context, p storage.Prune) (storage.Pruned, error) {
			all := make(map[string]storage.Record)
			page, _ := b.Storage.List(ctx, storage.Query{})
			for _, r := range page.Records {
				all[r.ID] = r
			}
			var by broken
			pruneBy(func(r *storage.Record) {
				if keeper, ok := all[r.Keeper()]; ok && keeps(&keeper) {
					r.ResultTTL = ojs.KeepForever
				}
			}, byFinish)(&by)
			return by.prune(b, ctx, p)
		}
	}
}

// keptAgain makes a Prune whose Now goes back more often than some times release what the
// one before has released.
func keptAgain(times int) func(*broken) {
	return func(b *broken) {
		var last time.Time
		b.prune = func(b *broken, ctx context.Context, p storage.Prune) (storage.Pruned, error) {
			b.mu.Lock()
			if p.Now.Before(last) {
				if times == 0 {
					p.Now = last
				} else {
					times--
				}
			}
			last = p.Now
			b.mu.Unlock()
			return b.Storage.Prune(ctx, p)
		}
	}
}

func asIs(*storage.Record) {}

func byFinish(a, b storage.Record) int { return a.FinishedAt.Compare(b.FinishedAt) }
