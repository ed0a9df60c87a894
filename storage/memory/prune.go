package memory

import (
	"context"
	"math"
	"slices"
	"time"

	"github.com/ojsengine/ojs"
	"github.com/ojsengine/ojs/storage"
	"github.com/ojsengine/ojs/storage/depend"
	"github.com/ojsengine/ojs/storage/rule"
)

// endState is how far a job has come to its deletion. store.wakes has the jobs of each
// that wait for a time, and store.finished those that have ended.
type endState uint8

const (
	open  endState = iota // it has not ended; the time is its storage.Record.WakeAt
	ended                 // it may be pruned; the time is that of held, if it was held
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
	j.class = classOf(j)
	until, end := instant(rule.Nanos(j.keptUntil())), held
	if until == never {
		end = ended
	}
	s.enterEnd(j, end, until)
}

// enterEnd gives a job an endState, with a time; never: none.
func (s *store) enterEnd(j *job, end endState, at instant) {
	j.end, j.wakesAt = end, at
	if at != never {
		s.wakes[end].add(int64(at), j)
	}
	if end != open {
		s.finished[end][j.class].add(int64(j.timed), j)
	}
}

// leaveEnd undoes enterEnd, before the job changes.
func (s *store) leaveEnd(j *job) {
	if j.wakesAt != never {
		s.wakes[j.end].remove(int64(j.wakesAt), j)
	}
	if j.end != open {
		s.finished[j.end][j.class].remove(int64(j.timed), j)
	}
	j.end = open
}

// release lets go the jobs that are kept until now at the latest, and only those: if the
// clock goes back, some are held again.
func (s *store) release(now time.Time) {
	at := rule.Nanos(now)
	for {
		last := s.wakes[ended].from(math.MaxInt64, math.MaxUint64, true)
		if !last.next() || last.at <= at {
			break
		}
		s.leaveEnd(last.job)
		s.enterEnd(last.job, held, last.job.wakesAt)
	}
	for e := s.wakes[held].first(); e.job != nil && e.at <= at; e = s.wakes[held].first() {
		s.leaveEnd(e.job)
		if s.keptBy(e.job, now) {
			s.enterEnd(e.job, held, instant(rule.Nanos(storage.KeptOn(now, e.job.finishedAt()))))
		} else {
			s.enterEnd(e.job, ended, e.job.wakesAt)
		}
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
	var of []*reader
	for c := range classes {
		if x := &s.finished[ended][c]; c == deadLetter == p.DeadLetters && c.among(p.States) {
			r := x.from(math.MinInt64, 0, false)
			of = append(of, &r)
			out.Left += x.n
		}
	}
	var pruned []*job
	for e := range merged(of) {
		if len(pruned) >= p.Max || !p.Selects(e.job.finishedAt(), out.Left) {
			out.Oldest = e.job.finishedAt()
			break
		}
		pruned = append(pruned, e.job)
		out.Left--
	}
	for _, j := range pruned {
		out.IDs = append(out.IDs, j.id)
		s.delete(j)
	}
	return out, nil
}
