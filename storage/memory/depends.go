package memory

import (
	"cmp"
	"slices"
	"time"

	"github.com/ojsengine/ojs"
	"github.com/ojsengine/ojs/storage"
)

// Jobs that wait for others (storage.Insert.DependsOn).
//
// store.edges lists, for each job that others wait for, those that do. Such a job has
// the mark awaited, so that the end of any other job costs nothing. place enters an
// awaited job that has ended in store.toCount. Each call that ends jobs then calls
// count, which counts them for those that wait.
//
// Invariants, between calls:
//
//  1. A job has the mark awaited if and only if edges has a list for it.
//  2. Such a job has not ended, so that it is not deleted. toCount is empty.
//  3. An edge may lead to a job that does not wait: one that has ended, was activated, or
//     was deleted. Its ord, 0 from then on until it is stored again, tells a deleted job
//     from another in the same memory. An edge from before a job was revived is stale.

// edge leads from a job to one that waits for it.
type edge struct {
	job     *job
	ord     uint64 // of job in Storage.all
	revived uint32 // rest.revived of job
}

// waits reports whether the job still waits.
func (e edge) waits() bool {
	return e.job.ord == e.ord && e.job.current() == ojs.StatePending && e.job.rest.revived == e.revived
}

func byInsertion(a, b edge) int { return cmp.Compare(a.ord, b.ord) }

// addEdge has a job wait for another, which has not ended.
func (s *store) addEdge(to, waiting *job) {
	list := s.edges[to]
	if len(list) == cap(list) {
		list = slices.DeleteFunc(list, func(e edge) bool { return !e.waits() })
	}
	if s.edges == nil {
		s.edges = make(map[*job][]edge)
	}
	s.edges[to] = append(list, edge{waiting, waiting.ord, waiting.rest.revived})
	to.marks |= awaited
}

// count counts the jobs that have ended for those that wait for them, and appends the
// jobs that this moves to dst.
func (s *store) count(now time.Time, dst []storage.Record) []storage.Record {
	if len(s.toCount) == 0 {
		return dst
	}
	s.takeIn() // what is in the inbox was available before the jobs that become so here
	for i := 0; i < len(s.toCount); i++ {
		ended := s.toCount[i]
		list := s.edges[ended]
		delete(s.edges, ended)
		ended.marks &^= awaited
		if !slices.IsSortedFunc(list, byInsertion) { // jobs were revived, or wait for more
			slices.SortFunc(list, byInsertion)
		}
		for _, e := range list {
			if e.waits() {
				dst = s.countFor(e.job, ended, now, dst)
			}
		}
		if key := s.endInLine(ended); key != "" {
			dst = s.nextTurn(now, key, dst)
		}
	}
	clear(s.toCount)
	s.toCount = s.toCount[:0]
	return dst
}

// countFor counts a job that has ended for one that waits.
func (s *store) countFor(j, ended *job, now time.Time, dst []storage.Record) []storage.Record {
	whole := j.whole()
	whole.Count(ended.current())
	if !whole.Decided() {
		return dst
	}
	return s.change(j, dst, func(r *storage.Record) { r.Resolve(now, ended.id, ended.current()) })
}

// waiting returns the job with an id if it waits for others, else nil.
func (s *store) waiting(id string) *job {
	if j := s.find(id); j != nil && j.current() == ojs.StatePending && j.rest != nil && j.rest.counted {
		return j
	}
	return nil
}

// await has the new jobs of a batch wait for others, after all that the batch has ended.
// stored has the jobs of the batch, nil for those that are not stored. It returns the
// jobs that have moved.
func (s *store) await(now time.Time, batch []storage.Insert, stored []*job) []storage.Record {
	var moved []storage.Record
	for i, j := range stored {
		if j != nil {
			s.awaitNew(j, batch[i].AwaitedBy)
		}
	}
	for i, j := range stored {
		if j != nil && j.current().Terminal() { // it has been replaced in this call
			for _, id := range batch[i].AwaitedBy {
				if w := s.waiting(id); w != nil {
					moved = s.countFor(w, j, now, moved)
				}
			}
		}
	}
	for i, j := range stored {
		if j != nil {
			s.enterLine(j, &batch[i])
		}
	}
	moved = s.count(now, moved)
	for i, j := range stored {
		if j == nil || !batch[i].Waits() {
			continue
		}
		moved = s.awaitOthers(now, j, batch[i].DependsOn, moved)
		moved = s.count(now, s.nextTurn(now, batch[i].OrderingKey, moved))
	}
	return moved
}

// awaitNew has stored jobs wait for a new one.
func (s *store) awaitNew(j *job, ids []string) {
	for _, id := range ids {
		w := s.waiting(id)
		if w == nil {
			continue
		}
		w.whole().WaitsMore()
		if !j.current().Terminal() {
			s.addEdge(j, w)
		}
	}
}

// awaitOthers has a job wait for others.
func (s *store) awaitOthers(
	now time.Time, j *job, ids []string, moved []storage.Record,
) []storage.Record {
	for _, id := range ids {
		if j.current() != ojs.StatePending { // it has been replaced, or what has ended decides
			break
		}
		if other := s.find(id); !other.current().Terminal() {
			s.addEdge(other, j)
		} else {
			moved = s.countFor(j, other, now, moved)
		}
	}
	return s.count(now, moved)
}
