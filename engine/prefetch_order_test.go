package engine_test

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ojsengine/ojs"
	"github.com/ojsengine/ojs/engine"
	"github.com/ojsengine/ojs/internal/test/pace"
	"github.com/ojsengine/ojs/storage"
	"github.com/ojsengine/ojs/storage/memory"
)

// With two workers a handler may wait for the job that was enqueued next, if there are no
// such two in a row: the other worker comes to it first in, first out.
func TestWaitForTheNextJob(t *testing.T) {
	const jobs = 6000
	eng, err := engine.New[int](memory.New(), quiet, engine.WithConcurrency(2), keepAll)
	must(t, err)
	tickets := make([]ojs.Ticket, jobs)
	var waited atomic.Int64
	eng.Handle("x", func(ctx context.Context, job *ojs.Job[int]) error {
		if job.Args%500 == 250 {
			defer waited.Add(1)
			_, err := tickets[job.Args+1].Wait(ctx)
			return err
		}
		for start := time.Now(); time.Since(start) < 35*time.Microsecond; {
		}
		return nil
	})
	for i := range tickets {
		tickets[i], err = eng.Enqueue(t.Context(), "x", i)
		must(t, err)
	}
	started(t, eng)
	last := time.Now()
	for done := 0; done < jobs; pace.Work(10 * time.Millisecond) {
		stats, err := eng.Stats(t.Context())
		must(t, err)
		if n := stats.Total[ojs.StateCompleted]; n > done {
			done, last = n, time.Now()
		}
		if time.Since(last) > time.Minute {
			for _, r := range eng.Running() {
				must(t, eng.Cancel(t.Context(), r.Job.ID))
			}
			t.Fatalf("for a minute: %v; %d have waited", stats.Total, waited.Load())
		}
	}
}

// A job that was claimed ahead and given back has not lost its place to those that were
// enqueued after it.
func TestGivenBackJobsKeepTheirPlace(t *testing.T) {
	const jobs, first, workers = 6000, 5000, 3
	store := memory.New()
	eng, err := engine.New[int](store, quiet, engine.WithConcurrency(workers), keepAll)
	must(t, err)
	release := make(chan struct{})
	var blocked atomic.Int32
	eng.Handle("x", func(ctx context.Context, job *ojs.Job[int]) error {
		if job.Args >= first {
			blocked.Add(1)
			<-release
		}
		return nil
	})
	for i := range jobs {
		_, err := eng.Enqueue(t.Context(), "x", i)
		must(t, err)
	}
	started(t, eng)
	defer close(release)
	pace.Until(t, "what was claimed ahead has been given back", func() bool {
		all := blocked.Load() == workers
		stats, err := eng.Stats(t.Context())
		must(t, err)
		return all && stats.Total[ojs.StateActive] == workers
	})
	stats, err := eng.Stats(t.Context())
	must(t, err)
	claimed, err := store.Claim(t.Context(), time.Now(), storage.Claim{Max: jobs, Worker: "other"}, nil)
	must(t, err)
	// A claim that was under way may take some more, until they have gone back too.
	if n := stats.Total[ojs.StateAvailable]; n < jobs-first-workers-32 {
		t.Errorf("%d jobs were available, want about %d", n, jobs-first-workers)
	}
	last := -1
	for i := range claimed {
		var n int
		must(t, claimed[i].Args.Decode(&n))
		if n <= last || claimed[i].Attempt != 1 {
			t.Errorf("job %d comes after job %d, for attempt %d", n, last, claimed[i].Attempt)
		}
		last = n
	}
}
