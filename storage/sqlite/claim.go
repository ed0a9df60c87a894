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
func (s *Storage) Claim(ctx context.Context, now time.Time, c storage.Claim,
	dst []storage.Record) ([]storage.Record, error) {
	var claimed []storage.Record
	err := s.write(ctx, func(t *tx) (err error) {
		claimed, err = t.claim(rows.Nanos(now), &c, false)
		return err
	})
	if err != nil {
		return dst, err
	}
	return append(dst, claimed...), nil
}

// claim claims jobs. If plain is set, the first job that has a rate limit or an enqueue
// TTL ends the claim.
func (t *tx) claim(now int64, c *storage.Claim, plain bool) ([]storage.Record, error) {
	states, err := t.queueStates()
	if err != nil {
		return nil, err
	}
	k := claimer{t: t, c: c, now: now, plain: plain}
	if len(c.Queues) == 0 {
		for q, state := range states {
			if state == string(ojs.QueuePaused) {
				k.paused = append(k.paused, q)
			}
		}
		slices.Sort(k.paused)
		err := k.from("")
		return k.claimed, err
	}
	for _, q := range c.Queues {
		if states[q] == string(ojs.QueuePaused) {
			continue
		}
		if k.over {
			break
		}
		if err := k.from(q); err != nil {
			return nil, err
		}
	}
	return k.claimed, nil
}

// claimer takes the jobs of one claim. It looks at those of one queue after the other, or
// of all together.
type claimer struct {
	t       *tx
	c       *storage.Claim
	now     int64
	queue   string          // ""; all but
	paused  []string        // these
	keys    map[string]bool // of rate limits that this claim has taken a job of
	claimed []storage.Record
	plain   bool // see claim
	over    bool // by a job that a plain claim does not take
}

// from claims jobs of a queue, or of all as if they were one.
func (k *claimer) from(queue string) error {
	k.queue = queue
	for {
		left := k.c.Max - len(k.claimed)
		if left <= 0 {
			return nil
		}
		lane := k.t.lanes.Of(k.c.SkipKeys, queue, k.c.Types)
		picked, err := lane.Pick(k, rows.Wanted{Now: k.now, Types: k.c.Types, Paused: k.paused,
			Taken: k.keys, Max: left})
		if err != nil {
			return err
		}
		gone := make(map[int64]bool, len(picked))
		aside := false
		for i := range picked {
			k.over = k.plain && picked[i].Key != ""
			if k.over {
				break
			}
			taken, err := k.take(picked[i].Seq)
			if err != nil {
				return err
			}
			if k.over {
				break
			}
			gone[picked[i].Seq] = true
			if key := picked[i].Key; taken && key != "" {
				if k.keys == nil {
					k.keys = make(map[string]bool)
				}
				k.keys[key] = true
			}
			aside = aside || !taken
		}
		lane.Took(func(seq int64) bool { return gone[seq] })
		if !aside || k.over { // or other jobs come in the places of the undecodable ones
			return nil
		}
	}
}

// Behind implements rows.Looker.
func (k *claimer) Behind(passed map[int]int64, n int) (found []rows.Waiting, err error) {
	if len(passed) == 0 {
		return k.look(nil, n, k.query(selectReadyAll, selectReady))
	}
	for below := int64(math.MaxInt64); len(found) < n; {
		q := k.query(levelAll, levelIn, below)
		some := q.next()
		if some {
			below = q.int64()
		}
		if err := q.close(); err != nil || !some {
			return found, err
		}
		after, ok := passed[int(below)]
		if !ok {
			after = math.MinInt64
		}
		if found, err = k.look(found, n, k.query(behindAll, behindIn, below, after)); err != nil {
			return nil, err
		}
	}
	return found, nil
}

// query begins a statement about the jobs of all queues, or about those of the queue,
// which is its last argument.
func (k *claimer) query(all, in string, args ...any) *statement {
	if k.queue == "" {
		return k.t.query(all, args...)
	}
	return k.t.query(in, append(args, k.queue)...)
}

// look reads jobs until there are n.
func (k *claimer) look(found []rows.Waiting, n int, q *statement) ([]rows.Waiting, error) {
	for len(found) < n && q.next() {
		found = append(found, q.waiting())
	}
	return found, q.close()
}

// First implements rows.Looker.
func (k *claimer) First(keys []string) (found []rows.Waiting, err error) {
	for _, key := range keys {
		q := k.t.query(selectKey, key, k.now, k.queue)
		for q.next() {
			j := q.waiting()
			_, paused := slices.BinarySearch(k.paused, j.Queue)
			if !paused && rows.Takes(k.c.Types, j.Type) {
				found = append(found, j)
				break
			}
		}
		if err := q.close(); err != nil {
			return nil, err
		}
	}
	return found, nil
}

func (s *statement) waiting() (j rows.Waiting) {
	j.Seq, j.Priority, j.Place = s.int64(), s.int(), s.int64()
	j.Queue, j.Type, j.Key, j.Wake = s.text(), s.text(), s.text(), s.time()
	return j
}

// take claims a job. It reports false if it has set it aside instead.
func (k *claimer) take(seq int64) (taken bool, err error) {
	list, err := k.t.query(selectBySeq, seq).all() // RETURNING would make a table of its own for it
	if err != nil || len(list) == 0 {
		return true, err
	}
	r := &list[0]
	row, err := k.t.decode(r)
	if err != nil {
		return false, k.t.setAside(r, err)
	}
	if k.over = k.plain && row.EnqueueTTL > 0; k.over {
		return false, nil
	}
	before := r.kind()
	r.place = k.t.nextPlace()
	r.State = rows.Active
	// at the latest the last time that a column holds
	r.LeaseUntil = k.now + min(r.Lease, math.MaxInt64-max(k.now, 0))
	r.Wake = r.LeaseUntil
	rec := row.Record
	rec.Claim(rows.Time(k.now), k.c.Worker)
	rec.LeaseUntil = rows.Time(r.LeaseUntil)
	k.t.coversVersion(int64(rec.Version))
	k.claimed = append(k.claimed, rec)
	k.t.written = true
	holder := k.t.holder
	if k.c.Remote {
		holder = 0
	}
	err = k.t.exec(claimJob, r.seq, r.place, k.now, rec.Worker, r.LeaseUntil, holder)
	k.t.move(before, r.kind())
	k.t.note(&r.Columns)
	return true, err
}
