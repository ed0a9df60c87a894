package memory

import (
	"github.com/ojsengine/ojs"
)

// place enters a job into the indexes that its record says it belongs to; displace,
// called before the record changes, takes it out again. The index of all jobs keeps
// its order across changes. A job that has ended changes only to begin anew.
func (s *store) place(j *job) { s.placeIn(j, 0) }

// placeIn is place of a job that had a turn among the available ones; 0: it had none.
func (s *store) placeIn(j *job, turn uint64) {
	wakeAt := j.wakeAt()
	if !wakeAt.IsZero() {
		s.due.Push(&j.wake, wakeAt)
	}
	s.settleEnd(j)
	if j.listed() && j.state < completedState {
		s.ends++
		j.turn = s.ends
	}
	s.enterSection(j)
	if j.current() == ojs.StateAvailable {
		s.ready.enter(j, turn)
	}
	if j.state == active {
		s.running.insert(j, s.running.last)
		if j.counts() {
			s.ready.active(j, 1)
		}
	}
	s.addPeer(j)
	if s.heard {
		s.notice.Add(j.id, j.current(), wakeAt)
	}
}

func (s *store) displace(j *job) {
	s.leaveSection(j)
	if j.end == open {
		s.due.Remove(&j.wake)
	} else {
		s.leaveEnd(j)
	}
	if j.current() == ojs.StateAvailable {
		s.ready.leaveRound(j)
	}
	if j.state == active {
		s.running.unlink(j)
	}
	s.ready.remove(j)
	if j.state == active {
		if j.counts() {
			if awaited := s.ready.active(j, -1); awaited && s.heard {
				s.notice.Available = true
			}
		}
	}
	s.removePeer(j)
}

// forgetIfEmpty drops what is kept of a queue that a job has left for good, if it was the
// last one and the queue has no state to remember.
func (s *store) forgetIfEmpty(q *queue) {
	if q.total == 0 && q.state == "" {
		delete(s.queues, q.name)
	}
}

// These are indexes in states. That of completed is the first of an ended job.
const (
	available      = 1
	active         = 3
	completedState = 5
)

var states = [...]ojs.State{
	ojs.StateScheduled, available: ojs.StateAvailable, ojs.StatePending, active: ojs.StateActive,
	ojs.StateRetryable, completedState: ojs.StateCompleted, ojs.StateCancelled, ojs.StateDiscarded,
}

func stateIndex(s ojs.State) int {
	for i := range states {
		if states[i] == s {
			return i
		}
	}
	panic("memory: a record without a state was stored") // Insert and the transition table let none in
}
