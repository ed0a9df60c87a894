package engine_test

import (
	"context"
	"errors"
	"math/rand/v2"
	"runtime"
	"sync"
	"testing"
	"time"

	"github.com/ojsengine/ojs"
	"github.com/ojsengine/ojs/engine"
	"github.com/ojsengine/ojs/handler"
	"github.com/ojsengine/ojs/internal/test/pace"
)

// Random lives of jobs, in virtual time: every job ends, none runs more often than its
// policy allows or twice at once, and WaitIdle returns only when no job could run. That
// holds while the engine and the jobs are disturbed at random.
func TestRandomLives(t *testing.T) {
	for range 30 {
		seed := rand.Uint64()
		inBubble(t, func(b *rig) { randomLives(b, seed) }, engine.WithConcurrency(1+int(seed%4)),
			engine.WithGracePeriod(5*time.Second))
		if t.Failed() {
			t.Fatalf("seed %d", seed)
		}
	}
}

func randomLives(b *rig, seed uint64) {
	sub := b.Subscribe(engine.EventFilter{Types: jobEvents, Buffer: 100_000})
	defer sub.Close()
	var mu sync.Mutex // guards the rest
	rnd := rand.New(rand.NewPCG(seed, 0))
	n := func(below int) int {
		mu.Lock()
		defer mu.Unlock()
		return rnd.IntN(below)
	}
	running, spent := make(map[string]bool), make(map[string]int)
	var ids []string
	add := func(d ojs.Draft) {
		tickets, err := b.EnqueueMany(b.ctx, d)
		if err != nil {
			b.t.Error(err)
			return
		}
		mu.Lock()
		ids = append(ids, tickets[0].ID)
		mu.Unlock()
	}
	options := func() []ojs.Option {
		return []ojs.Option{
			ojs.WithPriority(n(3)), ojs.WithDelay(time.Duration(n(4)) * time.Second),
			ojs.WithTimeout(time.Duration(1+n(20)) * time.Second),
			ojs.WithLease(time.Duration(1+n(5)) * time.Second), ojs.WithTags("a"),
			ojs.WithRetry(ojs.RetryPolicy{MaxAttempts: 1 + n(4),
				OnExhaustion: []ojs.Exhaustion{ojs.ExhaustionDiscard, ojs.ExhaustionDeadLetter}[n(2)]}),
			func(o *ojs.Options) {
				if n(4) == 0 {
					ojs.WithTTL(time.Duration(5+n(20)) * time.Second)(o)
				}
				if n(6) == 0 {
					o.TotalTimeout = 30 * time.Second
				}
			},
		}
	}
	b.Handle("x", func(ctx context.Context, job *ojs.Job[any]) error {
		mu.Lock()
		if running[job.ID] {
			b.t.Errorf("job %s runs twice at once", job.ID)
		}
		running[job.ID] = true
		spent[job.ID]++
		if job.Attempt > job.MaxAttempts {
			b.t.Errorf("attempt %d of %d", job.Attempt, job.MaxAttempts)
		}
		mu.Unlock()
		defer func() {
			mu.Lock()
			delete(running, job.ID)
			mu.Unlock()
		}()
		switch n(14) {
		case 0, 1:
			return errBoom
		case 2:
			panic("boom")
		case 3:
			runtime.Goexit()
		case 4:
			return handler.Sleep(ctx, time.Duration(n(10))*time.Second)
		case 5:
			<-ctx.Done()
			return context.Cause(ctx)
		case 6:
			return ojs.Snooze(time.Duration(n(3)) * time.Second)
		case 7:
			add(ojs.NewDraft("x", nil, ojs.WithMaxAttempts(1)))
		case 8:
			return ojs.RetryAfter(time.Duration(n(3))*time.Second, errBoom)
		case 9:
			return ojs.DeadLetter(errBoom)
		case 10:
			pace.Virtual(time.Duration(n(5)) * time.Second) // less than the grace period
		case 11:
			if err := b.Cancel(ctx, job.ID); err != nil && !errors.Is(err, context.Canceled) &&
				context.Cause(ctx) == nil {
				b.t.Errorf("cancel of a running job: %v", err)
			}
		}
		return nil
	})
	for range 80 {
		switch n(9) {
		case 0, 1, 2, 3:
			add(ojs.NewDraft("x", nil, options()...))
		case 4:
			b.advance(time.Duration(n(3000)) * time.Millisecond)
		case 5:
			if b.stop == nil {
				b.run()
			} else if n(3) == 0 {
				b.halt()
			}
		case 6:
			mu.Lock()
			id := ""
			if len(ids) > 0 {
				id = ids[rnd.IntN(len(ids))]
			}
			mu.Unlock()
			if id != "" {
				if err := b.Cancel(b.ctx, id); err != nil && !errors.Is(err, ojs.ErrTransition) {
					b.t.Error(err)
				}
			}
		case 7:
			for _, id := range b.deadLetters() {
				if err := b.DeadLetters().Retry(b.ctx, id); err != nil && !errors.Is(err, ojs.ErrTransition) {
					b.t.Error(err)
				}
			}
		case 8:
			if b.stop != nil {
				if err := b.WaitIdle(b.ctx); err != nil {
					b.t.Error(err)
				}
				stats, err := b.Stats(b.ctx)
				if err != nil {
					b.t.Error(err)
				}
				for _, id := range ids { // with every slot asleep, some may be
					if job := b.job(id); job.State == ojs.StateAvailable && stats.Busy < stats.Slots {
						b.t.Errorf("idle, and job %s is available", id)
					}
				}
			}
		}
	}
	if b.stop == nil {
		b.run()
	}
	b.advance(3 * time.Hour)
	for _, id := range ids {
		if job := b.job(id); !job.State.Terminal() {
			b.t.Errorf("job %s is %s at attempt %d after three hours", id, job.State, job.Attempt)
		}
	}
	for id, events := range byJob(received(sub)) {
		if err := walk(events); err != nil {
			b.t.Errorf("job %s: %v", id, err)
		}
	}
	if len(running) > 0 {
		b.t.Errorf("%d handlers go on", len(running))
	}
}
