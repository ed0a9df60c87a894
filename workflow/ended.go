package workflow

import (
	"context"
	"fmt"

	"github.com/ojsengine/ojs"
	"github.com/ojsengine/ojs/internal/stored"
)

// EndedError is the error of a wait for a workflow that has ended and has not completed:
// of Ticket.Wait for the ticket of Start, and of operate.Workflows.Wait. It
// unwraps to the *ojs.EndedError of Job, and for a cancelled workflow to that of its
// record.
type EndedError struct {
	ID, Name string
	State    State // failed, cancelled or compensated
	// Step is a step because of which it has failed, "" if no single step is the reason.
	Step string
	Job  *ojs.JobInfo // the step's; nil: there is none
}

// Error implements error.
func (e *EndedError) Error() string {
	name := e.ID
	if e.Name != "" {
		name += " (" + e.Name + ")"
	}
	switch {
	case e.Job == nil:
		return fmt.Sprintf("ojs: workflow %s ended: %s", name, e.State)
	case e.Job.Error == nil:
		return fmt.Sprintf("ojs: workflow %s ended: %s: step %q is %s", name, e.State, e.Step, e.Job.State)
	}
	return fmt.Sprintf("ojs: workflow %s ended: %s: step %q is %s: %s: %s",
		name, e.State, e.Step, e.Job.State, e.Job.Error.Type, e.Job.Error.Message)
}

// Unwrap returns how the step's job has ended.
func (e *EndedError) Unwrap() error {
	switch j := e.Job; {
	case j != nil:
		return &ojs.EndedError{ID: j.ID, State: j.State, DeadLettered: j.DeadLettered(), Last: j.Error}
	case e.State == StateCancelled:
		return &ojs.EndedError{ID: e.ID, State: ojs.StateCancelled}
	}
	return nil
}

// EndError returns an *EndedError if the workflow of a record that has ended has not
// completed, and nil if it has. Its cost is that of Ended. If the workflow has been
// deleted, the error is an *ojs.PrunedError. Package engine calls it.
func EndError(ctx context.Context, lookup Lookup, record *ojs.JobInfo) error {
	e := &EndedError{ID: record.ID, State: StateCancelled}
	e.Name, _ = record.Meta[metaName].(string)
	if record.State == ojs.StateCancelled {
		return e
	}
	end, err := Ended(ctx, lookup, record.ID)
	switch {
	case stored.Missing(err):
		return &ojs.PrunedError{ID: record.ID}
	case err != nil:
		return err
	case end.State == StateCompleted:
		return nil
	}
	if e.State = end.State; end.Step != nil {
		e.Step, e.Job = end.Step.Name, end.Step.Job
	}
	return e
}
