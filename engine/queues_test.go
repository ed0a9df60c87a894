package engine_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ojsengine/ojs"
	"github.com/ojsengine/ojs/engine"
	"github.com/ojsengine/ojs/engine/fetch"
	"github.com/ojsengine/ojs/event"
	"github.com/ojsengine/ojs/handler"
	"github.com/ojsengine/ojs/inspect"
	"github.com/ojsengine/ojs/internal/test/pace"
	"github.com/ojsengine/ojs/operate"
	"github.com/ojsengine/ojs/policy"
	"github.com/ojsengine/ojs/storage"
)

func TestQueueStates(t *testing.T) {
	t.Run("P1.6 a paused queue accepts and does not deliver", func(t *testing.T) {
		inBubble(t, func(b *rig) {
			b.handle("x", nothing)
			b.run()
			sub := b.Subscribe(engine.EventFilter{Types: []event.Type{"queue.*"}, Queues: []string{"q"}})
			defer sub.Close()
			must1(b.Queues().Pause(b.ctx, "q"))
			must1(b.Queues().Pause(b.ctx, "q"))
			paused := b.enqueue("x", ojs.WithQueue("q"))
			b.enqueue("x")
			later := b.enqueue("x", ojs.WithQueue("q"), ojs.WithDelay(time.Minute))
			b.advance(time.Hour)
			b.want(paused.ID, ojs.StateAvailable, 0)
			b.want(later.ID, ojs.StateAvailable, 0)
			must1(b.Queues().Resume(b.ctx, "q"))
			b.advance(0)
			b.want(paused.ID, ojs.StateCompleted, 1)
			b.want(later.ID, ojs.StateCompleted, 1)
			if got := names(received(sub)); got != "queue.paused queue.resumed" {
				t.Errorf("events %s", got)
			}
		})
	})
	t.Run("P1.6 a pause leaves running jobs alone", func(t *testing.T) {
		inBubble(t, func(b *rig) {
			b.handle("x", func(context.Context, *ojs.Job[any]) error {
				pace.Virtual(time.Second)
				return nil
			})
			b.run()
			ticket := b.enqueue("x")
			b.advance(0)
			must1(b.Queues().Pause(b.ctx, "default"))
			b.advance(time.Second)
			b.want(ticket.ID, ojs.StateCompleted, 1)
		})
	})
	t.Run("P1.6 a draining queue delivers, retries included, and does not accept", func(t *testing.T) {
		inBubble(t, func(b *rig) {
			b.handle("x", func(_ context.Context, job *ojs.Job[any]) error {
				if job.Attempt == 1 {
					return errBoom
				}
				return nil
			})
			b.run()
			ticket := b.enqueue("x", ojs.WithQueue("q"), ojs.WithDelay(time.Second))
			must1(b.Queues().Drain(b.ctx, "q"))
			_, err := b.EnqueueMany(b.ctx, ojs.NewDraft("x", nil), ojs.NewDraft("x", nil, ojs.WithQueue("q")))
			var full *ojs.QueueError
			if !errors.Is(err, ojs.ErrQueueDraining) || !errors.As(err, &full) || full.Queue != "q" {
				t.Errorf("enqueue: %v", err)
			}
			b.advance(time.Hour)
			b.want(ticket.ID, ojs.StateCompleted, 2)
			if got := b.times(); len(got) != 2 {
				t.Errorf("the batch was stored in part: %v", got)
			}
			must1(b.Queues().Resume(b.ctx, "q"))
			b.enqueue("x", ojs.WithQueue("q"))
		})
	})
	t.Run("the state is the storage's", func(t *testing.T) {
		inBubble(t, func(b *rig) {
			other, err := engine.New[any](b.store, quiet)
			must(t, err)
			must1(other.Queues().Pause(b.ctx, "q"))
			b.handle("x", nothing)
			b.run()
			ticket := b.enqueue("x", ojs.WithQueue("q"))
			b.advance(time.Minute)
			b.want(ticket.ID, ojs.StateAvailable, 0)
			list, err := b.Queues().List(b.ctx)
			want := []operate.QueueStats{{Name: "q", State: ojs.QueuePaused,
				Counts: map[ojs.State]int{ojs.StateAvailable: 1}}}
			if err != nil || !reflect.DeepEqual(list, want) || list[0].Depth() != 1 {
				t.Errorf("%+v, %v", list, err)
			}
		})
	})
	t.Run("a name that no queue can have is refused", func(t *testing.T) {
		eng, err := engine.New[any](newMemory(t), quiet)
		must(t, err)
		wantInvalid(t, second(eng.Queues().Drain(t.Context(), "Q")), "queue")
	})
}

