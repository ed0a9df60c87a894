package postgres_test

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"testing"
	"time"

	"github.com/ojsengine/ojs"
	"github.com/ojsengine/ojs/engine"
	"github.com/ojsengine/ojs/handler"
	"github.com/ojsengine/ojs/storage"
	"github.com/ojsengine/ojs/storage/postgres"
	"github.com/ojsengine/ojs/workflow"
)

// W020 W024: workflows that one engine has begun are finished by two others over
// storages of their own, in which the last members of a batch end at the same time. Every
// step runs, and every callback is enqueued once.
func TestWorkflowsOutliveTheirEngine(t *testing.T) {
	first, name := open(t, "")
	newEngine := func(s *postgres.Storage) *engine.Engine[any] {
		quiet := engine.WithLogger(slog.New(slog.DiscardHandler))
		eng, err := engine.New[any](s, quiet, engine.WithConcurrency(4))
		must(t, err)
		return eng
	}
	const workflows, members = 10, 20

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

	second, _ := open(t, name)
	third, _ := open(t, name)
	sums := make(chan int, workflows*2)
	ctx, stop = context.WithCancel(t.Context())
	for _, s := range []*postgres.Storage{second, third} {
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
		running := eng
		go func() { ended <- running.Run(ctx) }()
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
	stop()
	must(t, <-ended)
	must(t, <-ended)
	if len(sums) > 0 {
		t.Errorf("%d callbacks too many", len(sums))
	}
}

// Jobs that wait for each other's jobs in opposite orders end in concurrent transactions:
// each is counted, whichever transaction the database undoes.
func TestConcurrentEndsInAnyOrder(t *testing.T) {
	one, name := open(t, "")
	two, _ := open(t, name)
	now := time.Now()
	job := func(id string, state ojs.State, on ...string) storage.Insert {
		var r storage.Record
		r.ID, r.Queue, r.Type, r.State, r.Lease = id, "q", "x", state, 1e9
		r.CreatedAt, r.EnqueuedAt = now, now
		if len(on) > 0 {
			r.Dependencies = &ojs.Dependencies{Condition: ojs.AllEnded}
		}
		return storage.Insert{Record: r, DependsOn: on}
	}
	for round := range 20 {
		id := func(what string, i int) string { return fmt.Sprint(what, i, ".", round) }
		const n = 8
		var batch []storage.Insert
		var roots []string
		for i := range n {
			batch = append(batch, job(id("root", i), ojs.StateAvailable))
			roots = append(roots, id("root", i))
		}
		// Joins of the roots; then two levels whose numbers fall where the levels rise.
		for i := range n {
			in := job(id("last", i), ojs.StatePending,
				id("join", i), id("join", (i+1)%n), id("join", (i+3)%n))
			batch = append(batch, in)
		}
		for i := range n {
			in := job(id("join", i), ojs.StatePending, roots[i], roots[(i+1)%n], roots[(i+5)%n])
			in.Record.Dependencies.Join = true
			batch = append(batch, in)
		}
		_, err := one.Insert(t.Context(), now, batch, nil)
		must(t, err)
		claimed, err := one.Claim(t.Context(), now, storage.Claim{Max: n}, nil)
		must(t, err)
		moved := make(map[string]int)
		var mu sync.Mutex
		var wg sync.WaitGroup
		for i := range claimed {
			wg.Go(func() {
				r := claimed[i]
				r.State, r.FinishedAt, r.LeaseUntil = ojs.StateCompleted, now, r.FinishedAt
				s := []*postgres.Storage{one, two}[i%2]
				changes := []storage.Change{{Record: r, AttemptFieldsOnly: true}}
				out, err := s.Settle(t.Context(), now, changes, nil)
				if err != nil || out[0].Err != nil {
					t.Errorf("%v, %+v", err, out)
					return
				}
				mu.Lock()
				defer mu.Unlock()
				for _, m := range out[0].Moved {
					moved[m.ID+" "+string(m.State)]++
				}
			})
		}
		wg.Wait()
		for i := range n {
			if k := id("join", i) + " completed"; moved[k] != 1 {
				t.Errorf("%s: %d times", k, moved[k])
			}
			if k := id("last", i) + " available"; moved[k] != 1 {
				t.Errorf("%s: %d times", k, moved[k])
			}
		}
		left, err := one.Claim(t.Context(), now, storage.Claim{Max: 2 * n}, nil)
		if err != nil || len(left) != n {
			t.Fatalf("%d jobs are available, %v", len(left), err)
		}
		for i := range left {
			r := left[i]
			r.State, r.FinishedAt, r.LeaseUntil = ojs.StateCompleted, now, r.FinishedAt
			changes := []storage.Change{{Record: r, AttemptFieldsOnly: true}}
			_, err := one.Settle(t.Context(), now, changes, nil)
			must(t, err)
		}
	}
	var edges, awaited int
	count := "SELECT (SELECT count(*) FROM " + name + ".edge), count(*) FROM " + name + ".stage WHERE awaited"
	must(t, connect(t).QueryRow(t.Context(), count).Scan(&edges, &awaited))
	if edges+awaited > 0 {
		t.Errorf("%d edges and %d awaited jobs are left", edges, awaited)
	}
}
