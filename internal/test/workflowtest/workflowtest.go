// Package workflowtest runs workflows over the storages that processes share, in real
// time: with engines that follow one another, and with what storage.GroupStore is for.
package workflowtest

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/ojsengine/ojs"
	"github.com/ojsengine/ojs/engine"
	"github.com/ojsengine/ojs/handler"
	"github.com/ojsengine/ojs/storage"
	"github.com/ojsengine/ojs/workflow"
)

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func newEngine(t *testing.T, s storage.Storage, workers int) *engine.Engine[any] {
	t.Helper()
	quiet := engine.WithLogger(slog.New(slog.DiscardHandler))
	eng, err := engine.New[any](s, quiet, engine.WithConcurrency(workers))
	must(t, err)
	return eng
}

// start runs an engine until stop is called.
func start(t *testing.T, eng *engine.Engine[any]) (stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- eng.Run(ctx) }()
	return func() {
		t.Helper()
		cancel()
		if err := <-ended; err != nil {
			t.Errorf("Run: %v", err)
		}
	}
}

// OutliveTheirEngine proves W020 and W024: workflows that an engine over first has begun
// are finished by engines over what others opens, in which the last members of a batch
// end at the same time. Every step runs, and every callback is enqueued once. others may
// close first.
func OutliveTheirEngine(t *testing.T, first storage.Storage, others func() []storage.Storage) {
	const workflows, members = 10, 20
	eng := newEngine(t, first, 4)
	began := make(chan struct{}, workflows*members)
	eng.Handle("count", func(ctx context.Context, _ *ojs.Job[any]) error {
		began <- struct{}{}
		return handler.SetResult(ctx, 1)
	})
	var ids []string
	for i := range workflows {
		var parts []workflow.Part
		for k := range members {
			parts = append(parts, workflow.Step(fmt.Sprint(k), ojs.NewDraft("count", nil)))
		}
		ticket, err := eng.Workflows().Start(t.Context(), workflow.New(fmt.Sprint(i), workflow.Chain(
			workflow.Batch(workflow.Group(parts...), workflow.OnComplete(ojs.NewDraft("sum", nil))),
			workflow.Step("last", ojs.NewDraft("count", nil)))))
		must(t, err)
		ids = append(ids, ticket.ID)
	}
	stop := start(t, eng)
	for range 10 {
		<-began
	}
	stop()

	sums := make(chan int, workflows*2)
	for _, s := range others() {
		eng = newEngine(t, s, 4)
		eng.Handle("count", func(ctx context.Context, _ *ojs.Job[any]) error {
			return handler.SetResult(ctx, 1)
		})
		eng.Handle("sum", func(ctx context.Context, _ *ojs.Job[any]) error {
			sum := 0
			for k := range members {
				n, err := workflow.Result[int](ctx, fmt.Sprint(k))
				if early := (*workflow.StepError)(nil); errors.As(err, &early) {
					t.Errorf("a callback runs before its members have ended: %v", err)
				}
				if err != nil {
					return err
				}
				sum += n
			}
			sums <- sum
			return nil
		})
		defer start(t, eng)()
	}
	for _, id := range ids {
		s, err := eng.Workflows().Wait(t.Context(), id)
		must(t, err)
		if n := s.Count(ojs.StateCompleted); s.State != workflow.StateCompleted || n != members+2 {
			t.Errorf("workflow %s is %s, %d steps completed", s.Name, s.State, n)
		}
		if sum := <-sums; sum != members {
			t.Errorf("a callback has seen %d results", sum)
		}
	}
	if len(sums) > 0 {
		t.Errorf("%d callbacks too many", len(sums))
	}
}

// rig is an engine whose jobs are steps of workflows.
type rig struct {
	*engine.Engine[any]
	t *testing.T
}

func step(name string) workflow.Part { return workflow.Step(name, ojs.NewDraft("x", nil)) }

// handle runs steps by their names.
func (r *rig) handle(f func(ctx context.Context, step string) error) {
	r.Handle("x", func(ctx context.Context, job *ojs.Job[any]) error {
		step, _ := job.Meta[workflow.MetaStep].(string)
		return f(ctx, step)
	})
}

func (r *rig) start(part workflow.Part) string {
	r.t.Helper()
	ticket, err := r.Workflows().Start(r.t.Context(), workflow.New("", part))
	must(r.t, err)
	return ticket.ID
}

