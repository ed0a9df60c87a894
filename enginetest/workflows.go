package enginetest

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/ojsengine/ojs"
	"github.com/ojsengine/ojs/workflow"
)

// MustStart starts a workflow and returns its id. A workflow that is refused fails the
// test. Advance moves the clock through its steps, to the time of each.
func (e *Engine[T]) MustStart(w *workflow.Workflow) string {
	e.tb.Helper()
	ticket, err := e.Workflows().Start(context.Background(), w)
	if err != nil {
		e.tb.Fatalf("enginetest: %v", err)
	}
	return ticket.ID
}

// RequireWorkflow wants a workflow to be in a state, and returns it. Its failure draws
// when each step ran.
func (e *Engine[T]) RequireWorkflow(id string, state workflow.State) *workflow.Status {
	e.tb.Helper()
	s := e.workflow(id)
	if s.State != state {
		e.tb.Fatalf("enginetest: at %s workflow %s is %s, not %s:\n%s", clockTime(e.Now()), id, s.State,
			state, timeline(s, e.Now()))
	}
	return s
}

// RequireStep wants a step of a workflow to be in a state, and returns it. A step that
// waits for others is pending.
func (e *Engine[T]) RequireStep(id, name string, state ojs.State) *workflow.StepStatus {
	e.tb.Helper()
	s := e.workflow(id)
	step := s.Step(name)
	if step == nil {
		e.tb.Fatalf("enginetest: workflow %s has no step %q:\n%s", id, name, timeline(s, e.Now()))
	}
	if step.State() != state {
		e.tb.Fatalf("enginetest: at %s step %q is %s, not %s:\n%s", clockTime(e.Now()), name,
			cmp.Or(step.State(), "deleted"), state, timeline(s, e.Now()))
	}
	return step
}

func (e *Engine[T]) workflow(id string) *workflow.Status {
	e.tb.Helper()
	s, err := e.Workflows().Get(context.Background(), id)
	if err != nil {
		e.tb.Fatalf("enginetest: workflow %s: %v\n%s", id, err, there(nil, e.AllEnqueued()))
	}
	return s
}

const wide = 40 // columns of a timeline

// timeline draws the steps of a workflow over time: the latest attempt of each, from its
// start to its end or to now.
func timeline(s *workflow.Status, now time.Time) string {
	end := now
	if !s.FinishedAt.IsZero() {
		end = s.FinishedAt
	}
	all := max(end.Sub(s.CreatedAt), 1)
	column := func(t time.Time) int {
		return min(max(int(int64(t.Sub(s.CreatedAt))*wide/int64(all)), 0), wide)
	}
	longest := slices.MaxFunc(s.Steps, func(a, b workflow.StepStatus) int {
		return cmp.Compare(len(a.Name), len(b.Name))
	})
	var b strings.Builder
	for i := range s.Steps {
		step := &s.Steps[i]
		bar, when := "", ""
		if job := step.Job; job != nil && !job.StartedAt.IsZero() {
			until := end
			if !job.FinishedAt.IsZero() {
				until = job.FinishedAt
			}
			from := min(column(job.StartedAt), wide-1)
			bar = strings.Repeat(" ", from) + strings.Repeat("=", max(column(until)-from, 1))
			when = fmt.Sprintf(" %v to %v, attempt %d", job.StartedAt.Sub(s.CreatedAt),
				until.Sub(s.CreatedAt), job.Attempt)
		}
		fmt.Fprintf(&b, "  %-*s |%-*s| %s%s", len(longest.Name), step.Name, wide, bar,
			cmp.Or(step.State(), "deleted"), when)
		if step.Job != nil && step.Job.Error != nil {
			fmt.Fprintf(&b, ", error %s: %s", step.Job.Error.Type, step.Job.Error.Message)
		}
		b.WriteByte('\n')
	}
	return b.String()
}
