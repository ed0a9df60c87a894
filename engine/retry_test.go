package engine_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"testing"
	"time"

	"github.com/ojsengine/ojs"
	"github.com/ojsengine/ojs/engine"
	"github.com/ojsengine/ojs/internal/test/pace"
)

func TestRetryTimes(t *testing.T) {
	tests := []struct {
		name   string
		policy ojs.RetryPolicy
		want   []float64
	}{
		{"A007 A028 A045 none", ojs.RetryPolicy{MaxAttempts: 5, InitialInterval: 5 * time.Second,
			BackoffStrategy: ojs.BackoffNone}, []float64{0, 5, 10, 15, 20}},
		{"A046 linear", ojs.RetryPolicy{MaxAttempts: 5, InitialInterval: 5 * time.Second,
			BackoffStrategy: ojs.BackoffLinear}, []float64{0, 5, 15, 30, 50}},
		{"A047 A048 exponential", ojs.RetryPolicy{MaxAttempts: 11},
			[]float64{0, 1, 3, 7, 15, 31, 63, 127, 255, 511, 811}},
		{"A049 A050 polynomial", ojs.RetryPolicy{MaxAttempts: 6, BackoffCoefficient: 4,
			BackoffStrategy: ojs.BackoffPolynomial}, []float64{0, 1, 17, 98, 354, 654}},
		{"A143 polling", ojs.RetryPolicy{MaxAttempts: 4, InitialInterval: 10 * time.Second,
			BackoffCoefficient: 1, MaxInterval: 10 * time.Second}, []float64{0, 10, 20, 30}},
		{"A023 A132 B022 one attempt", ojs.RetryPolicy{MaxAttempts: 1}, []float64{0}},
		{"A024 max_attempts 0", ojs.RetryPolicy{MaxAttempts: ojs.NoRetry}, []float64{0}},
		{"A004 A009 A025 A099 A100 A133 A171 default", ojs.RetryPolicy{}, []float64{0, 1, 3}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			inBubble(t, func(b *rig) {
				b.handle("fail", func(context.Context, *ojs.Job[any]) error { return errBoom })
				b.run()
				ticket := b.enqueue("fail", noJitter, ojs.WithRetry(tt.policy))
				b.advance(time.Hour)
				if got := b.times(); !slices.Equal(got, seconds(tt.want...)) {
					t.Errorf("ran at %v, want %v", got, seconds(tt.want...))
				}
				b.want(ticket.ID, ojs.StateDiscarded, len(tt.want))
			})
		})
	}
}

func TestBackoffCountsFromTheFailure(t *testing.T) {
	t.Run("A008 not from the start of the attempt that failed", func(t *testing.T) {
		inBubble(t, func(b *rig) {
			b.handle("fail",
				func(context.Context, *ojs.Job[any]) error { pace.Virtual(10 * time.Second); return errBoom })
			b.run()
			b.enqueue("fail", noJitter)
			b.advance(time.Hour)
			if want := seconds(0, 11, 23); !slices.Equal(b.times(), want) {
				t.Errorf("ran at %v, want %v", b.times(), want)
			}
		})
	})
}

func TestJitter(t *testing.T) {
	t.Run("A063 A064 A104 A173 spread, and never early", func(t *testing.T) {
		inBubble(t, func(b *rig) {
			b.Handle("fail", func(_ context.Context, job *ojs.Job[any]) error {
				if job.Attempt == 2 {
					b.ran()
					if b.elapsed() < job.CreatedAt.Sub(b.start)+500*time.Millisecond {
						t.Errorf("second attempt at %v", b.elapsed())
					}
				}
				return errBoom
			})
			b.run()
			for range 50 {
				b.enqueue("fail", ojs.WithMaxAttempts(2))
			}
			b.advance(1500 * time.Millisecond)
			times := b.times()
			if len(times) != 50 {
				t.Fatalf("%d of 50 ran again within 1.5 s", len(times))
			}
			slices.Sort(times)
			early := 0 // of 50, fewer than 10 in either half once in 10^6 runs
			for _, at := range times {
				if at < time.Second {
					early++
				}
			}
			if early < 10 || early > 40 {
				t.Errorf("%d of 50 jobs retried in the first half of the range", early)
			}
			if n := len(slices.Compact(times)); n < 40 {
				t.Errorf("50 jobs that failed together retried at only %d times", n)
			}
		})
	})
}

