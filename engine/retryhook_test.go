package engine_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/ojsengine/ojs"
	"github.com/ojsengine/ojs/engine"
	"github.com/ojsengine/ojs/handler"
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
		{"E029 a hook without opinions", &say{}, nil, []float64{0, 1, 3}, []string{"retry 1", "delay 1", "retry 2", "delay 2", "retry 3"}, nil},
		{"E023 E028 E033 the engine's veto", &say{retry: no}, nil, []float64{0}, []string{"retry 1"}, nil},
		{"E023 the handler's veto", &say{}, &say{retry: no}, []float64{0}, nil, []string{"retry 1"}},
		{"E027 the engine's delay", &say{delay: after(10 * time.Second)}, nil, []float64{0, 10, 20}, []string{"retry 1", "delay 1", "retry 2", "delay 2", "retry 3"}, nil},
		{"E027 the handler's delay goes before the engine's", &say{delay: after(10 * time.Second)}, &say{delay: after(20 * time.Second)},
			[]float64{0, 20, 40}, []string{"retry 1", "retry 2", "retry 3"}, []string{"retry 1", "delay 1", "retry 2", "delay 2", "retry 3"}},
		{"E026 the handler's zero leaves it to the engine's", &say{delay: after(10 * time.Second)}, &say{},
			[]float64{0, 10, 20}, []string{"retry 1", "delay 1", "retry 2", "delay 2", "retry 3"}, []string{"retry 1", "delay 1", "retry 2", "delay 2", "retry 3"}},
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
				b.Register(handler.For(ojs.Define[any]("fail"), func(context.Context, *ojs.Job[any]) error { b.ran(); return errBoom }, own...))
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

// A job that runs without a handler in this engine, a fetched one, is the engine's hook's too.
func TestRetryHookOfDeliveries(t *testing.T) {
	inBubble(t, func(b *rig) {
		ticket := b.enqueue("elsewhere")
		d, err := b.Worker("w", engine.WorkerConfig{}).Fetch(b.ctx)
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
		for _, want := range []string{"method=ShouldRetry panic=\"no idea\"", "method=Delay panic=\"none either\""} {
			if !strings.Contains(log.String(), want) {
				t.Errorf("log lacks %s:\n%s", want, log.String())
			}
		}
	})
}

// What a hook does to the job that it is shown changes nothing.
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
				ticket := b.enqueue("fail", ojs.WithRetry(ojs.RetryPolicy{MaxAttempts: 10, OnExhaustion: ojs.ExhaustionDiscard}))
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
