package engine_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ojsengine/ojs"
	"github.com/ojsengine/ojs/engine"
	"github.com/ojsengine/ojs/handler"
	"github.com/ojsengine/ojs/internal/test/pace"
	"github.com/ojsengine/ojs/storage"
)

// crash has another worker take n jobs and never be heard of again.
func crash(b *rig, n int) {
	b.t.Helper()
	recs, err := b.store.Claim(b.ctx, time.Now(), storage.Claim{Max: 1, Worker: "crash"}, nil)
	if err != nil || len(recs) != n {
		b.t.Fatalf("claimed %d jobs, want %d: %v", len(recs), n, err)
	}
}

func TestConcurrencyBound(t *testing.T) {
	for _, n := range []int{1, 3, 10} {
		inBubble(t, func(b *rig) {
			var now, most atomic.Int32
			b.handle("x", func(context.Context, *ojs.Job[any]) error {
				most.Store(max(most.Load(), now.Add(1)))
				pace.Virtual(time.Second)
				now.Add(-1)
				return nil
			})
			b.run()
			for range 30 {
				b.enqueue("x")
			}
			b.advance(time.Minute)
			if got := most.Load(); got != int32(n) {
				t.Errorf("%d ran at once, want %d", got, n)
			}
			if len(b.times()) != 30 {
				t.Errorf("%d of 30 ran", len(b.times()))
			}
		}, engine.WithConcurrency(n))
	}
}

