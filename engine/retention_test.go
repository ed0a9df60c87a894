package engine_test

import (
	"context"
	"runtime"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ojsengine/ojs"
	"github.com/ojsengine/ojs/engine"
	"github.com/ojsengine/ojs/event"
	"github.com/ojsengine/ojs/inspect"
	"github.com/ojsengine/ojs/internal/test/racedetector"
	"github.com/ojsengine/ojs/storage/memory"
	"github.com/ojsengine/ojs/storage/storagetest"
)

func TestRetentionKeepsUniqueJobs(t *testing.T) {
	for name, opt := range map[string]ojs.Option{
		"C063 C065 C071 an idempotency key holds for its period": ojs.WithIdempotencyKey("request-7f3a"),
		"C063 C065 C071 a throttle holds for its period":         ojs.WithThrottle(24 * time.Hour),
	} {
		t.Run(name+", however many jobs finish and however long ago", func(t *testing.T) {
			inBubble(t, func(b *rig) {
				b.handle("pay", nothing)
				b.handle("other", nothing)
				b.run()
				paid := b.enqueue("pay", opt).ID
				b.advance(2 * time.Hour)
				for range 500 {
					b.enqueue("other")
				}
				b.advance(0)
				n, err := b.Jobs().Count(b.ctx, inspect.Filter{}, 0)
				if err != nil || n.N >= 200 {
					t.Fatalf("nothing was pruned: %+v, %v", n, err)
				}
				b.advance(21 * time.Hour)
				again, err := b.Enqueue(b.ctx, "pay", nil, opt)
				if err != nil || !again.Deduplicated || again.ID != paid {
					t.Fatalf("after 23 hours: %+v, %v", again, err)
				}
				b.advance(time.Hour)
				if again, err = b.Enqueue(b.ctx, "pay", nil, opt); err != nil || again.Deduplicated {
					t.Fatalf("after 24 hours: %+v, %v", again, err)
				}
				b.advance(time.Hour)
				for range 500 {
					b.enqueue("other")
				}
				b.advance(0)
				if _, err := b.Get(b.ctx, paid); !isErr(err, ojs.ErrPruned) {
					t.Errorf("after its period it is still there: %v", err)
				}
			}, engine.WithRetention(engine.Retention{Completed: time.Hour, MaxFinished: 10, MinAge: -1}))
		})
	}
}

