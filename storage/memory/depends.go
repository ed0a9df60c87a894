package memory

import (
	"cmp"
	"slices"
	"time"

	"github.com/ojsengine/ojs"
	"github.com/ojsengine/ojs/storage"
	"github.com/ojsengine/ojs/storage/depend"
)

// Jobs that wait for others (storage.Insert.DependsOn).
//
// store.edges lists, for each awaited job, the jobs that wait for it. An awaited job has
// the mark awaited, so that the end of any other job costs nothing. place enters an
// awaited job that has ended in store.uncounted. Each call that ends jobs then calls
// count, which counts them for those that wait.
//
// Invariants, between calls:
//
//  1. A job has the mark awaited if edges has a list for it or it is in a line (line.go).
//     So has a job that was stored with AwaitedBy.
//  2. Such a job has not ended, so that it is not deleted. uncounted is empty.
//  3. An edge may lead to a job that does not wait: one that has ended, was activated, or
//     was deleted. Its ord, 0 from then on until it is stored again, tells a deleted job
//     from another in the same memory. An edge from before a job was revived is stale.

// edge leads from a job to one that waits for it.
type edge struct {
	job     *job
	ord     uint64 // of job in Storage.all
	revived uint32 // rest.revived of job
}

func newEdge(to *job) edge { return edge{to, to.ord, to.rest.revived} }

// waits reports whether the job still waits.
func (e edge) waits() bool {
	return e.job.ord == e.ord && e.job.current() == ojs.StatePending && e.job.rest.revived == e.revived
}

func byInsertion(a, b edge) int { return cmp.Compare(a.ord, b.ord) }

// count counts the jobs that have ended for those that wait for them, and appends the
// jobs that this moves to dst.
func (s *store) count(now time.Time, dst []storage.Record) []storage.Record {
	if len(s.uncounted) == 0 {
		return dst
	}
	s.takeIn() // what is in the inbox was available before the jobs that become so here
	return depend.Count(dependTx{s}, now, dst)
}

// dependTx is the depend.Tx of a call. store.mu is its transaction.
type dependTx struct{ *store }

var _ depend.Tx[*job] = dependTx{}

// Ends implements depend.Tx.
func (s dependTx) Ends() *[]depend.End { return &s.uncounted }

// Take implements depend.Tx.
func (s dependTx) Take(ends []depend.End) (waiting []*job, line string) {
	list := s.edges[ends[0].Seq]
	delete(s.edges, ends[0].Seq)
	if !slices.IsSortedFunc(list, byInsertion) { // jobs were revived, or wait for more
		slices.SortFunc(list, byInsertion)
	}
	s.toCount = s.toCount[:0]
	for _, to := range list {
		if to.waits() {
			s.toCount = append(s.toCount, to.job)
		}
	}
	return s.toCount, ends[0].Line
}

// Change implements depend.Tx.
func (s dependTx) Change(j *job, by depend.Step, moved []storage.Record) []storage.Record {
	if !by.Count(j.whole()) {
		return moved
	}
	return s.changed(j, moved, by.Move)
}

// Find implements depend.Tx.
func (s dependTx) Find(id string) *job { return s.find(id) }

// State implements depend.Tx.
func (s dependTx) State(j *job) ojs.State { return j.current() }

// Waiter implements depend.Tx.
func (s dependTx) Waiter(id string) (j *job, some bool) {
	j = s.find(id)
	return j, j != nil && j.current() == ojs.StatePending && j.rest != nil && j.rest.counted
}

// Edge implements depend.Tx.
func (s dependTx) Edge(from, to *job) {
	seq := int64(from.ord)
	list := s.edges[seq]
	if len(list) == cap(list) {
		list = slices.DeleteFunc(list, func(e edge) bool { return !e.waits() })
	}
	s.edges[seq] = append(list, newEdge(to))
	if !from.current().Terminal() { // else its end is counted in this call
		from.marks |= awaited
	}
}
