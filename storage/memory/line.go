package memory

import (
	"slices"

	"github.com/ojsengine/ojs/storage"
)

// Jobs with an ordering key (storage.Insert.OrderingKey).
//
// store.lines has a line for each key of which a job has yet to end. Such a job has the
// mark awaited, so that count hears of its end, and names its line in rest.line.

// keyLine is the jobs of one ordering key.
type keyLine struct {
	key      string
	jobs     int    // that are stored with the key and have not ended
	withTurn int    // of them have the turn and have not ended: several if a person has activated some
	wait     []edge // jobs in line, in the order of insertion, and some that have left it
}

// inLine reports whether the job still waits for its turn.
func (e edge) inLine() bool { return e.waits() && e.job.rest.line != nil && e.job.whole().InLine() }

// Enter implements depend.Tx.
func (s dependTx) Enter(batch []storage.Insert, added func(i int) bool) {
	for i := range batch {
		if batch[i].OrderingKey == "" || !added(i) {
			continue
		}
		if j := s.find(batch[i].Record.ID); !j.ended() {
			s.enterLine(j, batch[i].OrderingKey)
		}
	}
}

// enterLine has a job wait for the turn of an ordering key.
func (s *store) enterLine(j *job, key string) {
	l := orMake(s.lines, key, func() *keyLine { return &keyLine{key: key} })
	if len(l.wait) == cap(l.wait) {
		l.wait = slices.DeleteFunc(l.wait, func(e edge) bool { return !e.inLine() })
	}
	l.jobs++
	j.rest.line = l
	j.marks |= awaited
	e := newEdge(j)
	at, _ := slices.BinarySearchFunc(l.wait, e, byInsertion) // the end, but for revived jobs
	l.wait = slices.Insert(l.wait, at, e)
}

// takeTurn gives a job the turn of its line, if it is in one and does not have it.
func (s *store) takeTurn(j *job) {
	if j.rest != nil && j.rest.line != nil && !j.rest.hasTurn {
		j.rest.hasTurn = true
		j.rest.line.withTurn++
	}
}

// leaveLine takes a job that has ended out of its line, and returns the key, "" if it was
// in none.
func (s *store) leaveLine(j *job) (key string) {
	if j.rest == nil || j.rest.line == nil {
		return ""
	}
	l := j.rest.line
	j.rest.line = nil
	if j.rest.hasTurn {
		j.rest.hasTurn = false
		l.withTurn--
	}
	if l.jobs--; l.jobs == 0 {
		delete(s.lines, l.key)
	}
	return l.key
}

// First implements depend.Tx.
func (s dependTx) First(key string) (first *job, some bool) {
	l := s.lines[key]
	for l != nil && l.withTurn == 0 && len(l.wait) > 0 {
		e := l.wait[0]
		if l.wait = l.wait[1:]; e.inLine() {
			s.takeTurn(e.job)
			return e.job, true
		}
	}
	return nil, false
}
