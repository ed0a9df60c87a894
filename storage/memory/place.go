package memory

import (
	"github.com/ojsengine/ojs"
)

// place enters a job into the indexes that its record says it belongs to; displace, called before the record changes, takes
// it out again. The index of all jobs and that of the dead letters keep their order across changes.
func (s *Storage) place(j *job) {
	q := s.queues[j.rec.Queue]
	if q == nil {
		q = new(queue)
		s.queues[j.rec.Queue] = q
	}
	j.queue = q
	q.counts[stateIndex(j.rec.State)]++
	q.total++
	if !j.rec.State.Terminal() {
		q.live++
	}

	if at := j.rec.WakeAt(); !at.IsZero() {
		s.due.Push(&j.wake, at)
	}
	if j.rec.State == ojs.StateAvailable {
		s.ready.add(j)
	}
	s.settleEnd(j)
	s.addPeer(j)
	if s.heard {
		s.notice.Add(j.rec.ID, j.rec.State, j.rec.WakeAt())
	}
}

func (s *Storage) displace(j *job) {
	s.due.Remove(&j.wake)
	s.ready.remove(j)
	s.removePeer(j)
	j.queue.counts[stateIndex(j.rec.State)]--
	j.queue.total--
	if !j.rec.State.Terminal() {
		j.queue.live--
	}
}

// forgetIfEmpty drops what is kept of a queue that a job has left for good, if it was the last one and the queue has no
// state to remember.
func (s *Storage) forgetIfEmpty(queue string) {
	if q := s.queues[queue]; q != nil && q.total == 0 {
		s.ready.forget(queue)
		if q.state == "" {
			delete(s.queues, queue)
		}
	}
}

func sameKey(a, b *ojs.RateLimit) bool {
	if a == nil || b == nil {
		return a == b
	}
	return a.Key == b.Key
}

var states = [...]ojs.State{
	ojs.StateScheduled, ojs.StateAvailable, ojs.StatePending, ojs.StateActive,
	ojs.StateRetryable, ojs.StateCompleted, ojs.StateCancelled, ojs.StateDiscarded,
}

func stateIndex(s ojs.State) int {
	for i := range states {
		if states[i] == s {
			return i
		}
	}
	panic("memory: a record without a state was stored") // insertable and the transition table let none in
}
