package storagetest_test

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ojsengine/ojs"
	"github.com/ojsengine/ojs/storage"
	"github.com/ojsengine/ojs/storage/memory"
	"github.com/ojsengine/ojs/storage/storagetest"
)

// broken is a memory storage with a fault: a nil function is the storage's own.
type broken struct {
	*memory.Storage
	mu      sync.Mutex
	insert  func(b *broken, ctx context.Context, now time.Time, batch []storage.Insert, dst []storage.Inserted) ([]storage.Inserted, error)
	claim   func(b *broken, ctx context.Context, now time.Time, c storage.Claim, dst []storage.Record) ([]storage.Record, error)
	settle  func(b *broken, ctx context.Context, now time.Time, changes []storage.Change, dst []storage.Settled) ([]storage.Settled, error)
	step    func(b *broken, ctx context.Context, now time.Time, to []*storage.Record, dst []storage.Settled, c storage.Claim, into []*storage.Record) ([]storage.Settled, int, error)
	unclaim func(b *broken, ctx context.Context, now time.Time, held []storage.Held) (int, error)
	extend  func(b *broken, ctx context.Context, now time.Time, xs []storage.Extension) ([]string, error)
	due     func(b *broken, ctx context.Context, now time.Time, max int, buf []storage.Record) (storage.Due, error)
	get     func(b *broken, ctx context.Context, id string) (storage.Record, error)
	list    func(b *broken, ctx context.Context, q storage.Query) (storage.Page, error)
	counts  func(b *broken, ctx context.Context) ([]storage.Count, error)
	remove  func(b *broken, ctx context.Context, ids []string) (int, error)
	prune   func(b *broken, ctx context.Context, p storage.Prune) (storage.Pruned, error)
	state   func(b *broken, ctx context.Context, queue string, to ojs.QueueState) (ojs.QueueState, error)
	states  func(b *broken, ctx context.Context) (map[string]ojs.QueueState, error)
	cron    func(b *broken, ctx context.Context, entries []storage.Cron) ([]uint64, error)
	crons   func(b *broken, ctx context.Context, q storage.CronQuery) ([]storage.Cron, error)
	runs    func(b *broken, ctx context.Context, now time.Time, after *storage.Cron, max int) ([]storage.Cron, time.Time, error)
	notify  func(b *broken, self any, f func(storage.Notice)) func()
	close   func(b *broken) error
	reopen  func(b *broken) storage.Storage // for a durable one, which it is in these tests

	kept map[string]storage.Record // for faults that remember
}

func (b *broken) Insert(ctx context.Context, now time.Time, batch []storage.Insert, dst []storage.Inserted) ([]storage.Inserted, error) {
	if b.insert != nil {
		return b.insert(b, ctx, now, batch, dst)
	}
	return b.Storage.Insert(ctx, now, batch, dst)
}
func (b *broken) Claim(ctx context.Context, now time.Time, c storage.Claim, dst []storage.Record) ([]storage.Record, error) {
	if b.claim != nil {
		return b.claim(b, ctx, now, c, dst)
	}
	return b.Storage.Claim(ctx, now, c, dst)
}
func (b *broken) Settle(ctx context.Context, now time.Time, changes []storage.Change, dst []storage.Settled) ([]storage.Settled, error) {
	if b.settle != nil {
		return b.settle(b, ctx, now, changes, dst)
	}
	return b.Storage.Settle(ctx, now, changes, dst)
}
func (b *broken) SettleAndClaim(ctx context.Context, now time.Time, to []*storage.Record, dst []storage.Settled, c storage.Claim, into []*storage.Record) ([]storage.Settled, int, error) {
	if b.step != nil {
		return b.step(b, ctx, now, to, dst, c, into)
	}
	return b.Storage.SettleAndClaim(ctx, now, to, dst, c, into)
}
func (b *broken) Unclaim(ctx context.Context, now time.Time, held []storage.Held) (int, error) {
	if b.unclaim != nil {
		return b.unclaim(b, ctx, now, held)
	}
	return b.Storage.Unclaim(ctx, now, held)
}
func (b *broken) Extend(ctx context.Context, now time.Time, xs []storage.Extension) ([]string, error) {
	if b.extend != nil {
		return b.extend(b, ctx, now, xs)
	}
	return b.Storage.Extend(ctx, now, xs)
}
func (b *broken) Due(ctx context.Context, now time.Time, max int, buf []storage.Record) (storage.Due, error) {
	if b.due != nil {
		return b.due(b, ctx, now, max, buf)
	}
	return b.Storage.Due(ctx, now, max, buf)
}
func (b *broken) Get(ctx context.Context, id string) (storage.Record, error) {
	if b.get != nil {
		return b.get(b, ctx, id)
	}
	return b.Storage.Get(ctx, id)
}
func (b *broken) List(ctx context.Context, q storage.Query) (storage.Page, error) {
	if b.list != nil {
		return b.list(b, ctx, q)
	}
	return b.Storage.List(ctx, q)
}
func (b *broken) Counts(ctx context.Context) ([]storage.Count, error) {
	if b.counts != nil {
		return b.counts(b, ctx)
	}
	return b.Storage.Counts(ctx)
}
func (b *broken) Delete(ctx context.Context, ids []string) (int, error) {
	if b.remove != nil {
		return b.remove(b, ctx, ids)
	}
	return b.Storage.Delete(ctx, ids)
}
func (b *broken) Prune(ctx context.Context, p storage.Prune) (storage.Pruned, error) {
	if b.prune != nil {
		return b.prune(b, ctx, p)
	}
	return b.Storage.Prune(ctx, p)
}
func (b *broken) SetQueueState(ctx context.Context, q string, to ojs.QueueState) (ojs.QueueState, error) {
	if b.state != nil {
		return b.state(b, ctx, q, to)
	}
	return b.Storage.SetQueueState(ctx, q, to)
}
func (b *broken) QueueStates(ctx context.Context) (map[string]ojs.QueueState, error) {
	if b.states != nil {
		return b.states(b, ctx)
	}
	return b.Storage.QueueStates(ctx)
}
func (b *broken) SetCrons(ctx context.Context, entries []storage.Cron) ([]uint64, error) {
	if b.cron != nil {
		return b.cron(b, ctx, entries)
	}
	return b.Storage.SetCrons(ctx, entries)
}
func (b *broken) Crons(ctx context.Context, q storage.CronQuery) ([]storage.Cron, error) {
	if b.crons != nil {
		return b.crons(b, ctx, q)
	}
	return b.Storage.Crons(ctx, q)
}
func (b *broken) DueCrons(ctx context.Context, now time.Time, after *storage.Cron, max int) ([]storage.Cron, time.Time, error) {
	if b.runs != nil {
		return b.runs(b, ctx, now, after, max)
	}
	return b.Storage.DueCrons(ctx, now, after, max)
}
func (b *broken) Notify(self any, f func(storage.Notice)) func() {
	if b.notify != nil {
		return b.notify(b, self, f)
	}
	return b.Storage.Notify(self, f)
}
func (b *broken) Close() error {
	if b.close != nil {
		return b.close(b)
	}
	return b.Storage.Close()
}

// Capabilities says that it is durable: it is never closed, and opened again by going on.
func (b *broken) Capabilities() storage.Capabilities {
	c := b.Storage.Capabilities()
	c.Durable = true
	return c
}

// The parts of faults.

// inserting changes each record before it is stored.
func inserting(f func(r *storage.Record)) func(*broken) {
	return func(b *broken) {
		b.insert = func(b *broken, ctx context.Context, now time.Time, batch []storage.Insert, dst []storage.Inserted) ([]storage.Inserted, error) {
			batch = slices.Clone(batch)
			for i := range batch {
				batch[i].Record = batch[i].Record.Copy()
				f(&batch[i].Record)
			}
			return b.Storage.Insert(ctx, now, batch, dst)
		}
	}
}

// policies changes the unique policy of each record before it is stored.
func policies(f func(p *ojs.UniquePolicy)) func(*broken) {
	return inserting(func(r *storage.Record) {
		if r.Unique != nil {
			f(r.Unique)
		}
	})
}

func noticing(f func(n *storage.Notice)) func(*broken) {
	return func(b *broken) {
		b.notify = func(b *broken, self any, hear func(storage.Notice)) func() {
			return b.Storage.Notify(self, func(n storage.Notice) {
				f(&n)
				hear(n)
			})
		}
	}
}

// claiming changes each claim before it is made. It calls f under broken.mu.
func claiming(f func(c *storage.Claim)) func(*broken) {
	return func(b *broken) {
		b.claim = func(b *broken, ctx context.Context, now time.Time, c storage.Claim, dst []storage.Record) ([]storage.Record, error) {
			b.mu.Lock()
			f(&c)
			b.mu.Unlock()
			return b.Storage.Claim(ctx, now, c, dst)
		}
	}
}

func claimed(f func(recs []storage.Record) []storage.Record) func(*broken) {
	return func(b *broken) {
		b.claim = func(b *broken, ctx context.Context, now time.Time, c storage.Claim, dst []storage.Record) ([]storage.Record, error) {
			recs, err := b.Storage.Claim(ctx, now, c, nil)
			return append(dst, f(recs)...), err
		}
	}
}

