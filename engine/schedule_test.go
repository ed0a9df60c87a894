package engine_test

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/ojsengine/ojs"
	"github.com/ojsengine/ojs/engine"
	"github.com/ojsengine/ojs/event"
	"github.com/ojsengine/ojs/internal/test/pace"
	"github.com/ojsengine/ojs/policy"
)

func TestSchedule(t *testing.T) {
	ok := func(context.Context, *ojs.Job[any]) error { return nil }
	t.Run("P0.5 delay: at its time, not before", func(t *testing.T) {
		inBubble(t, func(b *rig) {
			b.handle("x", ok)
			b.run()
			ticket := b.enqueue("x", ojs.WithDelay(time.Hour))
			if ticket.State != ojs.StateScheduled {
				t.Errorf("ticket says %s", ticket.State)
			}
			b.advance(time.Hour - 1)
			b.want(ticket.ID, ojs.StateScheduled, 0)
			b.advance(1)
			b.want(ticket.ID, ojs.StateCompleted, 1)
			if !slices.Equal(b.times(), seconds(3600)) {
				t.Errorf("ran at %v", b.times())
			}
		})
	})
	t.Run("P0.5 scheduled_at in the past is available", func(t *testing.T) {
		inBubble(t, func(b *rig) {
			if ticket := b.enqueue("x",
				ojs.WithScheduledAt(b.start.Add(-time.Hour))); ticket.State != ojs.StateAvailable {
				t.Errorf("ticket says %s", ticket.State)
			}
		})
	})
	t.Run("P0.5 an earlier schedule overtakes a later one", func(t *testing.T) {
		inBubble(t, func(b *rig) {
			b.handle("x", ok)
			b.run()
			for _, s := range []int{50, 10, 30, 20, 40} {
				b.enqueue("x", ojs.WithScheduledAt(b.start.Add(time.Duration(s)*time.Second)))
			}
			b.advance(time.Minute)
			if !slices.Equal(b.times(), seconds(10, 20, 30, 40, 50)) {
				t.Errorf("ran at %v", b.times())
			}
		})
	})
	t.Run("P0.5 what came due while nobody ran starts with Run", func(t *testing.T) {
		inBubble(t, func(b *rig) {
			b.handle("x", ok)
			b.enqueue("x", ojs.WithDelay(time.Minute))
			b.advance(time.Hour)
			b.run()
			if !slices.Equal(b.times(), seconds(3600)) {
				t.Errorf("ran at %v", b.times())
			}
		})
	})
	t.Run("P0.5 scheduled before Run, due in it", func(t *testing.T) {
		inBubble(t, func(b *rig) {
			b.handle("x", ok)
			b.enqueue("x", ojs.WithDelay(time.Minute))
			b.run()
			b.advance(time.Hour)
			if !slices.Equal(b.times(), seconds(60)) {
				t.Errorf("ran at %v", b.times())
			}
		})
	})
}

