package keyed

import (
	"cmp"
	"context"
	"time"

	"github.com/ojsengine/ojs"
	"github.com/ojsengine/ojs/internal/fail"
	"github.com/ojsengine/ojs/storage"
	"github.com/ojsengine/ojs/storage/depend"
	"github.com/ojsengine/ojs/storage/insert"
)

// Settle implements storage.Storage.
func (s *Storage) Settle(ctx context.Context, now time.Time, changes []storage.Change,
	dst []storage.Settled) ([]storage.Settled, error) {
	if err := storage.CheckThen(changes); err != nil {
		return dst, err
	}
	settled, err := change(ctx, s, func(t *tx) []storage.Settled { return t.settleAll(now, changes) })
	return append(dst, settled...), err
}

func (t *tx) settleAll(now time.Time, changes []storage.Change) []storage.Settled {
	t.at(now)
	ids := make([]string, len(changes))
	for i := range changes {
		ids[i] = changes[i].Record.ID
	}
	t.fetch(ids)
	t.fetchLimits(len(ids), func(i int) string {
		var j job
		if seq := t.get(idKey(ids[i])); seq != nil {
			_, _ = j.decodeHead(t.get(jobKey(seq)))
		}
		return j.limit
	})
	settled := make([]storage.Settled, 0, len(changes))
	for i := range changes {
		r := t.settle(now, &changes[i])
		if log := changes[i].Log; log != nil && r.Err == nil {
			t.addLog(changes[i].Record.ID, r.Version, log)
		}
		settled = append(settled, r)
	}
	return settled
}

// SettleAndClaim implements storage.SettleClaimer.
func (s *Storage) SettleAndClaim(ctx context.Context, now time.Time, to []*storage.Record,
	dst []storage.Settled, c storage.Claim, into []*storage.Record) ([]storage.Settled, int, error) {
	c.Max = len(into)
	changes := make([]storage.Change, len(to))
	for i := range to {
		changes[i] = storage.Change{Record: *to[i], AttemptFieldsOnly: true}
	}
	var settled []storage.Settled
	k, err := change(ctx, s, func(t *tx) *claimer {
		settled = t.settleAll(now, changes)
		t.keepLimits() // what has ended lets others start
		return t.claim(now, &c, true)
	})
	if err != nil {
		return dst, 0, err
	}
	k.report()
	for i := range k.claimed {
		*into[i] = k.claimed[i]
	}
	return append(dst, settled...), len(k.claimed), nil
}

// Unclaim implements storage.SettleClaimer.
func (s *Storage) Unclaim(ctx context.Context, now time.Time, held []storage.Held) (int, error) {
	return change(ctx, s, func(t *tx) (n int) {
		t.at(now)
		for _, h := range held {
			j := t.find(h.ID)
			if j == nil || j.State != ojs.StateActive || j.Version != h.Version {
				continue
			}
			t.takeBack(j)
			t.attempt(j, false, func(r *storage.Record) {
				if r.Unclaim(); j.back.place == 0 {
					j.back.place = t.next(placeName)
				}
				if j.Place = j.back.place; j.Fairness.Key != "" {
					j.round = cmp.Or(j.back.round, j.Place)
					t.join(j)
				}
			})
			n++
		}
		return n
	})
}

func (t *tx) settle(now time.Time, c *storage.Change) storage.Settled {
	to := &c.Record
	j := t.findFor(c)
	if j == nil {
		return storage.Settled{Err: ojs.ErrNotFound}
	}
	if err := j.CanSettle(to); err != nil {
		return storage.Settled{Version: j.Version, Err: err}
	}
	stays := j.State == ojs.StateAvailable && to.State == ojs.StateAvailable
	keepsPlace := stays && j.Queue == to.Queue && j.Priority == to.Priority &&
		j.Fairness.Key == to.Fairness.Key
	make := func() error {
		if to.State == ojs.StateCancelled {
			t.noticeTaken(j, ojs.ErrCancelled)
		}
		t.attempt(j, !keepsPlace, func(*storage.Record) {
			if j.become(to); !c.AttemptFieldsOnly {
				j.body = nil
			}
		})
		return nil
	}
	if len(c.Then) == 0 {
		fail.If(make())
		return storage.Settled{Version: j.Version, Moved: depend.Count(t, now, nil)}
	}
	ended := *to
	ended.Version++
	then, err := insert.Then(t, now, &ended, make, c.Then)
	if insert.Refused(err) { // before anything was written
		return storage.Settled{Version: j.Version, Err: err}
	}
	fail.If(err)
	last := &then[len(then)-1]
	settled := storage.Settled{Version: j.Version, Then: then, Moved: last.Moved}
	last.Moved = nil
	return settled
}

// Extend implements storage.Storage.
func (s *Storage) Extend(ctx context.Context, now time.Time,
	extensions []storage.Extension) ([]string, error) {
	return change(ctx, s, func(t *tx) (lost []string) {
		for _, x := range extensions {
			if j := t.find(x.ID); j != nil && j.State == ojs.StateActive && j.Version == x.Version {
				t.attempt(j, true, func(r *storage.Record) { r.Extend(now, x) })
			} else {
				lost = append(lost, x.ID)
			}
		}
		return lost
	})
}

// ClaimedBy implements storage.Storage.
func (s *Storage) ClaimedBy(ctx context.Context, worker string) ([]storage.Record, error) {
	return view(ctx, s, func(t *tx) (list []storage.Record) {
		for _, v := range t.claims() {
			if string(v[numberLen:]) == worker {
				list = append(list, t.load(v[:numberLen]).Record)
			}
		}
		return list
	})
}

// Due implements storage.Storage.
func (s *Storage) Due(ctx context.Context, now time.Time, max int,
	buf []storage.Record) (storage.Due, error) {
	return change(ctx, s, func(t *tx) storage.Due {
		t.at(now)
		d := storage.Due{Promoted: buf[:0]}
		for n := 0; t.dueFrom(now, max, &n, &d); {
		}
		return d
	})
}

// dueFrom does what is due, in order. It reports false if that is all: after the end of a
// job that others wait for, more may be due before what comes next.
func (t *tx) dueFrom(now time.Time, max int, n *int, d *storage.Due) (again bool) {
	for k, seq := range t.merged([]key{wakeKey(waits), wakeKey(leased)}, forward) {
		if d.Next = timeOf(k); *n == max || d.Next.After(now) {
			return false
		}
		*n++
		switch j := t.load(seq[:numberLen]); {
		case j.Expired(now):
			t.attempt(j, true, func(r *storage.Record) { r.Expire(now) })
			d.Expired = append(d.Expired, j.Record)
			if len(t.ends) > 0 {
				d.Moved = depend.Count(t, now, d.Moved)
				return true
			}
		case j.State == ojs.StateActive:
			t.noticeTaken(j, ojs.ErrLeaseLost)
			if j.LeaseUntil.After(now) { // it is buried
				d.Ended = append(d.Ended, j.ID)
			}
			j.handle = t.s.handle.Load()
			t.attempt(j, true, func(r *storage.Record) { r.TakeOver(now) })
			d.Stalled = append(d.Stalled, j.Record)
		default:
			t.attempt(j, true, func(r *storage.Record) { r.Promote(now) })
			d.Promoted = append(d.Promoted, j.Record)
		}
	}
	d.Next = time.Time{}
	return false
}
