package bbolt

import (
	"context"
	"fmt"
	"strconv"

	"github.com/ojsengine/ojs"
	"github.com/ojsengine/ojs/storage"
	"github.com/ojsengine/ojs/storage/codec"
	"github.com/ojsengine/ojs/storage/insert"
)

// entries has f called for each entry that a job has in the indexes, given the state that
// it is in.
func (t tx) entries(j *insert.Job, f func(bucket string, k key, value []byte)) {
	seq := key{}.number(j.Seq)
	f(idBucket, key{}.string(j.ID), seq)
	if j.Fingerprint != "" {
		f(equalBucket, key{}.string(j.Fingerprint).number(j.Seq), nil)
	}
	if j.State == ojs.StateAvailable {
		highestFirst := ^int64(j.Priority)
		f(readyBucket, key{}.string(j.Queue).number(highestFirst).number(j.Place), readyValue(j))
		f(oldestBucket, key{}.string(j.Queue).number(j.Place), seq)
	}
	if at := j.WakeAt(); !at.IsZero() {
		f(wakeBucket, key{}.time(at).number(j.Place), seq)
	}
	if j.DeadLettered() {
		f(deadBucket, key{}.number(j.Place), seq)
	}
	if until := j.KeptUntil(); j.State.Terminal() && !until.IsZero() {
		f(keptBucket, key{}.time(until).number(j.Seq), nil)
	}
	if t.prunable(j) {
		f(endedBucket, group(j.State, j.DeadLettered()).time(j.FinishedAt).number(j.Place), seq)
	}
}

// prunable reports whether a job has ended and its time to be kept is over, as of the
// latest Prune.
func (t tx) prunable(j *insert.Job) bool {
	return j.State.Terminal() && !j.KeptUntil().After(timeOf(t.get(metaBucket, key(prunedKey))))
}

// group is the beginning of the keys of the finished jobs that Prune takes in one order.
func group(state ojs.State, dead bool) key { return key{}.string(fmt.Sprint(state, dead)) }

func (t tx) link(j *insert.Job) {
	t.entries(j, t.put)
	t.tally(j, 1)
}

func (t tx) unlink(j *insert.Job) {
	t.entries(j, func(bucket string, k key, _ []byte) { t.delete(bucket, k) })
	t.tally(j, -1)
}

func (t tx) tally(j *insert.Job, by int) {
	t.add(countBucket, key{}.string(string(j.State)).string(j.Queue), by)
	if t.prunable(j) {
		t.add(sizeBucket, group(j.State, j.DeadLettered()), by)
	}
}

// find returns the job with an id, nil if there is none.
func (t tx) find(id string) *insert.Job {
	if seq := t.get(idBucket, key{}.string(id)); seq != nil {
		return t.load(number(seq))
	}
	return nil
}

// load returns a job. It shares no memory with the file.
func (t tx) load(seq int64) *insert.Job {
	value := t.get(jobsBucket, key{}.number(seq))
	return &insert.Job{Record: must(codec.DecodeRecord(value[8:])), Seq: seq, Place: number(value)}
}

// store writes a job that has no entries in the indexes, and adds them.
func (t tx) store(j *insert.Job) {
	t.put(jobsBucket, key{}.number(j.Seq),
		append(key{}.number(j.Place), must(codec.EncodeRecord(&j.Record))...))
	t.link(j)
}

// change changes a stored job. If it moves, it goes behind all others, wherever it is
// then.
func (t tx) change(j *insert.Job, moves bool, transition func(r *storage.Record)) {
	t.unlink(j)
	transition(&j.Record)
	if moves {
		j.Place = t.next()
	}
	t.store(j)
}

// remove deletes a job. The floor of the versions rises to its version, so that no claim
// token of it fits a later job.
func (t tx) remove(j *insert.Job) {
	t.unlink(j)
	t.delete(jobsBucket, key{}.number(j.Seq))
	t.put(metaBucket, key(floorKey), key{}.number(int64(max(t.floor(), j.Version))))
}

func (t tx) floor() uint64 { return uint64(number(t.get(metaBucket, key(floorKey)))) }

// Get implements storage.Storage.
func (s *Storage) Get(ctx context.Context, id string) (storage.Record, error) {
	return transact(ctx, s.db.View, func(t tx) storage.Record {
		j := t.find(id)
		if j == nil {
			refuse(fmt.Errorf("%w: job %q", ojs.ErrNotFound, id))
		}
		return j.Record
	})
}

// List implements storage.Storage. A cursor is the seq of the last job on the page, or
// the place of the last dead letter.
func (s *Storage) List(ctx context.Context, q storage.Query) (storage.Page, error) {
	return transact(ctx, s.db.View, func(t tx) (page storage.Page) {
		if q.Order != storage.OrderOldest {
			refuse(fmt.Errorf("%w: storage bbolt lists in the order of insertion only, not %q",
				ojs.ErrUnsupported, q.Order))
		}
		var after int64
		if q.Cursor != "" {
			var err error
			if after, err = strconv.ParseInt(q.Cursor, 10, 64); err != nil {
				refuse(&ojs.InvalidError{Code: ojs.InvalidCodeOption, Field: "cursor",
					Reason: fmt.Sprintf("%q is not the Next of a page of this storage", q.Cursor)})
			}
		}
		if q.Limit <= 0 || q.Limit > 1000 {
			q.Limit = 1000
		}
		bucket := jobsBucket
		if q.DeadLetters {
			bucket = deadBucket
		}
		for k, value := range t.scan(bucket, nil, key{}.number(after+1)) {
			seq := number(k)
			if q.DeadLetters {
				seq = number(value)
			}
			j := t.load(seq)
			page.Looked++
			if !q.Matches(&j.Record) {
				continue
			}
			if len(page.Records) == q.Limit {
				page.Next = strconv.FormatInt(after, 10)
				break
			}
			page.Records = append(page.Records, j.Record)
			after = number(k)
		}
		return page
	})
}

// Counts implements storage.Storage.
func (s *Storage) Counts(ctx context.Context) ([]storage.Count, error) {
	return transact(ctx, s.db.View, func(t tx) (counts []storage.Count) {
		for k, n := range t.scan(countBucket, nil, nil) {
			state, rest := cut(k)
			queue, _ := cut(rest)
			counts = append(counts, storage.Count{Queue: queue, State: ojs.State(state), N: int(number(n))})
		}
		return counts
	})
}
