package publish

import (
	"context"
	"log/slog"
	"strings"
	"time"

	"github.com/ojsengine/ojs/event"
	"github.com/ojsengine/ojs/internal/locks"
	"github.com/ojsengine/ojs/policy"
	"github.com/ojsengine/ojs/storage"
	"github.com/ojsengine/ojs/workflow"
)

// Events of workflows follow from the transitions of their jobs, and are published with
// the job's own events, in the same entry of the event log:
//
//	record    enqueued: created; cancelled: cancelled; completed: the end
//	step      started, if it is the first: started; completed: step_completed
//	          discarded, cancelled by itself: step_failed
//	          of a group or batch also: job_completed, job_failed
//	callback  moved by the ends of others: callback_fired
//	join      before the compensations of a saga, completed: compensating
//
// The record waits for all steps. So the event of the end waits for the operations that
// ended steps (eventlog.Ends). The event of such a step may wait for later operations,
// and then comes after the end. How a workflow has ended is looked up, once for each
// workflow. Names are metadata of each job, and not looked up.

// ByWorkflow is the Reason of the cancellation of a step along with its workflow.
const ByWorkflow = "workflow"

// workflowEvents returns the events of a transition with those of the job's workflow that
// follow from it.
func (c *Publisher) workflowEvents(rec *storage.Record, now time.Time, events []event.Event) []event.Event {
	of := workflow.Describe(&rec.JobInfo)
	all := make([]event.Event, 0, len(events)+1)
	add := func(ev event.Event) {
		if ev.Workflow == nil {
			ev.Workflow = of
		}
		all = append(all, ev)
	}
	for i := range events {
		ev := &events[i]
		if strings.HasPrefix(string(ev.Type), "workflow.") {
			add(*ev)
			continue
		}
		all = append(all, *ev)
		switch {
		case rec.Type == workflow.Type:
			if derived, ok := c.recordEvent(rec, of, ev.Type, now); ok {
				add(derived)
			}
		case rec.Type == workflow.JoinType:
			if ev.Type == event.Completed && workflow.Compensates(&rec.JobInfo) {
				add(event.Event{Type: event.WorkflowCompensating})
			}
		case of.Step == "":
		case ev.Type == event.Started:
			if workflow.Begins(&rec.JobInfo) && c.workflows.first(of.ID) {
				started := *of
				started.Steps = workflow.StepsOf(&rec.JobInfo)
				add(event.Event{Type: event.WorkflowStarted, Workflow: &started})
			}
		case ev.Type == event.Completed:
			add(event.Event{Type: event.WorkflowStepCompleted, Duration: ev.Duration})
			if workflow.IsMember(&rec.JobInfo) {
				add(event.Event{Type: event.WorkflowJobCompleted, Duration: ev.Duration})
			}
		case ev.Type == event.Discarded,
			ev.Type == event.Cancelled && ev.Reason != ByWorkflow &&
				(rec.Error == nil || rec.Error.Type != policy.ErrorTypeDependency):
			add(event.Event{Type: event.WorkflowStepFailed, Failure: ev.Failure})
			if workflow.IsMember(&rec.JobInfo) {
				add(event.Event{Type: event.WorkflowJobFailed, Failure: ev.Failure})
			}
		}
	}
	return all
}

// recordEvent returns the event of a workflow that follows from one of its record.
func (c *Publisher) recordEvent(
	rec *storage.Record, of *event.Workflow, typ event.Type, now time.Time,
) (ev event.Event, ok bool) {
	ctx := context.Background()
	switch typ {
	case event.Enqueued:
		if !c.wantsWorkflow(rec, event.WorkflowCreated) {
			return ev, false
		}
		of.Steps, _ = workflow.Steps(c.Jobs.Readable(ctx, &rec.JobInfo))
		return event.Event{Type: event.WorkflowCreated, Workflow: of}, true
	case event.Cancelled:
		return event.Event{Type: event.WorkflowCancelled, Duration: now.Sub(rec.CreatedAt)}, true
	case event.Completed:
	default:
		return ev, false
	}
	if !c.wantsWorkflow(rec, event.WorkflowCompleted) && !c.wantsWorkflow(rec, event.WorkflowFailed) &&
		!c.wantsWorkflow(rec, event.WorkflowCompensated) {
		return ev, false
	}
	end, err := workflow.Ended(ctx, c.Jobs.Step, of.ID)
	if err != nil {
		c.LogJob(slog.LevelWarn, "workflow has ended, but how cannot be read: its last event is missing",
			"lifecycle", rec, "", slog.Any("error", err))
		return ev, false
	}
	of.Steps = end.Steps
	ev = event.Event{Type: event.WorkflowFailed, Workflow: of, Duration: now.Sub(rec.CreatedAt)}
	switch end.State {
	case workflow.StateCompleted:
		ev.Type = event.WorkflowCompleted
	case workflow.StateCompensated:
		ev.Type = event.WorkflowCompensated
	}
	if s := end.Step; s != nil {
		of.Step, of.StepType, ev.Failure = s.Name, s.Type, s.Job.Error
	}
	return ev, true
}

// wantsWorkflow reports whether a listener wants an event of the workflow of a job.
func (c *Publisher) wantsWorkflow(rec *storage.Record, t event.Type) bool {
	return c.Events.Wants(t, rec.ID, rec.Queue) || c.Events.Wants(t, rec.Keeper(), rec.Queue)
}

// maxBegun bounds each map of begun.
const maxBegun = 1 << 12

// begun are the workflows of which this engine has started a first step, as far as it
// remembers: at least the last maxBegun of them.
type begun struct {
	mu         locks.Mutex     // guards ids and older
	ids, older map[string]bool // when ids is full, it takes the place of older
}

// first reports whether it has not been called with the id before.
func (b *begun) first(id string) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.ids[id] || b.older[id] {
		return false
	}
	if b.ids == nil || len(b.ids) == maxBegun {
		b.ids, b.older = make(map[string]bool), b.ids
	}
	b.ids[id] = true
	return true
}
