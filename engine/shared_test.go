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
	"github.com/ojsengine/ojs/cron"
	"github.com/ojsengine/ojs/engine"
	"github.com/ojsengine/ojs/engine/fetch"
	"github.com/ojsengine/ojs/internal/test/pace"
	"github.com/ojsengine/ojs/storage/memory"
	"github.com/ojsengine/ojs/storage/storagetest"
)

// Engines that share a storage hear of what the others do at once, in the present of
// their clock.
func TestSharedStorage(t *testing.T) {
	// two runs an engine beside another one that does not run, on one storage.
	two := func(t *testing.T, f func(t *testing.T, works, other *engine.Engine[any], ran chan string)) {
		synctest.Test(t, func(t *testing.T) {
			store := memory.New()
			ran := make(chan string, 100)
			works, err := engine.New[any](store, quiet)
			must(t, err)
			other, err := engine.New[any](store, quiet)
			must(t, err)
			works.Handle("x", func(_ context.Context, job *ojs.Job[any]) error { ran <- job.ID; return nil })
			ctx, stop := context.WithCancel(t.Context())
			ended := make(chan error, 1)
			go func() { ended <- works.Run(ctx) }()
			synctest.Wait()
			f(t, works, other, ran)
			stop()
			must(t, <-ended)
		})
	}
	idle := func(t *testing.T, eng *engine.Engine[any]) {
		t.Helper()
		must(t, eng.WaitIdle(t.Context()))
	}
	t.Run("a job that another enqueues runs", func(t *testing.T) {
		two(t, func(t *testing.T, works, other *engine.Engine[any], ran chan string) {
			ticket, err := other.Enqueue(t.Context(), "x", nil)
			must(t, err)
			idle(t, works)
			if len(ran) != 1 || <-ran != ticket.ID {
				t.Error("it did not")
			}
		})
	})
	t.Run("at its time", func(t *testing.T) {
		two(t, func(t *testing.T, works, other *engine.Engine[any], ran chan string) {
			_, err := other.Enqueue(t.Context(), "x", nil, ojs.WithDelay(time.Minute))
			must(t, err)
			start := time.Now()
			<-ran
			if d := time.Since(start); d != time.Minute {
				t.Errorf("after %v", d)
			}
		})
	})
	t.Run("who waits for a job hears of its end", func(t *testing.T) {
		two(t, func(t *testing.T, works, other *engine.Engine[any], ran chan string) {
			ticket, err := other.Enqueue(t.Context(), "x", nil, ojs.WithDelay(time.Minute))
			must(t, err)
			if job, err := ticket.Wait(t.Context()); err != nil || job.State != ojs.StateCompleted {
				t.Errorf("%+v, %v", job, err)
			}
		})
	})
	t.Run("a job that another activates, replays or gives another time", func(t *testing.T) {
		two(t, func(t *testing.T, works, other *engine.Engine[any], ran chan string) {
			pending, err := other.Enqueue(t.Context(), "x", nil, ojs.WithPending())
			must(t, err)
			late, err := other.Enqueue(t.Context(), "x", nil, ojs.WithDelay(time.Hour))
			must(t, err)
			idle(t, works)
			must(t, other.Jobs().Activate(t.Context(), pending.ID))
			idle(t, works)
			if len(ran) != 1 || <-ran != pending.ID {
				t.Error("the activated job did not run")
			}
			must(t, other.Jobs().Reschedule(t.Context(), late.ID, time.Now().Add(time.Second)))
			start := time.Now()
			if <-ran != late.ID || time.Since(start) != time.Second {
				t.Errorf("ran after %v", time.Since(start))
			}
		})
	})
	t.Run("a worker of an engine that does not run", func(t *testing.T) {
		two(t, func(t *testing.T, works, other *engine.Engine[any], ran chan string) {
			got := make(chan string)
			go func() {
				d, err := other.Worker("w",
					fetch.Config{Types: []string{"elsewhere"}}).Fetch(t.Context())
				if err != nil {
					t.Error(err)
				}
				got <- d.Job.ID
				if err := d.Ack(t.Context(), nil); err != nil {
					t.Error(err)
				}
			}()
			synctest.Wait()
			ticket, err := works.Enqueue(t.Context(), "elsewhere", nil)
			must(t, err)
			if id := <-got; id != ticket.ID {
				t.Errorf("fetched %s, not %s", id, ticket.ID)
			}
			if _, err := ticket.Wait(t.Context()); err != nil {
				t.Error(err)
			}
		})
	})
	t.Run("a queue that another resumes", func(t *testing.T) {
		two(t, func(t *testing.T, works, other *engine.Engine[any], ran chan string) {
			must1(other.Queues().Pause(t.Context(), "default"))
			_, err := other.Enqueue(t.Context(), "x", nil)
			must(t, err)
			idle(t, works)
			if len(ran) != 0 {
				t.Error("ran though its queue is paused")
			}
			must1(other.Queues().Resume(t.Context(), "default"))
			idle(t, works)
			if len(ran) != 1 {
				t.Error("did not run")
			}
		})
	})
	t.Run("recurring jobs that another sets", func(t *testing.T) {
		two(t, func(t *testing.T, works, other *engine.Engine[any], ran chan string) {
			must(t,
				other.Cron().Set(t.Context(),
					cron.Entry{Name: "c", Schedule: "@every 1m", Job: ojs.NewDraft("x", nil)}))
			start := time.Now()
			<-ran
			if d := time.Since(start); d != time.Minute {
				t.Errorf("ran after %v", d)
			}
		})
	})
	t.Run("a claim that another takes", func(t *testing.T) {
		for _, c := range []struct {
			name string
			take func(t *testing.T, other *engine.Engine[any], id string)
			want error
		}{
			{"by cancelling",
				func(t *testing.T, other *engine.Engine[any],
					id string) {
					must(t, other.Cancel(t.Context(), id))
				}, ojs.ErrCancelled},
			{"by replacing", func(t *testing.T, other *engine.Engine[any], _ string) {
				_, err := other.Enqueue(t.Context(), "blocks", nil,
					ojs.WithUnique(ojs.UniquePolicy{OnConflict: ojs.ConflictReplace}),
					ojs.WithDelay(time.Hour))
				must(t, err)
			}, ojs.ErrReplaced},
		} {
			t.Run(c.name, func(t *testing.T) {
				two(t, func(t *testing.T, works, other *engine.Engine[any], ran chan string) {
					cause := make(chan error, 1)
					works.Handle("blocks", func(ctx context.Context, job *ojs.Job[any]) error {
						<-ctx.Done()
						cause <- context.Cause(ctx)
						return nil
					})
					ticket, err := works.Enqueue(t.Context(), "blocks", nil,
						ojs.WithUnique(ojs.UniquePolicy{OnConflict: ojs.ConflictReplace}))
					must(t, err)
					synctest.Wait()
					start := time.Now()
					c.take(t, other, ticket.ID)
					if got := <-cause; !errors.Is(got, c.want) || time.Now() != start {
						t.Errorf("%v after %v", got, time.Since(start))
					}
				})
			})
		}
	})
	t.Run("one engine's own calls are no news to it", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			store := &storagetest.Faulty{Storage: memory.New()}
			eng, err := engine.New[any](store, quiet)
			must(t, err)
			eng.Handle("x", func(context.Context, *ojs.Job[any]) error { return nil })
			ctx, stop := context.WithCancel(t.Context())
			ended := make(chan error, 1)
			go func() { ended <- eng.Run(ctx) }()
			synctest.Wait()
			for range 10 {
				before := store.Calls("Claim")
				_, err := eng.Enqueue(ctx, "x", nil)
				must(t, err)
				synctest.Wait()
				if n := store.Calls("Claim") - before; n != 1 {
					t.Errorf("%d claims for one job", n)
				}
			}
			stop()
			must(t, <-ended)
		})
	})
}

