package engine_test

import (
	"context"
	"runtime"
	"testing"

	"github.com/ojsengine/ojs"
	"github.com/ojsengine/ojs/engine"
	"github.com/ojsengine/ojs/storage/memory"
)

// A job of plain args that nobody observes is cheap: no event, operation or hook is made for nobody, and what can be used again
// is. docs/performance.md has the figures; the bounds leave room for pools that a collection empties.
func TestAllocationsOfAJob(t *testing.T) {
	if raceEnabled {
		t.Skip("the race detector allocates, too, and has pools forget; .ci/run runs it without")
	}
	type args struct {
		N int
		S string
	}
	const jobs = 20_000
	eng, err := engine.New[args](memory.New(), engine.WithConcurrency(8)) // quiet writes lines, to nowhere
	must(t, err)
	eng.Handle("noop", func(context.Context, *ojs.Job[args]) error { return nil })
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- eng.Run(ctx) }()
	run := func() {
		for i := range jobs {
			_, err := eng.Enqueue(ctx, "noop", args{i, "x"})
			must(t, err)
		}
		must(t, eng.WaitIdle(ctx))
	}
	run() // what the first ones make stays
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	run()
	runtime.ReadMemStats(&after)
	stop()
	must(t, <-ended)
	allocs, bytes := float64(after.Mallocs-before.Mallocs)/jobs, float64(after.TotalAlloc-before.TotalAlloc)/jobs
	t.Logf("%.1f allocations and %.0f bytes", allocs, bytes)
	if allocs > 6 || bytes > 700 {
		t.Errorf("a job made %.1f allocations and %.0f bytes", allocs, bytes)
	}
}
