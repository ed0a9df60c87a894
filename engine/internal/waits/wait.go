// Package waits has callers wait for the ends of jobs.
//
// # Invariants
//
//  1. A caller is among the waiters before it looks at its job, so an end between the two
//     wakes it.
//  2. A waiter that was told how its job ended says so, even if the job is deleted by
//     then.
package waits

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/ojsengine/ojs"
	"github.com/ojsengine/ojs/engine/internal/env"
	"github.com/ojsengine/ojs/internal/bridge"
	"github.com/ojsengine/ojs/internal/foreign"
	"github.com/ojsengine/ojs/internal/locks"
	"github.com/ojsengine/ojs/internal/stored"
	"github.com/ojsengine/ojs/workflow"
)

// Waits are those of one engine. It is safe for concurrent use.
type Waits struct {
	*env.Env
	Waiters Waiters
	Listen  func() (release func()) // to what other engines do
}

// Waiters are the calls that wait for jobs to end.
type Waiters struct {
	n    atomic.Int32 // how many there are; raised before they look at the job for the first time
	mu   locks.Mutex  // guards byID, and the outcome of each waiter
	byID map[string][]*waiter
}

// waiter is a call that waits for a job.
type waiter struct {
	look    chan struct{} // the job may have ended
	outcome *ojs.JobInfo  // as it ended, if that is known; not changed once set
}

func (w *Waiters) add(id string) *waiter {
	one := &waiter{look: make(chan struct{}, 1)}
	w.n.Add(1)
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.byID == nil {
		w.byID = make(map[string][]*waiter)
	}
	w.byID[id] = append(w.byID[id], one)
	return one
}

func (w *Waiters) remove(id string, one *waiter) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.byID[id] = slices.DeleteFunc(w.byID[id], func(other *waiter) bool { return other == one })
	if len(w.byID[id]) == 0 {
		delete(w.byID, id)
	}
	w.n.Add(-1)
}

// Ended tells the waiters of the job to look at it, and how it ended if that is known.
func (w *Waiters) Ended(id string, job *ojs.JobInfo) {
	if w.n.Load() == 0 {
		return // a waiter that comes now finds it ended
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if job != nil && len(w.byID[id]) > 0 {
		outcome := *job
		for _, one := range w.byID[id] {
			one.outcome = &outcome
		}
	}
	w.tell(id)
}

// outcome is how the job of a waiter ended, nil if that is not known.
func (w *Waiters) outcome(one *waiter) *ojs.JobInfo {
	w.mu.Lock()
	defer w.mu.Unlock()
	if one.outcome == nil {
		return nil
	}
	return one.outcome.Clone()
}

func (w *Waiters) tell(id string) {
	for _, one := range w.byID[id] {
		select {
		case one.look <- struct{}{}:
		default:
		}
	}
}

// All wakes every waiter.
func (w *Waiters) All() {
	w.mu.Lock()
	defer w.mu.Unlock()
	for id := range w.byID {
		w.tell(id)
	}
}

// OfStored returns what tickets of stored jobs wait by.
func (c *Waits) OfStored() bridge.Waiter[ojs.JobInfo] { return (*storedWaiter)(c) }

// storedWaiter waits for jobs that are known to have been stored: if one is not there, it
// has been deleted.
type storedWaiter Waits

// Wait implements bridge.Waiter.
func (c *storedWaiter) Wait(ctx context.Context, id string) (*ojs.JobInfo, error) {
	return (*Waits)(c).wait(ctx, id, true)
}

// Wait implements bridge.Waiter.
func (c *Waits) Wait(ctx context.Context, id string) (*ojs.JobInfo, error) {
	return c.wait(ctx, id, false)
}

// wait waits for the end of a job. was says that the job is known to have been stored.
func (c *Waits) wait(ctx context.Context, id string, was bool) (*ojs.JobInfo, error) {
	w := c.Waiters.add(id) // before the look, or an end in between would go unnoticed
	defer c.Waiters.remove(id, w)
	defer c.Listen()()
	for {
		job, err := c.Get(ctx, id)
		if stored.Missing(err) {
			// Retention may be faster than this waiter.
			if job = c.Waiters.outcome(w); job != nil {
				err = nil
			} else if was && !foreign.Is(err, ojs.ErrQuarantined) {
				err = &ojs.PrunedError{ID: id}
			}
		}
		if err != nil {
			return nil, err
		}
		was = true
		switch {
		case job.State.Terminal() && job.Type == workflow.Type:
			job = c.Jobs.Readable(ctx, job)
			return job, workflow.EndError(ctx, c.Jobs.Step, job)
		case job.State == ojs.StateCompleted:
			return c.Jobs.Readable(ctx, job), nil
		case job.State.Terminal():
			job = c.Jobs.Readable(ctx, job)
			return job, &ojs.EndedError{
				ID: id, State: job.State, DeadLettered: job.DeadLettered(), Last: job.Error,
			}
		}
		select {
		case <-w.look:
		case <-ctx.Done():
			return nil, c.notEnded(ctx, job)
		}
	}
}

// explainTime bounds how long a Wait whose context has ended looks for the reason why its
// job has not.
const explainTime = time.Second

// notEnded is the error of a Wait whose context has ended: the context's, with the words
// of Jobs.Explain about the job.
func (c *Waits) notEnded(ctx context.Context, job *ojs.JobInfo) error {
	look, cancel := c.Clock.WithTimeout(context.WithoutCancel(ctx), explainTime)
	defer cancel()
	what, id := "the job", job.ID
	if job.Type == workflow.Type {
		what, id = c.openStep(look, job.ID)
	}
	e, err := c.Jobs.Explain(look, id)
	if err != nil {
		return ctx.Err()
	}
	why := make([]string, len(e.Obstacles))
	for i, r := range e.Obstacles {
		why[i] = r.Text
	}
	if len(why) == 0 {
		why = []string{"no slot has asked for it yet"}
	}
	return fmt.Errorf("ojs: job %s has not ended: %w: %s is %s: %s", job.ID, ctx.Err(), what, e.State,
		strings.Join(why, "; "))
}

// openStep returns a step of a workflow that waits for no other one, with a name for
// people, and the record of the workflow if there is none.
func (c *Waits) openStep(ctx context.Context, id string) (what, job string) {
	s, err := workflow.Read(ctx, c.Jobs.Step, id)
	if err != nil {
		return "the workflow", id
	}
	for i := range s.Steps {
		j := s.Steps[i].Job
		if j != nil && !j.State.Terminal() && (j.Dependencies == nil || j.Dependencies.Unfinished == 0) {
			return fmt.Sprintf("step %q", s.Steps[i].Name), j.ID
		}
	}
	return "the workflow", id
}
