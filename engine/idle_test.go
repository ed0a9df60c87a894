package engine_test

import (
	"bytes"
	"context"
	"errors"
	"runtime/debug"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/benbjohnson/clock"

	"github.com/ojsengine/ojs"
	"github.com/ojsengine/ojs/engine"
	"github.com/ojsengine/ojs/event"
	"github.com/ojsengine/ojs/handler"
	"github.com/ojsengine/ojs/storage/memory"
)

// With every slot asleep nothing happens until a timer fires, even if jobs wait for a
// slot.
func TestIdleWithEverySlotAsleep(t *testing.T) {
	mock := clock.NewMock()
	store := memory.New()
	defer store.Close()
	eng, err := engine.New[any](store, quiet, engine.WithClock(mock), engine.WithConcurrency(2))
	must(t, err)
	var ran atomic.Int32
	eng.Handle("x",
		func(ctx context.Context, _ *ojs.Job[any]) error { ran.Add(1); return handler.Sleep(ctx, time.Hour) })
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- eng.Run(ctx) }()
	for range 3 {
		_, err := eng.Enqueue(ctx, "x", nil, ojs.WithTimeout(2*time.Hour))
		must(t, err)
	}
	start := mock.Now()
	for _, want := range []struct {
		ran   int32
		after time.Duration
	}{{2, 0}, {3, time.Hour}, {3, 2 * time.Hour}} {
		for mock.Now().Before(start.Add(want.after)) {
			must(t, eng.WaitIdle(ctx))
			next, _ := eng.NextWake()
			mock.Set(next)
		}
		must(t, eng.WaitIdle(ctx))
		if n := ran.Load(); n != want.ran {
			t.Errorf("%d ran after %v, want %d", n, want.after, want.ran)
		}
	}
	stop()
	must(t, <-ended)
}

// A job that comes due in the instant in which the last worker leaves is not overlooked.
// Each job is retried at once, and an idle engine has no available job.
func TestIdleOverlooksNothing(t *testing.T) {
	mock := clock.NewMock()
	store := memory.New()
	defer store.Close()
	eng, err := engine.New[int](store, quiet, engine.WithClock(mock), engine.WithConcurrency(2))
	must(t, err)
	eng.Handle("x", func(_ context.Context, job *ojs.Job[int]) error {
		if job.Attempt == 1 {
			return ojs.RetryAfter(0, errBoom)
		}
		return nil
	})
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- eng.Run(ctx) }()
	for range 2000 {
		ticket, err := eng.Enqueue(ctx, "x", 0)
		must(t, err)
		must(t, eng.WaitIdle(ctx))
		if job, err := eng.Get(ctx, ticket.ID); err != nil || job.State != ojs.StateCompleted {
			t.Fatalf("idle, and the job is %s, %v", job.State, err)
		}
	}
	stop()
	must(t, <-ended)
}

func TestWaitIdleEndsWithItsContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		eng, err := engine.New[any](memory.New(), quiet)
		must(t, err)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if err := eng.WaitIdle(ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("without a Run: %v", err)
		}
		if err := eng.WaitIdle(ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("with an ended context: %v", err)
		}
	})
}

// tellingClock calls a function at each reading.
type tellingClock struct {
	clock.Clock
	read func()
}

func (c tellingClock) Now() time.Time { c.read(); return c.Clock.Now() }

// askedOnce is a context that ends when its first question is over.
type askedOnce struct {
	context.Context
	asked bool
}

func (c *askedOnce) Done() <-chan struct{} {
	done := make(chan struct{})
	close(done)
	return done
}

func (c *askedOnce) Err() error {
	if was := c.asked; !was {
		c.asked = true
		return nil
	}
	return context.Canceled
}

// An engine that starts is idle at no reading of the clock while a job is available.
func TestNotIdleWhileItStarts(t *testing.T) {
	store := memory.New()
	defer store.Close()
	var eng *engine.Engine[any]
	var id string
	read := func() {
		stack := debug.Stack()
		if !bytes.Contains(stack, []byte("runUntil")) || bytes.Contains(stack, []byte("parts).stop")) {
			return
		}
		if err := eng.WaitIdle(&askedOnce{Context: t.Context()}); err != nil {
			return
		}
		if job, err := store.Get(t.Context(), id); err != nil || job.State != ojs.StateCompleted {
			t.Errorf("idle, and the job is %s, %v", job.State, err)
		}
	}
	eng, err := engine.New[any](store, quiet, engine.WithClock(tellingClock{clock.New(), read}))
	must(t, err)
	defer eng.Subscribe(engine.EventFilter{Types: []event.Type{event.WorkerStarted}}).Close()
	eng.Handle("x", func(context.Context, *ojs.Job[any]) error { return nil })
	ticket, err := eng.Enqueue(t.Context(), "x", nil)
	must(t, err)
	id = ticket.ID
	started(t, eng)
	must(t, eng.WaitIdle(t.Context()))
}
