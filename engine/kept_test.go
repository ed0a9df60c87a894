package engine_test

import (
	"context"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/ojsengine/ojs"
	"github.com/ojsengine/ojs/engine"
	"github.com/ojsengine/ojs/operate"
	"github.com/ojsengine/ojs/storage"
	"github.com/ojsengine/ojs/storage/memory"
)

// Workers that run jobs for long keep nothing of the jobs that they, or claims of theirs,
// had before.
func TestWorkersKeepNoEndedJobs(t *testing.T) {
	const (
		workers = 20
		size    = 500 << 10
	)
	for name, open := range map[string]func() storage.Storage{
		"claims of one":  func() storage.Storage { return memory.New() },
		"claims of many": func() storage.Storage { return durable{memory.New()} },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				eng, err := engine.New[[]string](open(), quiet, engine.WithConcurrency(workers))
				must(t, err)
				together, release := make(chan struct{}), make(chan struct{})
				eng.Handle("large",
					func(context.Context, *ojs.Job[[]string]) error { <-together; return nil })
				eng.Handle("long", func(context.Context, *ojs.Job[[]string]) error { <-release; return nil })
				ctx, stop := context.WithCancel(t.Context())
				ended := make(chan error, 1)
				before := heapInUse()
				_, err = eng.Enqueue(ctx, "long", nil) // a claim of many is this one's worker's
				must(t, err)
				for range workers - 1 {
					_, err := eng.Enqueue(ctx, "large", []string{strings.Repeat("x", size)})
					must(t, err)
				}
				go func() { ended <- eng.Run(ctx) }()
				synctest.Wait() // each worker has one
				for range workers - 1 {
					_, err := eng.Enqueue(ctx, "long", nil)
					must(t, err)
				}
				close(together)
				synctest.Wait() // each worker has another one
				_, err = results(eng.Jobs().Apply(ctx, operate.Bulk{Do: operate.DeleteJobs()}))
				must(t, err)
				if stats, err := eng.Stats(ctx); err != nil || stats.Busy != workers ||
					stats.Total[ojs.StateCompleted] != 0 {
					t.Errorf("%+v, %v", stats, err)
				}
				if kept := int(heapInUse()) - int(before); kept > workers*size/4 {
					t.Errorf("%d bytes are kept of jobs of %d in all", kept, workers*size)
				}
				close(release)
				stop()
				must(t, <-ended)
			})
		})
	}
}

// heapInUse is what is left after collections, which also empty pools.
func heapInUse() uint64 {
	for range 4 {
		runtime.GC()
	}
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}
