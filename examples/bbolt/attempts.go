package bbolt

import (
	"bytes"
	"context"
	"iter"
	"slices"
	"time"

	"github.com/ojsengine/ojs"
	"github.com/ojsengine/ojs/storage"
	"github.com/ojsengine/ojs/storage/insert"
)

// readyValue is what the bucket ready has of a job, so that a claim need not decode the
// jobs that it skips.
func readyValue(j *insert.Job) []byte {
	limit := "" // no rate limit
	if j.RateLimit != nil {
		limit = "=" + j.RateLimit.Key
	}
	return key{}.number(j.Seq).time(j.Deadline()).string(limit).string(j.Type)
}

// Claim implements storage.Storage. It walks past the available jobs that it may not
// take. Each costs a step of a cursor, also those with keys to skip: storage/sqlite shows
// how to remember up to where a claim has skipped.
func (s *Storage) Claim(ctx context.Context, now time.Time, c storage.Claim,
	dst []storage.Record) ([]storage.Record, error) {
	claimed, err := transact(ctx, s.db.Update, func(t tx) (claimed []storage.Record) {
		var seqs []int64
		taken := storage.Keys() // rate limits of the jobs in seqs
		if len(c.Queues) == 0 {
			seqs = t.pick(now, &c, t.queuesWithJobs(), taken, nil)
		}
		for i, q := range c.Queues {
			if !slices.Contains(c.Queues[:i], q) {
				seqs = t.pick(now, &c, []string{q}, taken, seqs)
			}
		}
		for _, seq := range seqs {
			j := t.load(seq)
			t.change(j, true, func(r *storage.Record) { r.Claim(now, c.Worker, c.Lease) })
			claimed = append(claimed, j.Record)
		}
		return claimed
	})
	return append(dst, claimed...), err
}

// pick adds to seqs the jobs to claim from queues, among which the priority decides. It
// changes nothing, since a cursor is lost when its bucket changes.
func (t tx) pick(now time.Time, c *storage.Claim, queues []string, taken *storage.KeySet,
	seqs []int64) []int64 {
	type lane struct { // a place among the available jobs of a queue, in the order in which claims take them
		next        func() (rank, value []byte, ok bool)
		rank, value []byte // of the job at this place: the rank, which claims compare, and its readyValue
		ok          bool   // there is a job
	}
	var lanes []*lane
	for _, q := range queues {
		if t.queueState(q) != ojs.QueuePaused {
			next, stop := iter.Pull2(t.scan(readyBucket, key{}.string(q), nil))
			defer stop()
			l := &lane{next: next}
			l.rank, l.value, l.ok = next()
			lanes = append(lanes, l)
		}
	}
	for len(seqs) < c.Max {
		var best *lane
		for _, l := range lanes {
			if l.ok && (best == nil || bytes.Compare(l.rank, best.rank) < 0) {
				best = l
			}
		}
		if best == nil {
			break
		}
		value := best.value
		best.rank, best.value, best.ok = best.next()
		deadline := timeOf(value[8:])
		limit, rest := cut(value[8+timeLen:])
		jobType, _ := cut(rest)
		if len(c.Types) > 0 && !slices.Contains(c.Types, jobType) || !deadline.IsZero() &&
			!now.Before(deadline) {
			continue
		}
		if limit != "" {
			if c.SkipKeys.Has(limit[1:]) || taken.Has(limit[1:]) {
				continue
			}
			taken.Add(limit[1:])
		}
		seqs = append(seqs, number(value))
	}
	return seqs
}

func (t tx) queuesWithJobs() (names []string) {
	for rest := range t.scan(countBucket, key{}.string(string(ojs.StateAvailable)), nil) {
		name, _ := cut(rest)
		names = append(names, name)
	}
	return names
}

// Settle implements storage.Storage.
func (s *Storage) Settle(ctx context.Context, now time.Time, changes []storage.Change,
	dst []storage.Settled) ([]storage.Settled, error) {
	if err := storage.CheckThen(changes); err != nil {
		return dst, err
	}
	settled, err := transact(ctx, s.db.Update, func(t tx) (settled []storage.Settled) {
		for i := range changes {
			settled = append(settled, t.settle(now, &changes[i]))
		}
		return settled
	})
	return append(dst, settled...), err
}

func (t tx) settle(now time.Time, c *storage.Change) storage.Settled {
	to := &c.Record
	j := t.find(to.ID)
	if j == nil {
		return storage.Settled{Err: ojs.ErrNotFound}
	}
	if err := j.CanSettle(to); err != nil {
		return storage.Settled{Version: j.Version, Err: err}
	}
	stays := j.State == ojs.StateAvailable && to.State == ojs.StateAvailable
	keepsPlace := stays && j.Queue == to.Queue && j.Priority == to.Priority
	change := func() error {
		t.change(j, !keepsPlace, func(r *storage.Record) { *r = *to; r.Version++ })
		return nil
	}
	if len(c.Then) == 0 {
		_ = change()
		return storage.Settled{Version: j.Version}
	}
	ended := *to
	ended.Version++
	then, err := insert.Then(t, now, &ended, change, c.Then)
	if insert.Refused(err) { // before anything was written
		return storage.Settled{Version: j.Version, Err: err}
	}
	check(err)
	return storage.Settled{Version: j.Version, Then: then}
}

// ClaimedBy implements storage.Storage.
func (s *Storage) ClaimedBy(ctx context.Context, worker string) ([]storage.Record, error) {
	return transact(ctx, s.db.View, func(t tx) (list []storage.Record) {
		for _, seq := range t.scan(wakeBucket, nil, nil) {
			if j := t.load(number(seq)); j.State == ojs.StateActive && j.Worker == worker {
				list = append(list, j.Record)
			}
		}
		return list
	})
}

// Extend implements storage.Storage.
func (s *Storage) Extend(ctx context.Context, now time.Time,
	extensions []storage.Extension) ([]string, error) {
	return transact(ctx, s.db.Update, func(t tx) (lost []string) {
		for _, x := range extensions {
			if j := t.find(x.ID); j != nil && j.State == ojs.StateActive && j.Version == x.Version {
				t.change(j, true, func(r *storage.Record) { r.Extend(now, x) })
			} else {
				lost = append(lost, x.ID)
			}
		}
		return lost
	})
}

// Due implements storage.Storage.
func (s *Storage) Due(ctx context.Context, now time.Time, max int,
	buf []storage.Record) (storage.Due, error) {
	return transact(ctx, s.db.Update, func(t tx) storage.Due {
		d := storage.Due{Promoted: buf[:0]}
		for range max {
			at, seq := t.first(wakeBucket, nil)
			if at == nil || timeOf(at).After(now) {
				break
			}
			switch j := t.load(number(seq)); {
			case j.Expired(now):
				t.change(j, true, func(r *storage.Record) { r.Expire(now) })
				d.Expired = append(d.Expired, j.Record)
			case j.State == ojs.StateActive:
				t.change(j, true, func(r *storage.Record) { r.TakeOver(now) })
				d.Stalled = append(d.Stalled, j.Record)
			default:
				t.change(j, true, func(r *storage.Record) { r.Promote(now) })
				d.Promoted = append(d.Promoted, j.Record)
			}
		}
		at, _ := t.first(wakeBucket, nil)
		d.Next = timeOf(at)
		return d
	})
}
