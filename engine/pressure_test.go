package engine_test

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ojsengine/ojs"
	"github.com/ojsengine/ojs/engine"
	"github.com/ojsengine/ojs/storage/memory"
	"github.com/ojsengine/ojs/storage/storagetest"
)

// An end wakes as many callers as can go on: what it costs does not depend on how many
// wait, and none is forgotten.
func TestEndWakesOneCaller(t *testing.T) {
	tries := func(callers int) (perCaller float64) {
		synctest.Test(t, func(t *testing.T) {
			s := &storagetest.Faulty{Storage: memory.New()}
			eng, err := engine.New[any](s, quiet, engine.WithConcurrency(1),
				engine.WithQueueConfig("default",
					engine.QueueConfig{MaxDepth: 1, Overflow: engine.OverflowBlock}))
			if err != nil {
				t.Fatal(err)
			}
			eng.Handle("job", nothing)
			var group sync.WaitGroup
			for range callers {
				group.Go(func() {
					if _, err := eng.Enqueue(t.Context(), "job", nil); err != nil {
						t.Error(err)
					}
				})
			}
			synctest.Wait()
			before, start := s.Calls("Insert"), time.Now()
			ctx, stop := context.WithCancel(t.Context())
			ended := make(chan error, 1)
			go func() { ended <- eng.Run(ctx) }()
			group.Wait()
			perCaller = float64(s.Calls("Insert")-before) / float64(callers)
			if waited := time.Since(start); waited > 0 {
				t.Errorf("P1.6 with %d callers a wake-up was lost for %v", callers, waited)
			}
			synctest.Wait()
			stop()
			if err := <-ended; err != nil {
				t.Error(err)
			}
		})
		return perCaller
	}
	if few, many := tries(20), tries(300); many > 2*few+2 {
		t.Errorf("P1.6 a caller tries %.1f times among 20, and %.1f times among 300", few, many)
	}
}

// Callers that stay blocked cost an end nothing: it tries for as many as it lets in,
// however many wait.
func TestEndsBehindBlockedCallers(t *testing.T) {
	tries := func(callers int) (n int64) {
		synctest.Test(t, func(t *testing.T) {
			s := &storagetest.Faulty{Storage: memory.New()}
			eng, err := engine.New[any](s, quiet,
				engine.WithQueueConfig("default",
					engine.QueueConfig{MaxDepth: 1, Overflow: engine.OverflowBlock}))
			if err != nil {
				t.Fatal(err)
			}
			first, err := eng.Enqueue(t.Context(), "job", nil)
			must(t, err)
			let := make(chan string, callers) // the ids of the jobs that were let in
			ctx, cancel := context.WithCancel(t.Context())
			var group sync.WaitGroup
			for range callers {
				group.Go(func() {
					if ticket, err := eng.Enqueue(ctx, "job", nil); err == nil {
						let <- ticket.ID
					}
				})
			}
			synctest.Wait()
			before, id := s.Calls("Insert"), first.ID
			for range 10 { // no time passes
				must(t, eng.Cancel(t.Context(), id))
				synctest.Wait()
				select {
				case id = <-let:
				default:
					t.Fatal("P1.6 an end let nobody in")
				}
			}
			n = int64(s.Calls("Insert") - before)
			cancel()
			group.Wait()
		})
		return n
	}
	if few, many := tries(20), tries(320); many > few {
		t.Errorf("P1.6 ten ends take %d tries in front of 20 callers, and %d in front of 320", few, many)
	}
}

// A caller that fails as it tries leaves the room to the caller behind it.
func TestFailedCallerLeavesItsRoom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &storagetest.Faulty{Storage: memory.New()}
		eng, err := engine.New[any](s, quiet,
			engine.WithQueueConfig("default",
				engine.QueueConfig{MaxDepth: 1, Overflow: engine.OverflowBlock}))
		must(t, err)
		first, err := eng.Enqueue(t.Context(), "job", nil)
		must(t, err)
		var list [2]error
		var group sync.WaitGroup
		for i := range list {
			group.Go(func() { _, list[i] = eng.Enqueue(t.Context(), "job", nil) })
			synctest.Wait()
		}
		var fails sync.Once
		s.OnCall(func(c *storagetest.Call) {
			if c.Method == "Insert" {
				fails.Do(func() { c.Err = errStorage })
			}
		})
		start := time.Now()
		must(t, eng.Cancel(t.Context(), first.ID))
		group.Wait()
		if !errors.Is(list[0], errStorage) || list[1] != nil {
			t.Errorf("P1.6 the callers got %v", list)
		}
		if waited := time.Since(start); waited > 0 {
			t.Errorf("P1.6 the second caller got its room after %v", waited)
		}
	})
}

// A batch that does not fit leaves the room to the callers behind it, and gets its own
// when there is enough.
func TestBatchWaitsForItsRoom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		eng, err := engine.New[any](memory.New(), quiet,
			engine.WithQueueConfig("default",
				engine.QueueConfig{MaxDepth: 2, Overflow: engine.OverflowBlock}))
		if err != nil {
			t.Fatal(err)
		}
		draft := ojs.NewDraft("job", any(nil))
		first, err := eng.EnqueueMany(t.Context(), draft, draft)
		if err != nil {
			t.Fatal(err)
		}
		var batch, one atomic.Bool
		go func() { _, err := eng.EnqueueMany(t.Context(), draft, draft); batch.Store(err == nil) }()
		synctest.Wait()
		var single ojs.Ticket
		go func() { single, _ = eng.Enqueue(t.Context(), "job", nil); one.Store(true) }()
		synctest.Wait()
		must(t, eng.Cancel(t.Context(), first[0].ID))
		synctest.Wait()
		if batch.Load() || !one.Load() {
			t.Errorf("P1.6 with room for one: the batch %v, the job %v", batch.Load(), one.Load())
		}
		must(t, eng.Cancel(t.Context(), first[1].ID))
		must(t, eng.Cancel(t.Context(), single.ID))
		synctest.Wait()
		if !batch.Load() {
			t.Error("P1.6 the batch does not get its room")
		}
	})
}
