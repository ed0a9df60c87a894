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

// claim claims jobs. If plain is set, the first job that has an enqueue TTL ends the
// claim.
func (t *tx) claim(now int64, c *storage.Claim, plain bool) ([]storage.Record, error) {
	states, err := t.queueStates()
	if err != nil {
		return nil, err
	}
	if err := t.widely(); err != nil {
		return nil, err
	}
	k := claimer{t: t, c: c, now: now, plain: plain, limited: limited{opens: rows.None}}
	c.ResetLimits()
	if err := t.follow(now); err != nil {
		return nil, err
	}
	defer k.tell()
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
	queue   string   // ""; all but
	paused  []string // these
	claimed []storage.Record
	plain   bool // see claim
	over    bool // by a job that the claim does not take
	limited
}

// from claims jobs of a queue, or of all as if they were one.
func (k *claimer) from(queue string) error {
	k.queue = queue
	for {
		left := k.c.Max - len(k.claimed)
		if left <= 0 || k.leaves(&rows.Waiting{Queue: queue}) {
			return nil
		}
		lane := k.t.lanes.Of(k.t.limits.closed, queue, k.c.Types, k.leftNames())
		picked, err := lane.Pick(k, rows.Wanted{
			Now: k.now, Types: k.c.Types, Paused: k.paused, Max: left, Leave: k.leaves,
		})
		if err != nil {
			return err
		}
		gone := make(map[int64]bool, len(picked))
		more := false // another look finds jobs in the places of jobs that were not taken
		for i := range picked {
			j := &picked[i]
			verdict, taken, err := k.take(j.Seq)
			if err != nil {
				return err
			}
			if k.over {
				break
			}
			if verdict == isHeld {
				more = true
				break
			}
			gone[j.Seq] = true
			more = more || !taken
		}
		lane.Took(func(seq int64) bool { return gone[seq] })
		if !more || k.over {
			return nil
		}
	}
}

// Behind implements rows.Looker.
func (k *claimer) Behind(passed map[int]rows.Spot, n int) (found []rows.Waiting, err error) {
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
			after.Place = math.MinInt64
		}
		q = k.query(behindAll, behindIn, below, after.Place, after.Own)
		if found, err = k.look(found, n, q); err != nil {
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
		found = append(found, k.waiting(q))
	}
	return found, q.close()
}

// First implements rows.Looker.
func (k *claimer) First(bounds []string) (found []rows.Waiting, err error) {
	for _, name := range bounds {
		most := k.c.Max - len(k.claimed)
		q := k.t.query(selectBounds, name, k.now, k.queue)
		for most > 0 && q.next() {
			j := k.waiting(q)
			_, paused := slices.BinarySearch(k.paused, j.Queue)
			if !paused && rows.Takes(k.c.Types, j.Type) && !k.leaves(&j) {
				found = append(found, j)
				most--
			}
		}
		if err := q.close(); err != nil {
			return nil, err
		}
	}
	return found, nil
}

func (k *claimer) waiting(s *statement) (j rows.Waiting) {
	j.Seq, j.Priority, j.Place, j.Own = s.int64(), s.int(), s.int64(), s.int64()
	j.Queue, j.Type, j.Key, j.Wake = s.text(), s.text(), s.text(), s.time()
	if j.Key != "" {
		j.Limit = s.text()
	}
	return j
}

// take claims a job, unless limits keep it. It reports false if the job is not available
// any more and not claimed.
func (k *claimer) take(seq int64) (v verdict, taken bool, err error) {
	list, err := k.t.query(selectBySeq, seq).all() // RETURNING would make a table of its own for it
	if err != nil || len(list) == 0 {
		return mayStart, true, err
	}
	r := &list[0]
	row, err := k.t.decode(r)
	if err != nil {
		return mayStart, false, k.t.setAside(r, err)
	}
	v, err = k.judge(r, row, k.plain && row.EnqueueTTL > 0)
	if k.over = v == endsIt; err != nil || v != mayStart {
		return v, false, err
	}
	if err := k.t.serve(r); err != nil {
		return mayStart, true, err
	}
	before := r.kind()
	r.place = k.t.nextPlace()
	r.State = rows.Active
	// at the latest the last time that a column holds
	r.LeaseUntil = k.now + min(int64(row.LeaseFor(k.c.Lease)), math.MaxInt64-max(k.now, 0))
	r.Wake = r.LeaseUntil
	rec := row.Record
	rec.Claim(rows.Time(k.now), k.c.Worker, 0)
	rec.LeaseUntil = rows.Time(r.LeaseUntil)
	k.t.coversVersion(int64(rec.Version))
	k.claimed = append(k.claimed, rec)
	k.t.written = true
	holder := k.t.holder
	if k.c.Remote {
		holder = 0
	}
	// Before the job is active, since its counters may be read for the first time.
	if err := k.starts(r, row); err != nil {
		return mayStart, true, err
	}
	err = k.t.exec(claimJob, r.seq, r.place, k.now, rec.Worker, r.LeaseUntil, holder)
	k.t.move(before, r.kind())
	k.t.note(&r.Columns)
	return mayStart, true, err
}