// Every way in which an attempt can fail counts, and none lets a job run more often than
// its policy allows.
func TestUpperBound(t *testing.T) {
	ways := map[string]func(ctx context.Context, b *rig) error{
		"error": func(context.Context, *rig) error { return errBoom },
		"RETRY code": func(context.Context,
			*rig) error {
			return &ojs.Error{Code: ojs.CodeRetry, Type: "x.y"}
		},
		"retry after":  func(context.Context, *rig) error { return ojs.RetryAfter(time.Second, errBoom) },
		"panic":        func(context.Context, *rig) error { panic("boom") },
		"nil panic":    func(context.Context, *rig) error { panic(nil) },
		"Goexit":       func(context.Context, *rig) error { runtime.Goexit(); return nil },
		"timeout":      func(ctx context.Context, _ *rig) error { <-ctx.Done(); return context.Cause(ctx) },
		"nil pointer":  func(context.Context, *rig) error { var e *ojs.Error; return e },
		"other nil":    func(context.Context, *rig) error { var e *customError; return e },
		"Error panics": func(context.Context, *rig) error { return panickyError{} },
		"ignores ctx":  func(_ context.Context, b *rig) error { pace.Virtual(time.Hour); return nil },
		"bad result":   func(ctx context.Context, _ *rig) error { return errors.Join(errBoom, nil) },
		"wrapped panic": func(context.Context,
			*rig) error {
			panic(fmt.Errorf("wrapped: %w", ojs.Discard(errBoom)))
		},
	}
	for name, fail := range ways {
		for _, n := range []int{1, 2, 4} {
			t.Run(fmt.Sprintf("A027 A113 A163 %s, %d attempts", name, n), func(t *testing.T) {
				inBubble(t, func(b *rig) {
					b.handle("fail", func(ctx context.Context, _ *ojs.Job[any]) error { return fail(ctx, b) })
					b.run()
					ticket := b.enqueue("fail", noJitter, ojs.WithMaxAttempts(n),
						ojs.WithTimeout(time.Minute))
					b.advance(24 * time.Hour)
					job := b.want(ticket.ID, ojs.StateDiscarded, n)
					if got := len(b.times()); got != n {
						t.Errorf("ran %d times, want %d", got, n)
					}
					if len(job.Errors) != n {
						t.Errorf("A117: %d errors, want %d: %+v", len(job.Errors), n, job.Errors)
					}
				})
			})
		}
	}
}

type customError struct{ what string }

func (e *customError) Error() string { return e.what }

type panickyError struct{}

func (panickyError) Error() string { panic("in Error") }

func TestResponseCodes(t *testing.T) {
	tests := []struct {
		name  string
		err   error
		retry ojs.RetryPolicy
		runs  int
		dead  bool
		code  ojs.Code
	}{
		{"A005 A086 A089 A146 A170 B017 B018 DISCARD wins over dead_letter", ojs.Discard(errBoom),
			ojs.RetryPolicy{OnExhaustion: ojs.ExhaustionDeadLetter}, 1, false, ojs.CodeDiscard},
		{"A087 A090 A147 B018 B019 DEAD_LETTER wins over discard", ojs.DeadLetter(errBoom), ojs.RetryPolicy{},
			1, true, ojs.CodeDeadLetter},
		{"A088 A091 B018 FAIL wins over dead_letter", ojs.Permanent(errBoom),
			ojs.RetryPolicy{OnExhaustion: ojs.ExhaustionDeadLetter}, 1, false, ojs.CodeFail},
		{"A085 A148 RETRY is the policy's", &ojs.Error{Code: ojs.CodeRetry, Err: errBoom}, ojs.RetryPolicy{},
			3, false, ojs.CodeRetry},
		{"A039 A042 A149 A179 no code, discard", errBoom, ojs.RetryPolicy{}, 3, false, ojs.CodeRetry},
		{"A040 A042 A145 A179 no code, dead_letter", errBoom,
			ojs.RetryPolicy{MaxAttempts: 1, OnExhaustion: ojs.ExhaustionDeadLetter}, 1, true, ojs.CodeRetry},
		{"A011 A038 A041 A082 A083 A084 A169 B016 non-retryable, discard", ojs.Errorf("auth.expired", "no"),
			ojs.RetryPolicy{NonRetryableErrors: []string{"auth.*"}}, 1, false, ojs.CodeRetry},
		{"A140 A141 non-retryable, dead_letter", ojs.Errorf("auth.expired", "no"),
			ojs.RetryPolicy{NonRetryableErrors: []string{"auth.*"}, OnExhaustion: ojs.ExhaustionDeadLetter},
			1, true, ojs.CodeRetry},
		{"A142 another type is retried", ojs.Errorf("crm.down", "no"),
			ojs.RetryPolicy{NonRetryableErrors: []string{"auth.*"}, OnExhaustion: ojs.ExhaustionDeadLetter},
			3, true, ojs.CodeRetry},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			inBubble(t, func(b *rig) {
				b.handle("fail", func(context.Context, *ojs.Job[any]) error { return tt.err })
				b.run()
				ticket := b.enqueue("fail", ojs.WithRetry(tt.retry))
				job, err := ticket.Wait(b.ctx)
				var ended *ojs.EndedError
				if !errors.As(err, &ended) || ended.DeadLettered != tt.dead ||
					ended.State != ojs.StateDiscarded {
					t.Fatalf("Wait: %v, want an EndedError, dead-lettered %v", err, tt.dead)
				}
				if len(b.times()) != tt.runs || job.DeadLettered() != tt.dead {
					t.Errorf("ran %d times, dead-lettered %v; want %d, %v", len(b.times()),
						job.DeadLettered(), tt.runs, tt.dead)
				}
				if got := slices.Contains(b.deadLetters(), ticket.ID); got != tt.dead {
					t.Errorf("among the dead letters: %v, want %v", got, tt.dead)
				}
				if job.Error == nil || job.Error.Code != tt.code {
					t.Errorf("A119: error %+v, want code %s", job.Error, tt.code)
				}
			})
		})
	}
}

