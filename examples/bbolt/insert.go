package bbolt

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/ojsengine/ojs"
	"github.com/ojsengine/ojs/storage"
)

// Insert implements storage.Storage. It changes things before it knows whether the whole batch can be stored: if it cannot,
// refuse undoes them.
func (s *Storage) Insert(ctx context.Context, now time.Time, batch []storage.Insert, dst []storage.Inserted) ([]storage.Inserted, error) {
	results, err := transact(ctx, s.db.Update, func(t tx) []storage.Inserted {
		t.checkIDs(batch)
		before := t.next() // all jobs of the batch have higher places
		results := make([]storage.Inserted, len(batch))
		jobs := make([]*job, len(batch)) // nil: not stored
		for i := range batch {
			if t.resolve(now, &batch[i], &results[i]); results[i].Existing != nil {
				continue
			}
			seq := t.next()
			jobs[i] = &job{Record: batch[i].Record, seq: seq, place: seq}
			jobs[i].Version = t.floor() + 1
			t.store(jobs[i])
			results[i].Version = jobs[i].Version
		}
		for i := range batch {
			if q := batch[i].Record.Queue; t.queueState(q) == ojs.QueueDraining {
				refuse(&ojs.QueueError{Queue: q, Err: ojs.ErrQueueDraining})
			}
		}
		t.makeRoom(now, before, batch, jobs, results)
		for i := range batch {
			if batch[i].MaxDepth > 0 {
				results[i].Depth = t.depth(batch[i].Record.Queue)
			}
		}
		return results
	})
	return append(dst, results...), err
}

func (t tx) checkIDs(batch []storage.Insert) {
	ids := make(map[string]bool, len(batch))
	for i := range batch {
		r := &batch[i].Record
		if r.State != ojs.StateAvailable && r.State != ojs.StateScheduled && r.State != ojs.StatePending {
			refuse(&ojs.InvalidError{Code: ojs.CodeEnvelopeInvalid, Field: "state", Reason: fmt.Sprintf("%q is no state to begin in", r.State)})
		}
		if j := t.find(r.ID); j != nil {
			refuse(&ojs.DuplicateError{ID: r.ID, State: j.State})
		}
		if ids[r.ID] {
			refuse(&ojs.DuplicateError{ID: r.ID, State: r.State})
		}
		ids[r.ID] = true
	}
}

// resolve resolves the conflicts of a unique job with equal jobs, those before it in the batch included. If it sets
// result.Existing, the job is not to be stored.
func (t tx) resolve(now time.Time, in *storage.Insert, result *storage.Inserted) {
	r := &in.Record
	if r.Fingerprint == "" || r.Unique == nil {
		return
	}
	var equal []*job // those in the way, the newest last
	for seq := range t.scan(equalBucket, key{}.string(r.Fingerprint), nil) {
		if j := t.load(number(seq)); r.Unique.Counts(j.State, j.CreatedAt, now) {
			equal = append(equal, j)
		}
	}
	if len(equal) == 0 {
		return
	}
	// Jobs that were created at the same time stay in the order of the scan, which is that of insertion.
	slices.SortStableFunc(equal, func(a, b *job) int { return a.CreatedAt.Compare(b.CreatedAt) })
	newest := equal[len(equal)-1]
	var heir *job // the scheduled job that takes over
	switch r.Unique.Strategy() {
	case ojs.ConflictReject:
		refuse(&ojs.DuplicateError{ID: newest.ID, State: newest.State, Fingerprint: r.Fingerprint})
	case ojs.ConflictIgnore:
		result.Existing = &newest.Record
		return
	case ojs.ConflictReplaceExceptSchedule:
		for _, j := range equal {
			if j.State == ojs.StateScheduled {
				heir = j
			}
		}
	}
	for _, j := range slices.Backward(equal) {
		if in.KeepActive && j.State == ojs.StateActive {
			refuse(&ojs.DuplicateError{ID: j.ID, State: j.State, Fingerprint: r.Fingerprint})
		}
	}
	for _, j := range equal {
		if j != heir && !j.State.Terminal() {
			t.change(j, true, func(r *storage.Record) { r.Cancel(now) })
			result.Replaced = append(result.Replaced, j.Record)
		}
	}
	if heir != nil {
		given := r.Copy() // the result shares no memory with the batch
		t.change(heir, false, func(r *storage.Record) { r.Update(&given) })
		result.Existing, result.Updated = &heir.Record, true
	}
}

// makeRoom enforces MaxDepth after the batch was stored. A job has no room if its queue is too deep, not counting the jobs
// behind it in the batch. The jobs that a queue drops are in the result of its last job without room.
func (t tx) makeRoom(now time.Time, before uint64, batch []storage.Insert, jobs []*job, results []storage.Inserted) {
	if !slices.ContainsFunc(batch, func(in storage.Insert) bool { return in.MaxDepth > 0 }) {
		return
	}
	// A job of the batch does not wait if a later one has replaced it.
	waits := func(j *job) bool { return j != nil && !t.load(j.seq).State.Terminal() }
	later := make(map[string]int) // by queue: waiting jobs of the batch that the loop below has not passed
	for _, j := range jobs {
		if waits(j) {
			later[j.Queue]++
		}
	}
	excess, last := make(map[string]int), make(map[string]int) // by queue: jobs to drop, and the job to drop them for
	for i, j := range jobs {
		if !waits(j) {
			continue
		}
		later[j.Queue]--
		over := t.depth(j.Queue) - later[j.Queue] - batch[i].MaxDepth
		if batch[i].MaxDepth == 0 || over <= 0 {
			continue
		}
		if !batch[i].DropOldest {
			refuse(&ojs.QueueError{Queue: j.Queue, MaxDepth: batch[i].MaxDepth, Err: ojs.ErrQueueFull})
		}
		excess[j.Queue], last[j.Queue] = max(excess[j.Queue], over), i
	}
	for i := range batch {
		q := batch[i].Record.Queue
		if excess[q] == 0 || last[q] != i {
			continue
		}
		oldest := t.oldest(now, before, q, excess[q])
		if len(oldest) < excess[q] {
			refuse(&ojs.QueueError{Queue: q, MaxDepth: batch[i].MaxDepth, Err: ojs.ErrQueueFull})
		}
		for _, j := range oldest {
			t.change(j, true, func(r *storage.Record) { r.Drop(now) })
			results[i].Dropped = append(results[i].Dropped, j.Record)
		}
	}
}

// oldest returns up to n jobs to drop from a queue: those that have been available longest. Jobs whose deadline has come
// stay, and so do jobs of the batch, whose places are behind before.
func (t tx) oldest(now time.Time, before uint64, queue string, n int) (list []*job) {
	for place, seq := range t.scan(oldestBucket, key{}.string(queue), nil) {
		if len(list) == n || number(place) > before {
			break
		}
		if j := t.load(number(seq)); !j.Expired(now) {
			list = append(list, j)
		}
	}
	return list
}
