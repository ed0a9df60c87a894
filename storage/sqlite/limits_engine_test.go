package sqlite_test

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/ojsengine/ojs"
	"github.com/ojsengine/ojs/engine"
	"github.com/ojsengine/ojs/storage/sqlite"
)

// Engines of two processes never run more jobs of a key than its limit, and as many as
// it allows. The first five jobs wait until there are five.
func TestLimitsOverEngines(t *testing.T) {
	const most, jobs = 5, 25
	a, b := both(t)
	ctx, stop := context.WithCancel(t.Context())
	var running, peak, done atomic.Int32
	full, all := make(chan struct{}), make(chan struct{})
	fill := sync.OnceFunc(func() { close(full) })
	var wg sync.WaitGroup
	defer wg.Wait()
	defer stop()
	var engines []*engine.Engine[int]
	for _, s := range []*sqlite.Storage{a, b} {
		eng, err := engine.New[int](s, engine.WithConcurrency(8))
		must(t, err)
		eng.Handle("x", func(ctx context.Context, _ *ojs.Job[int]) error {
			n := running.Add(1)
			defer running.Add(-1)
			for old := peak.Load(); n > old && !peak.CompareAndSwap(old, n); old = peak.Load() {
			}
			if n >= most {
				fill()
			}
			select {
			case <-full:
			case <-ctx.Done():
			}
			if done.Add(1) == jobs {
				close(all)
			}
			return nil
		})
		engines = append(engines, eng)
		wg.Go(func() {
			if err := eng.Run(ctx); err != nil {
				t.Error(err)
			}
		})
	}
	limit := ojs.WithRateLimit(ojs.RateLimit{Key: "k", Concurrency: most})
	for n := range jobs {
		_, err := engines[n%2].Enqueue(ctx, "x", n, limit)
		must(t, err)
	}
	select {
	case <-all:
	case <-ctx.Done():
		t.Fatal("the test has ended")
	}
	if n := peak.Load(); n != most {
		t.Errorf("%d jobs at once, not %d", n, most)
	}
}