// The effects of exhaustion, from the last failure to the end of retention.
func TestExhaustion(t *testing.T) {
	t.Run("A145 compliance.generate_report: one run, dead at once, run again by hand", func(t *testing.T) {
		inBubble(t, func(b *rig) {
			healed := false
			b.handle("compliance.generate_report", func(context.Context, *ojs.Job[any]) error {
				if healed {
					return nil
				}
				return errBoom
			})
			b.run()
			id := b.enqueue("compliance.generate_report",
				ojs.WithRetry(ojs.RetryPolicy{MaxAttempts: 1, OnExhaustion: ojs.ExhaustionDeadLetter})).ID
			b.advance(24 * time.Hour)
			job := b.want(id, ojs.StateDiscarded, 1)
			if !slices.Equal(b.times(), seconds(0)) || !job.DeadLetteredAt.Equal(b.start) ||
				!slices.Equal(b.deadLetters(), []string{id}) {
				t.Errorf("ran at %v, dead at %v, dead letters %v", b.times(), job.DeadLetteredAt,
					b.deadLetters())
			}
			healed = true
			must(t, b.DeadLetters().Retry(b.ctx, id))
			b.advance(0)
			if job := b.want(id, ojs.StateCompleted, 1); job.DeadLettered() || len(b.deadLetters()) != 0 ||
				len(b.times()) != 2 {
				t.Errorf("ran at %v, %+v", b.times(), job)
			}
		})
	})
	t.Run("A183 discard and dead_letter: listed, replayed and pruned, each by its own rule", func(t *testing.T) {
		inBubble(t, func(b *rig) {
			b.handle("fail", func(context.Context, *ojs.Job[any]) error { return errBoom })
			b.run()
			exhausted := func(how ojs.Exhaustion) string {
				return b.enqueue("fail", ojs.WithRetry(ojs.RetryPolicy{MaxAttempts: 1, OnExhaustion: how})).ID
			}
			gone, dead := exhausted(ojs.ExhaustionDiscard), exhausted(ojs.ExhaustionDeadLetter)
			b.advance(0)
			if job := b.want(gone, ojs.StateDiscarded, 1); job.DeadLettered() {
				t.Error("a discarded job is a dead letter")
			}
			b.want(dead, ojs.StateDiscarded, 1)
			if !slices.Equal(b.deadLetters(), []string{dead}) {
				t.Errorf("dead letters %v", b.deadLetters())
			}
			if err := b.DeadLetters().Retry(b.ctx, gone); !errors.Is(err, ojs.ErrTransition) {
				t.Errorf("replay of a discarded job: %v", err)
			}
			must(t, b.DeadLetters().Retry(b.ctx, dead))
			b.advance(0)
			if len(b.times()) != 3 {
				t.Errorf("ran at %v", b.times())
			}
			const day = 24 * time.Hour
			b.advance(31 * day)
			if _, err := b.Get(b.ctx, gone); err == nil {
				t.Error("a discarded job is kept for more than 30 days")
			}
			b.want(dead, ojs.StateDiscarded, 1)
			b.advance(150 * day)
			if _, err := b.Get(b.ctx, dead); err == nil || len(b.deadLetters()) != 0 {
				t.Error("a dead letter is kept for more than 180 days")
			}
		})
		inBubble(t, func(b *rig) {
			b.handle("fail", func(context.Context, *ojs.Job[any]) error { return errBoom })
			b.run()
			var ids []string
			for range 100 {
				ids = append(ids,
					b.enqueue("fail",
						ojs.WithRetry(ojs.RetryPolicy{MaxAttempts: 1,
							OnExhaustion: ojs.ExhaustionDeadLetter})).ID)
				b.advance(time.Second)
			}
			b.advance(10 * time.Minute)
			if got := b.deadLetters(); !slices.Equal(got, ids[90:]) {
				t.Errorf("%d dead letters are kept, want the latest 10", len(got))
			}
		}, engine.WithRetention(engine.Retention{MaxDeadLetters: 10}))
	})
}

