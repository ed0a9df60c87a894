package engine_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ojsengine/ojs"
	"github.com/ojsengine/ojs/cron"
	"github.com/ojsengine/ojs/engine"
	"github.com/ojsengine/ojs/handler"
	"github.com/ojsengine/ojs/inspect"
	"github.com/ojsengine/ojs/storage/storagetest"
)

func TestPauseType(t *testing.T) {
	inBubble(t, func(b *rig) {
		b.handle("a", nothing)
		b.handle("b", nothing)
		b.run()
		by := ojs.WithActor(b.ctx, "ann")
		must1(b.Queues().PauseType(by, "a", "bad release"))
		a, other := b.enqueue("a").ID, b.enqueue("b").ID
		b.advance(time.Hour)
		b.want(a, ojs.StateAvailable, 0)
		b.want(other, ojs.StateCompleted, 1)
		b.explained(a, inspect.ObstaclePaused)
		list, err := b.Queues().Pauses(b.ctx)
		must(t, err)
		if len(list) != 1 || list[0].Type != "a" || list[0].By != "ann" || list[0].Reason != "bad release" ||
			!list[0].At.Equal(b.start) {
			t.Errorf("%+v", list)
		}
		must1(b.Queues().ResumeType(b.ctx, "a"))
		must1(b.Queues().ResumeType(b.ctx, "a"))
		b.advance(0)
		b.want(a, ojs.StateCompleted, 1)
		if _, err := b.Queues().PauseType(b.ctx, "No Type", ""); !errors.Is(err, ojs.ErrInvalid) {
			t.Errorf("no type: %v", err)
		}
	})
}

// Another engine on the storage obeys, one that begins later too, and a queue that was
// paused before still is afterwards.
func TestPauseAll(t *testing.T) {
	inBubble(t, func(b *rig) {
		b.handle("a", nothing)
		b.run()
		other, err := engine.New[any](b.store, quiet)
		must(t, err)
		must1(b.Queues().Pause(b.ctx, "q"))
		must(t, other.Queues().PauseAll(b.ctx, "upgrade"))
		synctest.Wait()
		held, queued := b.enqueue("a").ID, b.enqueue("a", ojs.WithQueue("q")).ID
		b.advance(time.Hour)
		b.want(held, ojs.StateAvailable, 0)
		b.explained(held, inspect.ObstaclePaused)
		b.halt()
		b.run()
		b.advance(time.Hour)
		b.want(held, ojs.StateAvailable, 0)
		must(t, other.Queues().ResumeAll(b.ctx))
		b.advance(0)
		b.want(held, ojs.StateCompleted, 1)
		b.want(queued, ojs.StateAvailable, 0)
	})
}

// Recurring jobs wait while everything is paused, as if no engine ran: by this engine and
// by another one, also if a run begins meanwhile. [F150]
func TestPauseAllHoldsRecurringJobs(t *testing.T) {
	for _, here := range []bool{true, false} {
		inBubble(t, func(b *rig) {
			b.handle("a", nothing)
			by := b.Queues()
			if !here {
				other, err := engine.New[any](b.store, quiet)
				must(t, err)
				by = other.Queues()
			}
			b.run()
			b.cron(cron.Entry{Name: "n", Schedule: "@every 1m", Overlap: cron.OverlapEnqueue,
				Job: ojs.NewDraft("a", nil)},
				cron.Entry{Name: "start", Schedule: "@every 1000h", Overlap: cron.OverlapEnqueue,
					RunOnStart: true, Job: ojs.NewDraft("a", nil)})
			want := func(what string, n int) {
				t.Helper()
				jobs := len(b.listed(inspect.Filter{Types: []string{"a"}}))
				if ran := len(b.times()); ran != n || jobs != n {
					t.Errorf("%s, paused here: %v: %d jobs, %d runs, not %d", what, here, jobs, ran, n)
				}
			}
			b.advance(time.Minute)
			want("before", 2)
			for range 2 {
				n := len(b.times())
				must(t, by.PauseAll(b.ctx, "upgrade"))
				b.advance(10 * time.Minute)
				want("paused", n)
				must(t, by.ResumeAll(b.ctx))
				b.advance(0)
				want("what was missed", n+1)
				b.advance(2 * time.Minute)
				want("resumed", n+3)
			}
			must(t, by.PauseAll(b.ctx, "upgrade"))
			b.halt()
			b.run()
			b.advance(10 * time.Minute)
			want("paused when Run began", 8)
			must(t, by.ResumeAll(b.ctx))
			b.advance(0)
			want("what was missed, and what runs on start", 10)
		})
	}
}

// A type with versions and a limit is held as a whole, and other types are not.
func TestPauseTypeWithLimits(t *testing.T) {
	inBubble(t, func(b *rig) {
		done := func(context.Context, *ojs.Job[any]) error { return nil }
		b.Register(handler.For(ojs.Define[any]("a"), done,
			handler.WithSlots(1), handler.WithVersions(">=1.0")))
		b.handle("b", nothing)
		must1(b.Queues().PauseType(b.ctx, "a", ""))
		b.run()
		a, other := b.enqueue("a", ojs.WithVersion("1.2")).ID, b.enqueue("b").ID
		b.advance(0)
		b.want(a, ojs.StateAvailable, 0)
		b.want(other, ojs.StateCompleted, 1)
		must1(b.Queues().ResumeType(b.ctx, "a"))
		b.advance(0)
		b.want(a, ojs.StateCompleted, 1)
	})
}

