package workflow_test

import (
	"context"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ojsengine/ojs"
	"github.com/ojsengine/ojs/engine"
	"github.com/ojsengine/ojs/inspect"
	"github.com/ojsengine/ojs/storage/memory"
	"github.com/ojsengine/ojs/workflow"
)

// The log of an engine has no line at info or above about the jobs that a workflow makes
// for itself: the record, the joins, and the records of what steps add. Neither is their
// queue one that no engine serves.
func TestLogOfAWorkflow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var out strings.Builder
		eng, err := engine.New[any](memory.New(), engine.WithQueueConfig("mine", engine.QueueConfig{}),
			engine.WithLogger(slog.New(slog.NewTextHandler(&out, nil))))
		must(t, err)
		b := &rig{Engine: eng, t: t, ctx: t.Context()}
		mine := ojs.WithQueue("mine")
		b.handle("x", func(ctx context.Context, name string) error {
			switch name {
			case "add":
				_, err := workflow.Add(ctx, workflow.Batch(step("added", mine),
					workflow.OnFailure(ojs.NewDraft("x", nil, mine))))
				return err
			case "bad":
				return ojs.Discard(errBoom)
			}
			return nil
		})
		x := ojs.NewDraft("x", nil, mine)
		parts := workflow.Chain(workflow.Group(step("a", mine), step("b", mine)), workflow.Adder("add", x),
			workflow.Group(step("c", mine), step("d", mine)))
		saga := workflow.Saga(workflow.Compensate, workflow.Undoable("e", x, x), step("bad", mine))
		b.start(workflow.New("w", parts))
		b.start(workflow.New("s", saga))
		b.run(time.Minute)
		must(t, b.Workflows().Cancel(b.ctx, b.start(workflow.New("c", parts))))
		if !strings.Contains(out.String(), "job completed") {
			t.Fatal(out.String())
		}
		for line := range strings.Lines(out.String()) {
			if strings.Contains(line, "ojs.workflow") && !strings.Contains(line, "workflow cancelled") ||
				strings.Contains(line, "level=WARN") && !strings.Contains(line, "jobs of handled types") {
				t.Error(line)
			}
		}
	})
}

// The record of a workflow and its joins need no handler, and no queue.
func TestExplainAWorkflow(t *testing.T) {
	inBubble(t, func(b *rig) {
		id := b.start(workflow.New("", step("a")))
		e, err := b.Jobs().Explain(b.ctx, id)
		must(t, err)
		for _, r := range e.Obstacles {
			if r.Code == inspect.ObstacleNoHandler || r.Code == inspect.ObstacleOtherQueues {
				t.Errorf("%+v", r)
			}
		}
	})
}
