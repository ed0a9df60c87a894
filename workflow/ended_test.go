package workflow_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ojsengine/ojs"
	"github.com/ojsengine/ojs/engine"
	"github.com/ojsengine/ojs/inspect"
	"github.com/ojsengine/ojs/operate"
	"github.com/ojsengine/ojs/workflow"
)

// Every wait for a workflow that has not completed returns an error. It has the state of
// the workflow, and the step because of which it has failed.
func TestWaitSaysThatAWorkflowFailed(t *testing.T) {
	x, fails := ojs.NewDraft("x", nil), ojs.NewDraft("bad", nil)
	bad, cancel := workflow.Step("bad", fails), workflow.Step("cancel", ojs.NewDraft("cancel", nil))
	for name, c := range map[string]struct {
		part  workflow.Part
		state workflow.State
		step  string
	}{
		"completed":      {step("a"), workflow.StateCompleted, ""},
		"step":           {bad, workflow.StateFailed, "bad"},
		"chain":          {workflow.Chain(step("a"), bad, step("b")), workflow.StateFailed, "bad"},
		"group":          {workflow.Group(step("a"), bad), workflow.StateFailed, "bad"},
		"handled":        {workflow.Batch(bad, workflow.OnFailure(x)), workflow.StateCompleted, ""},
		"failed handler": {workflow.Batch(bad, workflow.OnFailure(fails)), workflow.StateFailed, ""},
		"compensated": {workflow.Saga(workflow.Compensate,
			workflow.Undoable("a", x, x), bad), workflow.StateCompensated, "bad"},
		"cancelled": {workflow.Chain(step("a"), cancel, step("b")), workflow.StateCancelled, ""},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(b *rig) {
				b.handle("x", func(context.Context, string) error { return nil })
				b.handle("bad", func(context.Context, string) error { return ojs.Permanent(errBoom) })
				var ticket ojs.Ticket
				b.handle("cancel", func(ctx context.Context, _ string) error {
					return b.Workflows().Cancel(ctx, ticket.ID)
				})
				ticket, err := b.Workflows().Start(b.ctx, workflow.New("w", c.part))
				must(t, err)
				check := func(by string, err error) {
					t.Helper()
					if c.state == workflow.StateCompleted {
						if err != nil {
							t.Errorf("%s: %v", by, err)
						}
						return
					}
					var ended *workflow.EndedError
					if !errors.As(err, &ended) || ended.ID != ticket.ID || ended.Name != "w" ||
						ended.State != c.state || ended.Step != c.step && c.step != "" {
						t.Fatalf("%s: %v", by, err)
					}
					if says := err.Error(); !strings.Contains(says, string(c.state)) ||
						!strings.Contains(says, c.step) {
						t.Errorf("%s: %v", by, err)
					}
					var job *ojs.EndedError
					if c.step != "" && (!errors.As(err, &job) || job.State != ojs.StateDiscarded ||
						job.Last == nil || job.Last.Message != "boom") {
						t.Errorf("%s: the step ended with %+v", by, job)
					}
				}
				for _, when := range []string{"before the end", "after the end"} {
					waited := make(chan error, 1)
					go func() {
						_, err := ticket.Wait(b.ctx)
						waited <- err
					}()
					synctest.Wait()
					b.run(time.Minute)
					check("Ticket.Wait "+when, <-waited)
					s, err := b.Workflows().Wait(b.ctx, ticket.ID)
					check("Workflows.Wait "+when, err)
					if s == nil || s.State != c.state {
						t.Errorf("%s: %+v", when, s)
					}
					var v any
					if err := ticket.Result(b.ctx, &v); c.state != workflow.StateCompleted {
						check("Ticket.Result "+when, err)
					}
				}
			}, engine.WithConcurrency(1))
		})
	}
}

// A failed step of a workflow is retried with its workflow only: any other retry would
// complete the step and leave the workflow failed.
func TestRetryOfAFailedStepIsRefused(t *testing.T) {
	inBubble(t, func(b *rig) {
		b.handle("x", func(context.Context, string) error { return nil })
		fails := true
		b.handle("bad", func(context.Context, string) error {
			if fails {
				return ojs.DeadLetter(errBoom)
			}
			return nil
		})
		bad := workflow.Step("bad", ojs.NewDraft("bad", nil))
		id := b.start(workflow.New("", workflow.Chain(bad, step("b"))))
		b.run(time.Minute)
		failed := b.want(id, workflow.StateFailed, "bad:discarded b:cancelled").Step("bad").JobID
		fails = false
		retries := map[string]func() error{
			"Jobs.Retry":        func() error { return b.Jobs().Retry(b.ctx, failed) },
			"DeadLetters.Retry": func() error { return b.DeadLetters().Retry(b.ctx, failed) },
			"RetryJobs": func() (refused error) {
				for p, err := range b.Jobs().Apply(b.ctx, operate.Bulk{Do: operate.RetryJobs(),
					On: inspect.Filter{DeadLettered: true}}) {
					must(t, err)
					refused = p.Err
				}
				return refused
			},
		}
		for name, retry := range retries {
			err := retry()
			var state *ojs.TransitionError
			if !errors.As(err, &state) ||
				!strings.Contains(err.Error(), "Workflows().Retry(ctx, \""+id+"\")") {
				t.Errorf("%s: %v", name, err)
			}
		}
		b.run(time.Minute)
		b.want(id, workflow.StateFailed, "bad:discarded b:cancelled")
		must(t, b.Workflows().Retry(b.ctx, id))
		b.run(time.Minute)
		b.want(id, workflow.StateCompleted, "bad:completed b:completed")
	}, engine.WithReplayRules(engine.ReplayRule{Name: "all", MaxReplays: 3}))
}

// A step that waits for its next attempt may be retried at once: its workflow goes on.
func TestRetryOfAWaitingStep(t *testing.T) {
	inBubble(t, func(b *rig) {
		runs := 0
		b.handle("x", func(context.Context, string) error {
			if runs++; runs == 1 {
				return ojs.RetryAfter(time.Hour, errBoom)
			}
			return nil
		})
		id := b.start(workflow.New("", step("a")))
		b.run(time.Second)
		must(t, b.Jobs().Retry(b.ctx, b.want(id, workflow.StateRunning, "a:retryable").Step("a").JobID))
		b.run(time.Second)
		b.want(id, workflow.StateCompleted, "a:completed")
	})
}