func TestBoundedQueues(t *testing.T) {
	bounded := func(o engine.Overflow) engine.Option {
		return engine.WithQueueConfig("default", engine.QueueConfig{MaxDepth: 5, Overflow: o})
	}
	t.Run("P1.6 reject is the default, for a whole batch; only live jobs count", func(t *testing.T) {
		inBubble(t, func(b *rig) {
			b.handle("x",
				func(ctx context.Context, _ *ojs.Job[any]) error { return handler.Sleep(ctx, time.Second) })
			b.run()
			sub := b.Subscribe(engine.EventFilter{Types: []event.Type{"backpressure.*"}})
			defer sub.Close()
			b.enqueue("x")
			b.advance(0)
			b.enqueue("x", ojs.WithDelay(time.Hour))
			b.enqueue("x", ojs.WithPending())
			_, err := b.EnqueueMany(b.ctx, ojs.NewDraft("x", nil), ojs.NewDraft("x", nil),
				ojs.NewDraft("x", nil))
			var full *ojs.QueueError
			if !errors.Is(err, ojs.ErrQueueFull) || !errors.As(err, &full) || full.Queue != "default" ||
				full.MaxDepth != 5 {
				t.Fatalf("%v", err)
			}
			b.enqueue("x")
			b.enqueue("x")
			if _, err := b.Enqueue(b.ctx, "x", nil); !errors.Is(err, ojs.ErrQueueFull) {
				t.Errorf("%v", err)
			}
			if _, err := b.Enqueue(b.ctx, "x", nil, ojs.WithQueue("other")); err != nil {
				t.Errorf("a queue without bounds: %v", err)
			}
			b.advance(time.Second)
			b.enqueue("x")
			b.advance(time.Minute)
			b.enqueue("x")
			events := received(sub)
			if got, want := names(events),
				"backpressure.rejected backpressure.warning backpressure.rejected backpressure.cleared"; got != want {
				t.Errorf("events %s, want %s", got, want)
			}
			if ev := events[1]; ev.Depth != 4 || ev.MaxDepth != 5 || ev.Queue != "default" ||
				ev.Subject != "default" || ev.Data()["depth"] != 4 {
				t.Errorf("%+v", ev)
			}
		}, bounded(""))
	})
	t.Run("P1.6 block waits for room", func(t *testing.T) {
		inBubble(t, func(b *rig) {
			b.handle("x",
				func(ctx context.Context, _ *ojs.Job[any]) error { return handler.Sleep(ctx, time.Second) })
			b.run()
			for range 5 {
				b.enqueue("x")
			}
			b.enqueue("x") // after the first has ended
			if b.elapsed() != time.Second {
				t.Errorf("went on after %v", b.elapsed())
			}
			if job := b.enqueue("x"); b.job(job.ID).CreatedAt.Sub(b.start) != 2*time.Second {
				t.Errorf("created at %v", b.job(job.ID).CreatedAt.Sub(b.start))
			}
		}, bounded(engine.OverflowBlock), engine.WithConcurrency(1))
	})
	t.Run("P1.6 block ends with its context", func(t *testing.T) {
		inBubble(t, func(b *rig) {
			for range 5 {
				b.enqueue("x")
			}
			ctx, cancel := context.WithTimeout(b.ctx, 1500*time.Millisecond)
			defer cancel()
			if _, err := b.Enqueue(ctx, "x", nil); !errors.Is(err, context.DeadlineExceeded) ||
				b.elapsed() != 1500*time.Millisecond {
				t.Errorf("%v after %v", err, b.elapsed())
			}
			list, err := b.Queues().List(b.ctx)
			if err != nil || list[0].Depth() != 5 {
				t.Errorf("%+v, %v", list, err)
			}
		}, bounded(engine.OverflowBlock))
	})
	t.Run("P1.6 block finds room that another engine has made", func(t *testing.T) {
		inBubble(t, func(b *rig) {
			other, err := engine.New[any](b.store, quiet)
			must(t, err)
			first := b.enqueue("x")
			for range 4 {
				b.enqueue("x")
			}
			done := make(chan error)
			go func() { _, err := b.Enqueue(b.ctx, "x", nil); done <- err }()
			synctest.Wait()
			must(t, other.Cancel(b.ctx, first.ID))
			must(t, <-done)
		}, bounded(engine.OverflowBlock))
	})
	t.Run("P1.6 drop_oldest discards the job that has been available longest", func(t *testing.T) {
		inBubble(t, func(b *rig) {
			sub := b.Subscribe(engine.EventFilter{Types: []event.Type{"backpressure.dropped",
				"job.discarded"}})
			defer sub.Close()
			oldest := b.enqueue("x", ojs.WithPriority(9),
				ojs.WithRetry(ojs.RetryPolicy{OnExhaustion: ojs.ExhaustionDeadLetter}))
			waiting := b.enqueue("x", ojs.WithPending())
			for range 3 {
				b.enqueue("x")
			}
			done := make(chan error, 1)
			go func() { _, err := oldest.Wait(b.ctx); done <- err }()
			synctest.Wait()
			b.enqueue("x")
			job := b.want(oldest.ID, ojs.StateDiscarded, 0)
			if job.Error.Type != policy.ErrorTypeDropped || job.Error.Reason != ojs.ReasonDropped ||
				job.DeadLettered() || job.FinishedAt.IsZero() {
				t.Errorf("%+v", job.Error)
			}
			b.want(waiting.ID, ojs.StatePending, 0)
			var ended *ojs.EndedError
			if err := <-done; !errors.As(err, &ended) {
				t.Errorf("a waiter got %v", err)
			}
			if events := received(sub); names(events) != "backpressure.dropped discarded" ||
				events[0].Job.ID != oldest.ID || events[0].Depth != 5 {
				t.Errorf("%+v", events)
			}
			// More than can be dropped.
			drafts := slices.Repeat([]ojs.Draft{ojs.NewDraft("x", nil)}, 6)
			if _, err := b.EnqueueMany(b.ctx, drafts...); !errors.Is(err, ojs.ErrQueueFull) {
				t.Errorf("%v", err)
			}
			if tickets, err := b.EnqueueMany(b.ctx, drafts[:4]...); err != nil || len(tickets) != 4 {
				t.Errorf("%v", err)
			}
			list, err := b.Queues().List(b.ctx)
			if err != nil || list[0].Depth() != 5 || list[0].Counts[ojs.StateDiscarded] != 5 {
				t.Errorf("%+v, %v", list, err)
			}
		}, bounded(engine.OverflowDropOldest))
	})
	t.Run("bad settings are refused", func(t *testing.T) {
		for field, qc := range map[string]engine.QueueConfig{
			"concurrency": {Concurrency: -1}, "weight": {Weight: -1}, "max_depth": {MaxDepth: -1},
			"overflow":              {Overflow: "explode"},
			"rate_limit.key":        {RateLimit: ojs.RateLimit{Key: "x"}},
			"rate_limit.rate.limit": {RateLimit: ojs.RateLimit{Rate: ojs.Rate{Per: 1}}},
		} {
			_, err := engine.New[any](newMemory(t), engine.WithQueueConfig("q", qc))
			wantInvalid(t, err, field)
		}
	})
}

