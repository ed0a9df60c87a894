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

func classOf(r *storage.Record) class {
	switch {
	case r.DeadLettered():
		return deadLetter
	case r.State == ojs.StateCompleted:
		return completed
	case r.State == ojs.StateCancelled:
		return cancelled
	}
	return discarded
}

// settleEnd enters a job that has ended among its like, and takes one out that has come back. All classes number their
// jobs in one sequence, so that the first of several classes can be told.
func (s *Storage) settleEnd(j *job) {
	terminal := j.rec.State.Terminal()
	if j.end != 0 && (!terminal || classOf(&j.rec) != j.class) {
		s.ended[j.class].remove(j.end)
		j.end = 0
	}
	if terminal && j.end == 0 {
		s.ends++
		j.class = classOf(&j.rec)
		j.end = s.ended[j.class].addAs(j, s.ends)
	}
}

// Prune implements storage.Storage.
func (s *Storage) Prune(ctx context.Context, p storage.Prune) (storage.Pruned, error) {
	if err := s.enter(ctx); err != nil {
		return storage.Pruned{}, err
	}
	defer s.leave(ctx)
	var of []*index
	for c := range classes {
		if c == deadLetter == p.DeadLetters &&
			(len(p.States) == 0 || slices.Contains(p.States, stateOf(c))) {
			of = append(of, &s.ended[c])
		}
	}
	n := 0
	for ; n < p.Max; n++ {
		j := oldest(of)
		if j == nil || !j.rec.FinishedAt.Before(p.Before) && (p.Beyond == 0 || total(of) <= p.Beyond) {
			break
		}
		s.delete(j)
	}
	left := storage.Pruned{N: n}
	if j := oldest(of); j != nil {
		left.Oldest = j.rec.FinishedAt
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
		if j := x.oldest(); j != nil && (first == nil || j.end < first.end) {
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