func TestExpiry(t *testing.T) {
	expired := func(t *testing.T, b *rig, id string, after time.Duration) {
		t.Helper()
		job := b.job(id)
		if job.State != ojs.StateDiscarded || job.Error == nil || job.Error.Type != policy.ErrorTypeExpired ||
			job.DeadLettered() {
			t.Errorf("job is %s with %+v, dead-lettered %v", job.State, job.Error, job.DeadLettered())
		}
		if got := job.FinishedAt.Sub(b.start); got != after {
			t.Errorf("expired after %v, want %v", got, after)
		}
	}
	t.Run("P0.5 nobody is free before expires_at", func(t *testing.T) {
		inBubble(t, func(b *rig) {
			b.handle("slow",
				func(context.Context, *ojs.Job[any]) error { pace.Virtual(time.Minute); return nil })
			b.run()
			b.enqueue("slow")
			ticket := b.enqueue("slow", ojs.WithTTL(10*time.Second),
				ojs.WithRetry(ojs.RetryPolicy{OnExhaustion: ojs.ExhaustionDeadLetter}))
			other := b.enqueue("slow", ojs.WithExpiresAt(b.start.Add(time.Minute+1)))
			b.advance(time.Hour)
			expired(t, b, ticket.ID, 10*time.Second)
			b.want(other.ID, ojs.StateCompleted, 1)
		}, engine.WithConcurrency(1))
	})
	t.Run("P0.5 no engine runs", func(t *testing.T) {
		inBubble(t, func(b *rig) {
			b.handle("x", func(context.Context, *ojs.Job[any]) error { return nil })
			ticket := b.enqueue("x", ojs.WithTTL(10*time.Second))
			b.advance(time.Hour)
			b.run()
			expired(t, b, ticket.ID, time.Hour)
			if len(b.times()) != 0 {
				t.Error("an expired job ran")
			}
			if _, err := ticket.Wait(b.ctx); err == nil {
				t.Error("Wait: no error")
			}
		})
	})
	t.Run("P0.5 P0.8 enqueue_ttl ends the wait for the first attempt", func(t *testing.T) {
		inBubble(t, func(b *rig) {
			b.handle("slow",
				func(context.Context, *ojs.Job[any]) error { pace.Virtual(time.Minute); return nil })
			b.run()
			sub := b.Subscribe(engine.EventFilter{Types: []event.Type{"job.ttl_expired"}})
			defer sub.Close()
			b.enqueue("slow")
			d, err := ojs.ParseDraft([]byte(`{"type":"slow","args":[],"options":{"enqueue_ttl":10}}`))
			must(t, err)
			tickets, err := b.EnqueueMany(b.ctx, d)
			must(t, err)
			later := b.enqueue("slow", ojs.WithEnqueueTTL(time.Minute+1))
			b.advance(time.Hour)
			job := b.want(tickets[0].ID, ojs.StateDiscarded, 0)
			if job.Error.Type != "enqueue_ttl_expired" ||
				job.Error.Details["timeout_kind"] != "enqueue_ttl" ||
				job.Error.Details["limit_seconds"] != 10.0 ||
				job.DeadLettered() || job.FinishedAt.Sub(b.start) != 10*time.Second {
				t.Errorf("%+v at %v", job.Error, job.FinishedAt)
			}
			if evs := received(sub); len(evs) != 1 {
				t.Fatalf("events %+v", evs)
			} else if ev := evs[0]; ev.Job.ID != job.ID || ev.Data()["ttl_ms"] != int64(10_000) {
				t.Errorf("event %+v", ev)
			}
			b.want(later.ID, ojs.StateCompleted, 1)
		}, engine.WithConcurrency(1))
	})
	t.Run("P0.5 enqueue_ttl ends no wait after the first attempt", func(t *testing.T) {
		inBubble(t, func(b *rig) {
			b.handle("fail", func(_ context.Context, job *ojs.Job[any]) error {
				if len(b.times()) == 1 {
					return ojs.Snooze(time.Minute)
				}
				return errBoom
			})
			b.run()
			id := b.enqueue("fail", noJitter, ojs.WithEnqueueTTL(2*time.Second)).ID
			b.advance(time.Hour)
			b.want(id, ojs.StateDiscarded, 3)
			if !slices.Equal(b.times(), seconds(0, 60, 61, 63)) {
				t.Errorf("ran at %v", b.times())
			}
		})
	})
	t.Run("P0.5 a discarded job is retried though its enqueue_ttl has passed", func(t *testing.T) {
		inBubble(t, func(b *rig) {
			b.handle("x", func(context.Context, *ojs.Job[any]) error { return nil })
			id := b.enqueue("x", ojs.WithEnqueueTTL(time.Second)).ID
			b.advance(time.Minute)
			b.run()
			b.want(id, ojs.StateDiscarded, 0)
			must(t, b.Jobs().Retry(b.ctx, id))
			b.advance(0)
			b.want(id, ojs.StateCompleted, 1)
		})
	})
	t.Run("P0.5 a replay takes no enqueue_ttl", func(t *testing.T) {
		inBubble(t, func(b *rig) {
			b.handle("x", func(context.Context, *ojs.Job[any]) error { return ojs.DeadLetter(errBoom) })
			b.run()
			id := b.enqueue("x", ojs.WithEnqueueTTL(time.Hour)).ID
			b.advance(time.Minute)
			wantInvalid(t, b.DeadLetters().Retry(b.ctx, id, ojs.WithEnqueueTTL(2*time.Hour)), "enqueue_ttl")
			must(t, b.DeadLetters().Retry(b.ctx, id, ojs.WithPriority(1)))
		})
	})
	t.Run("P0.5 enqueue_ttl must be after scheduled_at, and positive", func(t *testing.T) {
		inBubble(t, func(b *rig) {
			for _, opts := range [][]ojs.Option{{ojs.WithDelay(time.Minute), ojs.WithEnqueueTTL(time.Minute)},
				{ojs.WithEnqueueTTL(0)}, {ojs.WithEnqueueTTL(-1)}} {
				_, err := b.Enqueue(b.ctx, "x", nil, opts...)
				wantInvalid(t, err, "enqueue_ttl")
			}
		})
	})
	t.Run("reading 50 between two attempts", func(t *testing.T) {
		inBubble(t, func(b *rig) {
			b.handle("fail", func(context.Context, *ojs.Job[any]) error { return errBoom })
			b.run()
			ticket := b.enqueue("fail", noJitter, ojs.WithTTL(2*time.Second))
			b.advance(time.Hour)
			expired(t, b, ticket.ID, 2*time.Second)
			if !slices.Equal(b.times(), seconds(0, 1)) {
				t.Errorf("ran at %v", b.times())
			}
		})
	})
	t.Run("P0.5 expires_at must be after scheduled_at", func(t *testing.T) {
		inBubble(t, func(b *rig) {
			_, err := b.Enqueue(b.ctx, "x", nil, ojs.WithDelay(time.Minute), ojs.WithTTL(time.Minute))
			if !errors.Is(err, ojs.ErrInvalid) {
				t.Errorf("error %v", err)
			}
		})
	})
}

