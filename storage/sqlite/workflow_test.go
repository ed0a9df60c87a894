package sqlite_test

import (
	"context"
	"fmt"
	"path/filepath"
	"testing"

	"github.com/ojsengine/ojs"
	"github.com/ojsengine/ojs/engine"
	"github.com/ojsengine/ojs/handler"
	"github.com/ojsengine/ojs/storage/sqlite"
	"github.com/ojsengine/ojs/workflow"
)

// W020 W024: workflows that one engine has begun are finished by two others over the
// reopened file. Every step runs, and every callback is enqueued once.
func TestWorkflowsOutliveTheirEngine(t *testing.T) {
	path := filepath.Join(t.TempDir(), "jobs.db")
	openFile := func() *sqlite.Storage {
		s, err := sqlite.Open(t.Context(), path, sqlite.WithSynchronous(sqlite.Normal))
		must(t, err)
		return s
	}
	newEngine := func(s *sqlite.Storage) *engine.Engine[any] {
		eng, err := engine.New[any](s, engine.WithLogger(discard), engine.WithConcurrency(4))
		must(t, err)
		return eng
	}
	const workflows, members = 10, 20

	first := openFile()
	eng := newEngine(first)
	ctx, stop := context.WithCancel(t.Context())
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
		ticket, err := eng.Workflows().Start(ctx, workflow.New(fmt.Sprint(i), workflow.Chain(
			workflow.Batch(workflow.Group(parts...), workflow.OnComplete(ojs.NewDraft("sum", nil))),
			workflow.Step("last", ojs.NewDraft("count", nil)))))
		must(t, err)
		ids = append(ids, ticket.ID)
	}
	ended := make(chan error, 1)
	go func() { ended <- eng.Run(ctx) }()
	for range 10 {
		<-began
	}
	stop()
	must(t, <-ended)
	must(t, first.Close())

	second, third := openFile(), openFile()
	t.Cleanup(func() { must(t, second.Close()); must(t, third.Close()) })
	sums := make(chan int, workflows*2)
	for _, s := range []*sqlite.Storage{second, third} {
		eng = newEngine(s)
		eng.Handle("count", func(ctx context.Context, _ *ojs.Job[any]) error {
			return handler.SetResult(ctx, 1)
		})
		eng.Handle("sum", func(ctx context.Context, _ *ojs.Job[any]) error {
			sum := 0
			for k := range members {
				n, err := workflow.Result[int](ctx, fmt.Sprint(k))
				if err != nil {
					return err
				}
				sum += n
			}
			sums <- sum
			return nil
		})
		runUntilEnd(t, eng)
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
