package engine_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/ojsengine/ojs"
	"github.com/ojsengine/ojs/engine"
	"github.com/ojsengine/ojs/engine/fetch"
	"github.com/ojsengine/ojs/handler"
	"github.com/ojsengine/ojs/internal/test/pace"
	"github.com/ojsengine/ojs/policy"
)

// A timeout is a failure even if the handler answers afterwards, unless the answer
// completes the job.
func TestAnswersAfterATimeout(t *testing.T) {
	boom := errors.New("late")
	for name, tt := range map[string]struct {
		answer     error
		state      ojs.State // after the first attempt
		code       ojs.Code
		deadLetter bool
		retryIn    time.Duration
	}{
		"nil completes the job": {nil, ojs.StateCompleted, "", false, 0},
		"an error":              {boom, ojs.StateRetryable, ojs.CodeRetry, false, time.Second},
		"Snooze": {ojs.Snooze(time.Hour), ojs.StateRetryable, ojs.CodeRetry, false,
			time.Second},
		"Snooze, wrapped": {errors.Join(boom, ojs.Snooze(0)), ojs.StateRetryable, ojs.CodeRetry, false,
			time.Second},
		"RetryAfter": {ojs.RetryAfter(3*time.Second, boom), ojs.StateRetryable, ojs.CodeRetry,
			false, 3 * time.Second},
		"Discard":                {ojs.Discard(boom), ojs.StateDiscarded, ojs.CodeDiscard, false, 0},
		"Permanent":              {ojs.Permanent(boom), ojs.StateDiscarded, ojs.CodeFail, false, 0},
		"DeadLetter":             {ojs.DeadLetter(boom), ojs.StateDiscarded, ojs.CodeDeadLetter, true, 0},
		"the end of its context": {ojs.ErrTimeout, ojs.StateRetryable, ojs.CodeRetry, false, time.Second},
	} {
		check := func(t *testing.T, b *rig, id string, errorType string) {
			t.Helper()
			job := b.want(id, tt.state, 1)
			if tt.state == ojs.StateCompleted {
				return
			}
			if len(job.Errors) != 1 || job.Error == nil || job.Error.Type != errorType ||
				job.Error.Code != tt.code || job.DeadLettered() != tt.deadLetter {
				t.Errorf("dead letter %t, errors %+v", job.DeadLettered(), job.Errors)
				return
			}
			if tt.retryIn > 0 && job.NextRetryAt.Sub(job.Error.At) != tt.retryIn {
				t.Errorf("retried after %v, want %v", job.NextRetryAt.Sub(job.Error.At), tt.retryIn)
			}
		}
		limits := map[string]struct {
			errorType string
			opts      []ojs.Option
			ms        []handler.Middleware
		}{
			"its timeout": {policy.ErrorTypeTimeout, []ojs.Option{ojs.WithTimeout(time.Minute)}, nil},
			"a handler.Timeout's": {
				policy.ErrorTypeTimeout, nil, []handler.Middleware{handler.Timeout(time.Minute)},
			},
		}
		for limit, l := range limits {
			t.Run("P0.5 "+name+" after "+limit, func(t *testing.T) {
				inBubble(t, func(b *rig) {
					b.Handle("x", func(ctx context.Context, _ *ojs.Job[any]) error {
						<-ctx.Done()
						pace.Virtual(time.Second)
						return tt.answer
					}, handler.WithMiddleware(l.ms...))
					b.run()
					id := b.enqueue("x", append(l.opts, noJitter)...).ID
					b.advance(61 * time.Second)
					check(t, b, id, l.errorType)
				})
			})
		}
		t.Run("P0.5 "+name+" at the very time of the timeout", func(t *testing.T) {
			inBubble(t, func(b *rig) {
				b.Handle("x",
					func(context.Context, *ojs.Job[any]) error {
						pace.Virtual(time.Minute)
						return tt.answer
					})
				b.run()
				id := b.enqueue("x", noJitter, ojs.WithTimeout(time.Minute)).ID
				b.advance(time.Minute)
				check(t, b, id, policy.ErrorTypeTimeout)
			})
		})
		t.Run("P0.5 "+name+" of a worker after its timeout", func(t *testing.T) {
			inBubble(t, func(b *rig) { // no Run: only the worker's call notices the timeout
				id := b.enqueue("x", noJitter, ojs.WithTimeout(time.Minute)).ID
				d := fetched(b, b.Worker("w", fetch.Config{}))
				b.advance(time.Minute)
				if tt.answer == nil {
					must(t, d.Ack(b.ctx, nil))
				} else {
					must(t, d.Fail(b.ctx, tt.answer))
				}
				check(t, b, id, policy.ErrorTypeTimeout)
			})
		})
	}
	t.Run("P0.5 a worker that gives a job back after its timeout has failed", func(t *testing.T) {
		inBubble(t, func(b *rig) {
			id := b.enqueue("x", noJitter, ojs.WithTimeout(time.Minute)).ID
			d := fetched(b, b.Worker("w", fetch.Config{}))
			b.advance(time.Minute)
			must(t, d.Release(b.ctx))
			if job := b.want(id, ojs.StateRetryable, 1); job.Error == nil ||
				job.Error.Type != policy.ErrorTypeTimeout {
				t.Errorf("%+v", job.Error)
			}
		})
	})
	t.Run("P0.5 no snooze gets beyond the total timeout", func(t *testing.T) {
		inBubble(t, func(b *rig) {
			b.handle("x",
				func(ctx context.Context, _ *ojs.Job[any]) error { <-ctx.Done(); return ojs.Snooze(0) })
			b.run()
			id := b.enqueue("x", ojs.WithTotalTimeout(time.Minute)).ID
			b.advance(time.Hour)
			if job := b.want(id, ojs.StateDiscarded, 1); job.Error.Type != policy.ErrorTypeTotalTimeout ||
				len(b.times()) != 1 {
				t.Errorf("ran at %v: %+v", b.times(), job.Error)
			}
		})
	})
	t.Run("A006 P0.5 no more attempts than the policy allows", func(t *testing.T) {
		inBubble(t, func(b *rig) {
			b.handle("x",
				func(ctx context.Context, _ *ojs.Job[any]) error { <-ctx.Done(); return ojs.Snooze(0) })
			b.run()
			id := b.enqueue("x", noJitter, ojs.WithMaxAttempts(2), ojs.WithTimeout(time.Second)).ID
			b.advance(10 * time.Minute)
			if b.want(id, ojs.StateDiscarded, 2); len(b.times()) != 2 {
				t.Errorf("%d runs with 2 attempts", len(b.times()))
			}
		})
	})
}