func TestRetryTracking(t *testing.T) {
	t.Run("A006 A116 A118 A176 attempt, history and next_retry_at", func(t *testing.T) {
		inBubble(t, func(b *rig) {
			b.handle("flaky", func(_ context.Context, job *ojs.Job[any]) error {
				if job.Attempt != len(job.Errors)+1 || job.MaxAttempts != 12 && job.Attempt <= 10 {
					t.Errorf("handler sees attempt %d of %d after %d errors", job.Attempt, job.MaxAttempts,
						len(job.Errors))
				}
				if now := b.job(job.ID); !now.NextRetryAt.IsZero() || now.Attempt != job.Attempt ||
					now.State != ojs.StateActive {
					t.Errorf("A118 during attempt %d the job is %s at %d, with next_retry_at %v", job.Attempt,
						now.State, now.Attempt, now.NextRetryAt)
				}
				if job.Attempt < 3 {
					return ojs.Errorf("api.down", "attempt %d", job.Attempt)
				}
				return nil
			})
			b.run()
			ticket := b.enqueue("flaky", noJitter, ojs.WithMaxAttempts(12))
			b.advance(500 * time.Millisecond)
			job := b.want(ticket.ID, ojs.StateRetryable, 1)
			if want := b.start.Add(time.Second); !job.NextRetryAt.Equal(want) {
				t.Errorf("next_retry_at %v, want %v", job.NextRetryAt, want)
			}
			b.advance(10 * time.Second)
			job = b.want(ticket.ID, ojs.StateCompleted, 3)
			if !job.NextRetryAt.IsZero() || job.Error != nil {
				t.Errorf("completed with next_retry_at %v and error %v", job.NextRetryAt, job.Error)
			}
			if len(job.Errors) != 2 || job.Errors[1].Message != "attempt 2" ||
				job.Errors[1].Type != "api.down" ||
				job.Errors[1].Attempt != 2 || !job.Errors[1].At.Equal(b.start.Add(time.Second)) {
				t.Errorf("errors %+v", job.Errors)
			}
		})
	})
	t.Run("A118 A176 next_retry_at goes with the state retryable", func(t *testing.T) {
		for state, leave := range map[ojs.State]func(b *rig, id string){
			ojs.StateAvailable: func(b *rig,
				_ string) {
				must1(b.Queues().Pause(b.ctx, "default"))
				b.advance(time.Minute)
			},
			ojs.StateCancelled: func(b *rig, id string) { must(t, b.Cancel(b.ctx, id)) },
			// the second attempt was the last
			ojs.StateDiscarded: func(b *rig, _ string) { b.advance(time.Minute) },
		} {
			inBubble(t, func(b *rig) {
				b.handle("fail", func(context.Context, *ojs.Job[any]) error { return errBoom })
				b.run()
				id := b.enqueue("fail", noJitter, ojs.WithMaxAttempts(2)).ID
				b.advance(0)
				if job := b.want(id, ojs.StateRetryable, 1); !job.NextRetryAt.Equal(
					b.start.Add(time.Second)) {
					t.Errorf("retryable with next_retry_at %v", job.NextRetryAt)
				}
				leave(b, id)
				if job := b.job(id); job.State != state || !job.NextRetryAt.IsZero() {
					t.Errorf("%s with next_retry_at %v, want %s with none", job.State, job.NextRetryAt, state)
				}
			})
		}
		inBubble(t, func(b *rig) { // retried at once, by hand, while its queue rests
			b.handle("fail", func(context.Context, *ojs.Job[any]) error { return errBoom })
			b.run()
			id := b.enqueue("fail", noJitter).ID
			b.advance(0)
			must1(b.Queues().Pause(b.ctx, "default"))
			must(t, b.Jobs().Retry(b.ctx, id))
			if job := b.want(id, ojs.StateAvailable, 1); !job.NextRetryAt.IsZero() {
				t.Errorf("next_retry_at %v", job.NextRetryAt)
			}
		})
	})
	t.Run("A121 A177 the last ten errors", func(t *testing.T) {
		inBubble(t, func(b *rig) {
			b.handle("fail",
				func(_ context.Context,
					job *ojs.Job[any]) error {
					return fmt.Errorf("attempt %d", job.Attempt)
				})
			b.run()
			ticket := b.enqueue("fail", noJitter, ojs.WithMaxAttempts(13))
			b.advance(time.Hour)
			job := b.want(ticket.ID, ojs.StateDiscarded, 13)
			if len(job.Errors) < 10 || job.Errors[len(job.Errors)-1].Attempt != 13 {
				t.Errorf("errors %+v", job.Errors)
			}
			for i, f := range job.Errors {
				if want := 13 - len(job.Errors) + 1 + i; f.Attempt != want {
					t.Errorf("entry %d is of attempt %d, want %d: oldest first", i, f.Attempt, want)
				}
			}
		})
	})
}