func TestGracefulStop(t *testing.T) {
	t.Run("P1.8 running handlers finish, waiting jobs stay", func(t *testing.T) {
		inBubble(t, func(b *rig) {
			b.handle("x",
				func(ctx context.Context,
					_ *ojs.Job[any]) error {
					pace.Virtual(20 * time.Second)
					return ctx.Err()
				})
			b.run()
			first, second := b.enqueue("x"), b.enqueue("x")
			b.advance(time.Second)
			b.halt()
			if b.elapsed() != 20*time.Second {
				t.Errorf("stopped at %v", b.elapsed())
			}
			b.want(first.ID, ojs.StateCompleted, 1)
			b.want(second.ID, ojs.StateAvailable, 0)
			b.run()
			b.advance(time.Minute)
			b.want(second.ID, ojs.StateCompleted, 1)
		}, engine.WithConcurrency(1))
	})
	t.Run("P1.8 after the grace period jobs go back unspent", func(t *testing.T) {
		inBubble(t, func(b *rig) {
			b.handle("x", func(ctx context.Context, job *ojs.Job[any]) error {
				if job.Attempt != 1 {
					t.Errorf("attempt %d: the interrupted one was not spent", job.Attempt)
				}
				if len(b.times()) > 1 {
					return nil
				}
				<-ctx.Done()
				if context.Cause(ctx) != ojs.ErrShutdown {
					t.Errorf("cause %v", context.Cause(ctx))
				}
				return ctx.Err()
			})
			b.run()
			ticket := b.enqueue("x", ojs.WithMaxAttempts(1))
			b.advance(time.Second)
			b.halt()
			if b.elapsed() != 26*time.Second {
				t.Errorf("stopped at %v, want 25 s after the word", b.elapsed())
			}
			if job := b.job(ticket.ID); !job.State.Waiting() || job.Attempt != 0 || len(job.Errors) != 0 {
				t.Errorf("job is %s at attempt %d with errors %+v", job.State, job.Attempt, job.Errors)
			}
			b.run()
			b.advance(0)
			b.want(ticket.ID, ojs.StateCompleted, 1)
		})
	})
	t.Run("P1.8 a handler that ends the job after the grace period is heard", func(t *testing.T) {
		inBubble(t, func(b *rig) {
			b.handle("done", func(ctx context.Context, _ *ojs.Job[any]) error { <-ctx.Done(); return nil })
			b.handle("discard",
				func(ctx context.Context,
					_ *ojs.Job[any]) error {
					<-ctx.Done()
					return ojs.Discard(errBoom)
				})
			b.run()
			done, discard := b.enqueue("done"), b.enqueue("discard")
			b.advance(time.Second)
			b.halt()
			b.want(done.ID, ojs.StateCompleted, 1)
			b.want(discard.ID, ojs.StateDiscarded, 1)
		}, engine.WithGracePeriod(0))
	})
	t.Run("A011 P1.8 a listed error at a stop ends the job", func(t *testing.T) {
		inBubble(t, func(b *rig) {
			failing := func(err error) func(context.Context, *ojs.Job[any]) error {
				return func(ctx context.Context, _ *ojs.Job[any]) error { <-ctx.Done(); return err }
			}
			b.handle("plain", failing(errBoom))
			b.handle("cut", failing(fmt.Errorf("query: %w", context.Canceled)))
			b.run()
			listed := ojs.WithRetry(ojs.RetryPolicy{NonRetryableErrors: []string{"error"}})
			plain, cut := b.enqueue("plain", listed), b.enqueue("cut", listed)
			b.advance(time.Second)
			b.halt()
			b.want(plain.ID, ojs.StateDiscarded, 1)
			if job := b.job(cut.ID); !job.State.Waiting() || job.Attempt != 0 {
				t.Errorf("with its context's error the job is %s at attempt %d", job.State, job.Attempt)
			}
		}, engine.WithGracePeriod(0))
	})
	t.Run("P1.8 a handler that goes on is left behind and named", func(t *testing.T) {
		inBubble(t, func(b *rig) {
			b.handle("x", func(context.Context, *ojs.Job[any]) error { pace.Virtual(time.Hour); return nil })
			b.run()
			ticket := b.enqueue("x")
			b.advance(time.Second)
			b.stop()
			b.stop = nil
			if err := <-b.ended; !errors.Is(err, engine.ErrStuck) {
				t.Errorf("Run: %v, want ErrStuck", err)
			}
			if b.elapsed() != 27*time.Second { // 1, the grace period, and a second for the last words
				t.Errorf("stopped at %v", b.elapsed())
			}
			given := b.job(ticket.ID)
			if !given.State.Waiting() || given.Attempt != 0 {
				t.Errorf("job is %s at attempt %d", given.State, given.Attempt)
			}
			b.advance(2 * time.Hour) // its late result changes nothing
			b.want(ticket.ID, given.State, 0)
		})
	})
	t.Run("P1.8 one that a retry has overtaken is named, too", func(t *testing.T) {
		inBubble(t, func(b *rig) {
			b.handle("x", func(_ context.Context, job *ojs.Job[any]) error {
				if job.Attempt == 1 {
					pace.Virtual(time.Hour)
				}
				return nil
			})
			b.run()
			ticket := b.enqueue("x", noJitter, ojs.WithTimeout(time.Second))
			b.advance(time.Minute)
			b.want(ticket.ID, ojs.StateCompleted, 2)
			b.stop()
			b.stop = nil
			if err := <-b.ended; !errors.Is(err, engine.ErrStuck) {
				t.Errorf("Run: %v, want ErrStuck", err)
			}
			b.advance(time.Hour)
		})
	})
	t.Run("scheduled jobs stay scheduled", func(t *testing.T) {
		inBubble(t, func(b *rig) {
			b.run()
			ticket := b.enqueue("x", ojs.WithDelay(time.Hour))
			b.halt()
			b.want(ticket.ID, ojs.StateScheduled, 0)
		})
	})
}

func TestRunTwice(t *testing.T) {
	inBubble(t, func(b *rig) {
		b.run()
		if err := b.Run(b.ctx); !errors.Is(err, engine.ErrRunning) {
			t.Errorf("second Run: %v, want ErrRunning", err)
		}
	})
}

