package engine_test

import (
	"context"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/benbjohnson/clock"

	"github.com/ojsengine/ojs"
	"github.com/ojsengine/ojs/engine"
	"github.com/ojsengine/ojs/handler"
	"github.com/ojsengine/ojs/policy"
	"github.com/ojsengine/ojs/storage/memory"
)

// On a mock clock, WaitIdle and the storage's own deadlines are enough to step through
// time exactly.
func TestMockClock(t *testing.T) {
	mock := clock.NewMock()
	start := mock.Now()
	eng, err := engine.New[int](memory.New(), engine.WithClock(mock), quiet)
	if err != nil {
		t.Fatal(err)
	}
	var mu sync.Mutex
	var at []time.Duration
	eng.Handle("tick", func(ctx context.Context, job *ojs.Job[int]) error {
		if _, ok := ctx.Deadline(); ok {
			t.Error("a virtual deadline is shown as a real one")
		}
		mu.Lock()
		at = append(at, mock.Since(start))
		mu.Unlock()
		if job.Args == 0 {
			return nil
		}
		_, err := eng.Enqueue(ctx, "tick", job.Args-1, ojs.WithDelay(time.Second))
		return err
	})
	eng.Handle("fail", func(context.Context, *ojs.Job[int]) error {
		mu.Lock()
		at = append(at, mock.Since(start))
		mu.Unlock()
		return errBoom
	})
	eng.Handle("nap",
		func(ctx context.Context, _ *ojs.Job[int]) error { return handler.Sleep(ctx, time.Hour) })

	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- eng.Run(ctx) }()

	advance := func(d time.Duration) {
		end := mock.Now().Add(d)
		for {
			if err := eng.WaitIdle(ctx); err != nil {
				t.Fatal(err)
			}
			now := mock.Now()
			if !now.Before(end) {
				return
			}
			next := end
			if at, ok := engine.NextDeadline(eng); ok && at.Before(end) {
				next = at
			}
			mock.Set(next)
		}
	}
	if _, err := eng.Enqueue(ctx, "tick", 60); err != nil {
		t.Fatal(err)
	}
	advance(2 * time.Minute)
	var want []time.Duration
	for i := range 61 {
		want = append(want, time.Duration(i)*time.Second)
	}
	if !slices.Equal(at, want) {
		t.Errorf("a job that enqueues itself every second ran at %v", at)
	}

	at, start = nil, mock.Now()
	ticket, err := eng.Enqueue(ctx, "fail", 0, noJitter, ojs.WithMaxAttempts(5))
	if err != nil {
		t.Fatal(err)
	}
	advance(20 * time.Second)
	if want := seconds(0, 1, 3, 7, 15); !slices.Equal(at, want) {
		t.Errorf("a retry chain ran at %v, want %v", at, want)
	}
	if _, err := ticket.Wait(ctx); err == nil {
		t.Error("Wait: no error")
	}

	// A handler asleep is idle, and its timeout is exact. It is not idle once it begins
	// to wake up.
	for range 50 {
		ticket, err = eng.Enqueue(ctx, "nap", 0, ojs.WithTimeout(time.Minute), ojs.WithMaxAttempts(1),
			ojs.WithLease(10*time.Second))
		if err != nil {
			t.Fatal(err)
		}
		advance(time.Minute)
		if job, err := eng.Get(ctx, ticket.ID); err != nil || job.State != ojs.StateDiscarded ||
			job.Error.Type != policy.ErrorTypeTimeout ||
			job.FinishedAt.Sub(job.StartedAt) != time.Minute {
			t.Fatalf("job %+v, %v", job, err)
		}
	}
	cancel()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}
