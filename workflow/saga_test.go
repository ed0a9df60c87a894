package workflow_test

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ojsengine/ojs"
	"github.com/ojsengine/ojs/engine"
	"github.com/ojsengine/ojs/engine/fetch"
	"github.com/ojsengine/ojs/event"
	"github.com/ojsengine/ojs/handler"
	"github.com/ojsengine/ojs/internal/test/pace"
	"github.com/ojsengine/ojs/storage/memory"
	"github.com/ojsengine/ojs/workflow"
)

func undoable(name string) workflow.Part {
	return workflow.Undoable(name, ojs.NewDraft("x", nil), ojs.NewDraft("x", nil))
}

// Sagas that skip, side by side, end with the step before them.
func TestSagasSideBySide(t *testing.T) {
	inBubble(t, func(b *rig) {
		b.handle("x", func(context.Context, string) error { return nil })
		id := b.start(workflow.New("", workflow.Chain(step("a"), workflow.Group(
			workflow.Saga(workflow.Skip, step("b")), workflow.Saga(workflow.Skip, step("c"))), step("d"))))
		b.run(time.Minute)
		b.want(id, workflow.StateCompleted, "a:completed b:completed c:completed d:completed")
	})
}

func TestSaga(t *testing.T) {
	trip := func(policy workflow.SagaPolicy) *workflow.Workflow {
		return workflow.New("trip", workflow.Saga(policy,
			undoable("flight"), step("check"), undoable("hotel"), undoable("car")))
	}
	t.Run("W081 W082 W083 completed steps are undone, the last first", func(t *testing.T) {
		inBubble(t, func(b *rig) {
			var id, undone string
			b.handle("x", func(ctx context.Context, step string) error {
				switch {
				case step == "car":
					return errBoom // the only attempt
				case strings.HasPrefix(step, "undo-"):
					s := b.status(id)
					if s.State != workflow.StateCompensating {
						t.Errorf("%s while %s runs", s.State, step)
					}
					last := s.Step("undo-flight").State()
					if step == "undo-hotel" && last != ojs.StatePending {
						t.Errorf("undo-flight is %s while undo-hotel runs", last)
					}
					if err := b.Workflows().Cancel(ctx, id); !errors.Is(err, ojs.ErrTransition) {
						t.Errorf("W084: a cancel: %v", err)
					}
					name, err := workflow.UndoneResult[string](ctx)
					undone += name + " "
					return err
				}
				if _, err := workflow.UndoneResult[string](ctx); !errors.Is(err, ojs.ErrInvalid) {
					t.Errorf("%v", err)
				}
				return handler.SetResult(ctx, "the "+step)
			})
			id = b.start(trip(workflow.Compensate))
			b.run(time.Hour)
			s := b.want(id, workflow.StateCompensated,
				"flight:completed check:completed "+
					"hotel:completed car:discarded "+
					"undo-car:cancelled undo-hotel:completed undo-flight:completed")
			if n := strings.Count(strings.Join(b.ran, " "), "car"); n != 1 {
				t.Errorf("car ran %d times", n)
			}
			if undone != "the hotel the flight " || s.Step("undo-hotel").Undoes != "hotel" {
				t.Errorf("undone: %s", undone)
			}
			if err := b.Workflows().Retry(b.ctx, id); !errors.Is(err, ojs.ErrTransition) {
				t.Errorf("a retry of what was undone: %v", err)
			}
		})
	})
	t.Run("W081 the policies", func(t *testing.T) {
		for policy, want := range map[workflow.SagaPolicy]string{
			workflow.RetryFirst: "flight:completed check:completed hotel:completed car:completed undo-car:cancelled " +
				"undo-hotel:cancelled undo-flight:cancelled",
			workflow.Skip: "flight:completed check:completed hotel:discarded car:completed",
		} {
			inBubble(t, func(b *rig) {
				b.handle("x", func(_ context.Context, step string) error {
					times := strings.Count(strings.Join(b.ran, " "), "hotel")
					if step == "hotel" && (policy == workflow.Skip || times == 1) {
						return errBoom
					}
					return nil
				})
				id := b.start(trip(policy))
				b.run(24 * time.Hour)
				b.want(id, workflow.StateCompleted, want)
			})
		}
	})
	t.Run("W081 no step of a saga that skips runs if what comes before it has failed", func(t *testing.T) {
		inBubble(t, func(b *rig) {
			b.handle("x", func(context.Context, string) error { return errBoom })
			id := b.start(workflow.New("", workflow.Chain(step("first", ojs.WithMaxAttempts(1)),
				workflow.Saga(workflow.Skip, step("a"), step("b"), step("c")))))
			b.run(time.Hour)
			b.want(id, workflow.StateFailed, "first:discarded a:cancelled b:cancelled c:cancelled")
		})
	})
	t.Run("W081 W083 a step may set its own attempts; what has completed is undone", func(t *testing.T) {
		for policy, want := range map[workflow.SagaPolicy]string{
			workflow.Compensate: "a b c c undo-b undo-a", workflow.RetryFirst: "a a b b c c undo-b undo-a",
		} {
			inBubble(t, func(b *rig) {
				b.handle("x", func(_ context.Context, step string) error {
					ran := strings.Join(b.ran, " ")
					if step == "c" || policy == workflow.RetryFirst && strings.Count(ran, step) == 1 &&
						!strings.HasPrefix(step, "undo") {
						return errBoom
					}
					return nil
				})
				id := b.start(workflow.New("", workflow.Saga(policy, undoable("a"), undoable("b"),
					step("c", ojs.WithMaxAttempts(2)))))
				b.want(id, workflow.StateRunning, "a:available b:pending c:pending "+
					"undo-b:pending undo-a:pending")
				b.run(time.Hour)
				b.want(id, workflow.StateCompensated, "a:completed b:completed c:discarded "+
					"undo-b:completed undo-a:completed")
				if got := strings.Join(b.ran, " "); got != want {
					t.Errorf("%s ran %s, want %s", policy, got, want)
				}
			})
		}
	})
	t.Run("W083 a failed compensation is the last, until it is retried", func(t *testing.T) {
		inBubble(t, func(b *rig) {
			fails := true
			b.handle("x", func(_ context.Context, step string) error {
				if step == "car" || step == "undo-hotel" && fails {
					return ojs.Discard(errBoom)
				}
				return nil
			})
			id := b.start(trip(workflow.Compensate))
			b.run(0)
			b.want(id, workflow.StateFailed,
				"flight:completed check:completed "+
					"hotel:completed car:discarded "+
					"undo-car:cancelled undo-hotel:discarded undo-flight:cancelled")
			fails = false
			must(t, b.Workflows().Retry(b.ctx, id))
			b.want(id, workflow.StateCompensating,
				"flight:completed check:completed "+
					"hotel:completed car:discarded "+
					"undo-car:cancelled undo-hotel:available undo-flight:pending")
			b.run(0)
			b.want(id, workflow.StateCompensated,
				"flight:completed check:completed "+
					"hotel:completed car:discarded "+
					"undo-car:cancelled undo-hotel:completed undo-flight:completed")
		})
	})
	t.Run("W052 W084 a cancel that meets the failure of a step is refused", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			store := &watched{Storage: memory.New()}
			eng, err := engine.New[any](store, engine.WithLogger(slog.New(slog.DiscardHandler)))
			must(t, err)
			b := &rig{Engine: eng, t: t, ctx: t.Context()}
			w := b.Worker("w", fetch.Config{Types: []string{"x"}})
			x := ojs.NewDraft("x", nil)
			id := b.start(workflow.New("", workflow.Saga(workflow.Compensate,
				workflow.Undoable("a", x, x), step("b"))))
			next := func() *fetch.Delivery {
				d, err := w.Fetch(b.ctx)
				must(t, err)
				return d
			}
			must(t, next().Ack(b.ctx, nil))
			d := next()
			store.before = func() { must(t, d.Fail(b.ctx, errBoom)) } // after the cancel has read it
			wrong := new(ojs.TransitionError)
			if err := b.Workflows().Cancel(b.ctx, id); !errors.As(err, &wrong) || wrong.ID != id ||
				wrong.From != ojs.StatePending {
				t.Fatalf("a cancel that comes after the failure: %v", err)
			}
			b.want(id, workflow.StateCompensating, "a:completed b:discarded undo-a:available")
			must(t, next().Ack(b.ctx, nil))
			b.want(id, workflow.StateCompensated, "a:completed b:discarded undo-a:completed")
		})
	})
	t.Run("W084 a cancel undoes nothing", func(t *testing.T) {
		inBubble(t, func(b *rig) {
			var id string
			b.handle("x", func(ctx context.Context, step string) error {
				if step == "check" {
					must(t, b.Workflows().Cancel(ctx, id))
				}
				return nil
			})
			id = b.start(trip(workflow.Compensate))
			b.run(0)
			b.want(id, workflow.StateCancelled,
				"flight:completed check:completed "+
					"hotel:cancelled car:cancelled "+
					"undo-car:cancelled undo-hotel:cancelled undo-flight:cancelled")
		})
	})
}

