package memory

import (
	"sync"

	"github.com/ojsengine/ojs"
)

// spares are deleted jobs, to become new ones, in lists by next: whoever deletes some
// leaves one list, and whoever takes one leaves the rest where it finds it again soonest.
// So most are handed on without a step that both wait for.
type spares struct{ lists sync.Pool }

// take returns a job that is in no index.
func (s *spares) take() *job {
	j, _ := s.lists.Get().(*job)
	if j == nil {
		j = new(job)
		j.wake.Value = j
		return j
	}
	if rest := j.next; rest != nil {
		j.next = nil
		s.lists.Put(rest)
	}
	return j
}

// give takes a list of jobs that are in no index; nil is an empty one.
func (s *spares) give(first *job) {
	for j := first; j != nil; j = j.next {
		// What new jobs do not overwrite, and what it would keep alive.
		j.id, j.args, j.kind, j.rest, j.worker, j.end = "", ojs.Args{}, nil, nil, nil, open
	}
	if first != nil {
		s.lists.Put(first)
	}
}