func TestHandlerContext(t *testing.T) {
	inBubble(t, func(b *rig) {
		var kept context.Context
		b.handle("x", func(ctx context.Context, job *ojs.Job[any]) error {
			if ctx.Value(ctxKey{}) != "from Run" {
				t.Error("the values of Run's context are missing")
			}
			if h := handler.Job(ctx); h == nil || h.ID != job.ID || h.Attempt != 1 {
				t.Errorf("handler.Job: %+v", h)
			}
			handler.Logger(ctx).Info("hello")
			kept = ctx
			return nil
		})
		b.run()
		b.enqueue("x")
		b.advance(0)
		if kept.Err() == nil {
			t.Error("the context outlives the attempt")
		}
	})
}

func TestHandlerAddedWhileRunning(t *testing.T) {
	inBubble(t, func(b *rig) {
		b.run()
		ticket := b.enqueue("late")
		b.advance(time.Minute)
		b.want(ticket.ID, ojs.StateAvailable, 0)
		b.handle("late", func(context.Context, *ojs.Job[any]) error { return nil })
		b.advance(0)
		b.want(ticket.ID, ojs.StateCompleted, 1)
	})
}

func TestEnqueueFromHandler(t *testing.T) {
	inBubble(t, func(b *rig) {
		b.Handle("countdown", func(ctx context.Context, job *ojs.Job[any]) error {
			b.ran()
			if n := job.Args.(float64); n > 0 {
				_, err := b.Enqueue(ctx, "countdown", n-1)
				return err
			}
			return nil
		})
		b.run()
		if _, err := b.Enqueue(b.ctx, "countdown", 9); err != nil {
			t.Fatal(err)
		}
		b.advance(0)
		if n := len(b.times()); n != 10 {
			t.Errorf("ran %d times, want 10", n)
		}
	}, engine.WithConcurrency(1))
}

func TestSleep(t *testing.T) {
	t.Run("for its time", func(t *testing.T) {
		inBubble(t, func(b *rig) {
			b.handle("x", func(ctx context.Context, _ *ojs.Job[any]) error {
				if err := handler.Sleep(ctx, time.Minute); err != nil {
					t.Error(err)
				}
				b.ran()
				return handler.Sleep(ctx, -1)
			})
			b.run()
			b.enqueue("x")
			b.advance(time.Hour)
			if !slices.Equal(b.times(), seconds(0, 60)) {
				t.Errorf("ran at %v", b.times())
			}
		})
	})
	t.Run("until the context ends", func(t *testing.T) {
		inBubble(t, func(b *rig) {
			b.handle("x", func(ctx context.Context, _ *ojs.Job[any]) error {
				err := handler.Sleep(ctx, time.Hour)
				if err != ojs.ErrTimeout || handler.Sleep(ctx, time.Hour) != ojs.ErrTimeout {
					t.Errorf("Sleep: %v", err)
				}
				b.ran()
				return err
			})
			b.run()
			b.enqueue("x", ojs.WithTimeout(time.Minute), ojs.WithMaxAttempts(1))
			b.advance(2 * time.Hour)
			if !slices.Equal(b.times(), seconds(0, 60)) {
				t.Errorf("ran at %v", b.times())
			}
		})
	})
	t.Run("in several goroutines", func(t *testing.T) {
		inBubble(t, func(b *rig) {
			b.handle("x", func(ctx context.Context, _ *ojs.Job[any]) error {
				done := make(chan error)
				for i := range 5 {
					go func() { done <- handler.Sleep(ctx, time.Duration(i+1)*time.Second) }()
				}
				for range 5 {
					if err := <-done; err != nil {
						t.Error(err)
					}
				}
				return nil
			})
			b.run()
			ticket := b.enqueue("x")
			b.advance(5 * time.Second)
			b.want(ticket.ID, ojs.StateCompleted, 1)
			if err := b.WaitIdle(b.ctx); err != nil {
				t.Error(err)
			}
		})
	})
	t.Run("outside of an attempt", func(t *testing.T) {
		for _, err := range []error{handler.Sleep(t.Context(), time.Hour),
			handler.SetResult(t.Context(), 1)} {
			if !errors.Is(err, handler.ErrNoAttempt) {
				t.Errorf("error %v", err)
			}
		}
		if handler.Job(t.Context()) != nil || handler.Logger(t.Context()) == nil {
			t.Error("Job or Logger")
		}
	})
}