// settling changes what is settled, given what is stored.
func settling(f func(to *storage.Record, stored storage.Record)) func(*broken) {
	return func(b *broken) {
		b.settle = func(b *broken, ctx context.Context, now time.Time, changes []storage.Change, dst []storage.Settled) ([]storage.Settled, error) {
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

// tokensComeAgain lets each version of a deleted job stand for one of the next job under its id, counted from their first ones.
func tokensComeAgain(b *broken, on func() bool) {
	first, ahead := make(map[string]uint64), make(map[string]uint64)
	b.insert = func(b *broken, ctx context.Context, now time.Time, batch []storage.Insert, dst []storage.Inserted) ([]storage.Inserted, error) {
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
	settling(func(to *storage.Record, stored storage.Record) {
		if v := to.Version + ahead[to.ID]; on() && v == stored.Version {
			to.Version = v
		}
	})(b)
}

// costsPlace moves an available job behind the others when it changes in a way.
func costsPlace(changes func(r, stored *storage.Record) bool) func(*broken) {
	return func(b *broken) {
		b.settle = func(b *broken, ctx context.Context, now time.Time, all []storage.Change, dst []storage.Settled) ([]storage.Settled, error) {
			for _, ch := range all {
				stored, err := b.Storage.Get(ctx, ch.Record.ID)
				if err != nil || len(all) > 1 || stored.State != ojs.StateAvailable || ch.Record.State != stored.State || !changes(&ch.Record, &stored) {
					continue
				}
				stored.Priority++
				if out, _ := b.Storage.Settle(ctx, now, []storage.Change{{Record: stored}}, nil); out[0].Err != nil {
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

// freshly changes each fresh insert before it is done.
func freshly(f func(b *broken, in *storage.Insert)) func(*broken) {
	return func(b *broken) {
		b.insert = func(b *broken, ctx context.Context, now time.Time, batch []storage.Insert, dst []storage.Inserted) ([]storage.Inserted, error) {
			batch = slices.Clone(batch)
			for i := range batch {
				if batch[i].Fresh {
					f(b, &batch[i])
				}
			}
			return b.Storage.Insert(ctx, now, batch, dst)
		}
	}
}

// stepping changes what SettleAndClaim is asked for.
func stepping(f func(c *storage.Claim)) func(*broken) {
	return func(b *broken) {
		b.step = func(b *broken, ctx context.Context, now time.Time, to []*storage.Record, dst []storage.Settled, c storage.Claim, into []*storage.Record) ([]storage.Settled, int, error) {
			f(&c)
			return b.Storage.SettleAndClaim(ctx, now, to, dst, c, into)
		}
	}
}

// stepped changes what SettleAndClaim has claimed.
func stepped(f func(claimed []*storage.Record)) func(*broken) {
	return func(b *broken) {
		b.step = func(b *broken, ctx context.Context, now time.Time, to []*storage.Record, dst []storage.Settled, c storage.Claim, into []*storage.Record) ([]storage.Settled, int, error) {
			out, n, err := b.Storage.SettleAndClaim(ctx, now, to, dst, c, into)
			f(into[:n])
			return out, n, err
		}
	}
}

// during changes the notices of what SettleAndClaim and Unclaim do: the memory storage tells them before it returns.
func during(f func(n *storage.Notice)) func(*broken) {
	return func(b *broken) {
		var under atomic.Bool
		noticing(func(n *storage.Notice) {
			if under.Load() {
				f(n)
			}
		})(b)
		b.step = func(b *broken, ctx context.Context, now time.Time, to []*storage.Record, dst []storage.Settled, c storage.Claim, into []*storage.Record) ([]storage.Settled, int, error) {
			under.Store(true)
			defer under.Store(false)
			return b.Storage.SettleAndClaim(ctx, now, to, dst, c, into)
		}
		b.unclaim = func(b *broken, ctx context.Context, now time.Time, held []storage.Held) (int, error) {
			under.Store(true)
			defer under.Store(false)
			return b.Storage.Unclaim(ctx, now, held)
		}
	}
}

func dueing(f func(d *storage.Due)) func(*broken) {
	return func(b *broken) {
		b.due = func(b *broken, ctx context.Context, now time.Time, max int, buf []storage.Record) (storage.Due, error) {
			d, err := b.Storage.Due(ctx, now, max, buf)
			f(&d)
			return d, err
		}
	}
}

func dueAt(shift time.Duration) func(*broken) {
	return func(b *broken) {
		b.due = func(b *broken, ctx context.Context, now time.Time, max int, buf []storage.Record) (storage.Due, error) {
			return b.Storage.Due(ctx, now.Add(shift), max, buf)
		}
	}
}

func getting(f func(r *storage.Record)) func(*broken) {
	return func(b *broken) {
		b.get = func(b *broken, ctx context.Context, id string) (storage.Record, error) {
			r, err := b.Storage.Get(ctx, id)
			f(&r)
			return r, err
		}
	}
}

func listing(f func(q *storage.Query)) func(*broken) {
	return func(b *broken) {
		b.list = func(b *broken, ctx context.Context, q storage.Query) (storage.Page, error) {
			f(&q)
			return b.Storage.List(ctx, q)
		}
	}
}

func listed(f func(p *storage.Page)) func(*broken) {
	return func(b *broken) {
		b.list = func(b *broken, ctx context.Context, q storage.Query) (storage.Page, error) {
			p, err := b.Storage.List(ctx, q)
			f(&p)
			return p, err
		}
	}
}

func pruning(f func(p *storage.Prune)) func(*broken) {
	return func(b *broken) {
		b.prune = func(b *broken, ctx context.Context, p storage.Prune) (storage.Pruned, error) {
			f(&p)
			return b.Storage.Prune(ctx, p)
		}
	}
}

// pruningAs prunes in an order of its own, and goes by records as it sees them. At equal places the one that was inserted first goes first.
func pruningAs(seen func(*storage.Record), order func(a, b storage.Record) int) func(*broken) {
	return func(b *broken) {
		b.prune = func(b *broken, ctx context.Context, p storage.Prune) (storage.Pruned, error) {
			out, err := b.Storage.Prune(ctx, storage.Prune{}) // which prunes nothing, and fails if it has to
			page, _ := b.Storage.List(ctx, storage.Query{States: []ojs.State{ojs.StateCompleted, ojs.StateCancelled, ojs.StateDiscarded}})
			var ended []storage.Record
			for _, r := range page.Records {
				seen(&r)
				if r.DeadLettered() == p.DeadLetters && (len(p.States) == 0 || slices.Contains(p.States, r.State)) && !r.KeptUntil().After(p.Now) {
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

// keptAgain makes a Prune whose Now goes back more often than some times release what the one before has released.
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

// faults are storages that are wrong in one way, and the case that has to notice.
var faults = []struct {
	name   string
	caught string // the case whose rule it breaks, and after it those that it breaks too
	fault  func(b *broken)
}{
	{"priority forgotten at the insert", "insert-1 insert-9 claim-3 claim-4 claim-5 settleclaim-3 settleclaim-4 unclaim-2 general-4 claim-13", inserting(func(r *storage.Record) { r.Priority = 0 })},
	{"batch stored one by one", "insert-2 insert-7 insert-9 unique-10 prune-4 queue-2 unique-13", func(b *broken) {
		b.insert = func(b *broken, ctx context.Context, now time.Time, batch []storage.Insert, dst []storage.Inserted) ([]storage.Inserted, error) {
			for i := range batch {
				var err error
				if dst, err = b.Storage.Insert(ctx, now, batch[i:i+1], dst); err != nil {
					return nil, err
				}
			}
			return dst, ctx.Err()
		}
	}},
	{"batch stored backwards", "insert-3 insert-9 unique-10 prune-4 settle-12", func(b *broken) {
		b.insert = func(b *broken, ctx context.Context, now time.Time, batch []storage.Insert, dst []storage.Inserted) ([]storage.Inserted, error) {
			batch = slices.Clone(batch)
			slices.Reverse(batch)
			out, err := b.Storage.Insert(ctx, now, batch, nil)
			slices.Reverse(out)
			return append(dst, out...), err
		}
	}},
	{"ids of ended jobs used again", "insert-4", func(b *broken) {
		b.insert = func(b *broken, ctx context.Context, now time.Time, batch []storage.Insert, dst []storage.Inserted) ([]storage.Inserted, error) {
			for i := range batch {
				if r, err := b.Storage.Get(ctx, batch[i].Record.ID); err == nil && r.State.Terminal() {
					_, _ = b.Storage.Delete(ctx, []string{r.ID})
				}
			}
			return b.Storage.Insert(ctx, now, batch, dst)
		}
	}},
	{"any state to begin in", "insert-5 insert-2", inserting(func(r *storage.Record) {
		if !slices.Contains([]ojs.State{ojs.StateScheduled, ojs.StatePending}, r.State) {
			r.State = ojs.StateAvailable
		}
	})},
	{"what is handed out is what is stored", "insert-6 *", func(b *broken) {
		b.get = func(b *broken, ctx context.Context, id string) (storage.Record, error) {
			b.mu.Lock()
			defer b.mu.Unlock()
			r, err := b.Storage.Get(ctx, id)
			if err == nil {
				if old, ok := b.kept[id]; ok && old.Version == r.Version {
					return old, nil
				}
				b.kept[id] = r
			}
			return r, err
		}
	}},
	{"no bounds", "insert-7 insert-9", func(b *broken) {
		b.insert = func(b *broken, ctx context.Context, now time.Time, batch []storage.Insert, dst []storage.Inserted) ([]storage.Inserted, error) {
			batch = slices.Clone(batch)
			for i := range batch {
				if !batch[i].DropOldest {
					batch[i].MaxDepth = 0
				}
			}
			return b.Storage.Insert(ctx, now, batch, dst)
		}
	}},
	{"full though something could be dropped", "insert-8 unclaim-2 prune-4 insert-10", func(b *broken) {
		b.insert = func(b *broken, ctx context.Context, now time.Time, batch []storage.Insert, dst []storage.Inserted) ([]storage.Inserted, error) {
			batch = slices.Clone(batch)
			for i := range batch {
				batch[i].DropOldest = false
			}
			return b.Storage.Insert(ctx, now, batch, dst)
		}
	}},
	{"no look at whether a fresh job is unique", "insert-9", freshly(func(b *broken, in *storage.Insert) { in.Record.Unique = nil })},
	{"no bounds for fresh jobs", "insert-9", freshly(func(b *broken, in *storage.Insert) { in.MaxDepth = 0 })},
	{"fresh jobs go first", "insert-9 settleclaim-3", freshly(func(b *broken, in *storage.Insert) { in.Record.Priority++ })},
	{"ids of fresh jobs not kept", "insert-9", func(b *broken) {
		freshly(func(b *broken, in *storage.Insert) { b.kept[in.Record.ID] = storage.Record{} })(b)
		insert := b.insert
		b.insert = func(b *broken, ctx context.Context, now time.Time, batch []storage.Insert, dst []storage.Inserted) ([]storage.Inserted, error) {
			if len(batch) == 1 {
				if _, fresh := b.kept[batch[0].Record.ID]; fresh {
					return append(dst, storage.Inserted{Version: 1}), ctx.Err()
				}
			}
			return insert(b, ctx, now, batch, dst)
		}
	}},

	{"reject ignored", "unique-1 insert-2 insert-9 unique-7 unique-9 unique-10 race-4 durable-1 settle-11", inserting(func(r *storage.Record) {
		if r.Unique != nil && r.Unique.Strategy() == ojs.ConflictReject && r.Unique.States == nil && r.Unique.Period == 0 {
			r.Unique = nil
		}
	})},
	{"ignore rejects", "unique-2 general-4", policies(func(p *ojs.UniquePolicy) {
		if p.OnConflict == ojs.ConflictIgnore {
			p.OnConflict = ojs.ConflictReject
		}
	})},
	{"replace leaves what runs", "unique-3 race-5 notify-2 unique-13", policies(func(p *ojs.UniquePolicy) {
		if p.OnConflict == ojs.ConflictReplace && p.States == nil {
			p.States = []ojs.State{ojs.StateAvailable, ojs.StateScheduled, ojs.StatePending}
		}
	})},
	{"replace deletes what has ended", "unique-4", func(b *broken) {
		b.insert = func(b *broken, ctx context.Context, now time.Time, batch []storage.Insert, dst []storage.Inserted) ([]storage.Inserted, error) {
			if p := batch[0:]; len(p) == 1 && p[0].Record.Unique != nil && p[0].Record.Unique.Strategy() == ojs.ConflictReplace {
				page, _ := b.Storage.List(ctx, storage.Query{States: []ojs.State{ojs.StateCompleted}})
				for _, r := range page.Records {
					if r.Fingerprint == p[0].Record.Fingerprint {
						_, _ = b.Storage.Delete(ctx, []string{r.ID})
					}
				}
			}
			return b.Storage.Insert(ctx, now, batch, dst)
		}
	}},
	{"replace_except_schedule replaces", "unique-5 due-7", policies(func(p *ojs.UniquePolicy) {
		if p.OnConflict == ojs.ConflictReplaceExceptSchedule {
			p.OnConflict = ojs.ConflictReplace
		}
	})},
	{"replace_except_schedule ignores what is not scheduled", "unique-6", func(b *broken) {
		b.insert = func(b *broken, ctx context.Context, now time.Time, batch []storage.Insert, dst []storage.Inserted) ([]storage.Inserted, error) {
			batch = slices.Clone(batch)
			for i := range batch {
				r := &batch[i].Record
				if r.Unique == nil || r.Unique.OnConflict != ojs.ConflictReplaceExceptSchedule {
					continue
				}
				page, _ := b.Storage.List(ctx, storage.Query{States: []ojs.State{ojs.StateScheduled}})
				if len(page.Records) == 0 {
					*r = r.Copy()
					r.Unique.OnConflict = ojs.ConflictIgnore
				}
			}
			return b.Storage.Insert(ctx, now, batch, dst)
		}
	}},
	{"fingerprint dropped when a job ends", "unique-7", settling(func(to *storage.Record, _ storage.Record) {
		if to.State.Terminal() {
			to.Fingerprint = ""
		}
	})},
	{"period ignored", "unique-8 prune-5 general-4 prune-6", policies(func(p *ojs.UniquePolicy) { p.Period = 0 })},
	{"the oldest of several equals named", "unique-9 settle-11 unique-13", func(b *broken) {
		b.insert = func(b *broken, ctx context.Context, now time.Time, batch []storage.Insert, dst []storage.Inserted) ([]storage.Inserted, error) {
			out, err := b.Storage.Insert(ctx, now, batch, dst)
			var dup *ojs.DuplicateError
			if errors.As(err, &dup) && dup.Fingerprint != "" {
				page, _ := b.Storage.List(ctx, storage.Query{})
				for _, r := range page.Records {
					if r.Fingerprint == dup.Fingerprint {
						return out, &ojs.DuplicateError{ID: r.ID, State: r.State, Fingerprint: dup.Fingerprint}
					}
				}
			}
			return out, err
		}
	}},
	{"no conflict within a batch", "unique-10 prune-4", func(b *broken) {
		b.insert = func(b *broken, ctx context.Context, now time.Time, batch []storage.Insert, dst []storage.Inserted) ([]storage.Inserted, error) {
			batch = slices.Clone(batch)
			seen := make(map[string]bool)
			for i := range batch {
				r := &batch[i].Record
				if r.Fingerprint != "" && seen[r.Fingerprint] {
					*r = r.Copy()
					r.Unique = nil
				}
				seen[r.Fingerprint] = true
			}
			return b.Storage.Insert(ctx, now, batch, dst)
		}
	}},
	{"every fingerprint checked", "unique-11 settle-11 unique-13", inserting(func(r *storage.Record) {
		if r.Fingerprint != "" && r.Unique == nil {
			r.Unique = &ojs.UniquePolicy{}
		}
	})},
	{"uniqueness checked again at promotion", "unique-12 due-7", func(b *broken) {
		b.due = func(b *broken, ctx context.Context, now time.Time, max int, buf []storage.Record) (storage.Due, error) {
			d, err := b.Storage.Due(ctx, now, max, buf)
			d.Promoted = slices.DeleteFunc(d.Promoted, func(r storage.Record) bool { return r.Fingerprint != "" })
			return d, err
		}
	}},

	{"attempt not counted", "claim-1 settle-1 settle-3 unclaim-1 lease-1 lease-3 settle-12 durable-3", claimed(func(recs []storage.Record) []storage.Record {
		for i := range recs {
			recs[i].Attempt--
		}
		return recs
	})},
	{"last in first out", "claim-2 insert-1 insert-8 insert-9 claim-3 claim-11 settle-5 settleclaim-1 settleclaim-2 settleclaim-3 settleclaim-5 settleclaim-6 settleclaim-7 unclaim-3 due-2 durable-1 claim-13 settle-9 settle-10 due-7", inserting(func(r *storage.Record) {
		if r.Priority == 0 && r.Queue == "q" && r.Type == "x" && r.Fingerprint == "" && r.RateLimit == nil && r.Meta == nil && r.ExpiresAt.IsZero() && r.TotalTimeout == 0 {
			var n int
			_, _ = fmt.Sscanf(r.ID[len(r.ID)-4:], "%x", &n)
			r.Priority = n
		}
	})},
	{"lowest priority first", "claim-3 insert-1 insert-9 claim-4 claim-5 claim-11 settleclaim-3 settleclaim-4 settleclaim-5 settleclaim-6 unclaim-2 queue-1 general-4 durable-1 claim-13", inserting(func(r *storage.Record) { r.Priority = -r.Priority })},
	{"queues in their own order", "claim-4 claim-7", claiming(func(c *storage.Claim) { c.Queues = slices.Sorted(slices.Values(c.Queues)); slices.Reverse(c.Queues) })},
	{"all queues one after the other", "claim-5 unclaim-2", func(b *broken) {
		b.claim = func(b *broken, ctx context.Context, now time.Time, c storage.Claim, dst []storage.Record) ([]storage.Record, error) {
			if len(c.Queues) == 0 {
				counts, err := b.Storage.Counts(ctx)
				if err != nil {
					return dst, err
				}
				names := make(map[string]bool)
				for _, n := range counts {
					names[n.Queue] = true
				}
				if c.Queues = slices.Sorted(maps.Keys(names)); len(c.Queues) == 0 {
					return dst, nil
				}
			}
			return b.Storage.Claim(ctx, now, c, dst)
		}
	}},
	{"types ignored", "claim-6 settle-9 settle-10", claiming(func(c *storage.Claim) { c.Types = nil })},
	{"Max for each queue", "claim-7", func(b *broken) {
		b.claim = func(b *broken, ctx context.Context, now time.Time, c storage.Claim, dst []storage.Record) ([]storage.Record, error) {
			if len(c.Queues) < 2 || c.Max < 2 {
				return b.Storage.Claim(ctx, now, c, dst)
			}
			var err error
			for _, q := range c.Queues {
				one := c
				one.Queues = []string{q}
				if dst, err = b.Storage.Claim(ctx, now, one, dst); err != nil {
					return dst, err
				}
			}
			return dst, nil
		}
	}},
	{"pending jobs claimed", "claim-8 insert-4 settle-1 unique-7", func(b *broken) {
		b.insert = func(b *broken, ctx context.Context, now time.Time, batch []storage.Insert, dst []storage.Inserted) ([]storage.Inserted, error) {
			batch = slices.Clone(batch)
			for i := range batch {
				if r := &batch[i].Record; r.State == ojs.StatePending && strings.HasPrefix(r.Queue, "reach") {
					r.State = ojs.StateAvailable
				}
			}
			return b.Storage.Insert(ctx, now, batch, dst)
		}
	}},
	{"expired jobs claimed", "claim-9 claim-1 unclaim-3 unclaim-4 lease-3 due-5 insert-10 claim-13 settle-10 settleclaim-5", func(b *broken) {
		b.claim = func(b *broken, ctx context.Context, now time.Time, c storage.Claim, dst []storage.Record) ([]storage.Record, error) {
			return b.Storage.Claim(ctx, now.Add(-time.Minute), c, dst)
		}
	}},
	{"early visibility", "claim-10 lease-1 lease-3 due-1 due-3 due-6 general-6 prune-4", dueAt(time.Second)},
	{"several jobs of a limited key in one claim", "claim-12", func(b *broken) {
		b.claim = func(b *broken, ctx context.Context, now time.Time, c storage.Claim, dst []storage.Record) ([]storage.Record, error) {
			for left := c.Max; left > 0; left-- {
				before := len(dst)
				c.Max = 1
				var err error
				if dst, err = b.Storage.Claim(ctx, now, c, dst); err != nil || len(dst) == before {
					return dst, err
				}
			}
			return dst, nil
		}
	}},
	{"keys to skip ignored", "claim-11 claim-14 settle-9", claiming(func(c *storage.Claim) { c.SkipKeys = nil })},

	{"what a claim has found expired stays so when the clock goes back", "claim-13", func(b *broken) {
		var latest time.Time
		b.claim = func(b *broken, ctx context.Context, now time.Time, c storage.Claim, dst []storage.Record) ([]storage.Record, error) {
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
		b.claim = func(b *broken, ctx context.Context, now time.Time, c storage.Claim, dst []storage.Record) ([]storage.Record, error) {
			b.mu.Lock()
			latest = now
			b.mu.Unlock()
			return b.Storage.Claim(ctx, now, c, dst)
		}
		b.insert = func(b *broken, ctx context.Context, now time.Time, batch []storage.Insert, dst []storage.Inserted) ([]storage.Inserted, error) {
			b.mu.Lock()
			if latest.After(now) {
				now = latest
			}
			b.mu.Unlock()
			return b.Storage.Insert(ctx, now, batch, dst)
		}
	}},
	{"keys to skip taken as they were at first", "claim-14", func(b *broken) {
		first := make(map[*storage.KeySet]*storage.KeySet)
		claiming(func(c *storage.Claim) {
			if first[c.SkipKeys] == nil {
				first[c.SkipKeys] = storage.Keys(slices.Collect(c.SkipKeys.All())...)
			}
			c.SkipKeys = first[c.SkipKeys]
		})(b)
	}},
	{"a set of keys to skip taken for another", "claim-11 claim-14 settle-9", func(b *broken) {
		var first *storage.KeySet
		claiming(func(c *storage.Claim) {
			if first == nil {
				first = c.SkipKeys
			}
			c.SkipKeys = first
		})(b)
	}},
	{"keys that have opened still skipped", "claim-11 claim-14 settle-9", func(b *broken) {
		all := storage.Keys()
		claiming(func(c *storage.Claim) {
			for key := range c.SkipKeys.All() {
				all.Add(key)
			}
			c.SkipKeys = storage.Keys(slices.Collect(all.All())...) // the storage reads it without the lock
		})(b)
	}},

	{"an illegal transition made", "settle-1", func(b *broken) {
		b.settle = func(b *broken, ctx context.Context, now time.Time, changes []storage.Change, dst []storage.Settled) ([]storage.Settled, error) {
			out, err := b.Storage.Settle(ctx, now, changes, nil)
			for i := range out {
				if r := changes[i].Record; errors.Is(out[i].Err, ojs.ErrTransition) && r.State == ojs.StateCompleted {
					out[i] = storage.Settled{Version: r.Version + 1}
				}
			}
			return append(dst, out...), err
		}
	}},
	{"fencing lost", "settle-2 unique-3 settle-3 unclaim-1 lease-3 race-2 race-3 settle-12 durable-3", settling(func(to *storage.Record, stored storage.Record) { to.Version = stored.Version })},
	{"fencing by the attempt number", "settle-3 lease-3 race-3 settle-12 durable-3", settling(func(to *storage.Record, stored storage.Record) {
		if to.Attempt == stored.Attempt && stored.State == ojs.StateActive {
			to.Version = stored.Version
		}
	})},
	{"another type costs an available job its place", "settle-9", costsPlace(func(r, stored *storage.Record) bool { return r.Type != stored.Type })},
	{"another rate limit costs an available job its place", "settle-9", costsPlace(func(r, stored *storage.Record) bool {
		return (r.RateLimit == nil) != (stored.RateLimit == nil)
	})},
	{"another fingerprint costs an available job its place", "settle-9", costsPlace(func(r, stored *storage.Record) bool {
		return r.Fingerprint != stored.Fingerprint
	})},
	{"another deadline costs an available job its place", "settle-9 settle-10", costsPlace(func(r, stored *storage.Record) bool {
		return !r.Deadline().Equal(stored.Deadline())
	})},
	{"another time of creation costs an available job its place", "settle-9", costsPlace(func(r, stored *storage.Record) bool {
		return !r.CreatedAt.Equal(stored.CreatedAt)
	})},
	{"a deadline that does not move", "settle-10", settling(func(to *storage.Record, stored storage.Record) {
		if stored.State.Waiting() {
			to.ExpiresAt = stored.ExpiresAt
		}
	})},
	{"a fingerprint for life", "settle-11", settling(func(to *storage.Record, stored storage.Record) { to.Fingerprint = stored.Fingerprint })},
	{"a time of creation for life", "settle-11", settling(func(to *storage.Record, stored storage.Record) { to.CreatedAt = stored.CreatedAt })},
	{"tokens of a deleted job fit the next one", "settle-12 durable-3", func(b *broken) { tokensComeAgain(b, func() bool { return true }) }},
	{"tokens of a deleted job fit the next one after the storage was opened again", "durable-3", func(b *broken) {
		opened := false
		tokensComeAgain(b, func() bool { return opened })
		b.reopen = func(b *broken) storage.Storage {
			opened = true
			return b
		}
	}},
	{"active jobs replaced whatever KeepActive says", "unique-13", func(b *broken) {
		b.insert = func(b *broken, ctx context.Context, now time.Time, batch []storage.Insert, dst []storage.Inserted) ([]storage.Inserted, error) {
			batch = slices.Clone(batch)
			for i := range batch {
				batch[i].KeepActive = false
			}
			return b.Storage.Insert(ctx, now, batch, dst)
		}
	}},
	{"active jobs never replaced", "unique-13 unique-3 notify-2 race-5", func(b *broken) {
		b.insert = func(b *broken, ctx context.Context, now time.Time, batch []storage.Insert, dst []storage.Inserted) ([]storage.Inserted, error) {
			batch = slices.Clone(batch)
			for i := range batch {
				batch[i].KeepActive = true
			}
			return b.Storage.Insert(ctx, now, batch, dst)
		}
	}},
	{"changes all or nothing", "settle-4", func(b *broken) {
		b.settle = func(b *broken, ctx context.Context, now time.Time, changes []storage.Change, dst []storage.Settled) ([]storage.Settled, error) {
			for i := range changes {
				if r, err := b.Storage.Get(ctx, changes[i].Record.ID); len(changes) > 1 && (err != nil || r.Version != changes[i].Record.Version) {
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
		b.settle = func(b *broken, ctx context.Context, now time.Time, changes []storage.Change, dst []storage.Settled) ([]storage.Settled, error) {
			for _, ch := range changes {
				r := ch.Record
				if stored, err := b.Storage.Get(ctx, r.ID); err == nil && stored.State == ojs.StateAvailable && r.State == stored.State &&
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
	{"progress forgotten", "settle-8", settling(func(to *storage.Record, stored storage.Record) { to.Progress = stored.Progress })},
	{"a job keeps its queue", "settle-6", settling(func(to *storage.Record, stored storage.Record) { to.Queue = stored.Queue })},
	{"a replayed job goes first", "settle-7", settling(func(to *storage.Record, stored storage.Record) {
		if stored.DeadLettered() && to.State == ojs.StateAvailable {
			to.Priority++
		}
	})},

	{"attempts of a step not counted", "settleclaim-1 settleclaim-7 settleclaim-8", stepped(func(claimed []*storage.Record) {
		for _, r := range claimed {
			r.Attempt--
		}
	})},
	{"a step forgets who asks", "settleclaim-1", stepping(func(c *storage.Claim) { c.Worker = "" })},
	{"results of a step in place of what was there", "settleclaim-1", func(b *broken) {
		b.step = func(b *broken, ctx context.Context, now time.Time, to []*storage.Record, _ []storage.Settled, c storage.Claim, into []*storage.Record) ([]storage.Settled, int, error) {
			return b.Storage.SettleAndClaim(ctx, now, to, nil, c, into)
		}
	}},
	{"outcomes all or nothing", "settleclaim-2", func(b *broken) {
		b.step = func(b *broken, ctx context.Context, now time.Time, to []*storage.Record, dst []storage.Settled, c storage.Claim, into []*storage.Record) ([]storage.Settled, int, error) {
			for _, r := range to {
				if stored, err := b.Storage.Get(ctx, r.ID); len(to) > 1 && (err != nil || stored.Version != r.Version) {
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
		b.step = func(b *broken, ctx context.Context, now time.Time, to []*storage.Record, dst []storage.Settled, c storage.Claim, into []*storage.Record) ([]storage.Settled, int, error) {
			first := len(dst)
			dst, _, err := b.Storage.SettleAndClaim(ctx, now, to, dst, c, nil)
			if err != nil || slices.ContainsFunc(dst[first:], func(s storage.Settled) bool { return s.Err != nil }) {
				return dst, 0, err
			}
			return b.Storage.SettleAndClaim(ctx, now, nil, dst, c, into)
		}
	}},
	{"outcomes stored backwards", "settleclaim-2 settleclaim-3", func(b *broken) {
		b.step = func(b *broken, ctx context.Context, now time.Time, to []*storage.Record, dst []storage.Settled, c storage.Claim, into []*storage.Record) ([]storage.Settled, int, error) {
			to = slices.Clone(to)
			slices.Reverse(to)
			out, n, err := b.Storage.SettleAndClaim(ctx, now, to, nil, c, into)
			slices.Reverse(out)
			return append(dst, out...), n, err
		}
	}},
	{"jobs under fresh ids found by the next call only", "settleclaim-14", func(b *broken) {
		var fresh string
		b.insert = func(b *broken, ctx context.Context, now time.Time, batch []storage.Insert, dst []storage.Inserted) ([]storage.Inserted, error) {
			b.mu.Lock()
			if fresh = ""; len(batch) == 1 && batch[0].Fresh {
				fresh = batch[0].Record.ID
			}
			b.mu.Unlock()
			return b.Storage.Insert(ctx, now, batch, dst)
		}
		b.step = func(b *broken, ctx context.Context, now time.Time, to []*storage.Record, dst []storage.Settled, c storage.Claim, into []*storage.Record) ([]storage.Settled, int, error) {
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
		b.step = func(b *broken, ctx context.Context, now time.Time, to []*storage.Record, dst []storage.Settled, c storage.Claim, into []*storage.Record) ([]storage.Settled, int, error) {
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
		b.step = func(b *broken, ctx context.Context, now time.Time, to []*storage.Record, dst []storage.Settled, c storage.Claim, into []*storage.Record) ([]storage.Settled, int, error) {
			_, n, err := b.Storage.SettleAndClaim(ctx, now, nil, nil, c, into)
			if err != nil {
				return dst, 0, err
			}
			dst, _, err = b.Storage.SettleAndClaim(ctx, now, to, dst, c, nil)
			return dst, n, err
		}
	}},
	{"what a step makes available goes first", "settleclaim-3", func(b *broken) {
		b.step = func(b *broken, ctx context.Context, now time.Time, to []*storage.Record, dst []storage.Settled, c storage.Claim, into []*storage.Record) ([]storage.Settled, int, error) {
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
				if dst, _, err = b.Storage.SettleAndClaim(ctx, now, []*storage.Record{r}, dst, c, nil); err != nil {
					return dst, 0, err
				}
			}
			return b.Storage.SettleAndClaim(ctx, now, nil, dst, c, into)
		}
	}},
	{"queues ignored by a step", "settleclaim-4 settleclaim-6", stepping(func(c *storage.Claim) { c.Queues = nil })},
	{"types ignored by a step", "settleclaim-4", stepping(func(c *storage.Claim) { c.Types = nil })},
	{"queues of a step in their own order", "settleclaim-4 settleclaim-6", stepping(func(c *storage.Claim) { c.Queues = slices.Sorted(slices.Values(c.Queues)) })},
	{"claimed in a step from the last to the first", "settleclaim-4 settleclaim-3 settleclaim-5 settleclaim-7 settleclaim-10", stepped(func(claimed []*storage.Record) {
		for i, j := 0, len(claimed)-1; i < j; i, j = i+1, j-1 {
			*claimed[i], *claimed[j] = *claimed[j], *claimed[i]
		}
	})},
	{"expired jobs claimed in a step", "settleclaim-5 settleclaim-1", func(b *broken) {
		b.step = func(b *broken, ctx context.Context, now time.Time, to []*storage.Record, dst []storage.Settled, c storage.Claim, into []*storage.Record) ([]storage.Settled, int, error) {
			return b.Storage.SettleAndClaim(ctx, now.Add(-time.Minute), to, dst, c, into)
		}
	}},
	{"keys to skip ignored by a step", "settleclaim-5", stepping(func(c *storage.Claim) { c.SkipKeys = nil })},
	{"jobs with a rate limit claimed in a step", "settleclaim-6", func(b *broken) {
		b.step = func(b *broken, ctx context.Context, now time.Time, to []*storage.Record, dst []storage.Settled, c storage.Claim, into []*storage.Record) ([]storage.Settled, int, error) {
			dst, _, err := b.Storage.SettleAndClaim(ctx, now, to, dst, c, nil)
			if err != nil {
				return dst, 0, err
			}
			c.Max = len(into)
			recs, err := b.Storage.Claim(ctx, now, c, nil)
			for i := range recs {
				*into[i] = recs[i]
			}
			return dst, len(recs), err
		}
	}},
	{"jobs with a rate limit passed over in a step", "settleclaim-6", stepping(func(c *storage.Claim) { c.SkipKeys = storage.Keys(append(slices.Collect(c.SkipKeys.All()), "k")...) })},
	{"a rate limit ends the claim of its queue", "settleclaim-6", func(b *broken) {
		b.step = func(b *broken, ctx context.Context, now time.Time, to []*storage.Record, dst []storage.Settled, c storage.Claim, into []*storage.Record) ([]storage.Settled, int, error) {
			dst, n, err := b.Storage.SettleAndClaim(ctx, now, to, dst, c, into)
			for _, q := range c.Queues {
				if err != nil {
					break
				}
				more, one := 0, c
				one.Queues = []string{q}
				_, more, err = b.Storage.SettleAndClaim(ctx, now, nil, nil, one, into[n:])
				n += more
			}
			return dst, n, err
		}
	}},
	{"Max bounds a step", "settleclaim-7", func(b *broken) {
		b.step = func(b *broken, ctx context.Context, now time.Time, to []*storage.Record, dst []storage.Settled, c storage.Claim, into []*storage.Record) ([]storage.Settled, int, error) {
			if c.Max > 0 {
				into = into[:min(len(into), c.Max)]
			}
			return b.Storage.SettleAndClaim(ctx, now, to, dst, c, into)
		}
	}},
	{"what a job has not is left as it was", "settleclaim-7 settleclaim-1", func(b *broken) {
		b.step = func(b *broken, ctx context.Context, now time.Time, to []*storage.Record, dst []storage.Settled, c storage.Claim, into []*storage.Record) ([]storage.Settled, int, error) {
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
	{"a step that counts the records it was given", "settleclaim-7 settleclaim-3 settleclaim-4 settleclaim-5 settleclaim-6 settleclaim-10 settleclaim-13", func(b *broken) {
		b.step = func(b *broken, ctx context.Context, now time.Time, to []*storage.Record, dst []storage.Settled, c storage.Claim, into []*storage.Record) ([]storage.Settled, int, error) {
			out, n, err := b.Storage.SettleAndClaim(ctx, now, to, dst, c, into)
			if err != nil {
				return out, n, err
			}
			return out, len(into), nil
		}
	}},
	{"what a step was given is what is stored", "settleclaim-8 *", func(b *broken) {
		given := make(map[string]*storage.Record)
		b.step = func(b *broken, ctx context.Context, now time.Time, to []*storage.Record, dst []storage.Settled, c storage.Claim, into []*storage.Record) ([]storage.Settled, int, error) {
			b.mu.Lock()
			defer b.mu.Unlock()
			for _, r := range to {
				c := *r // with the lists and maps of r
				given[r.ID] = &c
			}
			return b.Storage.SettleAndClaim(ctx, now, to, dst, c, into)
		}
		b.get = func(b *broken, ctx context.Context, id string) (storage.Record, error) {
			b.mu.Lock()
			defer b.mu.Unlock()
			r, err := b.Storage.Get(ctx, id)
			if to := given[id]; err == nil && to != nil && to.Version+1 == r.Version {
				r.Errors, r.Meta = to.Errors, to.Meta
			}
			return r, err
		}
	}},
	{"what a step hands out is what is stored", "settleclaim-8 *", func(b *broken) {
		b.step = func(b *broken, ctx context.Context, now time.Time, to []*storage.Record, dst []storage.Settled, c storage.Claim, into []*storage.Record) ([]storage.Settled, int, error) {
			b.mu.Lock()
			defer b.mu.Unlock()
			out, n, err := b.Storage.SettleAndClaim(ctx, now, to, dst, c, into)
			for _, r := range into[:n] {
				b.kept[r.ID] = *r
			}
			return out, n, err
		}
		b.get = func(b *broken, ctx context.Context, id string) (storage.Record, error) {
			b.mu.Lock()
			defer b.mu.Unlock()
			r, err := b.Storage.Get(ctx, id)
			if old, ok := b.kept[id]; ok && err == nil && old.Version == r.Version {
				return old, nil
			}
			return r, err
		}
	}},
	{"settles before it looks at the context", "settleclaim-9", func(b *broken) {
		b.step = func(b *broken, ctx context.Context, now time.Time, to []*storage.Record, dst []storage.Settled, c storage.Claim, into []*storage.Record) ([]storage.Settled, int, error) {
			dst, _, err := b.Storage.SettleAndClaim(context.WithoutCancel(ctx), now, to, dst, c, nil)
			if err = errors.Join(err, ctx.Err()); err != nil {
				return dst, 0, err
			}
			return b.Storage.SettleAndClaim(ctx, now, nil, dst, c, into)
		}
	}},
	{"claims before it looks at the context", "settleclaim-9 general-1", func(b *broken) {
		b.step = func(b *broken, ctx context.Context, now time.Time, to []*storage.Record, dst []storage.Settled, c storage.Claim, into []*storage.Record) ([]storage.Settled, int, error) {
			if ctx.Err() != nil {
				_, _, _ = b.Storage.SettleAndClaim(context.WithoutCancel(ctx), now, nil, nil, c, into)
			}
			return b.Storage.SettleAndClaim(ctx, now, to, dst, c, into)
		}
	}},
	{"undoes before it looks at the context", "settleclaim-9", func(b *broken) {
		b.unclaim = func(b *broken, ctx context.Context, now time.Time, held []storage.Held) (int, error) {
			n, err := b.Storage.Unclaim(context.WithoutCancel(ctx), now, held)
			if err = errors.Join(err, ctx.Err()); err != nil {
				return 0, err
			}
			return n, nil
		}
	}},
	{"paused queues delivered in a step", "settleclaim-10", func(b *broken) {
		b.step = func(b *broken, ctx context.Context, now time.Time, to []*storage.Record, dst []storage.Settled, c storage.Claim, into []*storage.Record) ([]storage.Settled, int, error) {
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
	{"ends of a step not told", "settleclaim-11 settleclaim-12", during(func(n *storage.Notice) { n.Ended = nil })},
	{"what a step makes available not told", "settleclaim-11 unclaim-5", during(func(n *storage.Notice) { n.Available = false })},
	{"leases of a step not told", "settleclaim-11", during(func(n *storage.Notice) { n.Due = time.Time{} })},
	{"claims taken in a step not told", "settleclaim-11", during(func(n *storage.Notice) { n.Taken = nil })},
	{"claims that are undone not told", "unclaim-5", func(b *broken) {
		during(func(n *storage.Notice) { n.Available = false })(b)
		b.step = nil
	}},
	{"callers told of their own steps", "settleclaim-12", func(b *broken) {
		b.step = func(b *broken, ctx context.Context, now time.Time, to []*storage.Record, dst []storage.Settled, c storage.Claim, into []*storage.Record) ([]storage.Settled, int, error) {
			return b.Storage.SettleAndClaim(storage.WithSelf(ctx, nil), now, to, dst, c, into)
		}
	}},
	{"callers told of the claims that they undo", "settleclaim-12", func(b *broken) {
		b.unclaim = func(b *broken, ctx context.Context, now time.Time, held []storage.Held) (int, error) {
			return b.Storage.Unclaim(storage.WithSelf(ctx, nil), now, held)
		}
	}},
	{"two winners of a step", "settleclaim-13", func(b *broken) {
		b.step = func(b *broken, ctx context.Context, now time.Time, to []*storage.Record, dst []storage.Settled, c storage.Claim, into []*storage.Record) ([]storage.Settled, int, error) {
			out, n, err := b.Storage.SettleAndClaim(ctx, now, to, dst, c, into)
			b.mu.Lock()
			defer b.mu.Unlock()
			if c.Worker == "racer" && n == len(into) {
				if old, ok := b.kept["last"]; ok {
					*into[0] = old.Copy()
				}
				b.kept["last"] = into[1].Copy()
			}
			return out, n, err
		}
	}},

	{"given back as a retry", "unclaim-1 settleclaim-10 unclaim-2", func(b *broken) {
		b.unclaim = func(b *broken, ctx context.Context, now time.Time, held []storage.Held) (n int, err error) {
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
		b.unclaim = func(b *broken, ctx context.Context, now time.Time, held []storage.Held) (int, error) {
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
		b.unclaim = func(b *broken, ctx context.Context, now time.Time, held []storage.Held) (int, error) {
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
		b.unclaim = func(b *broken, ctx context.Context, now time.Time, held []storage.Held) (int, error) {
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
		b.unclaim = func(b *broken, ctx context.Context, now time.Time, held []storage.Held) (int, error) {
			if _, err := b.Storage.Unclaim(ctx, now, held); err != nil {
				return 0, err
			}
			return len(held), nil
		}
	}},
	{"one claim that is not there keeps the others", "unclaim-3", func(b *broken) {
		b.unclaim = func(b *broken, ctx context.Context, now time.Time, held []storage.Held) (int, error) {
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
		b.unclaim = func(b *broken, ctx context.Context, now time.Time, held []storage.Held) (int, error) {
			for _, h := range held {
				if r, err := b.Storage.Get(ctx, h.ID); err == nil {
					b.mu.Lock()
					until = r.LeaseUntil
					b.mu.Unlock()
				}
			}
			return b.Storage.Unclaim(ctx, now, held)
		}
		dueing(func(d *storage.Due) {
			b.mu.Lock()
			defer b.mu.Unlock()
			if d.Next.IsZero() {
				d.Next = until
			}
		})(b)
	}},
	{"no deadline after a claim that was undone", "unclaim-4", func(b *broken) {
		b.unclaim = func(b *broken, ctx context.Context, now time.Time, held []storage.Held) (int, error) {
			b.mu.Lock()
			defer b.mu.Unlock()
			for _, h := range held {
				b.kept[h.ID] = storage.Record{}
			}
			return b.Storage.Unclaim(ctx, now, held)
		}
		dueing(func(d *storage.Due) {
			b.mu.Lock()
			defer b.mu.Unlock()
			d.Expired = slices.DeleteFunc(d.Expired, func(r storage.Record) bool { _, undone := b.kept[r.ID]; return undone })
		})(b)
	}},
	{"look, then undo", "unclaim-6", func(b *broken) {
		b.unclaim = func(b *broken, ctx context.Context, now time.Time, held []storage.Held) (int, error) {
			if len(held) != 1 {
				return b.Storage.Unclaim(ctx, now, held)
			}
			r, err := b.Storage.Get(ctx, held[0].ID)
			time.Sleep(time.Millisecond)
			n, uerr := b.Storage.Unclaim(ctx, now, held)
			if err == nil && uerr == nil && r.Version == held[0].Version && r.State == ojs.StateActive {
				n = 1
			}
			return n, uerr
		}
	}},

	{"a renewal renews nothing", "lease-1 due-7", func(b *broken) {
		b.extend = func(b *broken, ctx context.Context, now time.Time, xs []storage.Extension) ([]string, error) {
			return b.Storage.Extend(ctx, now.Add(-50*time.Second), xs)
		}
	}},
	{"a renewal for whoever asks", "lease-2 settle-12 durable-3", func(b *broken) {
		b.extend = func(b *broken, ctx context.Context, now time.Time, xs []storage.Extension) ([]string, error) {
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
		b.claim = func(b *broken, ctx context.Context, now time.Time, c storage.Claim, dst []storage.Record) ([]storage.Record, error) {
			recs, err := b.Storage.Claim(ctx, now, c, dst)
			return recs, err
		}
		b.due = func(b *broken, ctx context.Context, now time.Time, max int, buf []storage.Record) (storage.Due, error) {
			d, err := b.Storage.Due(ctx, now, max, buf)
			if err == nil && len(d.Stalled) == 0 && !d.Next.IsZero() && d.Next.Sub(now) <= time.Millisecond {
				if r, lerr := b.Storage.List(ctx, storage.Query{States: []ojs.State{ojs.StateActive}}); lerr == nil && len(r.Records) > 0 {
					return b.Storage.Due(ctx, now.Add(time.Millisecond), max, buf)
				}
			}
			return d, err
		}
	}},
	{"a stalled job handed on once", "lease-4", dueing(func(d *storage.Due) {
		d.Stalled = slices.DeleteFunc(d.Stalled, func(r storage.Record) bool { return r.Version > 3 })
	})},
	{"checkpoints forgotten", "lease-5", func(b *broken) {
		b.extend = func(b *broken, ctx context.Context, now time.Time, xs []storage.Extension) ([]string, error) {
			xs = slices.Clone(xs)
			for i := range xs {
				xs[i].Checkpoint = nil
			}
			return b.Storage.Extend(ctx, now, xs)
		}
	}},

	{"promoted late", "due-1 unique-12 claim-2 unclaim-3 unclaim-4 lease-3 lease-4 due-3 prune-4 queue-1 notify-1 notify-2 durable-1 general-6 settle-10 prune-6 due-7", dueAt(-time.Millisecond)},
	{"promoted in the order of insertion", "due-2 due-7", dueing(func(d *storage.Due) {
		slices.SortFunc(d.Promoted, func(a, b storage.Record) int { return strings.Compare(a.ID, b.ID) })
	})},
	{"pending jobs never expire", "due-3", inserting(func(r *storage.Record) {
		if r.State == ojs.StatePending {
			r.ExpiresAt = time.Time{}
		}
	})},
	{"promoted behind what was in buf", "due-1 unique-12 due-2 due-4 queue-1 general-5 durable-1 general-6 due-7", func(b *broken) {
		b.due = func(b *broken, ctx context.Context, now time.Time, max int, buf []storage.Record) (storage.Due, error) {
			d, err := b.Storage.Due(ctx, now, max, nil)
			d.Promoted = append(buf, d.Promoted...)
			return d, err
		}
	}},
	{"max ignored", "due-4", func(b *broken) {
		b.due = func(b *broken, ctx context.Context, now time.Time, max int, buf []storage.Record) (storage.Due, error) {
			return b.Storage.Due(ctx, now, max+1000, buf)
		}
	}},
	{"no next deadline", "due-5", dueing(func(d *storage.Due) {
		if len(d.Promoted)+len(d.Expired)+len(d.Stalled) == 0 && d.Next.Minute() == 30 {
			d.Next = d.Next.Add(time.Hour)
		}
	})},
	{"leases end in the order of their claims", "due-7", dueing(func(d *storage.Due) {
		slices.SortFunc(d.Stalled, func(a, b storage.Record) int { return strings.Compare(a.ID, b.ID) })
	})},
	{"a clock that goes back is an error", "due-6", func(b *broken) {
		var last time.Time
		b.due = func(b *broken, ctx context.Context, now time.Time, max int, buf []storage.Record) (storage.Due, error) {
			b.mu.Lock()
			defer b.mu.Unlock()
			if now.Before(last.Add(-30*time.Minute)) || now.Before(time.Date(2026, 3, 1, 11, 30, 0, 0, time.UTC)) {
				return storage.Due{}, errors.New("the clock went back")
			}
			last = now
			return b.Storage.Due(ctx, now, max, buf)
		}
	}},

	{"listed by the latest change", "list-1", listed(func(p *storage.Page) {
		slices.SortStableFunc(p.Records, func(a, b storage.Record) int { return int(a.Version) - int(b.Version) })
	})},
	{"paging that skips", "list-2 prune-5", listed(func(p *storage.Page) {
		if len(p.Records) == 7 {
			p.Records = p.Records[:6]
		}
	})},
	{"error types not filtered", "list-3", listing(func(q *storage.Query) { q.ErrorTypes = nil })},
	{"pages by offset", "list-4", func(b *broken) {
		b.list = func(b *broken, ctx context.Context, q storage.Query) (storage.Page, error) {
			if q.Limit != 3 || len(q.Queues)+len(q.Types)+len(q.States)+len(q.ErrorTypes) > 0 || q.DeadLetters {
				return b.Storage.List(ctx, q)
			}
			var at int
			if q.Cursor != "" {
				if _, err := fmt.Sscanf(q.Cursor, "at %d", &at); err != nil {
					return b.Storage.List(ctx, q)
				}
			}
			page, err := b.Storage.List(ctx, storage.Query{})
			if err != nil {
				return page, err
			}
			out := storage.Page{Records: page.Records[min(at, len(page.Records)):min(at+3, len(page.Records))]}
			if at+3 < len(page.Records) {
				out.Next = fmt.Sprintf("at %d", at+3)
			}
			return out, nil
		}
	}},
	{"every discarded job a dead letter", "list-5 durable-1", func(b *broken) {
		b.list = func(b *broken, ctx context.Context, q storage.Query) (storage.Page, error) {
			if q.DeadLetters && len(q.Types) == 0 {
				q.DeadLetters, q.States = false, []ojs.State{ojs.StateDiscarded}
			}
			return b.Storage.List(ctx, q)
		}
	}},
	{"ended jobs not counted", "list-6", func(b *broken) {
		b.counts = func(b *broken, ctx context.Context) ([]storage.Count, error) {
			out, err := b.Storage.Counts(ctx)
			return slices.DeleteFunc(out, func(c storage.Count) bool { return c.State.Terminal() }), err
		}
	}},
	{"any cursor is the beginning", "list-7", listing(func(q *storage.Query) {
		if strings.Contains(q.Cursor, "no cursor") {
			q.Cursor = ""
		}
	})},

	{"unknown ids counted", "delete-1", func(b *broken) {
		b.remove = func(b *broken, ctx context.Context, ids []string) (int, error) {
			n, err := b.Storage.Delete(ctx, ids)
			if err != nil {
				return n, err
			}
			return len(ids), nil
		}
	}},
	{"deleted one by one", "delete-2", func(b *broken) {
		b.remove = func(b *broken, ctx context.Context, ids []string) (n int, err error) {
			for _, id := range ids {
				one, err := b.Storage.Delete(ctx, []string{id})
				if n += one; err != nil {
					return 0, err
				}
			}
			if len(ids) == 0 {
				_, err = b.Storage.Delete(ctx, nil)
			}
			return n, err
		}
	}},
	{"ids of deleted jobs kept", "delete-3 settle-12", func(b *broken) {
		b.remove = func(b *broken, ctx context.Context, ids []string) (int, error) {
			n, err := b.Storage.Delete(ctx, ids)
			b.mu.Lock()
			defer b.mu.Unlock()
			for _, id := range ids {
				if err == nil {
					b.kept[id] = storage.Record{}
				}
			}
			return n, err
		}
		b.insert = func(b *broken, ctx context.Context, now time.Time, batch []storage.Insert, dst []storage.Inserted) ([]storage.Inserted, error) {
			b.mu.Lock()
			defer b.mu.Unlock()
			for i := range batch {
				if _, ok := b.kept[batch[i].Record.ID]; ok {
					return dst, &ojs.DuplicateError{ID: batch[i].Record.ID}
				}
			}
			return b.Storage.Insert(ctx, now, batch, dst)
		}
	}},
	{"pruned with the time itself", "prune-1 prune-5 prune-7 prune-8", pruning(func(p *storage.Prune) { p.Before = p.Before.Add(1) })},
	{"number is no reason", "prune-2 prune-5 prune-6 prune-7 prune-8", pruning(func(p *storage.Prune) { p.Beyond = 0 })},
	{"states ignored when pruning", "prune-3", pruning(func(p *storage.Prune) { p.States = nil })},
	{"pruned within their period", "prune-5 prune-6 prune-9", pruning(func(p *storage.Prune) { p.Now = p.Now.AddDate(1, 0, 0) })},
	{"kept after their period", "prune-5 prune-6 prune-9", pruning(func(p *storage.Prune) { p.Now = time.Time{} })},
	{"released for good", "prune-9", keptAgain(0)},
	{"kept again once", "prune-9", keptAgain(1)},
	{"kept jobs are counted", "prune-5", func(b *broken) {
		b.prune = func(b *broken, ctx context.Context, p storage.Prune) (storage.Pruned, error) {
			page, _ := b.Storage.List(ctx, storage.Query{States: []ojs.State{ojs.StateCompleted, ojs.StateCancelled, ojs.StateDiscarded}})
			for _, r := range page.Records {
				if r.KeptUntil().After(p.Now) && p.Beyond > 1 {
					p.Beyond--
				}
			}
			return b.Storage.Prune(ctx, p)
		}
	}},
	{"pruned within the time for their results", "prune-6 prune-4 prune-9", pruningAs(func(r *storage.Record) { r.ResultTTL = 0 }, byFinish)},
	{"kept forever, but not for a time", "prune-6 prune-4 prune-9", pruningAs(func(r *storage.Record) { r.ResultTTL = min(r.ResultTTL, 0) }, byFinish)},
	{"the time for a result counts from the enqueue", "prune-6 prune-4", pruningAs(func(r *storage.Record) {
		if r.ResultTTL > 0 {
			r.ResultTTL -= min(r.FinishedAt.Sub(r.CreatedAt), r.ResultTTL-1)
		}
	}, byFinish)},
	{"pruning stops at the first job that is too young", "prune-7 prune-4", pruningAs(asIs, func(a, b storage.Record) int { return 0 })},
	{"none is spared", "prune-8", pruning(func(p *storage.Prune) { p.Spare = time.Time{} })},
	{"age spares too", "prune-8", pruning(func(p *storage.Prune) {
		if !p.Spare.IsZero() && p.Spare.Before(p.Before) {
			p.Before = p.Spare
		}
	})},
	{"spared with the time itself", "prune-8", pruning(func(p *storage.Prune) {
		if !p.Spare.IsZero() {
			p.Spare = p.Spare.Add(1)
		}
	})},
	{"all that is left is not counted", "prune-8 prune-1 prune-7 prune-9", func(b *broken) {
		b.prune = func(b *broken, ctx context.Context, p storage.Prune) (storage.Pruned, error) {
			out, err := b.Storage.Prune(ctx, p)
			out.Left = min(out.Left, p.Beyond)
			return out, err
		}
	}},
	{"ids of pruned jobs in another order", "prune-1 prune-7 prune-8", func(b *broken) {
		b.prune = func(b *broken, ctx context.Context, p storage.Prune) (storage.Pruned, error) {
			out, err := b.Storage.Prune(ctx, p)
			slices.Reverse(out.IDs)
			return out, err
		}
	}},
	{"of one moment the first inserted pruned", "prune-4", pruningAs(asIs, byFinish)},

	{"paused queues delivered if named", "queue-1", func(b *broken) {
		b.claim = func(b *broken, ctx context.Context, now time.Time, c storage.Claim, dst []storage.Record) ([]storage.Record, error) {
			states, err := b.Storage.QueueStates(ctx)
			if err != nil {
				return dst, err
			}
			for _, q := range c.Queues {
				if states[q] == ojs.QueuePaused {
					_, _ = b.Storage.SetQueueState(ctx, q, ojs.QueueActive)
					defer b.Storage.SetQueueState(ctx, q, ojs.QueuePaused) //nolint:errcheck // a fault
				}
			}
			return b.Storage.Claim(ctx, now, c, dst)
		}
	}},
	{"draining queues accept", "queue-2", func(b *broken) {
		b.state = func(b *broken, ctx context.Context, q string, to ojs.QueueState) (ojs.QueueState, error) {
			if to == ojs.QueueDraining && q == "q" {
				return ojs.QueueActive, ctx.Err()
			}
			return b.Storage.SetQueueState(ctx, q, to)
		}
	}},
	{"active queues listed", "queue-3", func(b *broken) {
		b.states = func(b *broken, ctx context.Context) (map[string]ojs.QueueState, error) {
			m, err := b.Storage.QueueStates(ctx)
			if err == nil {
				m["c"] = ojs.QueueActive
			}
			return m, err
		}
	}},
	{"the latest entry wins", "cron-1 cron-3 cron-4 cron-6", func(b *broken) {
		b.cron = func(b *broken, ctx context.Context, entries []storage.Cron) ([]uint64, error) {
			entries = slices.Clone(entries)
			for i := range entries {
				old, err := b.Storage.Crons(ctx, storage.CronQuery{Names: []string{entries[i].Name}})
				if err != nil {
					return nil, err
				}
				if entries[i].Version = 0; len(old) > 0 {
					entries[i].Version = old[0].Version
				}
			}
			return b.Storage.SetCrons(ctx, entries)
		}
	}},
	{"versions of a deleted entry come again", "cron-3 durable-3", func(b *broken) {
		before := make(map[string]uint64) // by name: the version before the entry's first, from which its own count
		b.cron = func(b *broken, ctx context.Context, entries []storage.Cron) ([]uint64, error) {
			entries = slices.Clone(entries)
			for i := range entries {
				if entries[i].Version > 0 {
					entries[i].Version += before[entries[i].Name]
				}
			}
			versions, err := b.Storage.SetCrons(ctx, entries)
			for i, v := range versions {
				if v > 0 && entries[i].Version == 0 {
					before[entries[i].Name] = v - 1
				}
				versions[i] -= min(v, before[entries[i].Name])
			}
			return versions, err
		}
		b.crons = func(b *broken, ctx context.Context, q storage.CronQuery) ([]storage.Cron, error) {
			list, err := b.Storage.Crons(ctx, q)
			for i := range list {
				list[i].Version -= before[list[i].Name]
			}
			return list, err
		}
	}},
	{"one stale entry refuses all", "cron-4 cron-6", func(b *broken) {
		b.cron = func(b *broken, ctx context.Context, entries []storage.Cron) ([]uint64, error) {
			for i := range entries {
				old, err := b.Storage.Crons(ctx, storage.CronQuery{Names: []string{entries[i].Name}})
				if err != nil {
					return nil, err
				}
				if len(old) == 0 && entries[i].Version > 0 || len(old) > 0 && old[0].Version != entries[i].Version {
					return make([]uint64, len(entries)), nil
				}
			}
			return b.Storage.SetCrons(ctx, entries)
		}
	}},
	{"a page begins with the entry it is to begin after", "cron-2 cron-6", func(b *broken) {
		b.crons = func(b *broken, ctx context.Context, q storage.CronQuery) ([]storage.Cron, error) {
			list, err := b.Storage.Crons(ctx, q)
			if at, _ := b.Storage.Crons(ctx, storage.CronQuery{Names: []string{q.After}}); len(at) == 1 && q.Names == nil {
				list = append(at, list...)
				list = list[:min(len(list), q.Most())]
			}
			return list, err
		}
	}},
	{"names ignored", "cron-2 cron-6 cron-5", func(b *broken) {
		b.crons = func(b *broken, ctx context.Context, q storage.CronQuery) ([]storage.Cron, error) {
			q.Names = nil
			return b.Storage.Crons(ctx, q)
		}
	}},
	{"an entry due now waits for the next look", "cron-5 cron-6", func(b *broken) {
		b.runs = func(b *broken, ctx context.Context, now time.Time, after *storage.Cron, max int) ([]storage.Cron, time.Time, error) {
			return b.Storage.DueCrons(ctx, now.Add(-1), after, max)
		}
	}},
	{"entries due a moment early", "cron-5", func(b *broken) {
		b.runs = func(b *broken, ctx context.Context, now time.Time, after *storage.Cron, max int) ([]storage.Cron, time.Time, error) {
			return b.Storage.DueCrons(ctx, now.Add(time.Microsecond), after, max)
		}
	}},
	{"every look at due entries begins with the first", "cron-5 cron-6", func(b *broken) {
		b.runs = func(b *broken, ctx context.Context, now time.Time, _ *storage.Cron, max int) ([]storage.Cron, time.Time, error) {
			return b.Storage.DueCrons(ctx, now, nil, max)
		}
	}},
	{"the next run not told", "cron-5 cron-6", func(b *broken) {
		b.runs = func(b *broken, ctx context.Context, now time.Time, after *storage.Cron, max int) ([]storage.Cron, time.Time, error) {
			due, _, err := b.Storage.DueCrons(ctx, now, after, max)
			return due, time.Time{}, err
		}
	}},
	{"due entries in the order of their names", "cron-5 cron-6", func(b *broken) {
		b.runs = func(b *broken, ctx context.Context, now time.Time, after *storage.Cron, max int) ([]storage.Cron, time.Time, error) {
			due, next, err := b.Storage.DueCrons(ctx, now, after, max)
			slices.SortFunc(due, func(a, b storage.Cron) int { return strings.Compare(a.Name, b.Name) })
			return due, next, err
		}
	}},
	{"nobody told", "notify-1 settleclaim-11 settleclaim-12 unclaim-5 notify-2 notify-3 notify-4", func(b *broken) {
		b.notify = func(*broken, any, func(storage.Notice)) func() { return func() {} }
	}},
	{"ends not told", "notify-1 settleclaim-11 settleclaim-12 notify-3", noticing(func(n *storage.Notice) { n.Ended = nil })},
	{"due times not told", "notify-1 settleclaim-11", noticing(func(n *storage.Notice) { n.Due = time.Time{} })},
	{"available jobs not told", "notify-1 settleclaim-11 unclaim-5 notify-4", noticing(func(n *storage.Notice) { n.Available = false })},
	{"claims told without their versions", "notify-2 settleclaim-11", noticing(func(n *storage.Notice) {
		for i := range n.Taken {
			n.Taken[i].Version = 0
		}
	})},
	{"every claim told as cancelled", "notify-2", noticing(func(n *storage.Notice) {
		for i := range n.Taken {
			n.Taken[i].Cause = ojs.ErrCancelled
		}
	})},
	{"callers told of their own calls", "notify-3 settleclaim-12", func(b *broken) {
		b.notify = func(b *broken, _ any, f func(storage.Notice)) func() { return b.Storage.Notify(new(int), f) }
	}},
	{"told after stop", "notify-4", func(b *broken) {
		b.notify = func(b *broken, self any, f func(storage.Notice)) func() {
			b.Storage.Notify(self, f)
			return func() {}
		}
	}},
	{"entries in no order", "cron-2 cron-4 cron-6", func(b *broken) {
		b.crons = func(b *broken, ctx context.Context, q storage.CronQuery) ([]storage.Cron, error) {
			list, err := b.Storage.Crons(ctx, q)
			slices.Reverse(list)
			return list, err
		}
	}},

	{"contexts ignored", "general-1", func(b *broken) {
		b.due = func(b *broken, _ context.Context, now time.Time, max int, buf []storage.Record) (storage.Due, error) {
			return b.Storage.Due(context.Background(), now, max, buf)
		}
	}},
	{"contexts ignored in a step", "general-1 settleclaim-9", func(b *broken) {
		b.step = func(b *broken, ctx context.Context, now time.Time, to []*storage.Record, dst []storage.Settled, c storage.Claim, into []*storage.Record) ([]storage.Settled, int, error) {
			return b.Storage.SettleAndClaim(context.WithoutCancel(ctx), now, to, dst, c, into)
		}
	}},
	{"nothing to undo when it is closed", "general-2", func(b *broken) {
		b.unclaim = func(b *broken, ctx context.Context, now time.Time, held []storage.Held) (int, error) {
			n, err := b.Storage.Unclaim(ctx, now, held)
			if errors.Is(err, ojs.ErrClosed) {
				return 0, nil
			}
			return n, err
		}
	}},
	{"closing twice is an error", "general-2", func(b *broken) {
		closed := false
		b.close = func(b *broken) error {
			b.mu.Lock()
			defer b.mu.Unlock()
			if closed {
				return errors.New("closed already")
			}
			closed = true
			return b.Storage.Close()
		}
	}},
	{"no job is no error", "general-3", func(b *broken) {
		b.get = func(b *broken, ctx context.Context, id string) (storage.Record, error) {
			r, err := b.Storage.Get(ctx, id)
			if errors.Is(err, ojs.ErrNotFound) && id == "nobody" {
				return storage.Record{}, nil
			}
			return r, err
		}
	}},
	{"big integers rounded", "general-4", getting(func(r *storage.Record) {
		var v any
		if json.Unmarshal([]byte(r.Args.String()), &v) == nil {
			r.Args, _ = ojs.NewArgs(v)
		}
	})},
	{"a limit of nothing", "general-5", func(b *broken) {
		b.insert = func(b *broken, ctx context.Context, now time.Time, batch []storage.Insert, dst []storage.Inserted) ([]storage.Inserted, error) {
			if len(batch) == 0 {
				return dst, errors.New("an empty batch")
			}
			return b.Storage.Insert(ctx, now, batch, dst)
		}
	}},
	{"unknown strategies forgotten", "general-6", inserting(func(r *storage.Record) {
		if strings.HasPrefix(string(r.Retry.BackoffStrategy), "acme:") {
			r.Retry.BackoffStrategy = ojs.BackoffExponential
		}
	})},
	{"jitter is on or off", "general-6", inserting(func(r *storage.Record) {
		if r.Retry.Jitter == ojs.JitterFull {
			r.Retry.Jitter = ojs.JitterOn
		}
	})},
	{"the year 2106 is the last", "general-6", settling(func(to *storage.Record, _ storage.Record) {
		if to.NextRetryAt.Unix() > 1<<32 {
			to.NextRetryAt = time.Unix(1<<32, 0).UTC()
		}
	})},

	{"forgets when it is opened again", "durable-1 durable-3", func(b *broken) {
		b.reopen = func(*broken) storage.Storage { return memory.New() }
	}},
	{"deleted jobs come back", "durable-2", func(b *broken) {
		var gone []storage.Record
		b.remove = func(b *broken, ctx context.Context, ids []string) (int, error) {
			for _, id := range ids {
				if r, err := b.Storage.Get(ctx, id); err == nil && r.State.Terminal() {
					gone = append(gone, r)
				}
			}
			return b.Storage.Delete(ctx, ids)
		}
		b.reopen = func(b *broken) storage.Storage {
			for _, r := range gone {
				r.State = ojs.StateAvailable
				_, _ = b.Storage.Insert(context.Background(), r.CreatedAt, []storage.Insert{{Record: r}}, nil)
			}
			return b
		}
	}},

	{"two winners of a claim", "race-1", func(b *broken) {
		b.claim = func(b *broken, ctx context.Context, now time.Time, c storage.Claim, dst []storage.Record) ([]storage.Record, error) {
			recs, err := b.Storage.Claim(ctx, now, c, nil)
			b.mu.Lock()
			defer b.mu.Unlock()
			if c.Max == 3 && c.Types == nil && c.Queues == nil {
				if old, ok := b.kept["last"]; ok && len(recs) > 0 {
					recs = append(recs, old)
					delete(b.kept, "last")
				} else if len(recs) > 0 {
					b.kept["last"] = recs[0]
				}
			}
			return append(dst, recs...), err
		}
	}},
	{"look, then settle", "race-2 race-3", func(b *broken) {
		b.settle = func(b *broken, ctx context.Context, now time.Time, changes []storage.Change, dst []storage.Settled) ([]storage.Settled, error) {
			if len(changes) != 1 || changes[0].Record.Queue != "one" {
				return b.Storage.Settle(ctx, now, changes, dst)
			}
			r, err := b.Storage.Get(ctx, changes[0].Record.ID)
			time.Sleep(time.Millisecond)
			out, serr := b.Storage.Settle(ctx, now, changes, nil)
			if err == nil && serr == nil && r.Version == changes[0].Record.Version {
				out[0] = storage.Settled{Version: r.Version + 1}
			}
			return append(dst, out...), serr
		}
	}},
	{"a lease that is over though the result came", "race-3", func(b *broken) {
		b.due = func(b *broken, ctx context.Context, now time.Time, max int, buf []storage.Record) (storage.Due, error) {
			if max != 1000 {
				return b.Storage.Due(ctx, now, max, buf)
			}
			page, _ := b.Storage.List(ctx, storage.Query{States: []ojs.State{ojs.StateActive}, Queues: []string{"one"}})
			time.Sleep(time.Millisecond)
			d, err := b.Storage.Due(ctx, now, max, buf)
			for _, r := range page.Records {
				if !r.LeaseUntil.After(now) && !slices.ContainsFunc(d.Stalled, func(s storage.Record) bool { return s.ID == r.ID }) {
					d.Stalled = append(d.Stalled, r)
				}
			}
			return d, err
		}
	}},
	{"look, then insert", "race-4 unique-7 unique-11 settle-11 unique-13", func(b *broken) {
		b.insert = func(b *broken, ctx context.Context, now time.Time, batch []storage.Insert, dst []storage.Inserted) ([]storage.Inserted, error) {
			if len(batch) != 1 || batch[0].Record.Fingerprint == "" || batch[0].Record.Unique.Strategy() != ojs.ConflictReject || batch[0].Record.Queue != "q" ||
				batch[0].Record.State != ojs.StateAvailable || batch[0].Record.Unique.States != nil || batch[0].Record.Unique.Period > 0 {
				return b.Storage.Insert(ctx, now, batch, dst)
			}
			page, err := b.Storage.List(ctx, storage.Query{Queues: []string{"q"}})
			if err != nil {
				return dst, err
			}
			for _, r := range page.Records {
				if r.Fingerprint == batch[0].Record.Fingerprint && batch[0].Record.Unique.Counts(r.State, r.CreatedAt, now) {
					return b.Storage.Insert(ctx, now, batch, dst)
				}
			}
			time.Sleep(time.Millisecond)
			blind := []storage.Insert{batch[0]}
			blind[0].Record.Unique = nil
			return b.Storage.Insert(ctx, now, blind, dst)
		}
	}},
	{"replaces in two steps", "race-5", func(b *broken) {
		b.insert = func(b *broken, ctx context.Context, now time.Time, batch []storage.Insert, dst []storage.Inserted) ([]storage.Inserted, error) {
			r := batch[:min(1, len(batch))]
			if len(batch) != 1 || r[0].Record.Unique == nil || r[0].Record.Unique.OnConflict != ojs.ConflictReplace || !strings.HasPrefix(r[0].Record.Queue, "f") {
				return b.Storage.Insert(ctx, now, batch, dst)
			}
			page, _ := b.Storage.List(ctx, storage.Query{Queues: []string{r[0].Record.Queue}})
			time.Sleep(time.Millisecond)
			for _, old := range page.Records {
				old.Cancel(now)
				old.Version--
				_, _ = b.Storage.Settle(ctx, now, []storage.Change{{Record: old}}, nil)
			}
			blind := []storage.Insert{batch[0]}
			blind[0].Record.Unique = nil
			return b.Storage.Insert(ctx, now, blind, dst)
		}
	}},
}

// brokenConfig is that of a storage with a fault.
func brokenConfig(fault func(*broken)) storagetest.Config {
	return storagetest.Config{
		Queues: true, Crons: true, Notices: true, SettleClaims: true,
		Open: func(testing.TB) storage.Storage {
			b := &broken{Storage: memory.New(), kept: make(map[string]storage.Record)}
			fault(b)
			return b
		},
		Reopen: func(_ testing.TB, s storage.Storage) storage.Storage {
			if b := s.(*broken); b.reopen != nil {
				return b.reopen(b)
			}
			return s
		},
	}
}

// rounds is how often each fault of single fields has to be noticed, with a seed of its own each time.
var rounds = flag.Int("rounds", 1, "seeds for each fault of a single field")

// wantCaught wants one of the cases to notice a fault, whatever the seed.
func wantCaught(t *testing.T, cases string, fault func(*broken)) {
	t.Helper()
	cfg := brokenConfig(fault)
	for range *rounds {
		noticed := slices.ContainsFunc(strings.Fields(cases), func(id string) bool {
			i := slices.IndexFunc(storagetest.Cases(), func(c storagetest.Case) bool { return c.ID == id })
			return len(storagetest.Prove(cfg, storagetest.Cases()[i])) > 0
		})
		if !noticed {
			t.Fatal("not noticed")
		}
	}
}

// Every fault is noticed by the case whose rule it breaks, and every case notices a fault.
func TestFaultsAreCaught(t *testing.T) {
	storagetest.SetPatience(50 * time.Millisecond) // the memory storage tells at once
	caught := make(map[string]bool)
	var table strings.Builder
	for _, f := range faults {
		cfg := brokenConfig(f.fault)
		var by []string
		for _, c := range storagetest.Cases() {
			if !storagetest.CanRun(cfg, c) || strings.HasPrefix(c.ID, "fields-") { // these have tests of their own
				continue
			}
			if failures := storagetest.Prove(cfg, c); len(failures) > 0 {
				by = append(by, c.ID)
				caught[c.ID] = true
				if !strings.HasPrefix(failures[0], c.Rule) {
					t.Errorf("%s: the failure does not begin with the rule: %s", c.ID, failures[0])
				}
			}
		}
		fmt.Fprintf(&table, "%-55s %s\n", f.name, strings.Join(by, " "))
		related := strings.Fields(f.caught)
		if !slices.Contains(by, related[0]) {
			t.Errorf("%s: not noticed by %s, but by %v", f.name, related[0], by)
		}
		for _, id := range by {
			if !slices.Contains(related, id) && !slices.Contains(related, "*") {
				t.Errorf("%s: noticed by %s, whose rule it does not break", f.name, id)
			}
		}
	}
	t.Log("\n" + table.String())
	sound := brokenConfig(func(*broken) {})
	for _, c := range storagetest.Cases() {
		if storagetest.CanRun(sound, c) && !caught[c.ID] && !strings.HasPrefix(c.ID, "fields-") {
			t.Errorf("%s notices no fault", c.ID)
		}
		if failures := storagetest.Prove(sound, c); storagetest.CanRun(sound, c) && len(failures) > 0 {
			t.Errorf("%s fails a sound storage: %v", c.ID, failures)
		}
	}
}

// tampered is a storage with a quarantine that has a fault: a nil function is the storage's own.
type tampered struct {
	*storagetest.Shelf
	notify  func(self any, f func(storage.Notice)) func()
	claim   func(ctx context.Context, now time.Time, c storage.Claim, dst []storage.Record) ([]storage.Record, error)
	due     func(ctx context.Context, now time.Time, max int, buf []storage.Record) (storage.Due, error)
	counts  func(ctx context.Context) ([]storage.Count, error)
	list    func(ctx context.Context, after string, limit int) ([]storage.Quarantined, error)
	release func(ctx context.Context, key string) error
	remove  func(ctx context.Context, key string) error
	insert  func(ctx context.Context, now time.Time, batch []storage.Insert, dst []storage.Inserted) ([]storage.Inserted, error)
	reopen  func() storage.Storage
}

func (s *tampered) Capabilities() storage.Capabilities {
	c := s.Shelf.Capabilities()
	c.Durable = true
	return c
}
func (s *tampered) Notify(self any, f func(storage.Notice)) func() {
	if s.notify != nil {
		return s.notify(self, f)
	}
	return s.Shelf.Notify(self, f)
}
func (s *tampered) Insert(ctx context.Context, now time.Time, batch []storage.Insert, dst []storage.Inserted) ([]storage.Inserted, error) {
	if s.insert != nil {
		return s.insert(ctx, now, batch, dst)
	}
	return s.Shelf.Insert(ctx, now, batch, dst)
}
func (s *tampered) Claim(ctx context.Context, now time.Time, c storage.Claim, dst []storage.Record) ([]storage.Record, error) {
	if s.claim != nil {
		return s.claim(ctx, now, c, dst)
	}
	return s.Shelf.Claim(ctx, now, c, dst)
}
func (s *tampered) Due(ctx context.Context, now time.Time, max int, buf []storage.Record) (storage.Due, error) {
	if s.due != nil {
		return s.due(ctx, now, max, buf)
	}
	return s.Shelf.Due(ctx, now, max, buf)
}
func (s *tampered) Counts(ctx context.Context) ([]storage.Count, error) {
	if s.counts != nil {
		return s.counts(ctx)
	}
	return s.Shelf.Counts(ctx)
}
func (s *tampered) Quarantined(ctx context.Context, after string, limit int) ([]storage.Quarantined, error) {
	if s.list != nil {
		return s.list(ctx, after, limit)
	}
	return s.Shelf.Quarantined(ctx, after, limit)
}
func (s *tampered) ReleaseQuarantined(ctx context.Context, key string) error {
	if s.release != nil {
		return s.release(ctx, key)
	}
	return s.Shelf.ReleaseQuarantined(ctx, key)
}
func (s *tampered) DeleteQuarantined(ctx context.Context, key string) error {
	if s.remove != nil {
		return s.remove(ctx, key)
	}
	return s.Shelf.DeleteQuarantined(ctx, key)
}

var errDamaged = errors.New("unexpected end of JSON input")

// any reports whether the quarantine has a record of which f holds.
func (s *tampered) any(f func(storage.Quarantined) bool) bool {
	list, _ := s.Shelf.Quarantined(context.Background(), "", 0)
	return slices.ContainsFunc(list, f)
}

func available(q storage.Quarantined) bool { return q.State == ojs.StateAvailable }

// quarantineFaults are those of storages that set records aside.
var quarantineFaults = []struct {
	name   string
	caught string // the case whose rule it breaks, and after it those that it breaks too
	fault  func(s *tampered)
}{
	{"a bad record fails the claim", "quarantine-1 quarantine-4 quarantine-5 quarantine-7 quarantine-8 quarantine-9", func(s *tampered) {
		told := 0
		s.claim = func(ctx context.Context, now time.Time, c storage.Claim, dst []storage.Record) ([]storage.Record, error) {
			if n, _ := s.CountQuarantined(ctx); n > told && s.any(available) {
				told = n
				return dst, errDamaged
			}
			return s.Shelf.Claim(ctx, now, c, dst)
		}
	}},
	{"a bad record takes another's place in a claim", "quarantine-1", func(s *tampered) {
		s.claim = func(ctx context.Context, now time.Time, c storage.Claim, dst []storage.Record) ([]storage.Record, error) {
			if c.Max > 1 && s.any(available) {
				c.Max--
			}
			return s.Shelf.Claim(ctx, now, c, dst)
		}
	}},
	{"the attempts of jobs beside a bad record are spent", "quarantine-1", func(s *tampered) {
		s.claim = func(ctx context.Context, now time.Time, c storage.Claim, dst []storage.Record) ([]storage.Record, error) {
			dst, err := s.Shelf.Claim(ctx, now, c, dst)
			for i := range dst {
				if s.any(available) {
					dst[i].Attempt++
				}
			}
			return dst, err
		}
	}},
	{"a bad record keeps others from coming due", "quarantine-2", func(s *tampered) {
		s.due = func(ctx context.Context, now time.Time, max int, buf []storage.Record) (storage.Due, error) {
			if s.any(func(q storage.Quarantined) bool { return q.State == ojs.StateScheduled }) {
				return storage.Due{}, nil
			}
			return s.Shelf.Due(ctx, now, max, buf)
		}
	}},
	{"counted though it is in the quarantine", "quarantine-3", func(s *tampered) {
		s.counts = func(ctx context.Context) ([]storage.Count, error) {
			counts, err := s.Shelf.Counts(ctx)
			if s.any(available) {
				counts = append(counts, storage.Count{Queue: "q", State: ojs.StateAvailable, N: 1})
			}
			return counts, err
		}
	}},
	{"pages that overlap", "quarantine-4 quarantine-5 quarantine-6 quarantine-9", func(s *tampered) {
		s.list = func(ctx context.Context, after string, limit int) ([]storage.Quarantined, error) {
			if after == "2" {
				after = "1"
			}
			return s.Shelf.Quarantined(ctx, after, limit)
		}
	}},
	{"no reason", "quarantine-4", func(s *tampered) {
		s.list = func(ctx context.Context, after string, limit int) ([]storage.Quarantined, error) {
			list, err := s.Shelf.Quarantined(ctx, after, limit)
			for i := range list {
				list[i].Reason = ""
			}
			return list, err
		}
	}},
	{"released though it does not decode", "quarantine-5 quarantine-6", func(s *tampered) {
		s.release = func(ctx context.Context, key string) error {
			list, _ := s.Shelf.Quarantined(ctx, "", 0)
			for _, q := range list {
				if q.Key == key {
					s.Mend(q.Name)
				}
			}
			return s.Shelf.ReleaseQuarantined(ctx, key)
		}
	}},
	{"released at the end of its queue", "quarantine-5 quarantine-1", func(s *tampered) {
		s.release = func(ctx context.Context, key string) error {
			list, _ := s.Shelf.Quarantined(ctx, "", 0)
			err := s.Shelf.ReleaseQuarantined(ctx, key)
			for _, q := range list {
				if r, gone := s.Get(ctx, q.Name); err == nil && gone == nil && q.Key == key && r.State == ojs.StateAvailable {
					low := r
					low.Priority--
					_, _ = s.Settle(ctx, r.CreatedAt, []storage.Change{{Record: low}}, nil)
					low.Priority, low.Version = r.Priority, low.Version+1
					_, _ = s.Settle(ctx, r.CreatedAt, []storage.Change{{Record: low}}, nil)
				}
			}
			return err
		}
	}},
	{"deleted and not gone", "quarantine-6 quarantine-3", func(s *tampered) {
		s.remove = func(ctx context.Context, key string) error {
			if s.any(func(q storage.Quarantined) bool { return q.Key == key }) {
				return nil
			}
			return s.Shelf.DeleteQuarantined(ctx, key)
		}
	}},
	{"its id stays taken", "quarantine-7", func(s *tampered) {
		s.insert = func(ctx context.Context, now time.Time, batch []storage.Insert, dst []storage.Inserted) ([]storage.Inserted, error) {
			for _, in := range batch {
				if s.any(func(q storage.Quarantined) bool { return q.Name == in.Record.ID }) {
					return dst, &ojs.DuplicateError{ID: in.Record.ID, State: ojs.StateAvailable}
				}
			}
			return s.Shelf.Insert(ctx, now, batch, dst)
		}
	}},
	{"it takes room in its queue", "quarantine-7", func(s *tampered) {
		s.insert = func(ctx context.Context, now time.Time, batch []storage.Insert, dst []storage.Inserted) ([]storage.Inserted, error) {
			batch = slices.Clone(batch)
			for i := range batch {
				if batch[i].MaxDepth > 0 && s.any(func(q storage.Quarantined) bool { return q.Queue == batch[i].Record.Queue }) {
					batch[i].MaxDepth--
				}
			}
			return s.Shelf.Insert(ctx, now, batch, dst)
		}
	}},
	{"nobody is told", "quarantine-8", func(s *tampered) {
		s.notify = func(any, func(storage.Notice)) func() { return func() {} }
	}},
	{"told twice", "quarantine-8", func(s *tampered) {
		s.notify = func(self any, f func(storage.Notice)) func() {
			return s.Shelf.Notify(self, func(n storage.Notice) { f(n); f(n) })
		}
	}},
	{"forgotten when it is opened again", "quarantine-9", func(s *tampered) {
		s.reopen = func() storage.Storage { return &tampered{Shelf: storagetest.NewShelf()} }
	}},
}

// Every fault of a quarantine is noticed by the case whose rule it breaks, and every case notices a fault.
func TestQuarantineFaultsAreCaught(t *testing.T) {
	storagetest.SetPatience(50 * time.Millisecond)
	config := func(fault func(*tampered)) storagetest.Config {
		of := func(s storage.Storage) *tampered { return s.(*tampered) }
		return storagetest.Config{
			Queues: true, Crons: true, Notices: true, Quarantine: true,
			Open: func(testing.TB) storage.Storage {
				s := &tampered{Shelf: storagetest.NewShelf()}
				fault(s)
				return s
			},
			Reopen: func(_ testing.TB, s storage.Storage) storage.Storage {
				if of(s).reopen != nil {
					return of(s).reopen()
				}
				return s
			},
			Plant: func(_ testing.TB, s storage.Storage, id string) { of(s).Plant(id) },
			Mend:  func(_ testing.TB, s storage.Storage, id string) { of(s).Mend(id) },
		}
	}
	sound := config(func(*tampered) {})
	unnoticed := make(map[string]bool)
	for _, c := range storagetest.Cases() {
		if strings.HasPrefix(c.ID, "quarantine-") {
			unnoticed[c.ID] = true
			if failures := storagetest.Prove(sound, c); len(failures) > 0 {
				t.Errorf("%s fails a sound storage: %v", c.ID, failures)
			}
		}
	}
	for _, f := range quarantineFaults {
		var by []string
		for _, c := range storagetest.Cases() {
			if strings.HasPrefix(c.ID, "quarantine-") && len(storagetest.Prove(config(f.fault), c)) > 0 {
				by = append(by, c.ID)
				delete(unnoticed, c.ID)
			}
		}
		related := strings.Fields(f.caught)
		if !slices.Contains(by, related[0]) {
			t.Errorf("%s: not noticed by %s, but by %v", f.name, related[0], by)
		}
		for _, id := range by {
			if !slices.Contains(related, id) {
				t.Errorf("%s: noticed by %s, whose rule it does not break", f.name, id)
			}
		}
	}
	for id := range unnoticed {
		t.Errorf("%s notices no fault", id)
	}
}

// A wrapper lets the ability through.
func TestFaultyHasAQuarantine(t *testing.T) {
	s := storagetest.NewShelf()
	if q, ok := storage.As[storage.Quarantiner](&storagetest.Faulty{Storage: s}); !ok || q != storage.Quarantiner(s) {
		t.Errorf("%v, %v", q, ok)
	}
}