func TestTimeout(t *testing.T) {
	t.Run("P0.5 a handler that heeds its context", func(t *testing.T) {
		inBubble(t, func(b *rig) {
			b.handle("slow", func(ctx context.Context, _ *ojs.Job[any]) error {
				if d, ok := ctx.Deadline(); !ok || !d.Equal(time.Now().Add(time.Minute)) {
					t.Errorf("deadline %v, %v", d, ok)
				}
				<-ctx.Done()
				if context.Cause(ctx) != ojs.ErrTimeout {
					t.Errorf("cause %v", context.Cause(ctx))
				}
				return ctx.Err()
			})
			b.run()
			ticket := b.enqueue("slow", noJitter, ojs.WithTimeout(time.Minute), ojs.WithMaxAttempts(2))
			b.advance(time.Hour)
			job := b.want(ticket.ID, ojs.StateDiscarded, 2)
			if !slices.Equal(b.times(), seconds(0, 61)) {
				t.Errorf("ran at %v", b.times())
			}
			f := job.Errors[0]
			if f.Type != policy.ErrorTypeTimeout || f.Reason != ojs.ReasonHandlerTimeout ||
				f.Details["timeout_kind"] != "execution" ||
				f.Details["limit_seconds"] != 60.0 || f.Details["elapsed_seconds"] != 60.0 {
				t.Errorf("failure %+v", f)
			}
		})
	})
	t.Run("P0.5 a timeout is retryable unless listed", func(t *testing.T) {
		inBubble(t, func(b *rig) {
			b.handle("slow",
				func(ctx context.Context, _ *ojs.Job[any]) error { <-ctx.Done(); return ctx.Err() })
			b.run()
			ticket := b.enqueue("slow", ojs.WithTimeout(time.Minute),
				ojs.WithRetry(ojs.RetryPolicy{NonRetryableErrors: []string{"timeout"}}))
			b.advance(time.Hour)
			b.want(ticket.ID, ojs.StateDiscarded, 1)
		})
	})
	t.Run("P0.5 work completed in the grace period counts", func(t *testing.T) {
		inBubble(t, func(b *rig) {
			b.handle("slow",
				func(context.Context, *ojs.Job[any]) error { pace.Virtual(70 * time.Second); return nil })
			b.run()
			ticket := b.enqueue("slow", ojs.WithTimeout(time.Minute))
			b.advance(time.Hour)
			b.want(ticket.ID, ojs.StateCompleted, 1)
		})
	})
	t.Run("P0.5 a handler that ignores its context is given up after the grace period", func(t *testing.T) {
		inBubble(t, func(b *rig) {
			b.handle("stuck", func(_ context.Context, job *ojs.Job[any]) error {
				pace.Virtual(10 * time.Minute)
				return nil // too late: refused
			})
			b.run()
			ticket := b.enqueue("stuck", ojs.WithTimeout(time.Minute), ojs.WithMaxAttempts(1))
			b.advance(time.Minute + 25*time.Second - 1)
			b.want(ticket.ID, ojs.StateActive, 1)
			b.advance(1)
			job := b.want(ticket.ID, ojs.StateDiscarded, 1)
			if job.Error.Type != policy.ErrorTypeTimeout {
				t.Errorf("failure %+v", job.Error)
			}
			// Its slot is not free before it returns.
			next := b.enqueue("stuck")
			b.advance(time.Minute)
			b.want(next.ID, ojs.StateAvailable, 0)
			b.advance(30 * time.Minute)
			b.want(ticket.ID, ojs.StateDiscarded, 1)
		}, engine.WithConcurrency(1))
	})
	t.Run("P0.5 total timeout ends a running attempt and the job", func(t *testing.T) {
		inBubble(t, func(b *rig) {
			b.handle("slow",
				func(ctx context.Context, _ *ojs.Job[any]) error { <-ctx.Done(); return ctx.Err() })
			b.run()
			ticket := b.enqueue("slow", noJitter, ojs.WithTimeout(time.Minute),
				ojs.WithTotalTimeout(90*time.Second), ojs.WithMaxAttempts(10))
			b.advance(time.Hour)
			job := b.want(ticket.ID, ojs.StateDiscarded, 2)
			if job.Error.Type != policy.ErrorTypeTotalTimeout ||
				job.FinishedAt.Sub(b.start) != 90*time.Second {
				t.Errorf("failure %+v at %v", job.Error, job.FinishedAt.Sub(b.start))
			}
		})
	})
	t.Run("P0.5 no retry is scheduled that cannot start in time", func(t *testing.T) {
		inBubble(t, func(b *rig) {
			b.handle("fail", func(context.Context, *ojs.Job[any]) error { return errBoom })
			b.run()
			ticket := b.enqueue("fail", noJitter, ojs.WithTotalTimeout(5*time.Second),
				ojs.WithMaxAttempts(10))
			b.advance(4 * time.Second) // attempts at 0, 1, 3; the next would be at 7
			job := b.want(ticket.ID, ojs.StateDiscarded, 3)
			if job.FinishedAt.Sub(b.start) != 3*time.Second {
				t.Errorf("discarded at %v", job.FinishedAt.Sub(b.start))
			}
		})
	})
	t.Run("P0.5 total timeout of a waiting job", func(t *testing.T) {
		inBubble(t, func(b *rig) {
			b.handle("slow", func(context.Context, *ojs.Job[any]) error {
				pace.Virtual(time.Hour)
				return nil
			})
			b.run()
			b.enqueue("slow", ojs.WithTimeout(2*time.Hour))
			ticket := b.enqueue("slow", ojs.WithTotalTimeout(time.Minute),
				ojs.WithRetry(ojs.RetryPolicy{OnExhaustion: ojs.ExhaustionDeadLetter}))
			b.advance(2 * time.Minute)
			job := b.want(ticket.ID, ojs.StateDiscarded, 0)
			if job.Error.Type != policy.ErrorTypeTotalTimeout || !job.DeadLettered() {
				t.Errorf("failure %+v, dead-lettered %v", job.Error, job.DeadLettered())
			}
			b.advance(2 * time.Hour)
		}, engine.WithConcurrency(1))
	})
}

