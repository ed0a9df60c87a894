package workflow_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/ojsengine/ojs"
	"github.com/ojsengine/ojs/engine"
	"github.com/ojsengine/ojs/workflow"
)

// Reading 61 of W007: a shape without parts has succeeded as soon as it begins.
func TestPartsOfNothing(t *testing.T) {
	x := ojs.NewDraft("x", nil)
	all := []workflow.Callback{workflow.OnComplete(x), workflow.OnSuccess(x), workflow.OnFailure(x)}
	none := workflow.Group()
	for name, c := range map[string]struct {
		part workflow.Part
		ran  string
	}{
		"group":  {none, ""},
		"chain":  {workflow.Chain(), ""},
		"graph":  {workflow.Graph(), ""},
		"saga":   {workflow.Saga(workflow.Compensate), ""},
		"skip":   {workflow.Saga(workflow.Skip), ""},
		"nested": {workflow.Group(none, workflow.Chain(none, workflow.Group(none, none))), ""},
		"before": {workflow.Chain(none, step("a")), "a"},
		"within": {workflow.Chain(step("a"), none, step("b")), "a b"},
		"after":  {workflow.Chain(step("a"), none), "a"},
		"beside": {workflow.Chain(workflow.Group(none, step("a")), step("b")), "a b"},
		"batch":  {workflow.Batch(none, all...), "on_complete on_success"},
		"late": {workflow.Chain(step("a"), workflow.Batch(none, all...), step("b")),
			"a on_complete on_success b"},
		"undone": {workflow.Saga(workflow.Compensate, step("a"), none, step("b")), "a b"},
		"first":  {workflow.Saga(workflow.Skip, none, step("a"), none, step("b")), "a b"},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(b *rig) {
				b.handle("x", func(context.Context, string) error { return nil })
				ticket, err := b.Workflows().Start(b.ctx, workflow.New("", c.part))
				must(t, err)
				if c.ran != "" {
					b.run(time.Minute)
				}
				s, err := b.Workflows().Wait(b.ctx, ticket.ID) // without an engine that runs, if no step does
				must(t, err)
				if got := strings.Join(b.ran, " "); s.State != workflow.StateCompleted || got != c.ran {
					t.Errorf("%s, %q ran, want %q", s.State, got, c.ran)
				}
				if _, err := ticket.Wait(b.ctx); err != nil {
					t.Error(err)
				}
			}, engine.WithConcurrency(1))
		})
	}
	t.Run("a batch that does not begin calls nothing back", func(t *testing.T) {
		inBubble(t, func(b *rig) {
			b.handle("x", func(context.Context, string) error { return nil })
			b.handle("bad", func(context.Context, string) error { return ojs.Permanent(errBoom) })
			id := b.start(workflow.New("", workflow.Chain(workflow.Step("a", ojs.NewDraft("bad", nil)),
				workflow.Batch(none, workflow.OnComplete(x)))))
			b.run(time.Minute)
			b.want(id, workflow.StateFailed, "a:discarded on_complete:cancelled")
		})
	})
}

// Reading 61: a step may add a part of nothing. It counts as what the step has added.
func TestAddOfNothing(t *testing.T) {
	for name, part := range map[string]workflow.Part{
		"group": workflow.Group(),
		"batch": workflow.Batch(workflow.Group(), workflow.OnFailure(ojs.NewDraft("x", nil))),
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(b *rig) {
				var added []bool
				b.handle("x", func(ctx context.Context, name string) error {
					if name != "list" {
						return nil
					}
					ok, err := workflow.Add(ctx, part)
					must(t, err)
					if added = append(added, ok); ok {
						return errBoom
					}
					return nil
				})
				id := b.start(workflow.New("", workflow.Chain(
					workflow.Adder("list", ojs.NewDraft("x", nil)), step("report"))))
				b.run(time.Minute)
				if s := b.status(id); s.State != workflow.StateCompleted ||
					s.Step("report").State() != ojs.StateCompleted {
					t.Errorf("%+v", s)
				}
				if len(added) != 2 || !added[0] || added[1] {
					t.Errorf("added: %v", added)
				}
			})
		})
	}
}
