package engine_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ojsengine/ojs"
	"github.com/ojsengine/ojs/engine"
	"github.com/ojsengine/ojs/handler"
	"github.com/ojsengine/ojs/inspect"
	"github.com/ojsengine/ojs/operate"
	"github.com/ojsengine/ojs/storage/memory"
)

func TestServeQueues(t *testing.T) {
	given := func(name string) engine.Option { return engine.WithQueueConfig(name, engine.QueueConfig{}) }
	nap := func(b *rig) {
		b.handle("x", func(ctx context.Context, _ *ojs.Job[any]) error {
			return handler.Sleep(ctx, time.Second)
		})
	}
	t.Run("an added queue is served at once, a removed one no more", func(t *testing.T) {
		inBubble(t, func(b *rig) {
			nap(b)
			b.run()
			first := b.enqueue("x", ojs.WithQueue("b"))
			b.advance(time.Minute)
			b.want(first.ID, ojs.StateAvailable, 0)
			must(t, b.AddQueue(b.ctx, "b", engine.QueueConfig{Concurrency: 1}))
			second := b.enqueue("x", ojs.WithQueue("b"))
			b.advance(0)
			b.want(first.ID, ojs.StateActive, 1)
			b.want(second.ID, ojs.StateAvailable, 0)
			must(t, b.RemoveQueue(b.ctx, "b"))
			b.advance(time.Minute)
			b.want(first.ID, ojs.StateCompleted, 1)
			b.want(second.ID, ojs.StateAvailable, 0)
			e, err := b.Jobs().Explain(b.ctx, second.ID)
			if err != nil || len(e.Obstacles) != 1 || e.Obstacles[0].Code != inspect.ObstacleOtherQueues {
				t.Errorf("%+v, %v", e, err)
			}
			must(t, b.AddQueue(b.ctx, "b", engine.QueueConfig{}))
			b.advance(time.Second)
			b.want(second.ID, ojs.StateCompleted, 1)
		}, given("a"))
	})
	t.Run("what runs counts in a new concurrency, and in a queue that is added anew", func(t *testing.T) {
		inBubble(t, func(b *rig) {
			nap(b)
			b.run()
			for range 6 {
				b.enqueue("x", ojs.WithQueue("a"))
			}
			b.advance(0)
			if n := len(b.times()); n != 4 {
				t.Fatalf("%d run", n)
			}
			must(t, b.ConfigureQueue(b.ctx, "a", engine.QueueConfig{Concurrency: 1}))
			b.advance(time.Second)
			b.advance(time.Second)
			must(t, b.ConfigureQueue(b.ctx, "a", engine.QueueConfig{Concurrency: 3}))
			for range 6 {
				b.enqueue("x", ojs.WithQueue("a"))
			}
			b.advance(0)
			must(t, b.RemoveQueue(b.ctx, "a"))
			b.advance(500 * time.Millisecond)
			must(t, b.AddQueue(b.ctx, "a", engine.QueueConfig{Concurrency: 4}))
			b.advance(0)
			b.advance(500 * time.Millisecond)
			if got, want := fmt.Sprint(b.times()), "[0s 0s 0s 0s 1s 2s 2s 2s 2.5s 3s 3s 3s]"; got != want {
				t.Errorf("runs at %s, want %s", got, want)
			}
			b.advance(time.Minute)
		}, given("a"), given("b"), engine.WithConcurrency(4))
	})
	t.Run("rate, weight, depth and defaults", func(t *testing.T) {
		inBubble(t, func(b *rig) {
			var mu sync.Mutex
			var order []string
			b.Handle("x", func(_ context.Context, job *ojs.Job[any]) error {
				mu.Lock()
				defer mu.Unlock()
				order = append(order, job.Queue)
				return nil
			})
			ran := func() []string {
				mu.Lock()
				defer mu.Unlock()
				return slices.Clone(order)
			}
			q := b.Engine
			must(t, q.ConfigureQueue(b.ctx, "a", engine.QueueConfig{
				MaxDepth: 1, Overflow: engine.OverflowBlock, Defaults: []ojs.Option{ojs.WithPriority(7)},
			}))
			ticket := b.enqueue("x", ojs.WithQueue("a"))
			if p := b.job(ticket.ID).Priority; p != 7 {
				t.Errorf("priority %d", p)
			}
			blocked := make(chan error)
			go func() {
				_, err := b.Enqueue(b.ctx, "x", nil, ojs.WithQueue("a"))
				blocked <- err
			}()
			synctest.Wait()
			must(t, q.ConfigureQueue(b.ctx, "a", engine.QueueConfig{}))
			must(t, <-blocked)
			if b.elapsed() != 0 {
				t.Errorf("the blocked enqueue went on after %v", b.elapsed())
			}
			if p := b.job(b.enqueue("x", ojs.WithQueue("a")).ID).Priority; p != 0 {
				t.Errorf("priority %d", p)
			}
			must(t, q.ConfigureQueue(b.ctx, "a", engine.QueueConfig{Weight: 2}))
			wantInvalid(t, q.AddQueue(b.ctx, "b", engine.QueueConfig{}), "weight")
			must(t, q.AddQueue(b.ctx, "b", engine.QueueConfig{Weight: 1}))
			for range 3 {
				b.enqueue("x", ojs.WithQueue("b"))
			}
			b.run()
			if got, want := fmt.Sprint(ran()), "[a b a a b b]"; got != want {
				t.Errorf("order %s, want %s", got, want)
			}
			must(t, q.ConfigureQueue(b.ctx, "a", engine.QueueConfig{
				Weight: 2, RateLimit: ojs.RateLimit{Rate: ojs.Rate{Limit: 1, Per: time.Second}},
			}))
			for range 3 {
				b.enqueue("x", ojs.WithQueue("a"))
			}
			b.advance(0)
			if n := len(ran()); n != 7 {
				t.Errorf("%d runs at once at a rate of 1", n-6)
			}
			b.advance(time.Second)
			if n := len(ran()); n != 8 {
				t.Errorf("%d runs after a second at a rate of 1", n-6)
			}
			must(t, q.ConfigureQueue(b.ctx, "a", engine.QueueConfig{Weight: 2}))
			b.advance(0)
			if n := len(ran()); n != 9 {
				t.Errorf("%d runs of 3 without a rate", n-6)
			}
		}, given("a"), engine.WithConcurrency(1))
	})
	t.Run("limits over all engines are stored and cleared", func(t *testing.T) {
		inBubble(t, func(b *rig) {
			q, name := b.Engine, operate.LimitOfQueue("a")
			must(t, q.ConfigureQueue(b.ctx, "a", engine.QueueConfig{GlobalConcurrency: 2}))
			l, err := b.Limits().Get(b.ctx, name)
			if err != nil || l.Bounds.Concurrency != 2 {
				t.Errorf("%+v, %v", l, err)
			}
			must(t, q.ConfigureQueue(b.ctx, "a", engine.QueueConfig{}))
			if l, err := b.Limits().Get(b.ctx, name); !errors.Is(err, ojs.ErrNotFound) {
				t.Errorf("%+v, %v", l, err)
			}
		}, given("a"))
		// A change while Run begins is the last word.
		inBubbleOn(t, &setsSlowly{Storage: memory.New()}, func(b *rig) {
			b.run()
			must(t, b.ConfigureQueue(b.ctx, "a", engine.QueueConfig{GlobalConcurrency: 2}))
			b.advance(time.Minute)
			l, err := b.Limits().Get(b.ctx, operate.LimitOfQueue("a"))
			if err != nil || l.Bounds.Concurrency != 2 {
				t.Errorf("%+v, %v", l, err)
			}
		}, engine.WithQueueConfig("a", engine.QueueConfig{GlobalConcurrency: 1}))
	})
	t.Run("Describe shows the configuration, and what is refused changes nothing", func(t *testing.T) {
		three := engine.WithQueueConfig("a", engine.QueueConfig{Concurrency: 3})
		eng, err := engine.New[any](newMemory(t), quiet, three)
		must(t, err)
		q, ctx := eng, t.Context()
		wantInvalid(t, q.AddQueue(ctx, "a", engine.QueueConfig{}), "queue")
		wantInvalid(t, q.AddQueue(ctx, "BAD", engine.QueueConfig{}), "queue")
		wantInvalid(t, q.ConfigureQueue(ctx, "a", engine.QueueConfig{Concurrency: -1}), "concurrency")
		wantInvalid(t, q.RemoveQueue(ctx, "a"), "queue")
		for _, err := range []error{q.RemoveQueue(ctx, "b"),
			q.ConfigureQueue(ctx, "b", engine.QueueConfig{})} {
			if !errors.Is(err, ojs.ErrNotFound) {
				t.Errorf("%v", err)
			}
		}
		_, err = eng.Enqueue(ctx, "x", nil, ojs.WithQueue("b"))
		must(t, err)
		list, err := q.Queues().List(ctx)
		configs := q.Describe().Configs
		if err != nil || len(list) != 2 || len(configs) != 1 || configs["a"].Concurrency != 3 {
			t.Errorf("%+v, %v, %v", list, configs, err)
		}
		all, err := engine.New[any](newMemory(t), quiet)
		must(t, err)
		wantInvalid(t, all.AddQueue(ctx, "a", engine.QueueConfig{}), "queue")
	})
}

