package engine_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/ojsengine/ojs"
	"github.com/ojsengine/ojs/cron"
	"github.com/ojsengine/ojs/engine"
	"github.com/ojsengine/ojs/engine/fetch"
	"github.com/ojsengine/ojs/handler"
	"github.com/ojsengine/ojs/internal/test/pace"
	"github.com/ojsengine/ojs/policy"
	"github.com/ojsengine/ojs/storage/memory"
)

// say is a retry hook made of functions, which notes what it is asked.
type say struct {
	retry func(*ojs.JobInfo, error) bool
	delay func(*ojs.JobInfo, error) time.Duration
	asked []string
}

func (s *say) ShouldRetry(job *ojs.JobInfo, err error) bool {
	s.asked = append(s.asked, fmt.Sprintf("retry %d", job.Attempt))
	return s.retry == nil || s.retry(job, err)
}

func (s *say) Delay(job *ojs.JobInfo, err error) time.Duration {
	s.asked = append(s.asked, fmt.Sprintf("delay %d", job.Attempt))
	if s.delay == nil {
		return 0
	}
	return s.delay(job, err)
}

func fails(context.Context, *ojs.Job[any]) error { return errBoom }

func TestRetryHook(t *testing.T) {
	no := func(*ojs.JobInfo, error) bool { return false }
	after := func(d time.Duration) func(*ojs.JobInfo, error) time.Duration {
		return func(*ojs.JobInfo, error) time.Duration { return d }
	}
	for _, tt := range []struct {
		name           string
		engine, own    *say // the engine's and the handler's
		want           []float64
		engineAsk, ask []string
	}{
		{"E029 a hook without opinions", &say{}, nil, []float64{0, 1, 3},
			[]string{"retry 1", "delay 1", "retry 2", "delay 2", "retry 3"}, nil},
		{"E023 E028 E033 the engine's veto", &say{retry: no}, nil, []float64{0}, []string{"retry 1"}, nil},
		{"E023 the handler's veto", &say{}, &say{retry: no}, []float64{0}, nil, []string{"retry 1"}},
		{"E027 the engine's delay", &say{delay: after(10 * time.Second)}, nil, []float64{0, 10, 20},
			[]string{"retry 1", "delay 1", "retry 2", "delay 2", "retry 3"}, nil},
		{"E027 the handler's delay goes before the engine's", &say{delay: after(10 * time.Second)},
			&say{delay: after(20 * time.Second)},
			[]float64{0, 20, 40}, []string{"retry 1", "retry 2", "retry 3"}, []string{"retry 1", "delay 1",
				"retry 2", "delay 2", "retry 3"}},
		{"E026 the handler's zero leaves it to the engine's", &say{delay: after(10 * time.Second)}, &say{},
			[]float64{0, 10, 20}, []string{"retry 1", "delay 1", "retry 2", "delay 2", "retry 3"},
			[]string{"retry 1", "delay 1", "retry 2", "delay 2", "retry 3"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var opts []engine.Option
			if tt.engine != nil {
				opts = append(opts, engine.WithRetryHook(tt.engine))
			}
			inBubble(t, func(b *rig) {
				var own []handler.Option
				if tt.own != nil {
					own = append(own, handler.WithRetryHook(tt.own))
				}
				b.Register(handler.For(ojs.Define[any]("fail"),
					func(context.Context, *ojs.Job[any]) error { b.ran(); return errBoom }, own...))
				b.run()
				ticket := b.enqueue("fail", noJitter)
				b.advance(time.Hour)
				if got := b.times(); !slices.Equal(got, seconds(tt.want...)) {
					t.Errorf("ran at %v, want %v", got, seconds(tt.want...))
				}
				b.want(ticket.ID, ojs.StateDiscarded, len(tt.want))
			}, opts...)
			if !slices.Equal(tt.engine.asked, tt.engineAsk) {
				t.Errorf("the engine's hook was asked %v, want %v", tt.engine.asked, tt.engineAsk)
			}
			if tt.own != nil && !slices.Equal(tt.own.asked, tt.ask) {
				t.Errorf("the handler's hook was asked %v, want %v", tt.own.asked, tt.ask)
			}
		})
	}
}