// An idle engine, which nothing but a notice wakes, runs the jobs that another engine on
// its storage gives back, while the other engine runs and when it stops.
func TestIdleEngineRunsJobsGivenBack(t *testing.T) {
	const quick, jobs, slots = 1000, 1100, 2
	store := memory.New()
	var unclaims atomic.Bool
	giveBack := make(chan struct{})
	give := sync.OnceFunc(func() { close(giveBack) })
	defer give()
	watched := &storagetest.Faulty{Storage: store}
	watched.OnCall(func(c *storagetest.Call) {
		if c.Method == "Unclaim" {
			unclaims.Store(true)
			<-giveBack
		}
	})
	gives, err := engine.New[int](watched.Stepping(), quiet, engine.WithConcurrency(slots),
		engine.WithGracePeriod(0))
	must(t, err)
	blocked := make(chan struct{}, jobs)
	gives.Handle("x", func(ctx context.Context, job *ojs.Job[int]) error {
		if job.Args < quick {
			return nil
		}
		blocked <- struct{}{}
		<-ctx.Done()
		return context.Cause(ctx)
	})
	idle, err := engine.New[int](store, quiet, keepAll)
	must(t, err)
	idle.Handle("x", func(context.Context, *ojs.Job[int]) error { return nil })
	for i := range jobs {
		must1(gives.Enqueue(t.Context(), "x", i))
	}
	counts := func() (active, completed int) {
		stats := must1(idle.Stats(t.Context()))
		return stats.Total[ojs.StateActive], stats.Total[ojs.StateCompleted]
	}
	stop := started(t, gives)
	pace.Until(t, "jobs claimed ahead are given back", unclaims.Load)
	for range slots {
		<-blocked
	}
	started(t, idle)
	must(t, idle.WaitIdle(t.Context()))
	if active, _ := counts(); active <= slots {
		t.Fatalf("%d jobs are active: none was claimed ahead", active)
	}
	give()
	pace.Until(t, "the jobs claimed ahead run", func() bool {
		active, completed := counts()
		return active == slots && completed == jobs-slots
	})
	must(t, idle.WaitIdle(t.Context()))
	stop()
	pace.Until(t, "the jobs that the stop gives back run", func() bool {
		_, completed := counts()
		return completed == jobs
	})
}
