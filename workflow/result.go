package workflow

import (
	"context"
	"fmt"

	"github.com/ojsengine/ojs"
	"github.com/ojsengine/ojs/handler"
	"github.com/ojsengine/ojs/internal/attempt"
	"github.com/ojsengine/ojs/internal/draft"
	"github.com/ojsengine/ojs/internal/stored"
)

// Result decodes the result of another step of the workflow whose step runs in ctx. It is
// the value that the step's handler gave to handler.SetResult.
//
// The error is a *StepError for a step that has not completed, or whose job has been
// deleted. Outside of an attempt it is handler.ErrNoAttempt. For a job of no workflow,
// and for a name that is no step's, it is an *ojs.InvalidError. Other errors are the
// storage's and those of decoding.
func Result[T any](ctx context.Context, step string) (T, error) {
	var v T
	job, err := stepJob(ctx, step)
	if err != nil {
		return v, err
	}
	if job.State != ojs.StateCompleted {
		return v, &StepError{step, job}
	}
	err = job.DecodeResult(&v)
	return v, err
}

// UndoneResult decodes the result of the step whose compensation runs in ctx (Undoable).
// Its errors are those of Result. In a step that is no compensation it is an
// *ojs.InvalidError.
func UndoneResult[T any](ctx context.Context) (T, error) {
	var v T
	r, _, err := current(ctx)
	if err != nil {
		return v, err
	}
	name, _ := attempt.From(ctx).Header().Meta[MetaStep].(string)
	for _, n := range r.shape.Nodes {
		if n.Name == name && n.Undoes > 0 {
			return Result[T](ctx, r.shape.Nodes[n.Undoes-1].Name)
		}
	}
	return v, draft.Invalid("step", "%.50q is no compensation", name)
}

// StepError says that a step has no result.
type StepError struct {
	Step string
	Job  *ojs.JobInfo // nil: it has been deleted
}

// Error implements error.
func (e *StepError) Error() string {
	switch {
	case e.Job == nil:
		return fmt.Sprintf("ojs: step %q has no result: its job has been deleted", e.Step)
	case e.Job.Error != nil:
		return fmt.Sprintf("ojs: step %q has no result: its job is %s: %s: %s",
			e.Step, e.Job.State, e.Job.Error.Type, e.Job.Error.Message)
	}
	return fmt.Sprintf("ojs: step %q has no result: its job is %s", e.Step, e.Job.State)
}

// Current reads the workflow whose step runs in ctx, with all of its steps: for the
// errors of failed steps, and for results of steps that are known by their place. Its
// errors are those of Result. Its cost grows with the number of steps.
func Current(ctx context.Context) (*Status, error) {
	r, lookup, err := current(ctx)
	if err != nil {
		return nil, err
	}
	return r.read(ctx, lookup)
}

// current opens the workflow whose step runs in ctx.
func current(ctx context.Context) (*reading, Lookup, error) {
	a := attempt.From(ctx)
	if a == nil {
		return nil, nil, handler.ErrNoAttempt
	}
	header := a.Header()
	id, ok := header.Meta[MetaWorkflow].(string)
	if !ok {
		return nil, nil, draft.Invalid("workflow", "job %s is no step of a workflow", header.ID)
	}
	r, err := openAll(ctx, a.Lookup, id)
	return r, a.Lookup, err
}

// stepJob looks up the job of a step of the workflow whose step runs in ctx.
func stepJob(ctx context.Context, name string) (*ojs.JobInfo, error) {
	r, lookup, err := current(ctx)
	if err != nil {
		return nil, err
	}
	for i, n := range r.shape.Nodes {
		if n.Name != name || name == "" {
			continue
		}
		job, err := lookup(ctx, r.ids[i])
		if stored.Missing(err) {
			return nil, &StepError{name, nil}
		}
		return job, err
	}
	return nil, draft.Invalid("step", "workflow %s has no step %.50q", r.base, name)
}