// A job that runs without a handler in this engine, a fetched one, is the engine's hook's
// too.
func TestRetryHookOfDeliveries(t *testing.T) {
	inBubble(t, func(b *rig) {
		ticket := b.enqueue("elsewhere")
		d, err := b.Worker("w", fetch.Config{}).Fetch(b.ctx)
		if err != nil {
			t.Fatal(err)
		}
		if err := d.Fail(b.ctx, errBoom); err != nil {
			t.Fatal(err)
		}
		b.want(ticket.ID, ojs.StateDiscarded, 1)
	}, engine.WithRetryHook(&say{retry: func(*ojs.JobInfo, error) bool { return false }}))
}

func TestRetryHookPanics(t *testing.T) {
	t.Run("E023 E024 a panic is logged and no opinion", func(t *testing.T) {
		var log bytes.Buffer
		hook := &say{
			retry: func(*ojs.JobInfo, error) bool { panic("no idea") },
			delay: func(*ojs.JobInfo, error) time.Duration { panic("none either") },
		}
		inBubble(t, func(b *rig) {
			b.handle("fail", fails)
			b.run()
			ticket := b.enqueue("fail", noJitter)
			b.advance(time.Hour)
			if want := seconds(0, 1, 3); !slices.Equal(b.times(), want) {
				t.Errorf("ran at %v, want %v", b.times(), want)
			}
			b.want(ticket.ID, ojs.StateDiscarded, 3)
		}, engine.WithRetryHook(hook), engine.WithLogger(slog.New(slog.NewTextHandler(&log, nil))))
		for _, want := range []string{"method=ShouldRetry panic=\"no idea\"",
			"method=Delay panic=\"none either\""} {
			if !strings.Contains(log.String(), want) {
				t.Errorf("log lacks %s:\n%s", want, log.String())
			}
		}
	})
}

// goexits is a retry hook that ends the goroutine that asks it.
type goexits struct{}

func (goexits) ShouldRetry(*ojs.JobInfo, error) bool    { runtime.Goexit(); return false }
func (goexits) Delay(*ojs.JobInfo, error) time.Duration { runtime.Goexit(); return time.Hour }

func TestRetryHookGoexit(t *testing.T) {
	var log bytes.Buffer
	inBubble(t, func(b *rig) {
		b.handle("fail", fails)
		b.Handle("exit", func(context.Context, *ojs.Job[any]) error { runtime.Goexit(); return nil })
		b.Handle("slow",
			func(ctx context.Context, _ *ojs.Job[any]) error { pace.Virtual(5 * time.Minute); return nil })
		b.handle("later", nothing)
		b.run()
		b.enqueue("exit", ojs.WithMaxAttempts(2))
		failed := b.enqueue("fail", noJitter)
		b.advance(time.Minute)
		if want := seconds(0, 1, 3); !slices.Equal(b.times(), want) {
			t.Errorf("ran at %v, want %v", b.times(), want)
		}
		b.want(failed.ID, ojs.StateDiscarded, 3)
		lost := b.enqueue("elsewhere", noJitter, ojs.WithLease(time.Minute))
		fetched(b, b.Worker("w", fetch.Config{}))
		slow := b.enqueue("slow", ojs.WithTimeout(time.Minute), noJitter, ojs.WithMaxAttempts(2))
		b.advance(5 * time.Minute)
		b.want(lost.ID, ojs.StateAvailable, 1)
		b.advance(time.Hour)
		b.want(slow.ID, ojs.StateDiscarded, 2)
		later := b.enqueue("later", ojs.WithDelay(time.Hour))
		b.advance(time.Hour)
		b.want(later.ID, ojs.StateCompleted, 1)
	}, engine.WithRetryHook(goexits{}), engine.WithConcurrency(1),
		engine.WithLogger(slog.New(slog.NewTextHandler(&log, nil))))
	for _, method := range []string{"ShouldRetry", "Delay"} {
		if want := `msg="retry hook called runtime.Goexit"`; !strings.Contains(log.String(), want) ||
			!strings.Contains(log.String(), "method="+method) {
			t.Errorf("log lacks %s of %s:\n%s", want, method, log.String())
		}
	}
}

