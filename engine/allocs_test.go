package engine_test

import (
	"context"
	"math"
	"runtime"
	"testing"
	"time"

	"github.com/ojsengine/ojs"
	"github.com/ojsengine/ojs/engine"
	"github.com/ojsengine/ojs/event"
	"github.com/ojsengine/ojs/internal/foreign"
	"github.com/ojsengine/ojs/internal/test/racedetector"
	"github.com/ojsengine/ojs/storage/memory"
)

// A job of plain args without an observer is cheap. Without a receiver, no event,
// operation or hook is made, and memory is reused where it can be. Without
// Retention.MinAge the memory of finished jobs is reused from the start.
// docs/performance.md has the figures; the bounds leave room for pools that a collection
// empties.
func TestAllocationsOfAJob(t *testing.T) {
	if racedetector.On {
		t.Skip("the race detector allocates, too, and has pools forget; .ci/run runs it without")
	}
	type args struct {
		N int
		S string
	}
	const jobs = 20_000
	for name, o := range map[string]struct {
		opts          []engine.Option
		filter        engine.EventFilter
		listens       bool
		allocs, bytes float64
	}{
		"nobody": {allocs: 4, bytes: 500},
		"a brief observer": {opts: []engine.Option{engine.WithObserver(&eventCount{})},
			allocs: 8, bytes: 650},
		"an observer": {opts: []engine.Option{engine.WithObserver(new(wholeCount))},
			allocs: 18, bytes: 4000},
		"a subscription that selects none of its events": {allocs: 4, bytes: 500, listens: true,
			filter: engine.EventFilter{Types: []event.Type{event.Discarded}}},
	} {
		t.Run(name, func(t *testing.T) {
			// quiet writes lines, to nowhere
			eng, err := engine.New[args](memory.New(),
				append(o.opts, engine.WithConcurrency(8),
					engine.WithRetention(engine.Retention{MinAge: -1}))...)
			must(t, err)
			if o.listens {
				defer eng.Subscribe(o.filter).Close()
			}
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
			allocs, bytes := allocated(run, jobs)
			stop()
			must(t, <-ended)
			t.Logf("%.1f allocations and %.0f bytes", allocs, bytes)
			if allocs > o.allocs || bytes > o.bytes {
				t.Errorf("a job made %.1f allocations and %.0f bytes", allocs, bytes)
			}
		})
	}
}

// allocated returns how many allocations and bytes a job makes, where run runs jobs of
// them. Later runs use again what the first one makes. How far ahead the producer gets,
// and so how much memory waiting jobs need, differs: a job needs the least of three runs.
func allocated(run func(), jobs float64) (allocs, bytes float64) {
	run()
	allocs, bytes = math.Inf(1), math.Inf(1)
	for range 3 {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		run()
		runtime.ReadMemStats(&after)
		allocs = min(allocs, float64(after.Mallocs-before.Mallocs)/jobs)
		bytes = min(bytes, float64(after.TotalAlloc-before.TotalAlloc)/jobs)
	}
	return allocs, bytes
}

// eventCount is an observer that keeps nothing.
type eventCount struct {
	foreign.BriefObserver
	n int
}

func (c *eventCount) Observe(*event.Event) { c.n++ }

// wholeCount is an observer that may keep its events, and end its goroutine.
type wholeCount struct{ n int }

func (c *wholeCount) Observe(*event.Event) { c.n++ }

// A waiting job of plain args keeps few bytes, a scheduled one not many more, and being
// unique costs few allocations.
func TestMemoryOfWaitingJobs(t *testing.T) {
	if racedetector.On {
		t.Skip("the race detector allocates, too; .ci/run runs it without")
	}
	type args struct {
		N int
		S string
	}
	const jobs = 20_000
	for _, tt := range []struct {
		name string
		opts []ojs.Option
		most int
	}{{"waiting", nil, 350}, {"scheduled", []ojs.Option{ojs.WithDelay(time.Hour)}, 450}} {
		eng, err := engine.New[args](memory.New())
		must(t, err)
		before := int(heapInUse())
		for i := range jobs {
			_, err := eng.Enqueue(t.Context(), "noop", args{i, "x"}, tt.opts...)
			must(t, err)
		}
		kept := (int(heapInUse()) - before) / jobs
		runtime.KeepAlive(eng)
		t.Logf("%s: %d bytes", tt.name, kept)
		if kept > tt.most {
			t.Errorf("a %s job keeps %d bytes", tt.name, kept)
		}
	}
	enqueue := func(opts ...ojs.Option) float64 {
		eng, err := engine.New[args](memory.New())
		must(t, err)
		n := 0
		return testing.AllocsPerRun(2000, func() {
			n++
			_, err := eng.Enqueue(t.Context(), "noop", args{n, "x"}, opts...)
			must(t, err)
		})
	}
	plain, unique := enqueue(), enqueue(ojs.WithUnique(ojs.UniquePolicy{Keys: ojs.ByArgs}))
	t.Logf("%.1f allocations, unique %.1f", plain, unique)
	if unique > plain+6 {
		t.Errorf("a unique enqueue makes %.1f allocations, a plain one %.1f", unique, plain)
	}
	eng, err := engine.New[args](memory.New())
	must(t, err)
	delayed := testing.AllocsPerRun(2000, func() {
		_, err := eng.Enqueue(t.Context(), "noop", args{1, "x"}, ojs.WithDelay(time.Hour),
			ojs.WithPriority(1))
		must(t, err)
	})
	if delayed > plain {
		t.Errorf(
			"an enqueue with options makes %.1f allocations, a plain one %.1f: the options are allocated",
			delayed, plain)
	}
}