func TestWaitIdle(t *testing.T) {
	t.Run("waits for what is due, not for what is not", func(t *testing.T) {
		inBubble(t, func(b *rig) {
			b.handle("x",
				func(context.Context, *ojs.Job[any]) error { pace.Virtual(3 * time.Second); return nil })
			idle := make(chan time.Duration, 1)
			go func() { // before Run
				if err := b.WaitIdle(b.ctx); err != nil {
					t.Error(err)
				}
				idle <- b.elapsed()
			}()
			synctest.Wait()
			for range 4 {
				b.enqueue("x")
			}
			b.enqueue("x", ojs.WithDelay(time.Hour))
			b.run()
			if got := <-idle; got != 6*time.Second {
				t.Errorf("idle at %v, want 6s", got)
			}
			if len(b.times()) != 4 {
				t.Errorf("%d ran", len(b.times()))
			}
		}, engine.WithConcurrency(2))
	})
	t.Run("a handler that runs is not idle", func(t *testing.T) {
		inBubble(t, func(b *rig) {
			b.handle("x",
				func(context.Context, *ojs.Job[any]) error { pace.Virtual(3 * time.Second); return nil })
			b.run()
			b.enqueue("x")
			b.advance(time.Second)
			if err := b.WaitIdle(b.ctx); err != nil || b.elapsed() != 3*time.Second {
				t.Errorf("%v at %v, want 3s", err, b.elapsed())
			}
		})
	})
	t.Run("P1.8 a sleeping handler is not idle on a clock that moves by itself", func(t *testing.T) {
		inBubble(t, func(b *rig) {
			b.handle("x",
				func(ctx context.Context, _ *ojs.Job[any]) error { return handler.Sleep(ctx, time.Minute) })
			b.run()
			b.enqueue("x")
			if err := b.WaitIdle(b.ctx); err != nil || b.elapsed() != time.Minute {
				t.Errorf("%v at %v", err, b.elapsed())
			}
		})
	})
	t.Run("a goroutine that sleeps on after its handler is nobody's worker", func(t *testing.T) {
		for name, early := range map[string]bool{
			"asleep before the handler returns": true, "asleep after it": false,
		} {
			t.Run(name, func(t *testing.T) {
				inBubble(t, func(b *rig) {
					var woke time.Duration
					b.Handle("x", func(ctx context.Context, _ *ojs.Job[any]) error {
						handler.Job(ctx) // which lends the attempt to the goroutine
						go func() {
							if !early {
								pace.Virtual(time.Second)
							}
							if err := handler.Sleep(context.WithoutCancel(ctx), time.Hour); err != nil {
								t.Error(err)
							}
							woke = b.elapsed()
						}()
						if early {
							pace.Virtual(time.Second)
						}
						return nil
					})
					b.Handle("y",
						func(context.Context, *ojs.Job[any]) error { pace.Virtual(time.Second); return nil })
					b.run()
					b.enqueue("x")
					b.advance(2 * time.Second)
					if err := b.WaitIdle(b.ctx); err != nil || b.elapsed() != 2*time.Second {
						t.Errorf("%v at %v, want 2s", err, b.elapsed())
					}
					b.enqueue("y")
					if err := b.WaitIdle(b.ctx); err != nil || b.elapsed() < 3*time.Second ||
						b.elapsed() > time.Minute {
						t.Errorf("%v at %v, want 3s", err, b.elapsed())
					}
					b.advance(2 * time.Hour)
					if woke < time.Hour {
						t.Errorf("slept until %v", woke)
					}
				})
			})
		}
	})
	t.Run("ctx ends", func(t *testing.T) {
		inBubble(t, func(b *rig) {
			ctx, cancel := context.WithTimeout(b.ctx, time.Minute)
			defer cancel()
			if err := b.WaitIdle(ctx); !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("error %v", err)
			}
		})
	})
}
