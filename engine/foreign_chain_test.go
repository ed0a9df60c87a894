package engine_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/ojsengine/ojs"
	"github.com/ojsengine/ojs/codec"
	"github.com/ojsengine/ojs/engine"
	"github.com/ojsengine/ojs/event"
	"github.com/ojsengine/ojs/storage"
	"github.com/ojsengine/ojs/storage/memory"
	"github.com/ojsengine/ojs/storage/storagetest"
	"github.com/ojsengine/ojs/telemetry"
)

// circles are errors that errors.Is does not come back from.
var circles = map[string]error{
	"circle": circle{}, "circle of several": circles2{}, "endless chain": neverEnds(0),
	"circle of a nil pointer": (*nilCircle)(nil),
}

type circle struct{}

func (circle) Error() string   { return "a circle" }
func (c circle) Unwrap() error { return c }

type circles2 struct{}

func (circles2) Error() string     { return "a circle" }
func (c circles2) Unwrap() []error { return []error{errBoom, c} }

type neverEnds int

func (neverEnds) Error() string   { return "endless" }
func (e neverEnds) Unwrap() error { return e + 1 }

type nilCircle struct{ of error }

func (c *nilCircle) Error() string   { return c.of.Error() }
func (c *nilCircle) Unwrap() []error { return []error{c.of, c} }

// asks is a retry hook that looks into the error, as its author may.
type asks struct{}

func (asks) ShouldRetry(_ *ojs.JobInfo, err error) bool        { return !errors.Is(err, errNever) }
func (asks) Delay(_ *ojs.JobInfo, err error) (d time.Duration) { errors.Is(err, errNever); return }

var errNever = errors.New("never")

// asksToo is a tracer that looks into errors.
type asksToo struct{}

func (asksToo) Observe(*event.Event) {}

func (asksToo) Begin(ctx context.Context, _ *telemetry.Operation) (context.Context, func(error)) {
	return ctx, func(err error) { errors.Is(err, errNever) }
}

type badCodec struct {
	codec.Codec
	err error
}

func (b badCodec) Encode(context.Context, []byte) ([]byte, string, error) {
	return nil, "", b.err
}

// An error whose chain does not end comes back from nothing that looks into it: neither
// from the engine, nor from the code of users to which the engine hands it.
func TestErrorsThatLeadBackToThemselves(t *testing.T) {
	for name, circle := range circles {
		t.Run("a handler's "+name, func(t *testing.T) {
			inBubble(t, func(b *rig) {
				b.handle("x", failsWith(circle))
				b.run()
				ticket := b.enqueue("x", ojs.WithMaxAttempts(2))
				b.advance(time.Hour)
				if job := b.job(ticket.ID); job.State != ojs.StateDiscarded || job.Attempt != 2 {
					t.Errorf("the job is %s at attempt %d", job.State, job.Attempt)
				}
			}, engine.WithRetryHook(asks{}), engine.WithObserver(asksToo{}))
		})
		t.Run("an enqueue hook's "+name, func(t *testing.T) {
			inBubble(t, func(b *rig) {
				_, err := b.Enqueue(b.ctx, "x", nil)
				if err == nil || errors.Is(err, ojs.ErrDropped) {
					t.Errorf("the enqueue gives %v", err)
				}
			}, engine.WithEnqueueHook(func(context.Context, *ojs.Job[any]) error { return circle }))
		})
		t.Run("a codec's "+name, func(t *testing.T) {
			inBubble(t, func(b *rig) {
				_, err := b.Enqueue(b.ctx, "x", 1)
				if err == nil || errors.Is(err, ojs.ErrDropped) {
					t.Errorf("the enqueue gives %v", err)
				}
			}, engine.WithCodec(badCodec{codec.Gzip(), circle}))
		})
		t.Run("a storage's "+name, func(t *testing.T) {
			s := &storagetest.Faulty{Storage: memory.New()}
			inBubbleOn(t, s, func(b *rig) {
				b.handle("x", nothing)
				b.run()
				ticket := b.enqueue("x", ojs.WithDelay(time.Minute))
				var mu sync.Mutex
				failures := make(map[string]int)
				s.OnCall(func(c *storagetest.Call) {
					mu.Lock()
					failures[c.Method]++
					n := failures[c.Method]
					mu.Unlock()
					if n > 3 {
						c.Do()
						return
					}
					c.Err = circle
				})
				must(t, b.Cron().Set(b.ctx))
				for range 4 {
					_, _ = b.Get(b.ctx, ticket.ID)
					_, _ = b.Enqueue(b.ctx, "x", nil)
					_ = b.Cancel(b.ctx, "none")
					_ = b.Jobs().Retry(b.ctx, ticket.ID)
					_, _ = b.Cron().Trigger(b.ctx, "none")
					b.Health(b.ctx)
				}
				b.advance(time.Hour)
				if job := b.job(ticket.ID); job.State != ojs.StateCompleted {
					t.Errorf("the job is %s", job.State)
				}
			})
		})
	}
}

// A storage that wraps itself ends the search for an ability.
func TestStorageThatWrapsItself(t *testing.T) {
	if _, ok := storage.As[interface{ None() }](wrapsItself{memory.New()}); ok {
		t.Error("it has an ability of none")
	}
}

type wrapsItself struct{ storage.Storage }

func (w wrapsItself) Unwrap() storage.Storage { return w }
