package engine_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ojsengine/ojs"
	"github.com/ojsengine/ojs/engine"
	"github.com/ojsengine/ojs/internal/test/pace"
	"github.com/ojsengine/ojs/storage"
	"github.com/ojsengine/ojs/storage/memory"
)

// SetConcurrency changes how many attempts run, at once and without an end of those that
// run.
func TestSetConcurrency(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := memory.New()
		defer func() { _ = s.Close() }()
		eng, err := engine.New[int](s, quiet, engine.WithConcurrency(2))
		if err != nil {
			t.Fatal(err)
		}
		var running atomic.Int64
		eng.Handle("x", func(context.Context, *ojs.Job[int]) error {
			running.Add(1)
			defer running.Add(-1)
			pace.Virtual(10 * time.Second)
			return nil
		})
		for range 100 {
			if _, err := eng.Enqueue(t.Context(), "x", 1); err != nil {
				t.Fatal(err)
			}
		}
		set := func(n int) {
			t.Helper()
			if err := eng.SetConcurrency(n); err != nil {
				t.Fatal(err)
			}
		}
		set(4) // before Run
		ctx, stop := context.WithCancel(t.Context())
		ended := make(chan error)
		go func() { ended <- eng.Run(ctx) }()
		check := func(when string, want int64) {
			t.Helper()
			pace.Virtual(time.Second)
			stats, err := eng.Stats(ctx)
			if n := running.Load(); n != want || err != nil {
				t.Errorf("%s: %d attempts, want %d, %v", when, n, want, err)
			}
			if stats.Slots != eng.Describe().Slots {
				t.Errorf("%s: %d slots, and %d", when, stats.Slots, eng.Describe().Slots)
			}
		}
		check("set before Run", 4)
		set(7)
		check("raised", 7)
		set(3)
		check("lowered: attempts go on", 7)
		pace.Virtual(10 * time.Second)
		check("lowered", 3)
		set(1)
		pace.Virtual(10 * time.Second)
		check("one slot", 1)
		set(20)
		check("raised again", 20)
		for _, n := range []int{0, -1, 1_000_001} {
			if err := eng.SetConcurrency(n); !errors.Is(err, ojs.ErrInvalid) {
				t.Errorf("%d: %v", n, err)
			}
		}
		stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
}

// Jobs that were claimed ahead go back if one slot is left, and its handler blocks.
func TestOneSlotKeepsNoJobs(t *testing.T) {
	const first, jobs = 1000, 1100
	for range 5 {
		store := memory.New()
		open := func(n int) *engine.Engine[int] {
			eng, err := engine.New[int](store, quiet, engine.WithConcurrency(n))
			must(t, err)
			return eng
		}
		eng := open(4)
		release := make(chan struct{})
		var blocked atomic.Int64
		eng.Handle("x", func(_ context.Context, job *ojs.Job[int]) error {
			if job.Args >= first {
				if blocked.Add(1) == 1 {
					must(t, eng.SetConcurrency(1))
				}
				<-release
			}
			return nil
		})
		for i := range jobs {
			_, err := eng.Enqueue(t.Context(), "x", i)
			must(t, err)
		}
		stop := started(t, eng)
		pace.Until(t, "a handler blocks", func() bool { return blocked.Load() > 0 })
		active := storage.Query{States: []ojs.State{ojs.StateActive}}
		pace.Until(t, "the engine holds the jobs of its handlers only", func() bool {
			page, err := store.List(t.Context(), active)
			must(t, err)
			return len(page.Records) <= int(blocked.Load())
		})
		close(release)
		stop()
		must(t, store.Close())
	}
}
