package enginetest

import (
	"context"
	"sync"

	"github.com/ojsengine/ojs"
	"github.com/ojsengine/ojs/handler"
)

// faults are the errors of attempts that fail without running.
type faults struct {
	mu   sync.Mutex // guards the fields below
	next map[string][]error
	all  map[string]error
}

func (f *faults) inject(ctx context.Context, job *ojs.JobHeader, next handler.Next) error {
	if err := f.take(job.Type); err != nil {
		return err
	}
	return next(ctx)
}

func (f *faults) take(jobType string) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if list := f.next[jobType]; len(list) > 0 {
		f.next[jobType] = list[1:]
		return list[0]
	}
	return f.all[jobType]
}

// FailNext makes the next attempt of a job of the type fail with err. Its handler does
// not run. Called again, it does so for the attempt after that.
func (e *Engine[T]) FailNext(jobType string, err error) {
	e.faults.mu.Lock()
	defer e.faults.mu.Unlock()
	if e.faults.next == nil {
		e.faults.next = make(map[string][]error)
	}
	e.faults.next[jobType] = append(e.faults.next[jobType], err)
}

// FailAll makes every attempt of a job of the type fail with err, until it is called with
// nil.
func (e *Engine[T]) FailAll(jobType string, err error) {
	e.faults.mu.Lock()
	defer e.faults.mu.Unlock()
	if e.faults.all == nil {
		e.faults.all = make(map[string]error)
	}
	e.faults.all[jobType] = err
}