// Jobs that were claimed ahead of a queue go back when it is removed, and their attempts
// are not spent.
func TestRemoveQueueReturnsJobs(t *testing.T) {
	const jobs = 400
	eng, err := engine.New[int](memory.New(), quiet, keepAll, engine.WithConcurrency(2),
		engine.WithQueueConfig("a", engine.QueueConfig{}), engine.WithQueueConfig("b", engine.QueueConfig{}))
	must(t, err)
	var ran sync.Map
	half, release := make(chan struct{}), make(chan struct{})
	var n atomic.Int32
	eng.Handle("x", func(_ context.Context, job *ojs.Job[int]) error {
		if _, again := ran.LoadOrStore(job.Args, true); again {
			t.Errorf("job %d runs twice", job.Args)
		}
		if n.Add(1) == jobs/2 { // here the engine claims ahead
			close(half)
			<-release
		}
		return nil
	})
	var tickets []ojs.Ticket
	for i := range jobs {
		ticket, err := eng.Enqueue(t.Context(), "x", i, ojs.WithQueue("a"))
		must(t, err)
		tickets = append(tickets, ticket)
	}
	started(t, eng)
	<-half
	must(t, eng.RemoveQueue(t.Context(), "a"))
	close(release)
	done, err := eng.Enqueue(t.Context(), "x", jobs, ojs.WithQueue("b"))
	must(t, err)
	_, err = done.Wait(t.Context())
	must(t, err)
	must(t, eng.AddQueue(t.Context(), "a", engine.QueueConfig{}))
	for _, ticket := range tickets {
		_, err := ticket.Wait(t.Context())
		must(t, err)
		if job, err := eng.Get(t.Context(), ticket.ID); err != nil || job.Attempt != 1 {
			t.Errorf("%+v, %v", job, err)
		}
	}
}

