package engine

import (
	"context"
	"errors"
	"iter"

	"github.com/ojsengine/ojs"
	"github.com/ojsengine/ojs/workflow"
)

// Workflows starts workflows (package workflow) and looks after them.
type Workflows struct{ core *core }

// Workflows returns the workflows of the storage.
func (e *Engine[T]) Workflows() *Workflows { return &Workflows{e.core} }

// Start starts a workflow, as workflow.Start does, under an id of the engine's.
func (w *Workflows) Start(ctx context.Context, wf *workflow.Workflow) (ojs.Ticket, error) {
	return workflow.Start(ctx, (*enqueuer)(w.core), wf, w.core.rnd.id(w.core.now()))
}

// Get returns a workflow and its steps, with args and results decoded as far as the
// engine's codecs can. ErrNotFound: no workflow with the id is stored. The cost grows
// with the number of steps.
func (w *Workflows) Get(ctx context.Context, id string) (*workflow.Status, error) {
	return workflow.Read(ctx, w.lookup, id)
}

func (w *Workflows) lookup(ctx context.Context, id string) (*ojs.JobInfo, error) {
	job, err := w.core.lookup(ctx, id)
	if err != nil {
		return nil, err
	}
	return w.core.readable(ctx, job), nil
}

// Wait waits until all steps of a workflow have ended or ctx has. It returns the workflow
// then. A failed or cancelled workflow is no error: see its State.
func (w *Workflows) Wait(ctx context.Context, id string) (*workflow.Status, error) {
	var ended *ojs.EndedError
	if _, err := w.core.Wait(ctx, id); err != nil && !errors.As(err, &ended) {
		return nil, err
	}
	return w.Get(ctx, id)
}

// List lists the workflows in a state of their records: pending ones go on, completed
// ones have ended, cancelled ones were cancelled. No state: all. Each is read with its
// steps, as by Get.
func (w *Workflows) List(ctx context.Context, states ...ojs.State) iter.Seq2[*workflow.Status, error] {
	return func(yield func(*workflow.Status, error) bool) {
		f := Filter{Types: []string{workflow.Type}, States: states}
		for job, err := range (&Jobs{w.core}).List(ctx, f) {
			var s *workflow.Status
			if err == nil {
				s, err = w.Get(ctx, job.ID)
			}
			if errors.Is(err, ojs.ErrNotFound) { // it has been deleted meanwhile
				continue
			}
			if !yield(s, err) || err != nil {
				return
			}
		}
	}
}

// Cancel ends a workflow: its steps that have not started are cancelled. Running steps
// may finish, and nothing follows them. A workflow that has ended is refused with an
// *ojs.TransitionError.
//
// The record is cancelled first, and then the steps, the last first, so that no step
// follows another meanwhile. Each is a call of the storage. If Cancel fails halfway, a
// second call goes on.
func (w *Workflows) Cancel(ctx context.Context, id string) error {
	s, err := w.Get(ctx, id)
	if err != nil {
		return err
	}
	if err := w.core.cancel(ctx, id); err != nil { // a second cancel is no error
		return err
	}
	for i := len(s.Steps) - 1; i >= 0; i-- {
		if state := s.Steps[i].State(); state == "" || state.Terminal() || state == ojs.StateActive {
			continue
		}
		err := w.core.cancel(ctx, s.Steps[i].JobID)
		if err != nil && !errors.Is(err, ojs.ErrTransition) && !errors.Is(err, ojs.ErrNotFound) {
			return err
		}
	}
	return nil
}
