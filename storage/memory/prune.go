package memory

import (
	"context"
	"slices"
	"time"

	"github.com/ojsengine/ojs"
	"github.com/ojsengine/ojs/storage"
	"github.com/ojsengine/ojs/storage/depend"
)

// endState is how far a job has come to its deletion. The jobs of each are in
// Storage.finished, and those with a time in Storage.wakes.
type endState uint8

const (
	open  endState = iota // it has not ended; the time is its storage.Record.WakeAt
	ended                 // it may be pruned; the time is that of held, mirrored, if it was held
	held                  // it is not pruned before a time, its storage.Record.KeptUntil
	endStates
)

// class is what finished jobs are pruned by: dead letters, and the others by their state.
type class uint8

const (
	completed class = iota
	cancelled
	discarded
	deadLetter
	classes
)

var classStates = [...]ojs.State{completed: ojs.StateCompleted, cancelled: ojs.StateCancelled,
	discarded: ojs.StateDiscarded, deadLetter: ojs.StateDiscarded}

func classOf(j *job) class {
	if j.deadLettered() {
		return deadLetter
	}
	return class(slices.Index(classStates[:], j.current()))
}

// among reports whether the jobs of the class are in one of some states; none is all.
func (c class) among(states []ojs.State) bool {
	return len(states) == 0 || slices.Contains(states, classStates[c])
}

// end enters a job that has just ended among its like, or keeps it from being pruned for
// now.
func (s *store) end(j *job) {
	if j.marks&awaited != 0 {
		end := depend.End{Seq: int64(j.ord), ID: j.id, State: j.current(), Line: s.leaveLine(j)}
		s.uncounted = append(s.uncounted, end)
		j.marks &^= awaited
	}
	s.ends++
	j.class, j.turn = classOf(j), s.ends
	if until := j.keptUntil(); until.IsZero() {
		s.enterEnd(j, ended, until)
	} else {
		s.enterEnd(j, held, until)
	}
}

// enterEnd gives a job an endState, with a time; zero: none.
func (s *store) enterEnd(j *job, end endState, at time.Time) {
	if j.end = end; !at.IsZero() {
		s.wakes[end].Push(&j.wake, at)
	}
	if end != open {
		s.finished[end][j.class].add(int64(j.timed), j)
	}
}

// leaveEnd undoes enterEnd, before the job changes.
func (s *store) leaveEnd(j *job) {
	s.wakes[j.end].Remove(&j.wake)
	if j.end != open {
		s.finished[j.end][j.class].remove(int64(j.timed), j)
	}
	j.end = open
}

// release lets go the jobs that are kept until now at the latest, and only those: if the
// clock goes back, some are held again.
func (s *store) release(now time.Time) {
	later := mirrored(now).Add(-1) // kept for longer than now
	for it, some := s.wakes[ended].PopDue(later); some; it, some = s.wakes[ended].PopDue(later) {
		s.leaveEnd(it.Value)
		s.enterEnd(it.Value, held, it.Value.keptUntil())
	}
	for it, some := s.wakes[held].PopDue(now); some; it, some = s.wakes[held].PopDue(now) {
		j := it.Value
		if s.keptBy(j, now) {
			s.wakes[held].Push(&j.wake, storage.KeptOn(now, j.finishedAt()))
			continue
		}
		s.leaveEnd(j)
		s.enterEnd(j, ended, mirrored(j.keptUntil()))
	}
}

// keptBy reports whether the workflow of a job that has ended keeps it.
func (s *store) keptBy(j *job, now time.Time) bool {
	id := j.keeper()
	keeper := s.find(id)
	if id == "" || keeper == nil {
		return false
	}
	r := keeper.record()
	return r.Keeps(now)
}

// mirrored is as far from 1970 on the other side: the later a time, the earlier.
func mirrored(t time.Time) time.Time { return time.Unix(-t.Unix(), -int64(t.Nanosecond())) }

// keptUntil is storage.Record.KeptUntil of a job that has ended.
func (j *job) keptUntil() time.Time {
	if whole := j.whole(); whole != nil {
		return whole.KeptUntil()
	}
	if j.kind.unique == nil && j.kind.resultTTL == 0 {
		return time.Time{}
	}
	var r storage.Record
	r.State, r.FinishedAt, r.ResultTTL = j.current(), j.finishedAt(), j.kind.resultTTL
	r.Unique, r.CreatedAt = j.kind.unique, j.created.time()
	return r.KeptUntil()
}

// Prune implements storage.Storage.
func (s personal) Prune(ctx context.Context, p storage.Prune) (out storage.Pruned, err error) {
	if err := s.enter(ctx); err != nil {
		return out, err
	}
	defer s.leave()
	s.release(p.Now)
	var of []*index
	for c := range classes {
		if c == deadLetter == p.DeadLetters && c.among(p.States) {
			of = append(of, &s.finished[ended][c])
			out.Left += s.finished[ended][c].n
		}
	}
	first := firstOf(of)
	for first != nil && len(out.IDs) < p.Max && p.Selects(first.finishedAt(), out.Left) {
		out.IDs = append(out.IDs, first.id)
		out.Left--
		s.delete(first)
		first = firstOf(of)
	}
	if first != nil {
		out.Oldest = first.finishedAt()
	}
	return out, nil
}

// firstOf returns the job of some lists that is pruned first, nil if they are empty.
func firstOf(of []*index) *job {
	var first entry
	for _, x := range of {
		if e, ok := x.first(); ok && (first.job == nil || e.before(&first)) {
			first = e
		}
	}
	return first.job
}
