package engine_test

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ojsengine/ojs"
	"github.com/ojsengine/ojs/engine"
	"github.com/ojsengine/ojs/handler"
	"github.com/ojsengine/ojs/internal/test/pace"
	"github.com/ojsengine/ojs/storage/memory"
)

// A goroutine that a handler has left behind may sleep if it asked for the attempt before
// the handler returned. Its sleep takes no job from the local queue, of its own engine or
// of another one.
func TestGhostsStealNoJobs(t *testing.T) {
	eng, err := engine.New[int](memory.New(), quiet, engine.WithConcurrency(4), keepAll)
	must(t, err)
	var ran atomic.Int64
	eng.Handle("quick", func(context.Context, *ojs.Job[int]) error { ran.Add(1); return nil })
	const jobs = 20_000
	drafts := make([]ojs.Draft, jobs)
	for i := range drafts {
		drafts[i] = ojs.NewDraft("quick", i)
	}
	_, err = eng.EnqueueMany(t.Context(), drafts...)
	must(t, err)
	var ghosts []context.Context
	seen := make(chan context.Context, 100)
	before, err := engine.New[int](memory.New(), quiet, engine.WithConcurrency(8))
	must(t, err)
	together := make(chan struct{})
	before.Handle("ghost", func(ctx context.Context, _ *ojs.Job[int]) error {
		handler.Job(ctx)
		seen <- context.WithoutCancel(ctx)
		<-together
		return nil
	})
	stop := started(t, before)
	for i := range 8 {
		_, err := before.Enqueue(t.Context(), "ghost", i)
		must(t, err)
		ghosts = append(ghosts, <-seen)
	}
	close(together)
	must(t, before.WaitIdle(t.Context()))
	stop()

	started(t, eng)
	awake, wake := context.WithCancel(t.Context())
	defer wake()
	for i := 0; i < 200 && ran.Load() < jobs/2; i++ {
		for _, ghost := range ghosts {
			go func() {
				ctx, stop := context.WithCancel(ghost)
				defer context.AfterFunc(awake, stop)()
				_ = handler.Sleep(ctx, time.Hour)
			}()
		}
		pace.Work(20 * time.Microsecond)
	}
	ctx, enough := context.WithTimeout(t.Context(), time.Minute)
	defer enough()
	if err := eng.WaitIdle(ctx); err != nil {
		t.Error(err)
	}
	stats, err := eng.Stats(t.Context())
	must(t, err)
	if stats.Total[ojs.StateCompleted] != jobs || stats.Busy != 0 {
		t.Errorf("idle with %v, %d busy; %d handlers ran", stats.Total, stats.Busy, ran.Load())
	}
}
