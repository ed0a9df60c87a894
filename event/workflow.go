package event

// Workflow is what an Event says of a workflow.
type Workflow struct {
	ID    string
	Name  string // "": it has none
	Shape string // of its outermost part: chain, group, batch, graph, saga or step

	// The step that the event is about; started: the first; failed, compensated: one that
	// has failed, "" if no single step is the reason.
	Step     string
	StepType string // of its job
	Callback string // callback_fired: on_complete, on_success or on_failure

	// Place is the step's place among the steps, from 1. Steps that workflow.Add has
	// added have their places among those. 0: it is not known.
	Place int
	// Remaining is how many steps follow, in a workflow that is one line of steps; -1: it
	// is none. For other shapes the end of each step would take a read that grows with
	// the workflow: operate.Workflows.Get counts them.
	Remaining int

	// Steps is how many steps there are, with callbacks and compensations: in created,
	// started, and the ends but cancelled.
	Steps int
}

// aboutWorkflow adds the members of a workflow's event to its data.
func (e *Event) aboutWorkflow(d map[string]any) {
	w := e.Workflow
	d["workflow_id"], d["workflow_name"], d["workflow_type"] = w.ID, w.Name, w.Shape
	failure := func() {
		if e.Failure != nil {
			d["error"] = map[string]any{"code": string(e.Failure.Reason), "type": e.Failure.Type,
				"message": e.Failure.Message}
		}
	}
	switch e.Type {
	case WorkflowCreated, WorkflowStarted, WorkflowCompleted, WorkflowCompensated:
		if w.Steps > 0 {
			d["total_steps"] = w.Steps
		}
	case WorkflowFailed:
		if w.Steps > 0 {
			d["total_steps"] = w.Steps
		}
		if w.Step != "" {
			d["failed_step_id"], d["failed_step_type"] = w.Step, w.StepType
		}
		failure()
	case WorkflowStepCompleted, WorkflowStepFailed, WorkflowCallbackFired,
		WorkflowJobCompleted, WorkflowJobFailed:
		d["step_id"], d["step_type"] = w.Step, w.StepType
		if w.Place > 0 {
			d["step_index"] = w.Place - 1
		}
		if e.Job != nil {
			d["job_id"] = e.Job.ID
		}
		failure()
	}
	switch e.Type {
	case WorkflowStepCompleted:
		d["duration_ms"] = e.Duration.Milliseconds()
		if w.Remaining >= 0 {
			d["steps_remaining"], d["remaining_steps"] = w.Remaining, w.Remaining
		}
	case WorkflowCompleted, WorkflowFailed, WorkflowCompensated, WorkflowJobCompleted:
		d["duration_ms"] = e.Duration.Milliseconds()
	case WorkflowCallbackFired:
		d["callback"] = w.Callback
	}
}
