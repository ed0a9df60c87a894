package memory

import (
	"context"
	"slices"
	"time"

	"github.com/ojsengine/ojs"
	"github.com/ojsengine/ojs/storage"
	"github.com/ojsengine/ojs/storage/depend"
)

// ending is how far a job has come to its deletion.
type endState uint8

const (
	open  endState = iota
	ended          // in Storage.ended
	held           // in Storage.kept: not to be pruned yet
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

// settleEnd enters a job that has just ended among its like, or keeps it from being
// pruned for now.
func (s *store) settleEnd(j *job) {
	if !j.current().Terminal() {
		return
	}
	if j.marks&awaited != 0 {
		end := depend.End{Seq: int64(j.ord), ID: j.id, State: j.current(), Line: s.leaveLine(j)}
		s.uncounted = append(s.uncounted, end)
		j.marks &^= awaited
	}
	s.ends++
	j.class, j.turn = classOf(j), s.ends
	if until := j.keptUntil(); !until.IsZero() {
		s.hold(j, until)
		return
	}
	j.end = ended
	s.ended[j.class].add(j.finished(), j)
}

func (s *store) hold(j *job, until time.Time) {
	j.end = held
	s.kept.Push(&j.wake, until)
	s.held[j.class].add(j.finished(), j)
}

// leaveEnd undoes settleEnd, before a job that has ended changes.
func (s *store) leaveEnd(j *job) {
	switch j.end {
	case held:
		s.kept.Remove(&j.wake)
		s.held[j.class].remove(j.finished(), j)
	case ended:
		s.ended[j.class].remove(j.finished(), j)
		s.freed.Remove(&j.wake)
	}
	j.end = open
}

// release lets go the jobs that are kept until now at the latest, and only those: if the
// clock goes back, some are held again.
func (s *store) release(now time.Time) {
	for {
		it, ok := s.freed.PopDue(mirrored(now).Add(-1)) // kept for longer than now
		if !ok {
			break
		}
		j := it.Value
		s.ended[j.class].remove(j.finished(), j)
		s.hold(j, j.keptUntil())
	}
	for {
		it, ok := s.kept.PopDue(now)
		if !ok {
			return
		}
		j := it.Value
		if s.keptBy(j, now) {
			s.kept.Push(&j.wake, storage.KeptOn(now, j.finishedAt()))
			continue
		}
		s.held[j.class].remove(j.finished(), j)
		j.end = ended
		s.freed.Push(&j.wake, mirrored(j.keptUntil()))
		s.ended[j.class].add(j.finished(), j)
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
func (s *store) Prune(ctx context.Context, p storage.Prune) (out storage.Pruned, err error) {
	if err := s.enter(ctx); err != nil {
		return out, err
	}
	var gone *job
	defer func() {
		s.leave()
		s.spares.give(gone)
	}()
	s.release(p.Now)
	var of []*index
	for c := range classes {
		if c == deadLetter == p.DeadLetters && c.among(p.States) {
			of = append(of, &s.ended[c])
			out.Left += s.ended[c].n
		}
	}
	first := firstOf(of)
	for first != nil && len(out.IDs) < p.Max && p.Selects(first.finishedAt(), out.Left) {
		out.IDs = append(out.IDs, first.id)
		out.Left--
		s.delete(first)
		first.next, gone = gone, first
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
