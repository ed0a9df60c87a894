package memory

import (
	"github.com/ojsengine/ojs"
)

// place enters a job into the indexes that its record says it belongs to; displace,
// called before the record changes, takes it out again. The index of all jobs keeps
// its order across changes. A job that has ended changes only to begin anew.
func (s *store) place(j *job) {
	if j.state != active {
		j.readySeq = 0
	}
	s.placeAgain(j)
}

// placeAgain is place that puts an available job back where it was among the available
// ones.
func (s *store) placeAgain(j *job) {
	s.lastTurn++
	j.turn = s.lastTurn
	if j.ended() {
		s.end(j)
	} else {
		s.enterEnd(j, open, j.timed)
	}
	s.enterSection(j)
	switch j.state {
	case available:
		s.ready.enter(j)
	case active:
		s.running.insert(j, s.running.last)
		if j.counts() {
			s.ready.active(j, 1)
		}
	}
	s.addPeer(j)
	if s.heard {
		s.notice.Add(j.id, j.current(), j.wakeAt())
	}
}

func (s *store) displace(j *job) {
	s.leaveSection(j)
	s.leaveEnd(j)
	switch j.state {
	case available:
		s.ready.leaveRound(j)
		s.ready.remove(j)
	case active:
		s.running.unlink(j)
		if j.counts() && s.ready.active(j, -1) && s.heard {
			s.notice.Available = true
		}
	}
	s.removePeer(j)
}

// forgetIfEmpty drops what is kept of a queue that has no jobs and no state to remember.
func (s *store) forgetIfEmpty(q *queue) {
	if len(q.sections) == 0 && q.state == "" {
		delete(s.ready.queues, q.name)
	}
}

// These are indexes in states. That of completed is the first of an ended job.
const (
	available      = 1
	active         = 3
	retryable      = 4
	completedState = 5
)

var states = [...]ojs.State{
	ojs.StateScheduled, available: ojs.StateAvailable, ojs.StatePending, active: ojs.StateActive,
	retryable: ojs.StateRetryable, completedState: ojs.StateCompleted, ojs.StateCancelled, ojs.StateDiscarded,
}

func stateIndex(s ojs.State) int {
	for i := range states {
		if states[i] == s {
			return i
		}
	}
	panic("memory: a record without a state was stored") // Insert and the transition table let none in
}