// Queues change while jobs run. Every job runs, and then a concurrency holds that was
// configured before its jobs were enqueued.
func TestServeQueuesUnderLoad(t *testing.T) {
	const jobs, rounds, last = 3000, 30, 300
	eng, err := engine.New[int](memory.New(), quiet, engine.WithConcurrency(8),
		engine.WithQueueConfig("a", engine.QueueConfig{}), engine.WithQueueConfig("b", engine.QueueConfig{}))
	must(t, err)
	var running, ran atomic.Int32
	all, end := make(chan struct{}), make(chan struct{})
	eng.Handle("x", func(_ context.Context, job *ojs.Job[int]) error {
		if n := running.Add(1); job.Args >= jobs && n > 1 {
			t.Errorf("%d run at once", n)
		}
		running.Add(-1)
		switch ran.Add(1) {
		case jobs:
			close(all)
		case jobs + last:
			close(end)
		}
		return nil
	})
	started(t, eng)
	q, ctx := eng, t.Context()
	var enqueues sync.WaitGroup
	enqueues.Go(func() {
		for i := range jobs {
			if _, err := eng.Enqueue(ctx, "x", i, ojs.WithQueue([]string{"a", "b"}[i%2])); err != nil {
				t.Error(err)
			}
		}
	})
	for i := range rounds {
		must(t, q.ConfigureQueue(ctx, "b", engine.QueueConfig{Concurrency: 1}))
		must(t, q.RemoveQueue(ctx, "b"))
		must(t, q.ConfigureQueue(ctx, "a", engine.QueueConfig{Concurrency: 1 + i%4}))
		must(t, q.AddQueue(ctx, "b", engine.QueueConfig{Concurrency: 1 + i%2}))
		must(t, q.ConfigureQueue(ctx, "b", engine.QueueConfig{}))
		must(t, q.ConfigureQueue(ctx, "a", engine.QueueConfig{}))
	}
	enqueues.Wait()
	<-all
	must(t, q.ConfigureQueue(ctx, "b", engine.QueueConfig{Concurrency: 1}))
	for i := range last {
		_, err := eng.Enqueue(ctx, "x", jobs+i, ojs.WithQueue("b"))
		must(t, err)
	}
	<-end
}

