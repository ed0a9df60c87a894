package memory

import (
	"slices"
	"time"

	"github.com/ojsengine/ojs/storage"
)

// Jobs with an ordering key (storage.Insert.OrderingKey).
//
// store.lines has a line for each key of which a job has yet to end. Such a job has the
// mark awaited, so that count hears of its end, and names its line in rest.line.

// keyLine is the jobs of one ordering key.
type keyLine struct {
	key   string
	jobs  int    // that are stored with the key and whose end is not counted
	turns int    // of them have the turn and have not ended: several if a person has activated some
	wait  []edge // jobs in line, in the order of insertion, and some that have left it
}

// inLine reports whether the job still waits for its turn.
func (e edge) inLine() bool { return e.waits() && e.job.rest.line != nil && e.job.whole().InLine() }

// enterLine has a job that is stored with an ordering key wait for its turn.
func (s *store) enterLine(j *job, in *storage.Insert) {
	if in.OrderingKey == "" || j.current().Terminal() {
		return
	}
	l := s.lines[in.OrderingKey]
	if l == nil {
		if s.lines == nil {
			s.lines = make(map[string]*keyLine)
		}
		l = &keyLine{key: in.OrderingKey}
		s.lines[l.key] = l
	}
	if len(l.wait) == cap(l.wait) {
		l.wait = slices.DeleteFunc(l.wait, func(e edge) bool { return !e.inLine() })
	}
	l.jobs++
	j.rest.line, j.rest.turn = l, false
	j.marks |= awaited
	e := edge{j, j.ord, j.rest.revived}
	at, _ := slices.BinarySearchFunc(l.wait, e, byInsertion) // the end, but for revived jobs
	l.wait = slices.Insert(l.wait, at, e)
}

// takeTurn gives a job the turn of its line, if it is in one and does not have it.
func (s *store) takeTurn(j *job) {
	if j.rest != nil && j.rest.line != nil && !j.rest.turn {
		j.rest.turn = true
		j.rest.line.turns++
	}
}

// leaveTurn takes the turn from a job that has ended.
func (s *store) leaveTurn(j *job) {
	if j.rest != nil && j.rest.turn {
		j.rest.turn = false
		j.rest.line.turns--
	}
}

// endInLine takes a job that has ended out of its line, and returns the key, "" if it was
// in none.
func (s *store) endInLine(j *job) (key string) {
	if j.rest == nil || j.rest.line == nil {
		return ""
	}
	l := j.rest.line
	j.rest.line = nil
	if l.jobs--; l.jobs == 0 {
		delete(s.lines, l.key)
	}
	return l.key
}

// nextTurn gives the turn of a key to the first in line, unless a job has it, and appends
// the job to dst if this moves it.
func (s *store) nextTurn(now time.Time, key string, dst []storage.Record) []storage.Record {
	l := s.lines[key]
	if l == nil {
		return dst
	}
	for l.turns == 0 && len(l.wait) > 0 {
		e := l.wait[0]
		if l.wait = l.wait[1:]; !e.inLine() {
			continue
		}
		s.takeTurn(e.job)
		whole := e.job.whole()
		d := *whole.Dependencies
		if d.Unfinished--; d.Unfinished > 0 {
			d.InLine = false
			whole.Dependencies = &d
			return dst
		}
		return s.change(e.job, dst, func(r *storage.Record) { r.Turn(now) })
	}
	return dst
}