// A stop gives back unspent what it interrupts, but not what has exceeded its timeout.
func TestTimeoutDuringAStop(t *testing.T) {
	for name, tt := range map[string]struct {
		stopAt time.Duration // the timeout is at 1 min
		grace  time.Duration
		hangs  time.Duration // after the end of its context
		stuck  bool          // Run says so
		failed bool
	}{
		"it hangs, and its timeout passes in the grace period": {stopAt: 50 * time.Second,
			grace: 20 * time.Second, hangs: time.Hour, stuck: true, failed: true},
		"it ends after the timeout in the grace period": {stopAt: 50 * time.Second,
			grace: 20 * time.Second, hangs: time.Second, failed: true},
		"it ends after the stop's last word": {stopAt: 50 * time.Second,
			grace: 20 * time.Second, hangs: 10500 * time.Millisecond, failed: true},
		"its timeout passes after its context has ended": {stopAt: 59500 * time.Millisecond, grace: 0,
			hangs: 700 * time.Millisecond, failed: true},
		"it hangs, and so it does": {stopAt: 59500 * time.Millisecond, grace: 0,
			hangs: time.Hour, stuck: true, failed: true},
		"it ends before its timeout": {stopAt: 30 * time.Second, grace: 0,
			hangs: 500 * time.Millisecond},
		"it hangs, and its timeout is still to come": {stopAt: 30 * time.Second, grace: 0,
			hangs: time.Hour, stuck: true},
	} {
		t.Run("P0.5 P1.8 "+name, func(t *testing.T) {
			inBubble(t, func(b *rig) {
				b.handle("x", func(ctx context.Context, _ *ojs.Job[any]) error {
					<-ctx.Done()
					pace.Virtual(tt.hangs)
					return context.Cause(ctx)
				})
				b.run()
				id := b.enqueue("x", ojs.WithMaxAttempts(1), ojs.WithTimeout(time.Minute)).ID
				b.advance(tt.stopAt)
				b.stop()
				b.stop = nil
				if err := <-b.ended; errors.Is(err, engine.ErrStuck) != tt.stuck {
					t.Errorf("Run: %v", err)
				}
				if tt.failed {
					if job := b.want(id, ojs.StateDiscarded, 1); job.Error == nil ||
						job.Error.Type != policy.ErrorTypeTimeout {
						t.Errorf("%+v", job.Error)
					}
				} else if job := b.job(id); !job.State.Waiting() || job.Attempt != 0 || job.Error != nil {
					t.Errorf("%s at attempt %d: %+v", job.State, job.Attempt, job.Error)
				}
				b.advance(2 * time.Hour) // its late result changes nothing
				if n := len(b.times()); n != 1 {
					t.Errorf("ran %d times", n)
				}
			}, engine.WithGracePeriod(tt.grace))
		})
	}
}