func TestSnooze(t *testing.T) {
	inBubble(t, func(b *rig) {
		b.handle("later", func(_ context.Context, job *ojs.Job[any]) error {
			if job.Attempt != 1 {
				t.Errorf("attempt %d: a snooze spends none", job.Attempt)
			}
			if len(b.times()) < 5 {
				return ojs.Snooze(time.Minute)
			}
			return nil
		})
		b.run()
		ticket := b.enqueue("later", ojs.WithMaxAttempts(1))
		b.advance(30 * time.Second)
		b.want(ticket.ID, ojs.StateRetryable, 0)
		b.advance(time.Hour)
		job := b.want(ticket.ID, ojs.StateCompleted, 1)
		if want := seconds(0, 60, 120, 180, 240); !slices.Equal(b.times(), want) {
			t.Errorf("ran at %v, want %v", b.times(), want)
		}
		if len(job.Errors) != 0 {
			t.Errorf("a snooze is no failure: %+v", job.Errors)
		}
	})
}

func TestRetryAfter(t *testing.T) {
	inBubble(t, func(b *rig) {
		b.handle("limited", func(_ context.Context, job *ojs.Job[any]) error {
			return ojs.RetryAfter([]time.Duration{30 * time.Second, time.Hour, 0}[job.Attempt-1], errBoom)
		})
		b.run()
		ticket := b.enqueue("limited")
		b.advance(time.Hour)
		b.want(ticket.ID, ojs.StateDiscarded, 3)
		if want := seconds(0, 30, 330); !slices.Equal(b.times(), want) { // an hour is more than max_interval
			t.Errorf("ran at %v, want %v", b.times(), want)
		}
	})
}

func TestInvalidPolicyStoresNothing(t *testing.T) {
	tests := map[string]ojs.RetryPolicy{
		"A123 max_attempts":             {MaxAttempts: -2},
		"A125 initial_interval":         {InitialInterval: -1},
		"A126 A165 backoff_coefficient": {BackoffCoefficient: 0.99},
		"A128 max below initial":        {InitialInterval: 10 * time.Minute},
		"A131 on_exhaustion":            {OnExhaustion: "requeue"},
	}
	for name, p := range tests {
		t.Run("A122 A178 "+name, func(t *testing.T) {
			inBubble(t, func(b *rig) {
				good := ojs.NewDraft("x", nil)
				_, err := b.EnqueueMany(b.ctx, good, ojs.NewDraft("x", nil, ojs.WithRetry(p)), good)
				var invalid *ojs.InvalidError
				if !errors.As(err, &invalid) || invalid.Code != ojs.InvalidCodeRetry {
					t.Fatalf("error %v, want an InvalidError with %s", err, ojs.InvalidCodeRetry)
				}
				if counts, err := b.store.Counts(b.ctx); err != nil || len(counts) != 0 {
					t.Errorf("stored all the same: %v, %v", counts, err)
				}
			})
		})
	}
}

var _ = engine.ErrStuck
