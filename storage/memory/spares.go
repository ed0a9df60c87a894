package memory

import (
	"sync"

	"github.com/ojsengine/ojs"
)

// spares are deleted jobs whose memory is reused for new ones, in lists linked by next. A
// call that deletes jobs puts one list into the pool. An insert takes one job and puts
// the rest back, where the same processor finds it first. So most jobs pass on without
// contention.
type spares struct{ lists sync.Pool }

// take returns a job that is in no index.
func (s *spares) take() *job {
	j, _ := s.lists.Get().(*job)
	if j == nil {
		return new(job)
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
		// Clear the fields that a new job does not overwrite, and the pointers that would
		// keep memory alive.
		j.id, j.args, j.kind, j.rest, j.worker = "", ojs.Args{}, nil, nil, nil
	}
	if first != nil {
		s.lists.Put(first)
	}
}