// Pauses that cannot be read when Run begins are read as soon as the storage answers.
func TestPausesReadLater(t *testing.T) {
	var down atomic.Bool
	down.Store(true)
	store := hooked(breaks("Documents value", false, down.Load))
	inBubbleOn(t, store, func(b *rig) {
		b.handle("a", nothing)
		b.run()
		b.advance(time.Second)
		if _, err := b.Queues().PauseType(b.ctx, "a", ""); !errors.Is(err, errStorage) {
			t.Errorf("stored, and not read: %v", err)
		}
		down.Store(false)
		b.advance(time.Minute)
		id := b.enqueue("a").ID
		b.advance(0)
		b.want(id, ojs.StateAvailable, 0)
	})
}

// A look at the pauses that began before a type was paused, and ends after it, leaves the
// pause in force.
func TestPauseDuringALook(t *testing.T) {
	var armed atomic.Bool
	var read, release chan struct{}
	store := hooked(func(c *storagetest.Call) {
		if c.Method == "Documents value" && armed.CompareAndSwap(true, false) {
			c.Do()
			close(read)
			<-release
		}
	})
	inBubbleOn(t, store, func(b *rig) {
		read, release = make(chan struct{}), make(chan struct{})
		b.handle("a", nothing)
		b.run()
		b.advance(0)
		armed.Store(true)
		ends := make(chan error, 2)
		go func() { ends <- second(b.Queues().ResumeType(b.ctx, "b")) }()
		<-read
		go func() { ends <- second(b.Queues().PauseType(b.ctx, "a", "")) }()
		synctest.Wait()
		close(release)
		must(t, <-ends)
		must(t, <-ends)
		id := b.enqueue("a").ID
		b.advance(0)
		b.want(id, ojs.StateAvailable, 0)
	})
}

// A pause that begins while a run begins holds, also if its notice comes too early or not
// at all: the pauses are read again when the run has begun.
func TestPauseWhileARunBegins(t *testing.T) {
	store := hooked(nil)
	inBubbleOn(t, bare{store}, func(b *rig) {
		b.handle("a", func(context.Context, *ojs.Job[any]) error { return nil })
		other, err := engine.New[any](store.Storage, quiet)
		must(t, err)
		var once sync.Once
		store.OnCall(func(call *storagetest.Call) {
			if call.Method == "Documents value" {
				call.Do()
				once.Do(func() { must1(other.Queues().PauseType(b.ctx, "a", "")) })
			}
		})
		b.run()
		b.advance(time.Second)
		b.want(b.enqueue("a").ID, ojs.StateAvailable, 0)
	})
}

// A run that begins while everything is being paused makes no run of a recurring job.
// [F150]
func TestPauseAllWhileARunBegins(t *testing.T) {
	store := hooked(nil)
	inBubbleOn(t, bare{store}, func(b *rig) {
		b.handle("a", nothing)
		b.cron(cron.Entry{Name: "n", Schedule: "@every 1m", Job: ojs.NewDraft("a", nil)})
		b.advance(10 * time.Minute)
		other, err := engine.New[any](store.Storage, quiet)
		must(t, err)
		var once sync.Once
		store.OnCall(func(call *storagetest.Call) {
			if call.Method == "Documents value" {
				call.Do()
				once.Do(func() { must(t, other.Queues().PauseAll(b.ctx, "")) })
			}
		})
		b.run()
		b.advance(time.Second)
		if jobs := b.listed(inspect.Filter{Types: []string{"a"}}); len(jobs) != 0 {
			t.Errorf("%d runs were made", len(jobs))
		}
	})
}

// A pause of everything leaves the runs that are due, but for those of a batch, to its
// end. [F150]
func TestPauseAllWhileRunsAreMade(t *testing.T) {
	var armed atomic.Bool
	var pause func()
	store := hooked(func(c *storagetest.Call) {
		if c.Method == "DueDocuments cron" && armed.CompareAndSwap(true, false) {
			c.Do()
			pause()
		}
	})
	inBubbleOn(t, store, func(b *rig) {
		const entries = 300
		b.handle("a", nothing)
		pause = func() { must(t, b.Queues().PauseAll(b.ctx, "")) }
		for n := range entries {
			b.cron(cron.Entry{Name: fmt.Sprint("e", n), Schedule: "@every 1m", Job: ojs.NewDraft("a", nil)})
		}
		b.run()
		b.advance(59 * time.Second)
		armed.Store(true)
		b.advance(time.Second)
		made := func() int { return len(b.listed(inspect.Filter{Types: []string{"a"}})) }
		if n := made(); n == 0 || n >= entries {
			t.Errorf("%d of %d runs were made", n, entries)
		}
		must(t, b.Queues().ResumeAll(b.ctx))
		b.advance(0)
		if n := made(); n != entries {
			t.Errorf("%d of %d runs were made after the pause", n, entries)
		}
	})
}
