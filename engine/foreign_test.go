package engine_test

import (
	"context"
	"errors"
	"log/slog"
	"runtime"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ojsengine/ojs"
	"github.com/ojsengine/ojs/engine"
	"github.com/ojsengine/ojs/event"
	"github.com/ojsengine/ojs/handler"
	"github.com/ojsengine/ojs/internal/test/pace"
	"github.com/ojsengine/ojs/policy"
	"github.com/ojsengine/ojs/storage/memory"
	"github.com/ojsengine/ojs/telemetry"
)

// stops are the ways in which foreign code does not return.
var stops = map[string]func(){
	"panic":         func() { panic("no") },
	"nil panic":     func() { panic(nil) },
	"Goexit":        runtime.Goexit,
	"cyclic value":  func() { m := map[string]any{}; m["m"] = m; panic(m) },
	"hostile error": func() { panic(hostile{func() { panic("again") }}) },
	"large value":   func() { panic(make([]byte, 20<<20)) },
}

// hostile is an error whose method does not return.
type hostile struct{ stop func() }

func (h hostile) Error() string { h.stop(); return "" }

type badType struct{ stop func() }

func (badType) Error() string       { return "bad type" }
func (b badType) ErrorType() string { b.stop(); return "" }

type badMarker struct{ stop func() }

func (badMarker) Error() string      { return "bad marker" }
func (b badMarker) DoNotRetry() bool { b.stop(); return true }

type badChain struct{ stop func() }

func (badChain) Error() string   { return "bad chain" }
func (b badChain) Unwrap() error { b.stop(); return nil }

// marshals does not encode, and does not decode.
type marshals struct{ stop func() }

func (m marshals) MarshalJSON() ([]byte, error) {
	m.stop()
	return []byte("1"), nil
}

// badHook is a retry hook.
type badHook struct{ ask, delay func() }

func (h badHook) ShouldRetry(*ojs.JobInfo, error) bool {
	h.ask()
	return true
}

func (h badHook) Delay(*ojs.JobInfo, error) time.Duration {
	h.delay()
	return 0
}

type badObserver struct{ stop func() }

func (o badObserver) Observe(*event.Event) { o.stop() }

type badTracer struct{ begin, end func() }

func (badTracer) Observe(*event.Event) {}

func (b badTracer) Begin(ctx context.Context, _ *telemetry.Operation) (context.Context, func(error)) {
	b.begin()
	return ctx, func(error) { b.end() }
}

type badLog struct{ enabled, handle, attrs, group func() }

func (b badLog) Enabled(context.Context, slog.Level) bool  { b.enabled(); return true }
func (b badLog) Handle(context.Context, slog.Record) error { b.handle(); return nil }
func (b badLog) WithAttrs([]slog.Attr) slog.Handler        { b.attrs(); return b }
func (b badLog) WithGroup(string) slog.Handler             { b.group(); return b }
func returns()                                             {}
func failsWith(err error) func(context.Context, *ojs.Job[any]) error {
	return func(context.Context, *ojs.Job[any]) error { return err }
}

// backoffStop is what the registered strategy does.
var backoffStop func()

func init() {
	policy.RegisterBackoff("test:stops", func(ojs.RetryPolicy, int, float64) time.Duration {
		backoffStop()
		return time.Second
	})
}

