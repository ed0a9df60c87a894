package engine_test

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/ojsengine/ojs"
	"github.com/ojsengine/ojs/policy"
	"github.com/ojsengine/ojs/policy/preset"
	"github.com/ojsengine/ojs/storage"
)

// Presets through the whole engine, to the end of their retries.
func TestPresetsEndToEnd(t *testing.T) {
	second := time.Second
	for _, tt := range []struct {
		name   string
		p      ojs.RetryPolicy
		bounds func(retry int) (low, high time.Duration) // between two attempts
		runs   int
		dead   bool
	}{
		{"A185 Sidekiq", preset.Sidekiq(), func(n int) (time.Duration, time.Duration) {
			c := time.Duration(n - 1)
			return (c*c*c*c + 15) * second, (c*c*c*c + 15 + 9*(c+1)) * second
		}, 26, true},
		{"River", preset.River(), func(n int) (time.Duration, time.Duration) {
			d := time.Duration(n*n*n*n) * second
			return d - d/10, d + d/10
		}, 25, false},
		{"A155 Oban", preset.Oban(), func(n int) (time.Duration, time.Duration) {
			d := (15 + 1<<n) * second
			return d, d + d/10
		}, 20, false},
		{"A152 Celery", preset.CeleryBackoff(),
			func(n int) (time.Duration, time.Duration) { return 0, 1 << (n - 1) * second }, 4, false},
		{"A154 BullMQ at once", preset.BullMQ(3),
			func(int) (time.Duration, time.Duration) { return 0, 0 }, 3, true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			inBubble(t, func(b *rig) {
				b.handle("fail", func(context.Context, *ojs.Job[any]) error { return errBoom })
				b.run()
				ticket := b.enqueue("fail", ojs.WithRetry(tt.p))
				b.advance(60 * 24 * time.Hour)
				times := b.times()
				if len(times) != tt.runs {
					t.Fatalf("%d runs, want %d", len(times), tt.runs)
				}
				for i := range len(times) - 1 {
					if low, high := tt.bounds(i + 1); times[i+1]-times[i] < low ||
						times[i+1]-times[i] > high {
						t.Errorf("retry %d after %v, want from %v to %v", i+1, times[i+1]-times[i], low, high)
					}
				}
				if dead := slices.Contains(b.deadLetters(), ticket.ID); dead != tt.dead {
					t.Errorf("dead letter: %v", dead)
				}
			})
		})
	}
	t.Run("A150 Temporal goes on until its time is up", func(t *testing.T) {
		inBubble(t, func(b *rig) {
			b.handle("fail", func(context.Context, *ojs.Job[any]) error { return errBoom })
			b.run()
			ticket := b.enqueue("fail", ojs.WithRetry(preset.Temporal()), ojs.WithTotalTimeout(24*time.Hour))
			b.advance(25 * time.Hour)
			job := b.job(ticket.ID)
			// 7 retries in 127 s, then one every 100 s
			if want := 8 + (86400-127-1)/100; job.State != ojs.StateDiscarded || job.Attempt != want {
				t.Errorf("%s after %d attempts, want %d", job.State, job.Attempt, want)
			}
		})
	})
	t.Run("a retry a hundred years ahead", func(t *testing.T) {
		inBubble(t, func(b *rig) {
			b.handle("fail", func(context.Context, *ojs.Job[any]) error { return errBoom })
			b.run()
			b.enqueue("fail", ojs.WithRetry(preset.BullMQExponential(3, 60*365*24*time.Hour)))
			b.advance(170 * 365 * 24 * time.Hour)
			years := func(n time.Duration) time.Duration { return n * 365 * 24 * time.Hour }
			if want := []time.Duration{0, years(60), years(160)}; !slices.Equal(b.times(), want) {
				t.Errorf("ran at %v, want %v", b.times(), want)
			}
		})
	})
}

// A strategy that this program does not know.
func TestForeignStrategy(t *testing.T) {
	foreign := ojs.RetryPolicy{MaxAttempts: 4, InitialInterval: 3 * time.Second, Jitter: ojs.JitterOff,
		BackoffStrategy: "acme:unknown", OnExhaustion: ojs.ExhaustionDeadLetter}
	t.Run("A043 reading 46 is refused at enqueue, and nothing is stored", func(t *testing.T) {
		inBubble(t, func(b *rig) {
			_, err := b.Enqueue(b.ctx, "x", nil, ojs.WithRetry(foreign))
			var invalid *ojs.InvalidError
			if !errors.As(err, &invalid) || invalid.Code != ojs.InvalidCodeRetry ||
				invalid.Field != "retry.backoff_strategy" {
				t.Errorf("%v", err)
			}
			page, err := b.store.List(b.ctx, storage.Query{})
			if err != nil || len(page.Records) != 0 {
				t.Errorf("%+v, %v", page, err)
			}
		})
	})
	t.Run("reading 46 is retried exponentially if another program has enqueued it, and replayed as it is", func(t *testing.T) {
		inBubble(t, func(b *rig) {
			b.handle("fail", func(context.Context, *ojs.Job[any]) error { return errBoom })
			p, err := policy.Resolve(ojs.RetryPolicy{})
			must(t, err)
			ticket := b.enqueue("fail", ojs.WithPending())
			rec, err := b.store.Get(b.ctx, ticket.ID)
			must(t, err)
			rec.Retry = foreign.Inherit(p)
			rec.MaxAttempts, rec.State = 4, ojs.StateAvailable
			settled, err := b.store.Settle(b.ctx, time.Now(), []storage.Change{{Record: rec}}, nil)
			if must(t, err); settled[0].Err != nil {
				t.Fatal(settled[0].Err)
			}
			b.run()
			b.advance(time.Hour)
			want := seconds(0, 3, 9, 21)
			if !slices.Equal(b.times(), want) {
				t.Errorf("ran at %v, want %v", b.times(), want)
			}
			must(t, b.DeadLetters().Retry(b.ctx, ticket.ID, ojs.WithPriority(3)))
			b.advance(time.Hour)
			if job := b.want(ticket.ID, ojs.StateDiscarded, 4); job.Retry.BackoffStrategy != "acme:unknown" {
				t.Errorf("replayed with %+v", job.Retry)
			}
			other := foreign
			other.BackoffStrategy = "acme:other"
			if err := b.DeadLetters().Retry(b.ctx, ticket.ID, ojs.WithRetry(other)); !errors.Is(err,
				ojs.ErrInvalid) {
				t.Errorf("another unknown one: %v", err)
			}
		})
	})
}
