package engine_test

import (
	"context"
	"errors"
	"math"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/ojsengine/ojs"
	"github.com/ojsengine/ojs/engine"
	"github.com/ojsengine/ojs/engine/fetch"
	"github.com/ojsengine/ojs/policy/preset"
)

// The rules of the Go job queue's "Retry and Backoff Policy" for the states of a job,
// with its policy.

func TestGoQueueRetry(t *testing.T) {
	t.Run("D003 D013 D023 D024 D025 D026 D027 reading 41 reading 47 retries", func(t *testing.T) {
		for _, how := range []struct {
			name string
			fail func() error
		}{
			{"D001 D023 error", func() error { return errBoom }},
			{"D002 D023 panic", func() error { panic("boom") }},
		} {
			t.Run(how.name, func(t *testing.T) {
				inBubble(t, func(b *rig) {
					b.handle("fail", func(context.Context, *ojs.Job[any]) error { return how.fail() })
					b.run()
					ticket := b.enqueue("fail", ojs.WithRetry(preset.FullJitter()))
					for retry := 1; retry <= 3; retry++ {
						b.advance(0)
						job := b.want(ticket.ID, ojs.StateRetryable, retry)
						if len(job.Errors) != retry || job.Errors[retry-1].Attempt != retry {
							t.Errorf("D024 errors %+v", job.Errors)
						}
						delay := job.NextRetryAt.Sub(job.Errors[retry-1].At)
						if ceiling := 500 * time.Millisecond << (retry - 1); delay <= 0 || delay > ceiling {
							t.Errorf("D025 retry %d after %v, want at most %v", retry, delay, ceiling)
						}
						b.advance(time.Until(job.NextRetryAt) - 1)
						if n := len(b.times()); n != retry {
							t.Errorf("D027 %d runs before the time", n)
						}
						b.advance(1)
						if n := len(b.times()); n != retry+1 {
							t.Errorf("D026 D027 %d runs at the time", n)
						}
					}
					b.want(ticket.ID, ojs.StateDiscarded, 4)
				})
			})
		}
	})
	t.Run("D005 D006 D007 D008 reading 41 exhausted", func(t *testing.T) {
		inBubble(t, func(b *rig) {
			heal := false
			b.handle("fail", func(context.Context, *ojs.Job[any]) error {
				if heal {
					return nil
				}
				return errBoom
			})
			b.run()
			ticket := b.enqueue("fail", ojs.WithRetry(preset.FullJitter()))
			b.advance(24 * time.Hour)
			job := b.want(ticket.ID, ojs.StateDiscarded, 4)
			if len(b.times()) != 4 || job.Error == nil || job.Error.Message != "boom" ||
				len(job.Errors) != 4 || job.FinishedAt.IsZero() {
				t.Errorf("D006 D007 %d runs, %+v", len(b.times()), job)
			}
			if claimed, err := b.Worker("other", fetch.Config{}).FetchMany(canceled(b.ctx), 1); len(
				claimed) != 0 {
				t.Errorf("D006 claimed %v, %v", claimed, err)
			}
			heal = true
			b.advance(24 * time.Hour)
			if len(b.times()) != 4 {
				t.Error("D008 it ran again by itself")
			}
			must(t, b.Jobs().Retry(b.ctx, ticket.ID))
			b.advance(time.Second)
			b.want(ticket.ID, ojs.StateCompleted, 1)
		})
	})
	t.Run("D045 D008 with dead letters", func(t *testing.T) {
		inBubble(t, func(b *rig) {
			b.handle("fail", func(context.Context, *ojs.Job[any]) error { return errBoom })
			b.run()
			p := preset.FullJitter()
			p.OnExhaustion = ojs.ExhaustionDeadLetter
			ticket := b.enqueue("fail", ojs.WithRetry(p))
			b.advance(time.Minute)
			if got := b.deadLetters(); !slices.Equal(got, []string{ticket.ID}) {
				t.Errorf("dead letters %v", got)
			}
			must(t, b.DeadLetters().Retry(b.ctx, ticket.ID))
			b.advance(time.Minute)
			if n := len(b.times()); n != 8 {
				t.Errorf("%d runs", n)
			}
		})
	})
	for _, tt := range []struct {
		name       string
		retries    int
		base, most time.Duration
	}{
		{"D033 conservative", 5, time.Second, time.Minute},
		{"D034 aggressive", 2, 100 * time.Millisecond, 5 * time.Second},
		{"D004 D035 no retry", 0, 500 * time.Millisecond, 30 * time.Second},
	} {
		t.Run("D022 "+tt.name, func(t *testing.T) {
			inBubble(t, func(b *rig) {
				b.handle("fail", func(context.Context, *ojs.Job[any]) error { return errBoom })
				b.run()
				p := preset.FullJitter()
				p.MaxAttempts, p.InitialInterval, p.MaxInterval = tt.retries+1, tt.base, tt.most
				ticket := b.enqueue("fail", ojs.WithRetry(p))
				b.advance(time.Hour)
				b.want(ticket.ID, ojs.StateDiscarded, tt.retries+1)
				times := b.times()
				for i := range tt.retries {
					if gap := times[i+1] - times[i]; gap > min(tt.base<<i, tt.most) {
						t.Errorf("retry %d after %v", i+1, gap)
					}
				}
			})
		})
	}
	t.Run("D042 by type", func(t *testing.T) {
		inBubble(t, func(b *rig) {
			costly, cheap := preset.FullJitter(), preset.FullJitter()
			costly.MaxAttempts, cheap.MaxAttempts = 6, ojs.NoRetry
			charge, view := ojs.Define[int]("charge", ojs.WithRetry(costly)), ojs.Define[int]("view",
				ojs.WithRetry(cheap))
			for _, name := range []string{"charge", "view"} {
				b.handle(name, func(context.Context, *ojs.Job[any]) error { return errBoom })
			}
			b.run()
			tickets, err := b.EnqueueMany(b.ctx, charge.New(1), view.New(2))
			must(t, err)
			b.advance(time.Hour)
			b.want(tickets[0].ID, ojs.StateDiscarded, 6)
			b.want(tickets[1].ID, ojs.StateDiscarded, 1)
		})
	})
	t.Run("D044 the timeout of an attempt and the backoff are two things", func(t *testing.T) {
		inBubble(t, func(b *rig) {
			b.handle("slow",
				func(ctx context.Context, _ *ojs.Job[any]) error { <-ctx.Done(); return ctx.Err() })
			b.run()
			ticket := b.enqueue("slow", ojs.WithTimeout(7*time.Second),
				ojs.WithRetry(preset.RatchetFixed(2, 3*time.Second)))
			b.advance(time.Minute)
			if want := seconds(0, 10, 20); !slices.Equal(b.times(), want) {
				t.Errorf("ran at %v, want %v", b.times(), want)
			}
			b.want(ticket.ID, ojs.StateDiscarded, 3)
		})
	})
}

