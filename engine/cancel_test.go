package engine_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/ojsengine/ojs"
	"github.com/ojsengine/ojs/internal/test/pace"
)

func TestCancel(t *testing.T) {
	t.Run("P0.3 a waiting job", func(t *testing.T) {
		inBubble(t, func(b *rig) {
			b.handle("x", func(context.Context, *ojs.Job[any]) error { return errBoom })
			available, scheduled := b.enqueue("x"), b.enqueue("x", ojs.WithDelay(time.Hour))
			retryable := b.enqueue("x", ojs.WithPriority(1))
			if err := b.Cancel(b.ctx, available.ID); err != nil {
				t.Fatal(err)
			}
			b.run()
			for _, ticket := range []ojs.Ticket{scheduled, retryable} {
				if err := b.Cancel(b.ctx, ticket.ID); err != nil {
					t.Fatal(err)
				}
			}
			b.advance(2 * time.Hour)
			b.want(available.ID, ojs.StateCancelled, 0)
			b.want(scheduled.ID, ojs.StateCancelled, 0)
			job := b.want(retryable.ID, ojs.StateCancelled, 1)
			if !job.NextRetryAt.IsZero() || !job.FinishedAt.Equal(b.start) {
				t.Errorf("next_retry_at %v, cancelled_at %v", job.NextRetryAt, job.FinishedAt)
			}
		})
	})
	t.Run("P0.3 a running job: its context ends, its result is refused", func(t *testing.T) {
		for name, result := range map[string]error{
			"nil": nil, "error": errBoom, "dead letter": ojs.DeadLetter(errBoom),
		} {
			t.Run(name, func(t *testing.T) {
				inBubble(t, func(b *rig) {
					b.handle("x", func(ctx context.Context, _ *ojs.Job[any]) error {
						<-ctx.Done()
						if context.Cause(ctx) != ojs.ErrCancelled {
							t.Errorf("cause %v", context.Cause(ctx))
						}
						b.ran()
						pace.Virtual(time.Minute)
						return result
					})
					b.run()
					ticket := b.enqueue("x")
					waited := make(chan error, 1)
					go func() { _, err := ticket.Wait(b.ctx); waited <- err }()
					b.advance(time.Second)
					if err := b.Cancel(b.ctx, ticket.ID); err != nil {
						t.Fatal(err)
					}
					var ended *ojs.EndedError
					if err := <-waited; !errors.As(err, &ended) || ended.State != ojs.StateCancelled {
						t.Errorf("Wait: %v", err)
					}
					b.advance(time.Hour)
					if len(b.times()) != 2 {
						t.Error("the handler was not told")
					}
					b.want(ticket.ID, ojs.StateCancelled, 1)
					if len(b.deadLetters()) != 0 {
						t.Error("a cancelled job is a dead letter")
					}
				})
			})
		}
	})
	t.Run("reading 52 a job that has ended", func(t *testing.T) {
		inBubble(t, func(b *rig) {
			b.handle("ok", func(context.Context, *ojs.Job[any]) error { return nil })
			b.handle("bad", func(context.Context, *ojs.Job[any]) error { return ojs.Discard(errBoom) })
			b.run()
			cancelled, ok, bad := b.enqueue("none"), b.enqueue("ok"), b.enqueue("bad")
			b.advance(0)
			for range 2 {
				if err := b.Cancel(b.ctx, cancelled.ID); err != nil {
					t.Errorf("cancelled: %v", err)
				}
			}
			for _, ticket := range []ojs.Ticket{ok, bad} {
				var refused *ojs.TransitionError
				if err := b.Cancel(b.ctx, ticket.ID); !errors.As(err, &refused) ||
					!errors.Is(err, ojs.ErrTransition) {
					t.Errorf("error %v", err)
				}
			}
			if err := b.Cancel(b.ctx, "nope"); !errors.Is(err, ojs.ErrNotFound) {
				t.Errorf("unknown: %v", err)
			}
		})
	})
	t.Run("from inside the handler", func(t *testing.T) {
		inBubble(t, func(b *rig) {
			b.handle("x", func(ctx context.Context, job *ojs.Job[any]) error {
				if err := b.Cancel(ctx, job.ID); err != nil {
					t.Error(err)
				}
				return ctx.Err()
			})
			b.run()
			ticket := b.enqueue("x")
			b.advance(time.Hour)
			b.want(ticket.ID, ojs.StateCancelled, 1)
		})
	})
}
