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
	if j.ended && (!terminal || classOf(j) != j.class) {
		s.ended[j.class].remove(j.turn)
		j.ended = false
	}
	if terminal && !j.ended {
		s.ends++
		j.class, j.ended = classOf(j), true
		j.turn = s.ended[j.class].addAs(j, s.ends)
	}
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
	var of []*index
	for c := range classes {
		if c == deadLetter == p.DeadLetters &&
			(len(p.States) == 0 || slices.Contains(p.States, stateOf(c))) {
			of = append(of, &s.ended[c])
		}
	}
	n, beyond := 0, 0
	if p.Beyond > 0 {
		beyond = total(of) - p.Beyond
	}
	for ; n < p.Max; n++ {
		j := oldest(of)
		if j == nil || n >= beyond && !j.finishedAt().Before(p.Before) {
			break
		}
		s.delete(j)
		j.next, gone = gone, j
	}
	left := storage.Pruned{N: n}
	if j := oldest(of); j != nil {
		left.Oldest = j.finishedAt()
	}
	return left, nil
}

func stateOf(c class) ojs.State {
	if c == deadLetter {
		return ojs.StateDiscarded
	}
	return classStates[c]
}

func oldest(of []*index) *job {
	var first *job
	for _, x := range of {
		if j := x.oldest(); j != nil && (first == nil || j.turn < first.turn) {
			first = j
		}
	}
	return first
}

func total(of []*index) int {
	n := 0
	for _, x := range of {
		n += x.len()
	}
	return n
}