func canceled(ctx context.Context) context.Context {
	ctx, cancel := context.WithCancel(ctx)
	cancel()
	return ctx
}

// A handler that follows the document's pattern may run as often as it likes.
func TestGoQueueIdempotency(t *testing.T) {
	t.Run("D030 D031 D032 done once, although it runs more than once", func(t *testing.T) {
		inBubble(t, func(b *rig) {
			charged, done := 0, make(map[string]bool)
			b.handle("charge", func(_ context.Context, job *ojs.Job[any]) error {
				if done[job.ID] { // 1. look the key up; 2. success if it is done
					return nil
				}
				charged++ // 3. act only if it is not
				done[job.ID] = true
				return errors.New("the answer was lost")
			})
			// This worker takes the job, acts, and stops before it acknowledges.
			worker := b.Worker("lost", fetch.Config{})
			ticket := b.enqueue("charge", ojs.WithLease(time.Minute), ojs.WithRetry(preset.FullJitter()))
			d, err := worker.Fetch(b.ctx)
			must(t, err)
			charged++
			done[d.Job.ID] = true
			other := b.enqueue("charge", ojs.WithRetry(preset.FullJitter()))
			b.run()
			b.advance(time.Hour)
			for _, id := range []string{ticket.ID, other.ID} {
				b.want(id, ojs.StateCompleted, 2)
			}
			if charged != 2 || len(b.times()) != 3 {
				t.Errorf("%d charges of 2 jobs, %d runs", charged, len(b.times()))
			}
		})
	})
}

// Jobs that fail together retry spread over their ceiling, by the engine's own draws.
func TestGoQueueSpread(t *testing.T) {
	t.Run("D009 D020 D021", func(t *testing.T) {
		inBubble(t, func(b *rig) {
			var mu sync.Mutex
			var delays []float64
			b.Handle("fail", func(_ context.Context, job *ojs.Job[any]) error {
				if job.Attempt == 1 {
					return errBoom
				}
				mu.Lock()
				defer mu.Unlock()
				delays = append(delays, b.elapsed().Seconds()/30)
				return nil
			})
			p := preset.FullJitter()
			p.InitialInterval = 30 * time.Second
			for range 2000 {
				b.enqueue("fail", ojs.WithRetry(p))
			}
			b.run()
			b.advance(time.Minute)
			if len(delays) != 2000 {
				t.Fatalf("%d retries", len(delays))
			}
			// Kolmogorov-Smirnov: above 1.95 in one of a thousand samples that are
			// uniform.
			slices.Sort(delays)
			distance, n := 0.0, float64(len(delays))
			for i, x := range delays {
				distance = max(distance, x-float64(i)/n, float64(i+1)/n-x)
			}
			if k := distance * math.Sqrt(n); k > 1.95 {
				t.Errorf("not spread evenly: %v", k)
			}
		}, engine.WithRand(rand.New(rand.NewPCG(12, 0))))
	})
}
