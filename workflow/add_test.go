package workflow_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/ojsengine/ojs"
	"github.com/ojsengine/ojs/engine"
	"github.com/ojsengine/ojs/handler"
	"github.com/ojsengine/ojs/workflow"
)

func adder(name string) workflow.Part { return workflow.Adder(name, ojs.NewDraft("x", nil)) }

func TestAdd(t *testing.T) {
	t.Run("a saga that is added undoes its own steps", func(t *testing.T) {
		inBubble(t, func(b *rig) {
			b.handle("x", func(ctx context.Context, name string) error {
				switch name {
				case "split":
					_, err := workflow.Add(ctx, workflow.Saga(workflow.Compensate, undoable("a"), step("b")))
					return err
				case "split/b":
					return errBoom
				}
				return nil
			})
			id := b.start(workflow.New("", workflow.Chain(step("before"), adder("split"))))
			b.run(time.Hour)
			s := b.status(id)
			if undo := s.Step("split/undo-a"); undo == nil || undo.Undoes != "split/a" ||
				undo.State() != ojs.StateCompleted {
				t.Errorf("%+v", s.Steps)
			}
		})
	})
	t.Run("W092 only a step that was there from the start begins the workflow", func(t *testing.T) {
		inBubble(t, func(b *rig) {
			b.handle("x", func(ctx context.Context, name string) error {
				if name != "split" {
					return nil
				}
				_, err := workflow.Add(ctx, workflow.Group(step("a"), step("b")))
				return err
			})
			id := b.start(workflow.New("", workflow.Group(adder("split"), step("beside"))))
			b.run(time.Hour)
			s := b.status(id)
			for i := range s.Steps {
				begins := !strings.HasPrefix(s.Steps[i].Name, "split/")
				if workflow.Begins(s.Steps[i].Job) != begins {
					t.Errorf("step %q begins the workflow: %v", s.Steps[i].Name, !begins)
				}
			}
			if len(s.Steps) != 4 {
				t.Errorf("%d steps", len(s.Steps))
			}
		})
	})
	t.Run("what waits for the step waits for what it adds, and each is added once", func(t *testing.T) {
		inBubble(t, func(b *rig) {
			attempts := 0
			b.handle("x", func(ctx context.Context, name string) error {
				switch name {
				case "split":
					var parts []workflow.Part
					for i := range 3 {
						parts = append(parts, step(fmt.Sprint("p", i)))
					}
					added, err := workflow.Add(ctx, workflow.Chain(workflow.Group(parts...), adder("more")))
					if err != nil || added != (attempts == 0) {
						t.Errorf("added %v, %v", added, err)
					}
					if attempts++; attempts == 1 {
						return errBoom // after the steps were added
					}
				case "split/more":
					if _, err := workflow.Add(ctx, step("last")); err != nil {
						return err
					}
				case "split/more/last":
					return handler.SetResult(ctx, 7)
				case "sum":
					n, err := workflow.Result[int](ctx, "split/more/last")
					if n != 7 || err != nil {
						t.Errorf("%d, %v", n, err)
					}
				}
				return nil
			})
			id := b.start(workflow.New("", workflow.Chain(adder("split"), step("sum"))))
			b.run(time.Minute)
			s := b.want(id, workflow.StateCompleted, "split:completed sum:completed split/p0:completed "+
				"split/p1:completed split/p2:completed split/more:completed split/more/last:completed")
			got := strings.Join(b.ran, " ")
			if want := "split split/p0 split/p1 split/p2 split/more split/more/last split sum"; got != want {
				t.Errorf("ran %s", got)
			}
			if after := strings.Join(s.Step("sum").After, " "); after != "split split/more split/more/last" {
				t.Errorf("sum is after %s", after)
			}
		}, engine.WithConcurrency(1))
	})
	t.Run("a step that was added and fails fails the step that added it, until it is retried", func(t *testing.T) {
		inBubble(t, func(b *rig) {
			fails := true
			b.handle("x", func(ctx context.Context, name string) error {
				switch {
				case name == "a":
					_, err := workflow.Add(ctx, workflow.Chain(step("b"), step("c")))
					return err
				case name == "a/b" && fails:
					return ojs.Discard(errBoom)
				}
				return nil
			})
			id := b.start(workflow.New("", workflow.Batch(
				workflow.Chain(adder("a"), step("d")), workflow.OnComplete(ojs.NewDraft("x", nil)).Named("e"),
				workflow.OnSuccess(ojs.NewDraft("x", nil)).Named("f"))))
			b.run(0)
			b.want(id, workflow.StateCompleted,
				"a:completed d:cancelled e:completed f:cancelled a/b:discarded a/c:cancelled")
			b.ran = nil
			id = b.start(workflow.New("", workflow.Chain(adder("a"), step("d"))))
			b.run(0)
			b.want(id, workflow.StateFailed, "a:completed d:cancelled a/b:discarded a/c:cancelled")
			fails = false
			must(t, b.Workflows().Retry(b.ctx, id))
			b.want(id, workflow.StateRunning, "a:completed d:pending a/b:available a/c:pending")
			b.run(0)
			b.want(id, workflow.StateCompleted, "a:completed d:completed a/b:completed a/c:completed")
			if got := strings.Join(b.ran, " "); got != "a a/b a/b a/c d" {
				t.Errorf("ran %s", got)
			}
		}, engine.WithConcurrency(1))
	})
	t.Run("W050 a cancel ends what was added, and nothing is added after it", func(t *testing.T) {
		inBubble(t, func(b *rig) {
			var id string
			b.handle("x", func(ctx context.Context, name string) error {
				if name == "a" {
					_, err := workflow.Add(ctx, step("b"))
					must(t, err)
				}
				return b.Workflows().Cancel(ctx, id)
			})
			id = b.start(workflow.New("", workflow.Chain(adder("a"), step("d"))))
			b.run(0)
			b.want(id, workflow.StateCancelled, "a:completed d:cancelled a/b:cancelled")
			b.Handle("y", func(ctx context.Context, _ *ojs.Job[any]) error {
				must(t, b.Workflows().Cancel(ctx, id))
				_, err := workflow.Add(ctx, step("b"))
				if !errors.Is(err, ojs.ErrTransition) {
					t.Errorf("%v", err)
				}
				return nil
			})
			id = b.start(workflow.New("", workflow.Adder("c", ojs.NewDraft("y", nil))))
			b.run(0)
			b.want(id, workflow.StateCancelled, "c:completed")
		}, engine.WithConcurrency(1))
	})
	t.Run("W013 a part with a duplicate is refused", func(t *testing.T) {
		inBubble(t, func(b *rig) {
			unique := ojs.WithUnique(ojs.UniquePolicy{Keys: ojs.ByType, OnConflict: ojs.ConflictIgnore})
			_, err := b.Enqueue(b.ctx, "y", nil, unique)
			must(t, err)
			b.handle("x", func(ctx context.Context, _ string) error {
				_, err := workflow.Add(ctx, workflow.Step("b", ojs.NewDraft("y", nil, unique)))
				if !errors.Is(err, ojs.ErrDuplicate) {
					t.Errorf("%v", err)
				}
				return nil
			})
			id := b.start(workflow.New("", adder("a")))
			b.run(0)
			b.want(id, workflow.StateCompleted, "a:completed")
		})
	})
	t.Run("only an Adder adds", func(t *testing.T) {
		if _, err := workflow.Add(t.Context(), step("a")); !errors.Is(err, handler.ErrNoAttempt) {
			t.Errorf("%v", err)
		}
		inBubble(t, func(b *rig) {
			b.handle("x", func(ctx context.Context, name string) error {
				if _, err := workflow.Add(ctx, step("a")); !errors.Is(err, ojs.ErrInvalid) {
					t.Errorf("%q: %v", name, err)
				}
				return nil
			})
			b.start(workflow.New("", step("a")))
			_, err := b.Enqueue(b.ctx, "x", nil)
			must(t, err)
			b.run(0)
		})
	})
}
