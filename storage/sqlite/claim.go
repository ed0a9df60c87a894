package sqlite

import (
	"context"
	"math"
	"slices"
	"time"

	"github.com/ojsengine/ojs"
	"github.com/ojsengine/ojs/internal/rows"
	"github.com/ojsengine/ojs/storage"
)

// Claim implements storage.Storage.
func (s *Storage) Claim(ctx context.Context, now time.Time, c storage.Claim, dst []storage.Record) ([]storage.Record, error) {
	var claimed []stored
	err := s.write(ctx, func(t *tx) (err error) {
		claimed, err = t.claim(rows.Nanos(now), &c)
		return err
	})
	if err != nil {
		return dst, err
	}
	return decodeAll(claimed, dst)
}

func (t *tx) claim(now int64, c *storage.Claim) ([]stored, error) {
	states, err := t.queueStates()
	if err != nil {
		return nil, err
	}
	k := claimer{t: t, c: c, now: now}
	if len(c.Queues) > 0 {
		for _, q := range c.Queues {
			if states[q] == string(ojs.QueuePaused) {
				continue
			}
			if err := k.from([]string{q}); err != nil {
				return nil, err
			}
		}
		return k.claimed, nil
	}
	var all []string
	q := t.query(readyQueues)
	for q.next() {
		all = append(all, q.text())
	}
	if err := q.close(); err != nil {
		return nil, err
	}
	for kind, n := range t.moved { // what this transaction has not written yet
		if n > 0 && kind.state == rows.Available {
			all = append(all, kind.queue)
		}
	}
	slices.Sort(all)
	all = slices.DeleteFunc(slices.Compact(all), func(q string) bool { return states[q] == string(ojs.QueuePaused) })
	return k.claimed, k.from(all)
}

// claimer takes the jobs of one claim.
type claimer struct {
	t       *tx
	c       *storage.Claim
	now     int64
	keys    []string // of rate limits that this claim has taken a job of
	claimed []stored
}

// candidate is a job that may be claimed, and where it stands.
type candidate struct {
	seq, place int64
	priority   int
	key        string
}

// from claims jobs of several queues as if they were one.
func (k *claimer) from(queues []string) error {
	var found []candidate
	left := k.c.Max - len(k.claimed)
	for _, queue := range queues {
		if left <= 0 {
			return nil
		}
		some, err := k.ready(queue, left)
		if err != nil {
			return err
		}
		found = append(found, some...)
	}
	if len(queues) > 1 {
		slices.SortFunc(found, func(a, b candidate) int {
			if a.priority != b.priority {
				return b.priority - a.priority
			}
			return int(a.place - b.place)
		})
	}
	for _, f := range found {
		if len(k.claimed) == k.c.Max {
			break
		}
		if f.key != "" {
			if slices.Contains(k.keys, f.key) {
				continue
			}
			k.keys = append(k.keys, f.key)
		}
		if err := k.take(f.seq); err != nil {
			return err
		}
	}
	return nil
}

// ready returns the first n jobs of a queue that may be claimed.
func (k *claimer) ready(queue string, n int) ([]candidate, error) {
	var found []candidate
	var keys []string
	q := k.t.query(selectReady, queue)
	for len(found) < n && q.next() {
		f := candidate{seq: q.int64(), priority: q.int(), place: q.int64()}
		jobType := q.text()
		f.key = q.text()
		wake := q.time()
		if wake != rows.None && wake <= k.now || len(k.c.Types) > 0 && !slices.Contains(k.c.Types, jobType) {
			continue
		}
		if f.key != "" {
			if k.c.SkipKeys.Has(f.key) || slices.Contains(k.keys, f.key) || slices.Contains(keys, f.key) {
				continue
			}
			keys = append(keys, f.key)
		}
		found = append(found, f)
	}
	return found, q.close()
}

func (k *claimer) take(seq int64) error {
	list, err := k.t.query(selectBySeq, seq).all() // RETURNING would make a table of its own for it
	if err != nil || len(list) == 0 {
		return err
	}
	r := &list[0]
	before := r.kind()
	r.place = k.t.nextPlace()
	r.State, r.Worker, r.Progress = rows.Active, k.c.Worker, 0
	r.Attempt++
	r.Version++
	r.Started = k.now
	r.LeaseUntil = k.now + min(r.Lease, math.MaxInt64-max(k.now, 0)) // at the latest the last time that a column holds
	r.Wake = r.LeaseUntil
	k.claimed = append(k.claimed, *r)
	k.t.written = true
	err = k.t.exec(claimJob, r.seq, r.place, r.Started, r.Worker, r.LeaseUntil)
	k.t.move(before, r.kind())
	k.t.note(&r.Columns)
	return err
}
