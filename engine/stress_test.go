package engine_test

import (
	"context"
	"errors"
	"math/rand/v2"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ojsengine/ojs"
	"github.com/ojsengine/ojs/engine"
	"github.com/ojsengine/ojs/event"
	"github.com/ojsengine/ojs/handler"
	"github.com/ojsengine/ojs/storage/memory"
)

// Jobs of every kind are enqueued and cancelled by several goroutines while the engine is
// stopped and started, in real time: every job ends, and none runs twice at once.
func TestRestartsUnderLoad(t *testing.T) {
	store := memory.New()
	eng, err := engine.New[int](store, quiet, engine.WithConcurrency(4),
		engine.WithGracePeriod(10*time.Second))
	if err != nil {
		t.Fatal(err)
	}
	var running sync.Map
	var ran atomic.Int64
	eng.Handle("work", func(ctx context.Context, job *ojs.Job[int]) error {
		if _, twice := running.LoadOrStore(job.ID, true); twice {
			t.Errorf("job %s runs twice at once", job.ID)
		}
		defer running.Delete(job.ID)
		ran.Add(1)
		switch job.Args % 12 {
		case 0:
			return errBoom
		case 1:
			panic("boom")
		case 2:
			return ojs.Snooze(time.Duration(rand.IntN(2)) * time.Millisecond * time.Duration(ran.Load()%2))
		case 3:
			runtime.Goexit()
		case 4:
			return handler.Sleep(ctx, 3*time.Millisecond)
		case 5:
			<-ctx.Done()
			return ctx.Err()
		case 6:
			if job.Args > 100 {
				_, err := eng.Enqueue(ctx, "work", job.Args-96, ojs.WithMaxAttempts(1))
				return err
			}
		}
		return nil
	})

	sub := eng.Subscribe(engine.EventFilter{Types: jobEvents, Buffer: 100_000})
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	var tickets sync.Map
	var producers sync.WaitGroup
	for g := range 4 {
		producers.Go(func() {
			for i := range 150 {
				n := g*150 + i
				ticket, err := eng.Enqueue(ctx, "work", n, ojs.WithPriority(n%3),
					ojs.WithDelay(time.Duration(n%5)*time.Millisecond),
					ojs.WithTimeout(5*time.Millisecond), ojs.WithRetry(ojs.RetryPolicy{
						MaxAttempts: 2, InitialInterval: time.Millisecond,
						MaxInterval: 3 * time.Millisecond}))
				if err != nil {
					t.Error(err)
				}
				tickets.Store(ticket.ID, ticket)
				if n%12 == 2 { // what snoozes for ever ends by hand
					time.AfterFunc(20*time.Millisecond, func() {
						if err := eng.Cancel(context.Background(), ticket.ID); err != nil &&
							!errors.Is(err, ojs.ErrTransition) {
							t.Error(err)
						}
					})
				}
			}
		})
	}
	producing := make(chan struct{})
	go func() { producers.Wait(); close(producing) }()
	for stop := false; !stop; {
		run, halt := context.WithTimeout(ctx, time.Duration(rand.IntN(10))*time.Millisecond)
		if err := eng.Run(run); err != nil {
			t.Error(err)
		}
		halt()
		select {
		case <-producing:
			stop = true
		default:
		}
	}
	run, halt := context.WithCancel(ctx)
	ended := make(chan error, 1)
	go func() { ended <- eng.Run(run) }()
	tickets.Range(func(_, ticket any) bool {
		job, err := ticket.(ojs.Ticket).Wait(ctx)
		if job == nil || !job.State.Terminal() {
			t.Fatalf("%v, %v", job, err)
		}
		if job.Attempt > job.MaxAttempts {
			t.Errorf("job ran %d times of %d", job.Attempt, job.MaxAttempts)
		}
		return true
	})
	if err := eng.WaitIdle(ctx); err != nil {
		t.Error(err)
	}
	halt()
	if err := <-ended; err != nil {
		t.Error(err)
	}
	sub.Close()
	var events []event.Event
	for ev := range sub.C() {
		events = append(events, ev)
	}
	lives := byJob(events)
	tickets.Range(func(id, _ any) bool {
		if err := walk(lives[id.(string)]); err != nil || len(lives[id.(string)]) < 2 {
			t.Errorf("job %s: %d events, %v", id, len(lives[id.(string)]), err)
		}
		return true
	})
	counts, err := store.Counts(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range counts {
		if !c.State.Terminal() {
			t.Errorf("%d jobs are %s", c.N, c.State)
		}
	}
}