func TestRetry(t *testing.T) {
	t.Run("the record waits for the outcome again, and not for the steps alone", func(t *testing.T) {
		inBubble(t, func(b *rig) {
			b.handle("x", func(_ context.Context, step string) error {
				if step == "b" {
					return ojs.Discard(errBoom)
				}
				return nil
			})
			id := b.start(workflow.New("", workflow.Group(step("a"), step("b"))))
			b.run(0)
			b.want(id, workflow.StateFailed, "a:completed b:discarded")
			must(t, b.Workflows().Retry(b.ctx, id))
			record, err := b.Engine.Get(b.ctx, id)
			must(t, err)
			if n := record.Dependencies.Unfinished; n != 2 {
				t.Errorf("the record waits for %d jobs, want 2: the step b and the outcome", n)
			}
		})
	})
	t.Run("failed steps, and what was cancelled because of them, run again", func(t *testing.T) {
		inBubble(t, func(b *rig) {
			fails := true
			b.handle("x", func(ctx context.Context, step string) error {
				if step == "b" && fails {
					return ojs.Discard(errBoom)
				}
				return nil
			})
			id := b.start(workflow.New("", workflow.Chain(workflow.Group(step("a"), step("b")), step("c"))))
			b.run(0)
			b.want(id, workflow.StateFailed, "a:completed b:discarded c:cancelled")
			fails = false
			before := b.status(id)
			must(t, b.Workflows().Retry(b.ctx, id))
			if err := b.Workflows().Retry(b.ctx, id); !errors.Is(err, ojs.ErrTransition) {
				t.Errorf("a second retry: %v", err)
			}
			s := b.want(id, workflow.StateRunning, "a:completed b:available c:pending")
			if !s.FinishedAt.IsZero() || len(s.Step("b").Job.Errors) != len(before.Step("b").Job.Errors) {
				t.Errorf("%+v", s)
			}
			b.run(0)
			b.want(id, workflow.StateCompleted, "a:completed b:completed c:completed")
			if got := strings.Join(b.ran, " "); got != "a b b c" {
				t.Error(got)
			}
		}, engine.WithConcurrency(1))
	})
	t.Run("a failure that a callback has dealt with is not retried", func(t *testing.T) {
		inBubble(t, func(b *rig) {
			b.handle("x", func(ctx context.Context, step string) error {
				if step == "a" || step == "b" {
					return ojs.Discard(errBoom)
				}
				return nil
			})
			id := b.start(workflow.New("", workflow.Chain(
				workflow.Batch(step("a"), workflow.OnFailure(ojs.NewDraft("x", nil))), step("b"), step("c"))))
			b.run(0)
			must(t, b.Workflows().Retry(b.ctx, id))
			b.want(id, workflow.StateRunning, "a:discarded on_failure:completed b:available c:pending")
		})
	})
	t.Run("W027 a step is not retried by hand, so that no ended workflow is revived", func(t *testing.T) {
		inBubble(t, func(b *rig) {
			b.handle("x", func(_ context.Context, step string) error {
				if step == "b" {
					return ojs.Discard(errBoom)
				}
				return nil
			})
			id := b.start(workflow.New("", workflow.Chain(step("a"), step("b"), step("c"))))
			b.run(0)
			before := b.want(id, workflow.StateFailed, "a:completed b:discarded c:cancelled")
			pace.Virtual(time.Minute)
			if err := b.Jobs().Retry(b.ctx, before.Step("b").JobID); !errors.Is(err, ojs.ErrTransition) {
				t.Errorf("%v", err)
			}
			b.run(0)
			after := b.want(id, workflow.StateFailed, "a:completed b:discarded c:cancelled")
			if !after.FinishedAt.Equal(before.FinishedAt) {
				t.Errorf("it ended at %v, and then at %v", before.FinishedAt, after.FinishedAt)
			}
		})
	})
	t.Run("W027 a cancelled, completed or unknown workflow is refused", func(t *testing.T) {
		inBubble(t, func(b *rig) {
			b.handle("x", func(context.Context, string) error { return nil })
			cancelled, completed := b.start(workflow.New("", step("a"))), b.start(workflow.New("", step("a")))
			must(t, b.Workflows().Cancel(b.ctx, cancelled))
			b.run(0)
			for _, id := range []string{cancelled, completed} {
				if err := b.Workflows().Retry(b.ctx, id); !errors.Is(err, ojs.ErrTransition) {
					t.Errorf("%v", err)
				}
			}
			if err := b.Workflows().Retry(b.ctx, anyID); !errors.Is(err, ojs.ErrNotFound) {
				t.Errorf("%v", err)
			}
		})
	})
	t.Run("W051 a running step of a cancelled workflow is not retried", func(t *testing.T) {
		inBubble(t, func(b *rig) {
			var id string
			b.handle("x", func(ctx context.Context, step string) error {
				if step == "a" {
					must(t, b.Workflows().Cancel(ctx, id))
				}
				return errBoom
			})
			id = b.start(workflow.New("", workflow.Chain(step("a"), step("b"))))
			b.run(time.Hour)
			s := b.want(id, workflow.StateCancelled, "a:cancelled b:cancelled")
			if got := strings.Join(b.ran, " "); got != "a" || len(s.Step("a").Job.Errors) != 1 {
				t.Errorf("ran %s, %+v", got, s.Step("a").Job)
			}
		})
	})
	t.Run("W051 a worker may finish a step of a cancelled workflow", func(t *testing.T) {
		inBubble(t, func(b *rig) {
			w := b.Worker("w", fetch.Config{Types: []string{"x"}})
			id := b.start(workflow.New("", workflow.Chain(
				workflow.Group(step("a"), step("b")), step("c"))))
			ds, err := w.FetchMany(b.ctx, 2)
			must(t, err)
			must(t, b.Workflows().Cancel(b.ctx, id))
			beat, err := w.Heartbeat(b.ctx)
			if err != nil || len(beat.Held) != 2 || len(beat.Lost) != 0 {
				t.Errorf("%+v, %v", beat, err)
			}
			must(t, ds[0].Ack(b.ctx, 7))
			must(t, ds[1].Fail(b.ctx, errBoom))
			b.run(time.Hour)
			s := b.want(id, workflow.StateCancelled, "a:completed b:cancelled c:cancelled")
			done, failed := s.Step("a").Job, s.Step("b").Job
			if string(done.Result) != "7" || len(failed.Errors) != 1 {
				t.Errorf("%+v, %+v", done, failed)
			}
		})
	})
	t.Run("W051 no worker gets a step of a cancelled workflow again", func(t *testing.T) {
		for name, end := range map[string]func(context.Context, *fetch.Delivery) error{
			"failed":   func(ctx context.Context, d *fetch.Delivery) error { return d.Fail(ctx, errBoom) },
			"released": func(ctx context.Context, d *fetch.Delivery) error { return d.Release(ctx) },
		} {
			synctest.Test(t, func(t *testing.T) {
				store := &failingLookups{Storage: memory.New()}
				eng, err := engine.New[any](store, engine.WithLogger(slog.New(slog.DiscardHandler)))
				must(t, err)
				b := &rig{Engine: eng, t: t, ctx: t.Context()}
				w := b.Worker("w", fetch.Config{Types: []string{"x"}})
				id := b.start(workflow.New("", step("a")))
				d, err := w.Fetch(b.ctx)
				must(t, err)
				must(t, b.Workflows().Cancel(b.ctx, id))
				store.fails.Store(true) // as if the process ended here
				must(t, end(b.ctx, d))
				store.fails.Store(false)
				b.want(id, workflow.StateCancelled, "a:retryable")
				b.Handle("other", func(context.Context, *ojs.Job[any]) error { return nil })
				ticket, err := b.Enqueue(b.ctx, "x", nil, ojs.WithDelay(time.Hour))
				must(t, err)
				fetched := make(chan string, 1)
				go func() {
					next, err := w.Fetch(b.ctx)
					if err == nil {
						err = next.Ack(b.ctx, nil)
					}
					if err != nil {
						fetched <- err.Error()
						return
					}
					fetched <- next.Job.ID
				}()
				b.run(2 * time.Hour)
				b.want(id, workflow.StateCancelled, "a:cancelled")
				if got := <-fetched; got != ticket.ID {
					t.Errorf("%s: the worker got %s", name, got)
				}
				beat, err := w.Heartbeat(b.ctx)
				if err != nil || len(beat.Held) != 0 || len(beat.Lost) != 0 {
					t.Errorf("%s: %+v, %v", name, beat, err)
				}
			})
		}
	})
	t.Run("W050 W052 a cancel is one call of the storage, and its events come in order", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			store := &watched{Storage: memory.New()}
			eng, err := engine.New[any](store, engine.WithLogger(slog.New(slog.DiscardHandler)))
			must(t, err)
			b := &rig{Engine: eng, t: t, ctx: t.Context()}
			sub := b.Subscribe(engine.EventFilter{Types: []event.Type{event.Cancelled}})
			defer sub.Close()
			b.handle("x", func(context.Context, string) error { return nil })
			id := b.start(workflow.New("", workflow.Chain(step("a"), workflow.Group(step("b"), step("c")))))
			must(t, b.Workflows().Cancel(b.ctx, id))
			if store.cancels != 1 {
				t.Errorf("%d calls", store.cancels)
			}
			must(t, b.Workflows().Cancel(b.ctx, id))
			b.run(0)
			b.want(id, workflow.StateCancelled, "a:cancelled b:cancelled c:cancelled")
			sub.Close()
			n := 0
			for range sub.C() {
				n++
			}
			if n != 5 { // with the joins and the record
				t.Errorf("%d events", n)
			}
		})
	})
}