func TestRetention(t *testing.T) {
	const day = 24 * time.Hour
	// lives has one job end in each way, and returns their ids.
	lives := func(b *rig) (completed, cancelled, discarded, dead string) {
		b.handle("good", nothing)
		b.handle("bad", func(context.Context, *ojs.Job[any]) error { return ojs.Permanent(errBoom) })
		b.handle("dead", func(context.Context, *ojs.Job[any]) error { return ojs.DeadLetter(errBoom) })
		b.run()
		completed, discarded, dead = b.enqueue("good").ID, b.enqueue("bad").ID, b.enqueue("dead").ID
		cancelled = b.enqueue("good", ojs.WithDelay(time.Hour)).ID
		must(b.t, b.Cancel(b.ctx, cancelled))
		b.advance(0)
		return
	}
	gone := func(b *rig, id string) bool { _, err := b.Get(b.ctx, id); return isErr(err, ojs.ErrPruned) }
	t.Run("P1.6 by age: completed and cancelled 7 days, discarded 30, dead letters 180", func(t *testing.T) {
		inBubble(t, func(b *rig) {
			completed, cancelled, discarded, dead := lives(b)
			for id, age := range map[string]time.Duration{completed: 7 * day, cancelled: 7 * day} {
				b.advance(age - b.elapsed())
				if gone(b, id) {
					t.Errorf("gone before %v", age)
				}
			}
			b.advance(10 * time.Minute)
			if !gone(b, completed) || !gone(b, cancelled) || gone(b, discarded) {
				t.Error("after 7 days")
			}
			b.advance(30*day - b.elapsed())
			if gone(b, discarded) {
				t.Error("gone before 30 days")
			}
			b.advance(10 * time.Minute)
			if !gone(b, discarded) || gone(b, dead) {
				t.Error("after 30 days")
			}
			sub := b.Subscribe(engine.EventFilter{Types: []event.Type{event.DeadLetterPruned}})
			defer sub.Close()
			b.advance(180*day - b.elapsed())
			if gone(b, dead) {
				t.Error("gone before 180 days")
			}
			b.advance(10 * time.Minute)
			if !gone(b, dead) {
				t.Error("after 180 days")
			}
			if events := received(sub); len(events) != 1 || events[0].Pruned != 1 ||
				events[0].Data()["count"] != 1 {
				t.Errorf("events %v", events)
			}
		})
	})
	t.Run("a setting goes before the default, a negative one is no limit", func(t *testing.T) {
		inBubble(t, func(b *rig) {
			completed, cancelled, discarded, dead := lives(b)
			b.advance(time.Hour)
			if !gone(b, completed) || gone(b, cancelled) {
				t.Error("after an hour")
			}
			b.advance(1000 * day)
			if gone(b, discarded) || !gone(b, dead) {
				t.Error("after 1000 days")
			}
		}, engine.WithRetention(engine.Retention{Completed: time.Minute, Discarded: -1, MaxFinished: -1}))
	})
	t.Run("P0.7 by number, the latest stay", func(t *testing.T) {
		inBubble(t, func(b *rig) {
			b.handle("x", nothing)
			b.handle("dead", func(context.Context, *ojs.Job[any]) error { return ojs.DeadLetter(errBoom) })
			waits := b.enqueue("other").ID
			var ids []string
			for range 500 {
				ids = append(ids, b.enqueue("x").ID)
			}
			var dead []string
			for range 100 {
				dead = append(dead, b.enqueue("dead").ID)
			}
			b.run()
			b.advance(time.Second)
			done := b.listed(inspect.Filter{States: []ojs.State{ojs.StateCompleted}})
			if len(done) > 100+64 || !slices.Equal(done, ids[500-len(done):]) {
				t.Errorf("%d completed jobs are left", len(done))
			}
			if left := b.deadLetters(); len(left) > 10+64 || !slices.Equal(left, dead[100-len(left):]) {
				t.Errorf("%d dead letters are left", len(left))
			}
			b.advance(time.Hour)
			if n := len(b.listed(inspect.Filter{States: []ojs.State{ojs.StateCompleted}})); n != 100 {
				t.Errorf("%d completed jobs are left for good", n)
			}
			if n := len(b.deadLetters()); n != 10 {
				t.Errorf("%d dead letters are left for good", n)
			}
			b.want(waits, ojs.StateAvailable, 0)
		}, engine.WithConcurrency(1),
			engine.WithRetention(engine.Retention{MaxFinished: 100, MaxDeadLetters: 10, MinAge: -1}))
	})
	t.Run("what finished before Run is pruned when it begins", func(t *testing.T) {
		inBubble(t, func(b *rig) {
			id := b.enqueue("x").ID
			must(t, b.Cancel(b.ctx, id))
			b.advance(8 * day)
			b.run()
			b.advance(0)
			if !gone(b, id) {
				t.Error("still there")
			}
		})
	})
	t.Run("by age, if many end at once elsewhere", func(t *testing.T) {
		inBubble(t, func(b *rig) {
			b.run()
			ids := make([]string, 64) // as many as have the engine look at their number
			for i := range ids {
				ids[i] = b.enqueue("x", ojs.WithDelay(day)).ID
			}
			cancelled, _, err := b.store.CancelAll(b.ctx, time.Now(), ids)
			if err != nil || len(cancelled) != len(ids) {
				t.Fatalf("%d jobs cancelled, %v", len(cancelled), err)
			}
			b.advance(time.Hour)
			if gone(b, ids[0]) {
				t.Error("gone before an hour")
			}
			b.advance(10 * time.Minute)
			if left := len(b.listed(inspect.Filter{})); left != 0 {
				t.Errorf("%d jobs are left after an hour", left)
			}
		}, engine.WithRetention(engine.Retention{Cancelled: time.Hour, MaxFinished: 100}))
	})
	t.Run("an idle engine asks nothing of its storage", func(t *testing.T) {
		inBubble(t, func(b *rig) {
			counted := &storagetest.Faulty{Storage: b.store}
			eng, err := engine.New[any](counted, quiet,
				engine.WithRetention(engine.Retention{Completed: time.Hour}))
			must(t, err)
			eng.Handle("x", nothing)
			ctx, cancel := context.WithCancel(b.ctx)
			done := make(chan error, 1)
			go func() { done <- eng.Run(ctx) }()
			_, err = eng.Enqueue(ctx, "x", nil)
			must(t, err)
			b.advance(2 * time.Hour)
			before := counted.Calls("Claim", "Due", "Prune")
			b.advance(1000 * day)
			if n := counted.Calls("Claim", "Due", "Prune") - before; n != 0 {
				t.Errorf("%d calls in 1000 idle days", n)
			}
			cancel()
			must(t, <-done)
		})
	})
}

// The memory of an engine does not grow with the number of jobs that it has run.
func TestMemoryStaysFlat(t *testing.T) {
	if !storm() {
		t.Skip("runs 1,000,000 jobs; OJS_STORM=1 has it run")
	}
	if racedetector.On {
		t.Skip("the race detector keeps memory of its own; CI runs this test without it")
	}
	store := memory.New()
	defer store.Close()
	eng, err := engine.New[int](store, quiet, engine.WithConcurrency(4))
	must(t, err)
	var ran atomic.Int64
	eng.Handle("count", func(context.Context, *ojs.Job[int]) error { ran.Add(1); return nil })
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- eng.Run(ctx) }()
	enqueued := 0
	heapAfter := func(jobs int) uint64 {
		for ; enqueued < jobs; enqueued += 100 {
			drafts := make([]ojs.Draft, 100)
			for i := range drafts {
				drafts[i] = ojs.NewDraft("count", i)
			}
			if _, err := eng.EnqueueMany(ctx, drafts...); err != nil {
				t.Fatal(err)
			}
			if enqueued%5000 == 0 { // what waits is memory, too
				must(t, eng.WaitIdle(ctx))
			}
		}
		must(t, eng.WaitIdle(ctx))
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return m.HeapAlloc
	}
	early := heapAfter(100_000)
	late := heapAfter(1_000_000)
	t.Logf("heap after 100,000 jobs %.1f MiB, after 1,000,000 %.1f MiB", float64(early)/(1<<20),
		float64(late)/(1<<20))
	if late > early+early/10+1<<20 {
		t.Errorf("the heap grew from %d to %d bytes", early, late)
	}
	cancel()
	must(t, <-done)
	if ran.Load() != 1_000_000 {
		t.Errorf("%d jobs ran", ran.Load())
	}
	s, err := eng.Stats(t.Context())
	if n := s.Total[ojs.StateCompleted]; err != nil || n < 10_000 || n > 100_000+1250+64 {
		t.Errorf("%d finished jobs are kept, %v", n, err)
	}
}