// Foreign code that does not return ends its job by policy. The slot is free afterwards,
// and the engine works on and stops.
func TestForeignCode(t *testing.T) {
	type setup struct {
		handler func(context.Context, *ojs.Job[any]) error // nil: it completes
		opts    []engine.Option
		job     []ojs.Option
		args    any
		refused bool // the enqueue is, or ends its caller
		want    ojs.State
	}
	retries := func(err error) setup { return setup{handler: failsWith(err), want: ojs.StateDiscarded} }
	kinds := map[string]func(stop func()) setup{
		"handler": func(stop func()) setup {
			return setup{handler: func(context.Context, *ojs.Job[any]) error { stop(); return nil },
				want: ojs.StateDiscarded}
		},
		"middleware": func(stop func()) setup {
			return setup{want: ojs.StateDiscarded, opts: []engine.Option{engine.WithMiddleware(
				func(ctx context.Context, job *ojs.JobHeader, next handler.Next) error {
					if job.Type == "bad" {
						stop()
					}
					return next(ctx)
				})}}
		},
		"Error":      func(stop func()) setup { return retries(hostile{stop}) },
		"ErrorType":  func(stop func()) setup { return retries(badType{stop}) },
		"DoNotRetry": func(stop func()) setup { return retries(badMarker{stop}) },
		"Unwrap":     func(stop func()) setup { return retries(badChain{stop}) },
		"MarshalJSON of an error's detail": func(stop func()) setup {
			return retries(&ojs.Error{Type: "bad", Message: "bad",
				Details: map[string]any{"k": marshals{stop}}})
		},
		"ShouldRetry": func(stop func()) setup {
			return setup{handler: failsWith(errBoom), want: ojs.StateDiscarded,
				opts: []engine.Option{engine.WithRetryHook(badHook{stop, returns})}}
		},
		"Delay": func(stop func()) setup {
			return setup{handler: failsWith(errBoom), want: ojs.StateDiscarded,
				opts: []engine.Option{engine.WithRetryHook(badHook{returns, stop})}}
		},
		"backoff": func(stop func()) setup {
			backoffStop = stop
			return setup{handler: failsWith(errBoom), want: ojs.StateDiscarded,
				job: []ojs.Option{ojs.WithRetry(ojs.RetryPolicy{BackoffStrategy: "test:stops"})}}
		},
		"enqueue hook": func(stop func()) setup {
			return setup{refused: true, opts: []engine.Option{engine.WithEnqueueHook(
				func(_ context.Context, job *ojs.Job[any]) error {
					if job.Type == "bad" {
						stop()
					}
					return nil
				},
			)}}
		},
		"error of an enqueue hook": func(stop func()) setup {
			return setup{refused: true, opts: []engine.Option{engine.WithEnqueueHook(
				func(_ context.Context, job *ojs.Job[any]) error {
					if job.Type == "bad" {
						return hostile{stop}
					}
					return nil
				},
			)}}
		},
		"observer": func(stop func()) setup {
			return setup{want: ojs.StateCompleted,
				opts: []engine.Option{engine.WithObserver(badObserver{stop})}}
		},
		"tracer's Begin": func(stop func()) setup {
			return setup{want: ojs.StateCompleted,
				opts: []engine.Option{engine.WithObserver(badTracer{stop, returns})}}
		},
		"tracer's end": func(stop func()) setup {
			return setup{handler: failsWith(errBoom), want: ojs.StateDiscarded,
				opts: []engine.Option{engine.WithObserver(badTracer{returns, stop})}}
		},
		"log's Enabled": func(stop func()) setup {
			return setup{want: ojs.StateCompleted,
				opts: []engine.Option{engine.WithLogger(slog.New(badLog{stop, returns, returns, returns}))}}
		},
		"log's Handle": func(stop func()) setup {
			return setup{handler: failsWith(errBoom), want: ojs.StateDiscarded,
				opts: []engine.Option{engine.WithLogger(slog.New(badLog{returns, stop, returns, returns}))}}
		},
		"log's WithAttrs": func(stop func()) setup {
			return setup{want: ojs.StateCompleted,
				opts: []engine.Option{engine.WithLogger(slog.New(badLog{returns, returns, stop, stop}))},
				handler: func(ctx context.Context, _ *ojs.Job[any]) error {
					handler.Logger(ctx).WithGroup("g").Info("x")
					return nil
				}}
		},
		"MarshalJSON of args": func(stop func()) setup { return setup{args: marshals{stop}, refused: true} },
		"MarshalJSON of meta": func(stop func()) setup {
			return setup{job: []ojs.Option{ojs.WithMeta("k", marshals{stop})}, refused: true}
		},
		"MarshalJSON of a result": func(stop func()) setup {
			return setup{want: ojs.StateDiscarded, handler: func(ctx context.Context, _ *ojs.Job[any]) error {
				return handler.SetResult(ctx, marshals{stop})
			}}
		},
		"MarshalJSON of a checkpoint": func(stop func()) setup {
			return setup{want: ojs.StateDiscarded, handler: func(ctx context.Context, _ *ojs.Job[any]) error {
				return handler.SaveCheckpoint(ctx, marshals{stop})
			}}
		},
	}
	for kind, with := range kinds {
		for how, stop := range stops {
			t.Run(kind+"/"+how, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					s := with(stop)
					eng, err := engine.New[any](memory.New(),
						append([]engine.Option{quiet, engine.WithConcurrency(1)}, s.opts...)...)
					if err != nil {
						t.Fatal(err)
					}
					if s.handler == nil {
						s.handler = nothing
					}
					eng.Handle("bad", s.handler)
					eng.Handle("good", nothing)
					ctx, cancel := context.WithCancel(t.Context())
					ended := apart(eng.Run, ctx)
					var ticket ojs.Ticket
					enqueued := errors.New("the caller's goroutine ended")
					apart(func(context.Context) error {
						ticket, enqueued = eng.Enqueue(t.Context(), "bad", s.args,
							append(s.job, ojs.WithMaxAttempts(2))...)
						return nil
					}, ctx)
					synctest.Wait()
					pace.Virtual(time.Hour)
					if s.refused != (enqueued != nil) {
						t.Fatalf("Enqueue: %v", enqueued)
					}
					if !s.refused {
						job, err := eng.Get(t.Context(), ticket.ID)
						if err != nil {
							t.Fatal(err)
						}
						attempts := 2
						if s.want == ojs.StateCompleted {
							attempts = 1
						}
						if job.State != s.want || job.Attempt != attempts {
							t.Errorf("the job is %s at attempt %d, not %s at %d", job.State, job.Attempt,
								s.want, attempts)
						}
						if job.Error != nil && len(job.Error.Message) > 20_000 {
							t.Errorf("the message has %d bytes", len(job.Error.Message))
						}
					}
					good, err := eng.Enqueue(t.Context(), "good", nil)
					if err != nil {
						t.Fatal(err)
					}
					synctest.Wait()
					if job, err := eng.Get(t.Context(), good.ID); err != nil ||
						job.State != ojs.StateCompleted {
						t.Errorf("the next job is %+v, %v", job, err)
					}
					cancel()
					if err := <-ended; err != nil {
						t.Errorf("Run returned %v", err)
					}
				})
			})
		}
	}
}

// apart runs f on a goroutine, which may end without a result.
func apart(f func(context.Context) error, ctx context.Context) <-chan error {
	ch := make(chan error, 1)
	go func() {
		defer func() { _ = recover() }()
		ch <- f(ctx)
	}()
	return ch
}