func TestLease(t *testing.T) {
	t.Run("A012 A114 A115 A175 B028 renewed while the handler runs", func(t *testing.T) {
		inBubble(t, func(b *rig) {
			b.handle("slow", func(ctx context.Context, _ *ojs.Job[any]) error {
				pace.Virtual(25 * time.Minute)
				return ctx.Err()
			})
			b.run()
			ticket := b.enqueue("slow", ojs.WithLease(time.Second))
			b.advance(20 * time.Minute)
			b.want(ticket.ID, ojs.StateActive, 1)
			b.advance(10 * time.Minute)
			b.want(ticket.ID, ojs.StateCompleted, 1)
		})
	})
	t.Run("A107 A108 A111 A174 B027 a lapsed lease is a failed attempt", func(t *testing.T) {
		inBubble(t, func(b *rig) {
			ticket := b.enqueue("x", noJitter, ojs.WithLease(time.Minute))
			crash(b, 1) // another process takes the job and dies
			b.handle("x", func(context.Context, *ojs.Job[any]) error { return nil })
			b.run()
			b.advance(time.Minute - 1)
			b.want(ticket.ID, ojs.StateActive, 1)
			b.advance(1)
			job := b.want(ticket.ID, ojs.StateRetryable, 1)
			if job.Error.Type != policy.ErrorTypeLeaseExpired || job.Error.Reason != ojs.ReasonLeaseExpired ||
				len(job.Errors) != 1 {
				t.Errorf("failure %+v", job.Error)
			}
			b.advance(time.Second)
			b.want(ticket.ID, ojs.StateCompleted, 2)
		})
	})
	t.Run("A109 non_retryable_errors is not consulted", func(t *testing.T) {
		inBubble(t, func(b *rig) {
			ticket := b.enqueue("x", ojs.WithLease(time.Minute),
				ojs.WithRetry(ojs.RetryPolicy{NonRetryableErrors: []string{policy.ErrorTypeLeaseExpired}}))
			crash(b, 1)
			b.run()
			b.advance(time.Minute)
			b.want(ticket.ID, ojs.StateRetryable, 1)
		})
	})
	t.Run("A110 A112 A113 exhausted by crashes", func(t *testing.T) {
		inBubble(t, func(b *rig) {
			ticket := b.enqueue("x", noJitter, ojs.WithLease(time.Minute),
				ojs.WithRetry(ojs.RetryPolicy{OnExhaustion: ojs.ExhaustionDeadLetter}))
			for range 3 {
				crash(b, 1)
				b.run() // it has no handler for the job, but sees to its lease
				b.advance(2 * time.Minute)
				b.halt()
			}
			crash(b, 0)
			job := b.want(ticket.ID, ojs.StateDiscarded, 3)
			if !job.DeadLettered() || len(job.Errors) != 3 {
				t.Errorf("dead-lettered %v, errors %+v", job.DeadLettered(), job.Errors)
			}
		})
	})
	t.Run("A105 A106 B026 lease and retry delay are independent", func(t *testing.T) {
		inBubble(t, func(b *rig) {
			b.handle("fail", func(context.Context, *ojs.Job[any]) error { return errBoom })
			b.run()
			b.enqueue("fail", noJitter, ojs.WithLease(30*time.Minute))
			b.advance(10 * time.Second)
			if !slices.Equal(b.times(), seconds(0, 1, 3)) {
				t.Errorf("ran at %v", b.times())
			}
		})
		inBubble(t, func(b *rig) { // nor does a lease that is shorter than the delay end the wait
			b.handle("fail", func(context.Context, *ojs.Job[any]) error { return errBoom })
			b.run()
			id := b.enqueue("fail", noJitter, ojs.WithLease(time.Second),
				ojs.WithRetry(ojs.RetryPolicy{InitialInterval: time.Minute, MaxInterval: time.Hour})).ID
			b.advance(59 * time.Second)
			if job := b.want(id, ojs.StateRetryable, 1); len(job.Errors) != 1 {
				t.Errorf("errors %+v", job.Errors)
			}
			b.advance(time.Hour)
			if !slices.Equal(b.times(), seconds(0, 60, 180)) {
				t.Errorf("ran at %v", b.times())
			}
		})
	})
}

