package engine_test

import (
	"context"
	"runtime"
	"runtime/debug"
	"strings"
	"sync"
	"testing"

	"github.com/ojsengine/ojs"
	"github.com/ojsengine/ojs/engine"
	"github.com/ojsengine/ojs/handler"
	"github.com/ojsengine/ojs/internal/test/pace"
	"github.com/ojsengine/ojs/internal/test/racedetector"
	"github.com/ojsengine/ojs/operate"
	"github.com/ojsengine/ojs/storage/memory"
)

type numbered struct {
	N int
	S string
}

// A job allocates as much as TestAllocationsOfAJob says, also if the next one is of
// another type.
func TestAllocationsOfAJobAmongOthers(t *testing.T) {
	if racedetector.On {
		t.Skip("the race detector allocates, too")
	}
	const jobs = 20_000
	for _, types := range []int{1, 2, 3, 8} {
		eng, err := engine.New[numbered](memory.New(), engine.WithConcurrency(8),
			engine.WithRetention(engine.Retention{MinAge: -1}))
		must(t, err)
		names := []string{"a", "b", "c", "d", "e", "f", "g", "h"}[:types]
		for _, name := range names {
			eng.Handle(name, func(context.Context, *ojs.Job[numbered]) error { return nil })
		}
		stop := started(t, eng)
		allocs, bytes := allocated(func() {
			for i := range jobs {
				_, err := eng.Enqueue(t.Context(), names[i%types], numbered{i, "x"})
				must(t, err)
			}
			must(t, eng.WaitIdle(t.Context()))
		}, jobs)
		stop()
		if allocs > 4 || bytes > 500 {
			t.Errorf("%d types in turns: a job made %.1f allocations and %.0f bytes", types, allocs, bytes)
		}
	}
}

// The job that a handler receives is a copy of its own. A program that keeps it keeps no
// later job in memory.
func TestMemoryStaysFlatBehindAKeptJob(t *testing.T) {
	if racedetector.On {
		t.Skip("pools forget under the race detector")
	}
	const rounds, quick, size, most = 800, 300, 500, 50_000
	defer debug.SetGCPercent(debug.SetGCPercent(2000)) // as in a program with a large heap
	inUse := func(keep bool) int {
		eng, err := engine.New[numbered](memory.New(), quiet, engine.WithConcurrency(2),
			engine.WithRetention(engine.Retention{MaxFinished: 64, MinAge: -1}))
		must(t, err)
		var kept *ojs.Job[numbered] // of the first round
		var open chan struct{}
		eng.Handle("gate", func(context.Context, *ojs.Job[numbered]) error { <-open; return nil })
		eng.Handle("quick", func(ctx context.Context, j *ojs.Job[numbered]) error {
			switch {
			case j.Args.N == quick/2: // one in 300 asks for its attempt, whose memory is not used again then
				return handler.SetResult(ctx, j.Args.N)
			case j.Args.N == quick-20 && keep:
				keep = false
				kept = j
			}
			return nil
		})
		stop := started(t, eng)
		enqueue := func(name string, n int) {
			_, err := eng.Enqueue(t.Context(), name, numbered{n, strings.Repeat("x", size)})
			must(t, err)
		}
		for range rounds {
			open = make(chan struct{})
			enqueue("gate", 0)
			enqueue("gate", 1)
			for i := range quick {
				enqueue("quick", i)
			}
			close(open)
			must(t, eng.WaitIdle(t.Context()))
		}
		n := int(heapInUse())
		stop()
		runtime.KeepAlive(kept)
		return n
	}
	without, with := inUse(false), inUse(true)
	if with-without > most {
		t.Errorf("one kept job of %d bytes keeps %d", size, with-without)
	}
}

// TestWorkersKeepNoEndedJobs holds for an engine that claims ahead, too.
func TestWorkersAheadKeepNoEndedJobs(t *testing.T) {
	const (
		size   = 128 << 10
		long   = 4
		others = 400
	)
	eng, err := engine.New[numbered](memory.New(), quiet, engine.WithConcurrency(long+1))
	must(t, err)
	open, release := make(chan struct{}), make(chan struct{})
	eng.Handle("job", func(_ context.Context, j *ojs.Job[numbered]) error {
		switch {
		case j.Args.N == 0:
			<-open
		case j.Args.N < 0:
			<-release
		}
		return nil
	})
	started(t, eng)
	defer close(release)
	ctx := t.Context()
	before := int(heapInUse())
	enqueue := func(n int, s string) {
		_, err := eng.Enqueue(ctx, "job", numbered{n, s})
		must(t, err)
	}
	for range long + 1 {
		enqueue(0, "")
	}
	for i := range others {
		large := ""
		if i > 150 { // the engine claims ahead by then
			large = strings.Repeat("x", size)
		}
		if i > 200 && i%40 == 5 && i < 200+40*long+5 {
			enqueue(-1, "")
		}
		enqueue(i+1, large)
	}
	close(open)
	pace.Until(t, "all but the long jobs have completed", func() bool {
		stats, err := eng.Stats(ctx)
		must(t, err)
		return stats.Busy == long && stats.Total[ojs.StateCompleted] == others+long+1
	})
	_, err = results(eng.Jobs().Apply(ctx, operate.Bulk{Do: operate.DeleteJobs()}))
	must(t, err)
	if kept := int(heapInUse()) - before; kept > 2*size {
		t.Errorf("%d handlers that run for long keep %d bytes", long, kept)
	}
}

// A goroutine that a handler leaves behind asks its context whether it has ended, at the
// moment at which the handler returns.
func TestLeftBehindAsksForDone(t *testing.T) {
	eng, err := engine.New[int](memory.New(), quiet, engine.WithConcurrency(2))
	must(t, err)
	asked := make(chan context.Context, 1024)
	eng.Handle("noop", func(ctx context.Context, _ *ojs.Job[int]) error {
		select {
		case asked <- ctx:
		default:
		}
		return nil
	})
	var left sync.WaitGroup
	for range 2 {
		left.Go(func() {
			for ctx := range asked {
				<-ctx.Done()
			}
		})
	}
	stop := started(t, eng)
	jobs := 100_000
	if testing.Short() || racedetector.On {
		jobs = 20_000
	}
	for i := range jobs {
		_, err := eng.Enqueue(t.Context(), "noop", i)
		must(t, err)
	}
	must(t, eng.WaitIdle(t.Context()))
	stop()
	close(asked)
	left.Wait()
}