// Stats of an engine whose queues have defaults encode as JSON.
func TestStatsOfConfiguredQueuesEncode(t *testing.T) {
	inBubble(t, func(b *rig) {
		stats, err := b.Stats(b.ctx)
		must(t, err)
		if text, err := json.Marshal(stats); err != nil || !strings.Contains(string(text), `"slow"`) {
			t.Errorf("%s, %v", text, err)
		}
	}, engine.WithQueueConfig("slow", engine.QueueConfig{Defaults: []ojs.Option{ojs.WithPriority(1)}}))
}

// Of two numbers at once of a queue the lower one holds.
func TestQueueConfigBounds(t *testing.T) {
	for name, tc := range map[string]struct{ atOnce, limit, want int }{
		"neither":     {0, 0, 0},
		"concurrency": {3, 0, 3},
		"limit":       {0, 2, 2},
		"limit lower": {3, 2, 2},
		"both, lower": {1, 2, 1},
		"none":        {3, ojs.NoneAtOnce, ojs.NoneAtOnce},
	} {
		t.Run(name, func(t *testing.T) {
			l := ojs.RateLimit{Concurrency: tc.limit}
			qc := engine.QueueConfig{
				Concurrency: tc.atOnce, RateLimit: l, GlobalConcurrency: tc.atOnce, GlobalRateLimit: l,
			}
			here, all := qc.Bounds(), qc.GlobalBounds()
			if here.Concurrency != tc.want || all.Concurrency != tc.want {
				t.Errorf("%d here and %d over all engines, want %d",
					here.Concurrency, all.Concurrency, tc.want)
			}
		})
	}
	inBubble(t, func(b *rig) {
		b.handle("x", func(ctx context.Context, _ *ojs.Job[any]) error {
			return handler.Sleep(ctx, time.Second)
		})
		for range 4 {
			b.enqueue("x")
		}
		b.run()
		if n := b.Running(); len(n) != 2 {
			t.Errorf("%d jobs run at once, want 2", len(n))
		}
		b.advance(time.Minute)
	}, engine.WithQueueConfig("default", engine.QueueConfig{
		Concurrency: 3, RateLimit: ojs.RateLimit{Concurrency: 2},
	}))
}

// A job that ends while a queue gets a limit leaves that limit.
func TestEndWhileQueueGetsALimit(t *testing.T) {
	eng, err := engine.New[any](memory.New(), quiet,
		engine.WithQueueConfig("q", engine.QueueConfig{}), engine.WithConcurrency(8))
	must(t, err)
	eng.Handle("x", func(context.Context, *ojs.Job[any]) error { return nil })
	started(t, eng)
	for range 20 {
		for range 200 {
			_, err := eng.Enqueue(t.Context(), "x", nil, ojs.WithQueue("q"))
			must(t, err)
		}
		for range 20 {
			must(t, eng.ConfigureQueue(t.Context(), "q", engine.QueueConfig{Concurrency: 1}))
			must(t, eng.ConfigureQueue(t.Context(), "q", engine.QueueConfig{}))
		}
	}
	must(t, eng.WaitIdle(t.Context()))
	must(t, eng.ConfigureQueue(t.Context(), "q", engine.QueueConfig{Concurrency: 1}))
	ticket, err := eng.Enqueue(t.Context(), "x", nil, ojs.WithQueue("q"))
	must(t, err)
	must(t, eng.WaitIdle(t.Context()))
	if job, err := eng.Get(t.Context(), ticket.ID); err != nil || job.State != ojs.StateCompleted {
		t.Errorf("a limit that no job counts in holds back a job: %s, %v", job.State, err)
	}
}
