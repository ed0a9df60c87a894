package memory

import (
	"context"
	"slices"

	"github.com/ojsengine/ojs"
	"github.com/ojsengine/ojs/storage"
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

var classStates = [...]ojs.State{completed: ojs.StateCompleted, cancelled: ojs.StateCancelled, discarded: ojs.StateDiscarded}

func classOf(j *job) class {
	switch {
	case j.deadLettered():
		return deadLetter
	case j.current() == ojs.StateCompleted:
		return completed
	case j.current() == ojs.StateCancelled:
		return cancelled
	}
	return discarded
}

// settleEnd enters a job that has ended among its like, and takes one out that has come back. All classes number their
// jobs in one sequence, so that the first of several classes can be told.
func (s *Storage) settleEnd(j *job) {
	terminal := j.current().Terminal()
	if j.end != open && (!terminal || classOf(j) != j.class) {
		s.ended[j.class].remove(j.turn)
		j.end = open
	}
	if !terminal {
		return
	}
	if j.end == open {
		s.ends++
		j.class, j.end = classOf(j), ended
		j.turn = s.ended[j.class].addAs(j, s.ends)
	}
	s.kept.hold(j)
}

// Prune implements storage.Storage.
func (s *Storage) Prune(ctx context.Context, p storage.Prune) (storage.Pruned, error) {
	if err := s.enter(ctx); err != nil {
		return storage.Pruned{}, err
	}
	var gone *job
	defer func() {
		s.leave()
		s.spares.give(gone)
	}()
	s.kept.release(p.Now, &s.ended)
	var of []class
	for c := range classes {
		if c == deadLetter == p.DeadLetters &&
			(len(p.States) == 0 || slices.Contains(p.States, stateOf(c))) {
			of = append(of, c)
		}
	}
	n, beyond := 0, 0
	if p.Beyond > 0 {
		beyond = s.prunable(of) - p.Beyond
	}
	first := s.firstPrunable(of)
	for ; n < p.Max && first != nil && (n < beyond || first.finishedAt().Before(p.Before)); n++ {
		s.delete(first)
		first.next, gone = gone, first
		first = s.firstPrunable(of)
	}
	left := storage.Pruned{N: n}
	if first != nil {
		left.Oldest = first.finishedAt()
	}
	return left, nil
}

func stateOf(c class) ojs.State {
	if c == deadLetter {
		return ojs.StateDiscarded
	}
	return classStates[c]
}

// firstPrunable returns the job of some classes that may be deleted first, nil if there is none.
func (s *Storage) firstPrunable(of []class) *job {
	var first *job
	for _, c := range of {
		if j := s.kept.next(c, &s.ended[c]); j != nil && (first == nil || j.turn < first.turn) {
			first = j
		}
	}
	return first
}

// prunable returns how many jobs of some classes may be deleted.
func (s *Storage) prunable(of []class) int {
	n := 0
	for _, c := range of {
		n += s.ended[c].len() - s.kept.of[c].n
	}
	return n
}