func TestStatsAndHealth(t *testing.T) {
	inBubble(t, func(b *rig) {
		if h := b.Health(b.ctx); h.Status != engine.Unhealthy || len(h.Problems) != 1 ||
			h.Problems[0].Code != engine.ProblemNotRunning || h.Backend != "memory" ||
			h.Storage != engine.Healthy {
			t.Errorf("before Run: %+v", h)
		} else {
			var again engine.Health
			out, err := json.Marshal(h)
			if err != nil || !strings.Contains(string(out), `"problems":["the engine does not run"]`) ||
				json.Unmarshal(out, &again) != nil || again.Problems[0].Text != h.Problems[0].Text {
				t.Errorf("%s: %+v, %v", out, again, err)
			}
		}
		release := make(chan struct{})
		b.Handle("x", func(context.Context, *ojs.Job[any]) error { <-release; return nil })
		b.run()
		for i := range 3 {
			b.enqueue("x", ojs.WithQueue(fmt.Sprint("q", i)))
		}
		b.enqueue("x", ojs.WithDelay(time.Hour))
		b.advance(time.Minute)
		s, err := b.Stats(b.ctx)
		if err != nil || !s.Running || s.Slots != 2 || s.Busy != 2 || s.Total[ojs.StateActive] != 2 ||
			s.Total[ojs.StateAvailable] != 1 ||
			s.Total[ojs.StateScheduled] != 1 || len(s.Queues) != 4 {
			t.Errorf("%+v, %v", s, err)
		}
		claimed, err := b.store.Claim(b.ctx, time.Now(), storage.Claim{
			Max: 1, Worker: "killed", Lease: engine.DefaultClaimLease,
		}, nil)
		must(t, err)
		until := claimed[0].LeaseUntil
		b.advance(31 * time.Second) // beyond a third of the default lease
		_, err = b.Worker("elsewhere", fetch.Config{}).Heartbeat(b.ctx)
		must(t, err)
		if h := b.Health(b.ctx); h.Status != engine.Healthy || h.Uptime != 91*time.Second || h.Queues != 4 ||
			h.Busy != 2 || h.Active != 3 || h.Workers != 1 {
			t.Errorf("%+v", h)
		}
		holders, err := b.Workers().List(b.ctx)
		if err != nil || len(holders) != 2 {
			t.Fatalf("%+v, %v", holders, err)
		}
		here, killed := &holders[1], &holders[0] // whose lease ends first, as nothing renews it
		if here.Jobs != 2 || here.First.Before(killed.Last) || here.Last.Before(here.First) {
			t.Errorf("%+v", here)
		}
		want := inspect.Worker{ID: "killed", Jobs: 1, First: until, Last: until}
		if *killed != want {
			t.Errorf("%+v, want %+v", killed, want)
		}
		close(release)
		b.advance(time.Second)
		_ = b.store.Close()
		if h := b.Health(b.ctx); h.Status != engine.Unhealthy {
			t.Errorf("without its storage: %+v", h)
		}
	}, engine.WithConcurrency(2))
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
