package engine_test

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/benbjohnson/clock"

	"github.com/ojsengine/ojs"
	"github.com/ojsengine/ojs/engine"
	"github.com/ojsengine/ojs/handler"
	"github.com/ojsengine/ojs/internal/test/pace"
	"github.com/ojsengine/ojs/storage/memory"
)

// On a mock clock nothing is claimed ahead, however short the times are that handlers
// sleep for: an engine whose workers are all asleep is idle, and jobs begin as soon as
// there is a slot.
func TestMockClockShortSleeps(t *testing.T) {
	const jobs, nap = 400, 10 * time.Microsecond
	mock := clock.NewMock()
	eng, err := engine.New[int](memory.New(), engine.WithClock(mock), engine.WithConcurrency(2), quiet)
	must(t, err)
	eng.Handle("nap", func(ctx context.Context, job *ojs.Job[int]) error { return handler.Sleep(ctx, nap) })
	for i := range jobs {
		_, err := eng.Enqueue(t.Context(), "nap", i)
		must(t, err)
	}
	start := mock.Now()
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- eng.Run(ctx) }()
	defer func() {
		stop()
		for {
			select {
			case <-ended:
				return
			case <-time.After(time.Millisecond):
				mock.Add(time.Second)
			}
		}
	}()
	for {
		patience, enough := context.WithTimeout(t.Context(), time.Minute)
		err := eng.WaitIdle(patience)
		enough()
		if err != nil {
			stats, _ := eng.Stats(ctx)
			t.Fatalf("after %v of the clock's, with jobs %v: never idle: %v", mock.Since(start),
				stats.Total, err)
		}
		stats, err := eng.Stats(ctx)
		must(t, err)
		if stats.Total[ojs.StateCompleted] == jobs {
			break
		}
		at, ok := engine.NextDeadline(eng)
		if !ok {
			t.Fatalf("nothing to come, with %v", stats.Total)
		}
		mock.Set(at)
	}
	if took := mock.Since(start); took != jobs/2*nap {
		t.Errorf("%d jobs of %v took two workers %v", jobs, nap, took)
	}
}

// So it is in a bubble: of jobs that take equally long, each begins when it is its turn.
func TestBubbleShortSleeps(t *testing.T) {
	for name, sleep := range map[string]func(context.Context, time.Duration) error{
		"handler.Sleep": handler.Sleep,
		"time.Sleep":    func(_ context.Context, d time.Duration) error { pace.Virtual(d); return nil },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				const jobs, nap = 400, 10 * time.Microsecond
				eng, err := engine.New[int](memory.New(), engine.WithConcurrency(2), quiet)
				must(t, err)
				var mu sync.Mutex
				var begun [jobs]time.Duration
				var start time.Time
				eng.Handle("nap", func(ctx context.Context, job *ojs.Job[int]) error {
					mu.Lock()
					begun[job.Args] = time.Since(start)
					mu.Unlock()
					return sleep(ctx, nap)
				})
				for i := range jobs {
					_, err := eng.Enqueue(t.Context(), "nap", i)
					must(t, err)
				}
				start = time.Now()
				ctx, stop := context.WithCancel(t.Context())
				ended := make(chan error, 1)
				go func() { ended <- eng.Run(ctx) }()
				pace.Virtual(time.Minute)
				mu.Lock()
				defer mu.Unlock()
				for i, at := range begun {
					if want := time.Duration(i/2) * nap; at != want {
						t.Errorf("job %d began after %v, not %v", i, at, want)
						break
					}
				}
				stop()
				must(t, <-ended)
			})
		})
	}
}