// ends waits for the end of a workflow, and compares the states of its steps.
func (r *rig) ends(id string, state workflow.State, want string) {
	r.t.Helper()
	s, err := r.Workflows().Wait(r.t.Context(), id)
	if failed := new(workflow.EndedError); (err == nil) != (state == workflow.StateCompleted) ||
		err != nil && !errors.As(err, &failed) {
		r.t.Fatalf("Wait: %v", err)
	}
	var got []string
	for i := range s.Steps {
		got = append(got, s.Steps[i].Name+":"+string(s.Steps[i].State()))
	}
	if s.State != state || strings.Join(got, " ") != want {
		r.t.Errorf("the workflow is %s: %s; it should be %s: %s",
			s.State, strings.Join(got, " "), state, want)
	}
}

var errBroken = errors.New("broken")

// Groups proves that workflows are retried, added to, cancelled in one step and undone,
// over a storage.GroupStore.
func Groups(t *testing.T, open func(t *testing.T) storage.Storage) {
	for name, f := range map[string]func(t *testing.T, r *rig){
		"Retry": func(t *testing.T, r *rig) {
			var fails atomic.Bool
			fails.Store(true)
			r.handle(func(_ context.Context, step string) error {
				if step == "b" && fails.Load() {
					return ojs.Discard(errBroken)
				}
				return nil
			})
			defer start(t, r.Engine)()
			id := r.start(workflow.Chain(workflow.Group(step("a"), step("b")), step("c")))
			r.ends(id, workflow.StateFailed, "a:completed b:discarded c:cancelled")
			fails.Store(false)
			must(t, r.Workflows().Retry(t.Context(), id))
			r.ends(id, workflow.StateCompleted, "a:completed b:completed c:completed")
			if err := r.Workflows().Retry(t.Context(), id); !errors.Is(err, ojs.ErrTransition) {
				t.Errorf("a retry of what has completed: %v", err)
			}
		},
		"Nothing": func(t *testing.T, r *rig) {
			nothing := workflow.Batch(workflow.Group(), workflow.OnComplete(ojs.NewDraft("x", nil)))
			r.handle(func(ctx context.Context, name string) error {
				if name != "a" {
					return nil
				}
				added, err := workflow.Add(ctx, nothing)
				if err != nil || !added {
					t.Errorf("added %v, %v", added, err)
				}
				return nil
			})
			r.ends(r.start(workflow.Group()), workflow.StateCompleted, "")
			defer start(t, r.Engine)()
			id := r.start(workflow.Chain(nothing, workflow.Adder("a", ojs.NewDraft("x", nil)), step("b")))
			r.ends(id, workflow.StateCompleted,
				"on_complete:completed a:completed b:completed a/on_complete:completed")
		},
		"Cancel": func(t *testing.T, r *rig) {
			r.handle(func(context.Context, string) error { return nil })
			id := r.start(workflow.Chain(step("a"), workflow.Group(step("b"), step("c"))))
			must(t, r.Workflows().Cancel(t.Context(), id))
			r.ends(id, workflow.StateCancelled, "a:cancelled b:cancelled c:cancelled")
		},
		"Add": func(t *testing.T, r *rig) {
			var attempts atomic.Int32
			r.handle(func(ctx context.Context, name string) error {
				if name != "a" {
					return nil
				}
				first := attempts.Add(1) == 1
				added, err := workflow.Add(ctx, workflow.Chain(step("b"), step("c")))
				if err != nil || added != first {
					t.Errorf("added %v, %v", added, err)
				}
				if first {
					return errBroken // after the steps were added
				}
				return nil
			})
			defer start(t, r.Engine)()
			again := ojs.WithRetry(ojs.RetryPolicy{MaxAttempts: 2, InitialInterval: 1e6})
			id := r.start(workflow.Chain(workflow.Adder("a", ojs.NewDraft("x", nil, again)), step("d")))
			r.ends(id, workflow.StateCompleted, "a:completed d:completed a/b:completed a/c:completed")
		},
		"Saga": func(t *testing.T, r *rig) {
			r.handle(func(_ context.Context, step string) error {
				if step == "car" {
					return ojs.Discard(errBroken)
				}
				return nil
			})
			defer start(t, r.Engine)()
			undoable := func(name string) workflow.Part {
				return workflow.Undoable(name, ojs.NewDraft("x", nil), ojs.NewDraft("x", nil))
			}
			id := r.start(workflow.Saga(workflow.Compensate,
				undoable("flight"), undoable("hotel"), undoable("car")))
			r.ends(id, workflow.StateCompensated, "flight:completed hotel:completed car:discarded "+
				"undo-car:cancelled undo-hotel:completed undo-flight:completed")
		},
	} {
		t.Run(name, func(t *testing.T) { f(t, &rig{newEngine(t, open(t), 2), t}) })
	}
}
