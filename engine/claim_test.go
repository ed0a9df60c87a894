package engine_test

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ojsengine/ojs"
	"github.com/ojsengine/ojs/engine"
	"github.com/ojsengine/ojs/handler"
	"github.com/ojsengine/ojs/storage"
	"github.com/ojsengine/ojs/storage/memory"
	"github.com/ojsengine/ojs/storage/storagetest"
)

// durable is a storage whose claims wait for a disk, as far as engines know.
type durable struct{ storage.Storage }

func (d durable) Capabilities() storage.Capabilities {
	c := d.Storage.Capabilities()
	c.Durable = true
	return c
}

// An engine claims for every free slot at once, unless a limit asks for a look after each
// job, or claims cost little.
func TestClaimsInBatches(t *testing.T) {
	for name, c := range map[string]struct {
		cheap  bool
		opts   []engine.Option
		handle []handler.Option
		claims int64
	}{
		"for every slot": {false, nil, nil, 1},
		"weights": {false,
			[]engine.Option{engine.WithQueueConfig("default", engine.QueueConfig{Weight: 1})}, nil, 10},
		"limit of a queue": {false,
			[]engine.Option{engine.WithQueueConfig("default",
				engine.QueueConfig{Concurrency: 100})}, nil, 10},
		"limit of a type": {false, nil, []handler.Option{handler.WithSlots(100)}, 10},
		"a queue without limit": {false,
			[]engine.Option{engine.WithQueueConfig("default", engine.QueueConfig{})}, nil, 1},
		"cheap claims": {true, nil, nil, 10},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var claims atomic.Int64
				store := hooked(func(c *storagetest.Call) {
					if c.Do(); c.Method == "Claim" || c.Method == "SettleAndClaim" && c.Out != 0 {
						claims.Add(1)
					}
				})
				var s storage.Storage = store
				if c.cheap {
					s = store.Stepping()
				}
				eng, err := engine.New[any](s, append(c.opts, quiet, engine.WithConcurrency(10))...)
				must(t, err)
				started := 0
				release := make(chan struct{})
				begun := make(chan struct{}, 100)
				eng.Handle("x",
					func(context.Context, *ojs.Job[any]) error { begun <- struct{}{}; <-release; return nil },
					c.handle...)
				for range 25 {
					_, err := eng.Enqueue(t.Context(), "x", nil)
					must(t, err)
				}
				ctx, stop := context.WithCancel(t.Context())
				ended := make(chan error, 1)
				go func() { ended <- eng.Run(ctx) }()
				synctest.Wait()
				for len(begun) > 0 {
					<-begun
					started++
				}
				if started != 10 || claims.Load() != c.claims {
					t.Errorf("%d jobs in %d claims, not 10 in %d", started, claims.Load(), c.claims)
				}
				close(release)
				synctest.Wait()
				if n := started + len(begun); n != 25 {
					t.Errorf("%d jobs ran", n)
				}
				stop()
				must(t, <-ended)
			})
		})
	}
}

// One job of a rate limit's key comes with each claim, so that a batch does not exceed
// it.
func TestBatchesKeepRateLimits(t *testing.T) {
	inBubbleOn(t, durable{memory.New()}, func(b *rig) {
		var mu sync.Mutex
		running, most := 0, 0
		change := func(by int) {
			mu.Lock()
			defer mu.Unlock()
			running += by
			most = max(most, running)
		}
		b.handle("x", func(ctx context.Context, _ *ojs.Job[any]) error {
			change(1)
			defer change(-1)
			return handler.Sleep(ctx, time.Second)
		})
		for range 9 {
			b.enqueue("x", ojs.WithRateLimit(ojs.RateLimit{Key: "k", Concurrency: 2}))
		}
		b.run()
		b.advance(time.Minute)
		if most != 2 || len(b.times()) != 9 {
			t.Errorf("%d at once, %d ran", most, len(b.times()))
		}
	}, engine.WithConcurrency(5))
}

// A slot does not wait for the disk: the next job has it while the outcome is stored. As
// many outcomes as there are slots may be on their way.
func TestSlotsDoNotWaitForTheDisk(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		settles := make(chan struct{}) // a value lets one go on
		var stored atomic.Int64        // outcomes; a settle may bring both that are on their way
		var rewrites atomic.Int64      // of what no attempt changes
		store := durable{hooked(func(c *storagetest.Call) {
			if changes, ok := c.In.([]storage.Change); ok {
				<-settles
				stored.Add(int64(len(changes)))
				if !changes[0].AttemptFieldsOnly {
					rewrites.Add(1)
				}
			}
		})}
		eng, err := engine.New[any](store, quiet, engine.WithConcurrency(2))
		must(t, err)
		ran := make(chan struct{}, 100)
		eng.Handle("x", func(context.Context, *ojs.Job[any]) error { ran <- struct{}{}; return nil })
		for range 10 {
			_, err := eng.Enqueue(t.Context(), "x", nil)
			must(t, err)
		}
		ctx, stop := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- eng.Run(ctx) }()
		synctest.Wait()
		if len(ran) != 4 {
			t.Errorf("%d jobs ran: two outcomes on their way, and two that keep their slots", len(ran))
		}
		if stats, err := eng.Stats(ctx); err != nil || stats.Busy != 2 || stats.Slots != 2 {
			t.Errorf("%d of %d slots are busy, %v", stats.Busy, stats.Slots, err)
		}
		for stored.Load() < 6 {
			settles <- struct{}{}
			synctest.Wait()
			if n := stored.Load(); int64(len(ran)) > n+4 {
				t.Errorf("%d jobs ran, and %d are stored", len(ran), n)
			}
		}
		close(settles)
		must(t, eng.WaitIdle(ctx))
		if n := rewrites.Load(); n > 0 {
			t.Errorf("%d attempts had their jobs written anew", n)
		}
		stats, err := eng.Stats(ctx)
		if err != nil || stats.Total[ojs.StateCompleted] != 10 {
			t.Errorf("%+v, %v", stats, err)
		}
		stop()
		must(t, <-ended)
	})
}