// An enqueue hook that ends maintenance's goroutine costs the run of the recurring job,
// and nothing else.
func TestEnqueueHookGoexit(t *testing.T) {
	inBubble(t, func(b *rig) {
		b.handle("x", nothing)
		b.handle("cron", nothing)
		b.run()
		id := b.enqueue("x", ojs.WithDelay(time.Hour)).ID
		must(t,
			b.Cron().Set(b.ctx, cron.Entry{Name: "e", Schedule: "*/30 * * * *",
				Job: ojs.NewDraft("cron", nil)}))
		b.advance(2*time.Hour - time.Second)
		b.want(id, ojs.StateCompleted, 1)
		if want := seconds(3600, 3600, 5400); !slices.Equal(b.times(), want) {
			t.Errorf("ran at %v, want %v", b.times(), want)
		}
	}, engine.WithEnqueueHook(func(_ context.Context, job *ojs.Job[any]) error {
		if job.Type == "cron" && job.CreatedAt.Hour() == 0 && job.CreatedAt.Minute() == 30 {
			runtime.Goexit()
		}
		return nil
	}))
}

// A hook that changes the job that it receives changes nothing.
func TestRetryHookSeesACopy(t *testing.T) {
	hook := &say{retry: func(job *ojs.JobInfo, err error) bool {
		if !errors.Is(err, errBoom) || job.Meta["who"] != "me" {
			t.Errorf("asked about %v and %v", job.Meta, err)
		}
		job.Attempt, job.Retry.MaxAttempts, job.Meta["who"] = 99, 1, "you"
		return true
	}}
	inBubble(t, func(b *rig) {
		b.handle("fail", fails)
		b.run()
		ticket := b.enqueue("fail", noJitter, ojs.WithMeta("who", "me"))
		b.advance(time.Hour)
		if got := b.want(ticket.ID, ojs.StateDiscarded, 3); got.Meta["who"] != "me" {
			t.Errorf("%+v", got)
		}
	}, engine.WithRetryHook(hook))
}

func TestRetryHookNil(t *testing.T) {
	if _, err := engine.New[any](memory.New(), engine.WithRetryHook(nil)); !errors.Is(err, ojs.ErrInvalid) {
		t.Errorf("error %v", err)
	}
	defer func() {
		if recover() == nil {
			t.Error("a handler took a nil hook")
		}
	}()
	handler.WithRetryHook(nil)
}

// permanent is an error that says itself that it is one.
type permanent struct{ error }

func (permanent) DoNotRetry() bool { return true }

func TestDoNotRetry(t *testing.T) {
	hook := &say{delay: func(*ojs.JobInfo, error) time.Duration { return time.Second }}
	for _, tt := range []struct {
		name string
		err  error
	}{
		{"E045 the error itself", permanent{errBoom}},
		{"E045 wrapped", fmt.Errorf("charge: %w", permanent{errBoom})},
		{"E045 among several", errors.Join(errBoom, permanent{errBoom})},
		{"E045 in an error with a type", ojs.Errorf("payment.declined", "charge: %w", permanent{errBoom})},
	} {
		t.Run(tt.name+" E046 E047", func(t *testing.T) {
			hook.asked = nil
			inBubble(t, func(b *rig) {
				b.handle("fail", func(context.Context, *ojs.Job[any]) error { return tt.err })
				b.run()
				ticket := b.enqueue("fail",
					ojs.WithRetry(ojs.RetryPolicy{MaxAttempts: 10, OnExhaustion: ojs.ExhaustionDiscard}))
				b.advance(time.Hour)
				if got := b.want(ticket.ID, ojs.StateDiscarded, 1); !got.DeadLettered() {
					t.Error("it is no dead letter")
				}
			}, engine.WithRetryHook(hook))
			if hook.asked != nil {
				t.Errorf("the hook was asked %v", hook.asked)
			}
		})
	}
}

var _ policy.Hook = (*say)(nil)