func TestPriority(t *testing.T) {
	t.Run("P0.4 reading 49 higher first, first in first out within", func(t *testing.T) {
		inBubble(t, func(b *rig) {
			var order []int
			b.Handle("x", func(_ context.Context, job *ojs.Job[any]) error {
				order = append(order, int(job.Args.(float64)))
				return nil
			})
			for i, p := range []int{0, -10, 10, 0, 100, 10, -100, 0} {
				if _, err := b.Enqueue(b.ctx, "x", i, ojs.WithPriority(p)); err != nil {
					t.Fatal(err)
				}
			}
			b.run()
			b.advance(time.Second)
			if want := []int{4, 2, 5, 0, 3, 7, 1, 6}; !slices.Equal(order, want) {
				t.Errorf("ran %v, want %v", order, want)
			}
		}, engine.WithConcurrency(1))
	})
	t.Run("D028 D029 kept on retry", func(t *testing.T) {
		inBubble(t, func(b *rig) {
			var order []string
			b.Handle("x", func(_ context.Context, job *ojs.Job[any]) error {
				name := job.Args.(string)
				order = append(order, name)
				if name == "high" && job.Attempt == 1 {
					return errBoom
				}
				pace.Virtual(time.Second) // the retry comes due while the first low one runs
				return nil
			})
			for _, j := range []struct {
				name     string
				priority int
			}{{"high", 5}, {"low 1", 0}, {"low 2", 0}, {"low 3", 0}} {
				if _, err := b.Enqueue(b.ctx, "x", j.name, ojs.WithPriority(j.priority), noJitter,
					ojs.WithRetry(ojs.RetryPolicy{InitialInterval: 900 * time.Millisecond})); err != nil {
					t.Fatal(err)
				}
			}
			b.run()
			b.advance(time.Minute)
			if want := []string{"high", "low 1", "high", "low 2", "low 3"}; !slices.Equal(order, want) {
				t.Errorf("ran %v, want %v", order, want)
			}
		}, engine.WithConcurrency(1))
	})
	t.Run("P0.3 queues left to right, then priority", func(t *testing.T) {
		inBubble(t, func(b *rig) {
			var order []string
			b.Handle("x", func(_ context.Context, job *ojs.Job[any]) error {
				order = append(order, job.Queue)
				return nil
			})
			for _, q := range []string{"other", "bulk", "critical", "bulk", "critical"} {
				b.enqueue("x", ojs.WithQueue(q), ojs.WithPriority(len(order)))
			}
			b.run()
			b.advance(time.Second)
			if want := []string{"critical", "critical", "bulk", "bulk"}; !slices.Equal(order, want) {
				t.Errorf("ran %v, want %v: queue other is not this engine's", order, want)
			}
		}, engine.WithConcurrency(1), engine.WithQueueConfig("critical", engine.QueueConfig{}),
			engine.WithQueueConfig("bulk", engine.QueueConfig{}))
	})
}
