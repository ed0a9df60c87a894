package engine_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/ojsengine/ojs"
	"github.com/ojsengine/ojs/engine/fetch"
	"github.com/ojsengine/ojs/internal/test/pace"
	"github.com/ojsengine/ojs/policy"
	"github.com/ojsengine/ojs/storage/storagetest"
)

// tardy is a memory storage whose claims take a while after they have taken their jobs.
func tardy(takes time.Duration) *storagetest.Faulty {
	return hooked(func(c *storagetest.Call) {
		if c.Method == "Claim" {
			c.Do()
			pace.Virtual(takes)
		}
	})
}

// A timeout bounds what a handler does, not how long the storage takes to hand over its
// job.
func TestTimeoutBeginsAfterTheClaim(t *testing.T) {
	t.Run("P0.5 a handler", func(t *testing.T) {
		for name, tt := range map[string]struct {
			runs time.Duration
			ends ojs.State
		}{
			"that returns at once":         {0, ojs.StateCompleted},
			"that returns in time":         {59 * time.Second, ojs.StateCompleted},
			"that returns after its limit": {time.Hour, ojs.StateDiscarded},
		} {
			t.Run(name, func(t *testing.T) {
				inBubbleOn(t, tardy(2*time.Minute), func(b *rig) {
					var ended time.Duration
					b.handle("x", func(ctx context.Context, _ *ojs.Job[any]) error {
						began := time.Now()
						select {
						case <-time.After(tt.runs):
							return nil
						case <-ctx.Done():
							ended = time.Since(began)
							return context.Cause(ctx)
						}
					})
					b.run()
					id := b.enqueue("x", ojs.WithTimeout(time.Minute), ojs.WithMaxAttempts(1)).ID
					b.advance(time.Hour)
					job := b.want(id, tt.ends, 1)
					if tt.ends == ojs.StateDiscarded && (ended != time.Minute ||
						job.Error.Type != policy.ErrorTypeTimeout ||
						job.Error.Details["elapsed_seconds"] != 60.0) {
						t.Errorf("its context ended after %v: %+v", ended, job.Error)
					}
				})
			})
		}
	})
	t.Run("P0.6 a worker", func(t *testing.T) {
		for name, tt := range map[string]struct {
			runs   time.Duration
			beats  bool
			answer error
		}{
			"that answers at once":           {0, false, nil},
			"that answers in time":           {59 * time.Second, false, nil},
			"that beats and answers in time": {59 * time.Second, true, nil},
			"that answers after its limit":   {time.Hour, false, ojs.ErrLeaseLost},
		} {
			t.Run(name, func(t *testing.T) {
				inBubbleOn(t, tardy(2*time.Minute), func(b *rig) {
					b.run()
					b.advance(2 * time.Minute)
					id := b.enqueue("x", ojs.WithTimeout(time.Minute), ojs.WithMaxAttempts(1)).ID
					w := b.Worker("w", fetch.Config{})
					d := fetched(b, w)
					b.advance(tt.runs)
					d, err := w.Delivery(b.ctx, d.Token) // as a bridge finds it
					if err == nil && tt.beats {
						err = d.Heartbeat(b.ctx)
					}
					if err == nil {
						err = d.Ack(b.ctx, nil)
					}
					if !errors.Is(err, tt.answer) {
						t.Errorf("answered %v, want %v", err, tt.answer)
					}
					if tt.answer == nil {
						b.want(id, ojs.StateCompleted, 1)
						return
					}
					job := b.want(id, ojs.StateDiscarded, 1)
					if job.Error.Type != policy.ErrorTypeTimeout ||
						job.FinishedAt.Sub(b.start) != 5*time.Minute ||
						job.Error.Details["elapsed_seconds"] != 60.0 {
						t.Errorf("failed at %v: %+v", job.FinishedAt.Sub(b.start), job.Error)
					}
				})
			})
		}
	})
}

// FetchMany claims its jobs together, so that none of them ages while others are claimed.
func TestFetchManyClaimsAtOnce(t *testing.T) {
	s := tardy(time.Minute)
	inBubbleOn(t, s, func(b *rig) {
		for range 20 {
			b.enqueue("x")
		}
		ds, err := b.Worker("w", fetch.Config{}).FetchMany(b.ctx, 15)
		if err != nil || len(ds) != 15 {
			t.Fatalf("fetched %d: %v", len(ds), err)
		}
		for _, d := range ds {
			if age := time.Since(d.Job.StartedAt); age != time.Minute {
				t.Errorf("a delivery is %v old", age)
			}
		}
		if n := s.Calls("Claim"); n != 1 {
			t.Errorf("%d claims for 15 jobs", n)
		}
	})
}
