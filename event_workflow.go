package ojs

// WorkflowEvent is what an Event says of a workflow.
type WorkflowEvent struct {
	ID    string
	Name  string // "": it has none
	Shape string // of its outermost part: chain, group, batch, graph, saga or step

	// The step that the event is about; started: the first; failed, compensated: one that
	// has failed, "" if no single step is the reason.
	Step     string
	StepType string // of its job
	Callback string // callback_fired: on_complete, on_success or on_failure

	Steps int // created, and the ends but cancelled: all steps, callbacks and compensations
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
	case EventWorkflowCreated, EventWorkflowStarted, EventWorkflowCompleted, EventWorkflowCompensated:
		if w.Steps > 0 {
			d["total_steps"] = w.Steps
		}
	case EventWorkflowFailed:
		if w.Steps > 0 {
			d["total_steps"] = w.Steps
		}
		if w.Step != "" {
			d["failed_step_id"], d["failed_step_type"] = w.Step, w.StepType
		}
		failure()
	case EventWorkflowStepCompleted, EventWorkflowStepFailed, EventWorkflowCallbackFired:
		d["step_id"], d["step_type"] = w.Step, w.StepType
		if e.Job != nil {
			d["job_id"] = e.Job.ID
		}
		failure()
	}
	switch e.Type {
	case EventWorkflowCompleted, EventWorkflowFailed, EventWorkflowCompensated, EventWorkflowStepCompleted:
		d["duration_ms"] = e.Duration.Milliseconds()
	case EventWorkflowCallbackFired:
		d["callback"] = w.Callback
	}
}
