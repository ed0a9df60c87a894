package engine_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ojsengine/ojs"
	"github.com/ojsengine/ojs/engine"
	"github.com/ojsengine/ojs/engine/fetch"
	"github.com/ojsengine/ojs/handler"
	"github.com/ojsengine/ojs/operate"
	"github.com/ojsengine/ojs/policy"
	"github.com/ojsengine/ojs/storage/memory"
	"github.com/ojsengine/ojs/storage/storagetest"
)

// Engines on one storage share a limit: never more attempts at once over all of them, and
// a freed slot is used at once, by whichever engine.
func TestLimitsOverEngines(t *testing.T) {
	for name, limit := range map[string]func() ([]engine.Option, []ojs.Option){
		"L001 a key": func() ([]engine.Option, []ojs.Option) {
			return nil, []ojs.Option{ojs.WithRateLimit(ojs.RateLimit{Key: "k", Concurrency: 5})}
		},
		"L035 a queue": func() ([]engine.Option, []ojs.Option) {
			conf := engine.QueueConfig{GlobalConcurrency: 5}
			return []engine.Option{engine.WithQueueConfig("default", conf)}, nil
		},
	} {
		t.Run(name, func(t *testing.T) {
			config, job := limit()
			const engines, jobs = 4, 300
			s := memory.New()
			var running, most, done atomic.Int32
			all, five := make(chan struct{}), make(chan struct{})
			full := sync.OnceFunc(func() { close(five) })
			ctx, stop := context.WithCancel(t.Context())
			defer stop()
			var wg sync.WaitGroup
			defer wg.Wait()
			defer stop()
			var list []*engine.Engine[any]
			for range engines {
				eng, err := engine.New[any](s, append(config, engine.WithConcurrency(16))...)
				if err != nil {
					t.Fatal(err)
				}
				eng.Handle("x", func(context.Context, *ojs.Job[any]) error {
					n := running.Add(1)
					for old := most.Load(); n > old && !most.CompareAndSwap(old, n); old = most.Load() {
					}
					if n == 5 {
						full()
					}
					select { // the first ones run until all that may are there
					case <-five:
					case <-ctx.Done():
					}
					for range 10 {
						runtime.Gosched() // others start meanwhile, if they may
					}
					running.Add(-1)
					if done.Add(1) == jobs {
						close(all)
					}
					return nil
				})
				list = append(list, eng)
			}
			for range jobs {
				if _, err := list[0].Enqueue(ctx, "x", nil, job...); err != nil {
					t.Fatal(err)
				}
			}
			for _, eng := range list { // Run sets the limit of the queue before it claims
				wg.Go(func() {
					if err := eng.Run(ctx); err != nil {
						t.Error(err)
					}
				})
			}
			select {
			case <-all:
			case <-time.After(2 * time.Minute):
				t.Fatalf("%d of %d jobs have run", done.Load(), jobs)
			}
			if most.Load() != 5 {
				t.Errorf("%d attempts at once, want 5", most.Load())
			}
		})
	}
}

// Handlers that return at once end while claims are under way that find no slot free. No
// end goes unnoticed by all claims.
func TestLimitsLoseNoWakeUp(t *testing.T) {
	for range 5 {
		eng, err := engine.New[any](memory.New(), engine.WithConcurrency(16))
		if err != nil {
			t.Fatal(err)
		}
		const jobs = 4000
		var done atomic.Int32
		all := make(chan struct{})
		eng.Handle("x", func(context.Context, *ojs.Job[any]) error {
			if done.Add(1) == jobs {
				close(all)
			}
			return nil
		})
		ctx, stop := context.WithCancel(t.Context())
		for range jobs {
			limit := ojs.WithRateLimit(ojs.RateLimit{Key: "k", Concurrency: 5})
			if _, err := eng.Enqueue(ctx, "x", nil, limit); err != nil {
				t.Fatal(err)
			}
		}
		ended := make(chan error)
		go func() { ended <- eng.Run(ctx) }()
		select {
		case <-all:
		case <-time.After(2 * time.Minute):
			t.Errorf("%d of %d jobs have run", done.Load(), jobs)
		}
		stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	}
}

// TestLimitRules covers the rules of limits, under virtual time.
func TestLimitRules(t *testing.T) {
	start := func(b *rig) time.Time { return time.Now() }
	ran := func(b *rig) (times *[]time.Duration) {
		begin := start(b)
		times = new([]time.Duration)
		var mu sync.Mutex
		b.handle("x", func(context.Context, *ojs.Job[any]) error {
			mu.Lock()
			defer mu.Unlock()
			*times = append(*times, time.Since(begin))
			return nil
		})
		return times
	}
	// sleeps has jobs run for 10 s.
	sleeps := func(b *rig) (times *[]time.Duration) {
		begin := start(b)
		times = new([]time.Duration)
		var mu sync.Mutex
		b.handle("x", func(ctx context.Context, _ *ojs.Job[any]) error {
			mu.Lock()
			*times = append(*times, time.Since(begin))
			mu.Unlock()
			return handler.Sleep(ctx, 10*time.Second)
		})
		return times
	}
	want := func(b *rig, got []time.Duration, want ...time.Duration) {
		b.t.Helper()
		if !slices.Equal(got, want) {
			b.t.Errorf("started at %v, want %v", got, want)
		}
	}
	const s = time.Second
	for name, f := range map[string]func(b *rig){
		"L021 rate, L026 an opened window is used at once": func(b *rig) {
			times := ran(b)
			b.run()
			for range 5 {
				b.enqueue("x",
					ojs.WithRateLimit(ojs.RateLimit{Key: "k", Rate: ojs.Rate{Limit: 2, Per: 10 * s}}))
			}
			b.advance(time.Minute)
			want(b, *times, 0, 0, 10*s, 10*s, 20*s)
		},
		"L021 a rate counts retries, in any stretch of its period": func(b *rig) {
			var times []time.Duration
			begin := start(b)
			b.handle("x", func(context.Context, *ojs.Job[any]) error {
				if times = append(times, time.Since(begin)); len(times) == 1 {
					return ojs.RetryAfter(3*s, errBoom)
				}
				return nil
			})
			limit := ojs.WithRateLimit(ojs.RateLimit{Key: "k", Rate: ojs.Rate{Limit: 2, Per: 10 * s}})
			b.run()
			b.advance(6 * s)
			b.enqueue("x", limit)
			b.advance(4 * s)
			b.enqueue("x", limit)
			b.enqueue("x", limit)
			b.advance(time.Minute)
			want(b, times, 6*s, 9*s, 16*s, 19*s)
		},
		"L022 throttle": func(b *rig) {
			times := ran(b)
			add := func() {
				for range 3 {
					b.enqueue("x",
						ojs.WithRateLimit(ojs.RateLimit{Key: "k", Throttle: ojs.Rate{Limit: 2, Per: 10 * s}}))
				}
			}
			add() // a claim of many takes one
			b.run()
			b.advance(time.Minute)
			add() // the time without starts is not saved up
			b.advance(time.Minute)
			want(b, *times, 0, 5*s, 10*s, 60*s, 65*s, 70*s)
		},
		"L020 at most so many at once, L026 a freed slot is used at once": func(b *rig) {
			times := sleeps(b)
			for range 5 {
				b.enqueue("x", ojs.WithRateLimit(ojs.RateLimit{Key: "k", Concurrency: 2}))
			}
			b.run()
			b.advance(time.Minute)
			want(b, *times, 0, 0, 10*s, 10*s, 20*s)
		},
		"L002 L026 a new engine knows the starts, and an opened window wakes its worker": func(b *rig) {
			limit := ojs.WithRateLimit(ojs.RateLimit{
				Key: "k", Concurrency: 2, Rate: ojs.Rate{Limit: 1, Per: 10 * s},
			})
			begin := time.Now()
			ctx, cancel := context.WithTimeout(b.ctx, time.Minute)
			defer cancel()
			var held []*fetch.Delivery
			for i := range 3 {
				b.enqueue("x", limit)
				w := must1(engine.New[any](b.store, quiet)).Worker("w", fetch.Config{})
				if i == 2 { // the slots are taken, and the window is open
					time.AfterFunc(20*s, func() { must(b.t, held[0].Ack(b.ctx, nil)) })
				}
				d, err := w.Fetch(ctx)
				if err != nil {
					b.t.Fatal(err)
				}
				held = append(held, d)
				if got, want := time.Since(begin), []time.Duration{0, 10 * s, 30 * s}[i]; got != want {
					b.t.Errorf("fetched after %v, want %v", got, want)
				}
			}
		},
		"L027 reschedule of a concurrency, which has no time": func(b *rig) {
			sleeps(b)
			b.run()
			l := ojs.RateLimit{Key: "k", Concurrency: 1, OnLimit: ojs.OnLimitReschedule}
			b.enqueue("x", ojs.WithRateLimit(l))
			b.advance(s)
			second := b.enqueue("x", ojs.WithRateLimit(l))
			b.advance(s / 2)
			job := b.want(second.ID, ojs.StateScheduled, 0)
			if at := job.ScheduledAt.Sub(job.EnqueuedAt); at != s {
				b.t.Errorf("scheduled %v after the claim, want 1 s", at)
			}
			b.advance(time.Minute)
			b.want(second.ID, ojs.StateCompleted, 1)
		},
		"L035 a queue's lower bound lets running jobs finish, and holds at once": func(b *rig) {
			times := sleeps(b)
			queue := operate.LimitOfQueue("default")
			set := func(n int) {
				bounds := ojs.RateLimit{Concurrency: n}
				if err := b.Limits().Set(b.ctx, queue, bounds, time.Time{}); err != nil {
					b.t.Fatal(err)
				}
			}
			set(2)
			b.run()
			var ids []string
			for range 4 {
				ids = append(ids, b.enqueue("x").ID)
			}
			b.advance(s)
			set(1)
			b.advance(14 * s)
			set(2) // at 15 s
			b.advance(time.Minute)
			for _, id := range ids {
				b.want(id, ojs.StateCompleted, 1)
			}
			want(b, *times, 0, 0, 10*s, 15*s)
		},
		"L020 none at once, L043 override": func(b *rig) {
			times := ran(b)
			b.run()
			b.enqueue("x", ojs.WithRateLimit(ojs.RateLimit{Key: "k", Concurrency: ojs.NoneAtOnce}))
			b.advance(10 * s)
			if err := b.Limits().Set(b.ctx, operate.LimitOfKey("k"), ojs.RateLimit{Concurrency: 1},
				time.Time{}); err != nil {
				b.t.Fatal(err)
			}
			b.advance(s)
			want(b, *times, 10*s)
			if err := b.Limits().Clear(b.ctx, operate.LimitOfKey("k")); err != nil {
				b.t.Fatal(err)
			}
			if _, err := b.Limits().Get(b.ctx, operate.LimitOfKey("k")); !errors.Is(err, ojs.ErrNotFound) {
				b.t.Errorf("L042: %v, want not found", err)
			}
		},
		"L027 reschedule": func(b *rig) {
			times := ran(b)
			b.run()
			l := ojs.RateLimit{Key: "k", Rate: ojs.Rate{Limit: 1, Per: 10 * s},
				OnLimit: ojs.OnLimitReschedule}
			b.enqueue("x", ojs.WithRateLimit(l))
			second := b.enqueue("x", ojs.WithRateLimit(l))
			b.advance(s)
			b.want(second.ID, ojs.StateScheduled, 0)
			b.advance(time.Minute)
			b.want(second.ID, ojs.StateCompleted, 1)
			want(b, *times, 0, 10*s)
		},
		"L028 drop": func(b *rig) {
			times := ran(b)
			b.run()
			l := ojs.RateLimit{Key: "k", Rate: ojs.Rate{Limit: 1, Per: 10 * s}, OnLimit: ojs.OnLimitDrop}
			b.enqueue("x", ojs.WithRateLimit(l))
			second := b.enqueue("x", ojs.WithRateLimit(l))
			b.advance(s)
			job := b.want(second.ID, ojs.StateDiscarded, 0)
			if job.Error == nil || job.Error.Type != policy.ErrorTypeRateLimited || job.DeadLettered() {
				b.t.Errorf("dropped as %+v", job)
			}
			want(b, *times, 0)
		},
		"L040 block": func(b *rig) {
			times := ran(b)
			b.run()
			b.enqueue("other")
			if err := b.Limits().Block(b.ctx, operate.LimitOfKey("k"), time.Now().Add(30*s)); err != nil {
				b.t.Fatal(err)
			}
			b.enqueue("x", ojs.WithRateLimit(ojs.RateLimit{Key: "k", Concurrency: 5}))
			b.advance(time.Minute)
			want(b, *times, 30*s)
		},
		"L040 a later block extends, none shortens": func(b *rig) {
			times := ran(b)
			b.run()
			begin := time.Now()
			for _, until := range []time.Duration{20 * s, 30 * s, 10 * s} {
				if err := b.Limits().Block(b.ctx, operate.LimitOfKey("k"), begin.Add(until)); err != nil {
					b.t.Fatal(err)
				}
			}
			b.enqueue("x", ojs.WithRateLimit(ojs.RateLimit{Key: "k", Concurrency: 5}))
			b.advance(time.Minute)
			want(b, *times, 30*s)
		},
		"L040 an error blocks its key, L041 the attempt is spent": func(b *rig) {
			times := new([]time.Duration)
			begin := time.Now()
			var mu sync.Mutex
			b.handle("x", func(_ context.Context, job *ojs.Job[any]) error {
				mu.Lock()
				defer mu.Unlock()
				*times = append(*times, time.Since(begin))
				if len(*times) > 1 {
					return nil
				}
				return ojs.RateLimitedUntil(begin.Add(30*s), ojs.Errorf("api.busy", "try later"))
			})
			key := ojs.WithRateLimit(ojs.RateLimit{Key: "k", Concurrency: 1})
			first := b.enqueue("x", key, ojs.WithRetry(ojs.RetryPolicy{MaxAttempts: 1}))
			b.enqueue("x", key)
			b.run()
			b.advance(10 * s)
			job := b.want(first.ID, ojs.StateDiscarded, 1)
			if job.Error == nil || job.Error.Type != "api.busy" {
				b.t.Errorf("failed as %+v", job.Error)
			}
			b.advance(time.Minute)
			want(b, *times, 0, 30*s)
		},
		"L040 an error that a worker of another engine hands in": func(b *rig) {
			times := ran(b)
			begin := time.Now()
			key := ojs.WithRateLimit(ojs.RateLimit{Key: "k", Concurrency: 1})
			b.enqueue("x", key, ojs.WithRetry(ojs.RetryPolicy{MaxAttempts: 1}))
			w := must1(engine.New[any](b.store, quiet)).Worker("w", fetch.Config{})
			d := must1(w.Fetch(b.ctx))
			must(b.t, d.Fail(b.ctx, ojs.RateLimitedUntil(begin.Add(30*s), errBoom)))
			b.enqueue("x", key)
			b.run()
			b.advance(time.Minute)
			want(b, *times, 30*s)
		},
		"L040 for a time from the end of the attempt": func(b *rig) {
			times := new([]time.Duration)
			begin := time.Now()
			b.handle("x", func(ctx context.Context, job *ojs.Job[any]) error {
				*times = append(*times, time.Since(begin))
				if len(*times) > 1 {
					return nil
				}
				must(b.t, handler.Sleep(ctx, 10*s))
				if now := handler.Now(ctx); now.Sub(begin) != 10*s {
					b.t.Errorf("now is %v after the start, want 10 s", now.Sub(begin))
				}
				return ojs.RateLimitedFor(30*s, ojs.Errorf("api.busy", "try later"))
			})
			key := ojs.WithRateLimit(ojs.RateLimit{Key: "k", Concurrency: 1})
			first := b.enqueue("x", key, ojs.WithRetry(ojs.RetryPolicy{MaxAttempts: 1}))
			b.enqueue("x", key)
			b.run()
			b.advance(time.Minute)
			b.want(first.ID, ojs.StateDiscarded, 1)
			want(b, *times, 0, 40*s)
		},
		"L041 the failure follows its retry policy": func(b *rig) {
			begin := time.Now()
			b.handle("x", func(_ context.Context, job *ojs.Job[any]) error {
				if job.Attempt == 1 {
					return ojs.RateLimitedUntil(begin.Add(30*s), errBoom)
				}
				return nil
			})
			id := b.enqueue("x", ojs.WithRateLimit(ojs.RateLimit{Key: "k", Concurrency: 1}), noJitter,
				ojs.WithRetry(ojs.RetryPolicy{MaxAttempts: 2, InitialInterval: 5 * s})).ID
			b.run()
			b.advance(s)
			if job := b.want(id, ojs.StateRetryable, 1); job.NextRetryAt.Sub(begin) != 5*s {
				b.t.Errorf("retried after %v, want 5 s", job.NextRetryAt.Sub(begin))
			}
			b.advance(28 * s)
			b.want(id, ojs.StateAvailable, 1)
			b.advance(s)
			b.want(id, ojs.StateCompleted, 2)
		},
		"L040 a time in the past, one that is none, a job without a key": func(b *rig) {
			var times []time.Duration
			begin := time.Now()
			var mu sync.Mutex
			b.handle("x", func(_ context.Context, job *ojs.Job[any]) error {
				mu.Lock()
				defer mu.Unlock()
				times = append(times, time.Since(begin))
				untils := map[int]any{
					3: begin.Add(-s).Format(time.RFC3339), 2: "soon",
					1: begin.Add(time.Hour).Format(time.RFC3339),
				}
				details := map[string]any{"rate_limit_until": untils[job.Priority]}
				return &ojs.Error{Message: "no", Details: details}
			})
			once := ojs.WithRetry(ojs.RetryPolicy{MaxAttempts: 1})
			key := ojs.WithRateLimit(ojs.RateLimit{Key: "k", Concurrency: 1})
			b.enqueue("x", key, once, ojs.WithPriority(3))
			b.enqueue("x", key, once, ojs.WithPriority(2))
			b.enqueue("x", once, ojs.WithPriority(1))
			b.enqueue("x", key, once, ojs.WithDelay(s))
			b.run()
			b.advance(10 * s)
			want(b, times, 0, 0, 0, s)
		},
		"L030 waiting counts toward the job's own ends": func(b *rig) {
			times := ran(b)
			b.run()
			l := ojs.WithRateLimit(ojs.RateLimit{Key: "k", Rate: ojs.Rate{Limit: 1, Per: time.Hour}})
			b.enqueue("x", l)
			ids := make(map[string]string)
			for what, end := range map[string]ojs.Option{
				"timeout": ojs.WithTimeout(s), "lease": ojs.WithLease(s), "TTL": ojs.WithTTL(10 * s),
				"enqueue TTL": ojs.WithEnqueueTTL(10 * s), "total": ojs.WithTotalTimeout(10 * s),
			} {
				ids[what] = b.enqueue("x", l, end).ID
			}
			b.advance(9 * s)
			for _, id := range ids {
				b.want(id, ojs.StateAvailable, 0)
			}
			b.advance(2 * s)
			for what, id := range ids {
				state := ojs.StateDiscarded
				if what == "timeout" || what == "lease" {
					state = ojs.StateAvailable
				}
				b.want(id, state, 0)
			}
			want(b, *times, 0)
		},
		"L030 waiting counts toward neither timeout nor lease": func(b *rig) {
			sleeps(b)
			b.run()
			l := ojs.WithRateLimit(ojs.RateLimit{Key: "k", Rate: ojs.Rate{Limit: 1, Per: 30 * s}})
			b.enqueue("x", l)
			id := b.enqueue("x", l, ojs.WithTimeout(11*s), ojs.WithLease(11*s)).ID
			b.advance(29 * s)
			b.want(id, ojs.StateAvailable, 0)
			b.advance(12 * s) // it starts at 30 s
			b.want(id, ojs.StateCompleted, 1)
		},
		"L030 waiting counts toward no retry delay": func(b *rig) {
			var times []time.Duration
			begin := start(b)
			b.handle("x", func(context.Context, *ojs.Job[any]) error {
				if times = append(times, time.Since(begin)); len(times) == 2 {
					return ojs.RetryAfter(40*s, errBoom)
				}
				return nil
			})
			b.run()
			l := ojs.WithRateLimit(ojs.RateLimit{Key: "k", Rate: ojs.Rate{Limit: 1, Per: 30 * s}})
			b.enqueue("x", l)
			b.enqueue("x", l)
			b.advance(2 * time.Minute)
			want(b, times, 0, 30*s, 70*s)
		},
		"L037 pauses come before limits": func(b *rig) {
			times := ran(b)
			b.run()
			drop := ojs.WithRateLimit(ojs.RateLimit{
				Key: "k", Rate: ojs.Rate{Limit: 1, Per: time.Minute}, OnLimit: ojs.OnLimitDrop,
			})
			b.enqueue("x", drop)
			b.advance(s)
			q := b.Queues()
			known := func(_ bool, err error) error { return err }
			for what, way := range map[string]struct{ pause, resume func() error }{
				"a queue": {
					func() error { return known(q.Pause(b.ctx, "q")) },
					func() error { return known(q.Resume(b.ctx, "q")) },
				},
				"a type": {
					func() error { return known(q.PauseType(b.ctx, "x", "")) },
					func() error { return known(q.ResumeType(b.ctx, "x")) },
				},
				"everything": {
					func() error { return q.PauseAll(b.ctx, "maintenance") },
					func() error { return q.ResumeAll(b.ctx) },
				},
			} {
				must(b.t, way.pause())
				held := b.enqueue("x", drop, ojs.WithQueue("q"))
				b.advance(s)
				if state := b.state(held.ID); state != ojs.StateAvailable {
					b.t.Errorf("while %s is paused the job is %s", what, state)
				}
				must(b.t, way.resume())
				b.advance(s)
				b.want(held.ID, ojs.StateDiscarded, 0)
			}
			want(b, *times, 0)
		},
		"L037 a draining queue refuses jobs, whatever their limits, and delivers its own": func(b *rig) {
			times := ran(b)
			b.run()
			limit := ojs.RateLimit{Key: "k", Rate: ojs.Rate{Limit: 1, Per: 10 * s}}
			own := []ojs.Option{ojs.WithRateLimit(limit), ojs.WithQueue("q")}
			b.enqueue("x", own...)
			b.enqueue("x", own...)
			must1(b.Queues().Drain(b.ctx, "q"))
			for _, on := range []ojs.OnLimit{"", ojs.OnLimitDrop, ojs.OnLimitReschedule} {
				limit.OnLimit = on
				_, err := b.Enqueue(b.ctx, "x", nil, ojs.WithRateLimit(limit), ojs.WithQueue("q"))
				if !errors.Is(err, ojs.ErrQueueDraining) {
					b.t.Errorf("%q: %v", on, err)
				}
			}
			b.advance(time.Minute)
			want(b, *times, 0, 10*s)
		},
		"L044 list": func(b *rig) {
			for i := range 3 {
				b.enqueue("x", ojs.WithRateLimit(ojs.RateLimit{Key: fmt.Sprint("k", i), Concurrency: 5}))
			}
			list, err := b.Limits().List(b.ctx, operate.LimitQuery{After: "k0", Limit: 1})
			if err != nil || len(list) != 1 || list[0].Name != "k1" || list[0].Waiting != 1 ||
				list[0].Bounds.Concurrency != 5 {
				b.t.Errorf("listed %+v, %v", list, err)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(b *rig) {
				b.t = t
				f(b)
			}, engine.WithConcurrency(3))
		})
	}
}

// Each end of a job of a key that is full wakes a claim (rule L026), by whichever way the
// job ends.
func TestFreedSlotWakesAClaim(t *testing.T) {
	one := ojs.WithRateLimit(ojs.RateLimit{Key: "k", Concurrency: 1})
	later := ojs.WithRetry(ojs.RetryPolicy{MaxAttempts: 2, InitialInterval: 4 * time.Minute,
		Jitter: ojs.JitterOff})
	// hangs starts an attempt that goes on for minutes after its timeout of a second, and
	// enqueues a job behind it. It returns the ids of both.
	hangs := func(b *rig) (first, next string) {
		b.handle("hang", func(context.Context, *ojs.Job[any]) error {
			<-time.After(2 * time.Minute) // also if its context ends
			return nil
		})
		b.handle("next", nothing)
		b.run()
		first = b.enqueue("hang", one, later, ojs.WithTimeout(time.Second)).ID
		b.advance(time.Millisecond)
		next = b.enqueue("next", one).ID
		b.advance(time.Millisecond)
		b.want(next, ojs.StateAvailable, 0)
		return first, next
	}
	for name, f := range map[string]func(b *rig){
		"a worker's failure": func(b *rig) {
			b.enqueue("x", one, later)
			b.enqueue("x", one)
			d := must1(b.Worker("w1", fetch.Config{}).Fetch(b.ctx))
			time.AfterFunc(time.Minute, func() { must(b.t, d.Fail(b.ctx, errBoom)) })
			must1(b.Worker("w2", fetch.Config{}).Fetch(b.ctx))
			if b.elapsed() != time.Minute {
				b.t.Errorf("fetched after %v", b.elapsed())
			}
		},
		"a cancel whose handler goes on": func(b *rig) {
			first, next := hangs(b)
			must(b.t, b.Cancel(b.ctx, first))
			b.advance(time.Millisecond)
			b.want(next, ojs.StateCompleted, 1)
			b.advance(10 * time.Minute)
		},
		"a timeout whose handler goes on": func(b *rig) {
			first, next := hangs(b)
			b.advance(30 * time.Second) // and the grace period
			b.want(first, ojs.StateRetryable, 1)
			b.want(next, ojs.StateCompleted, 1)
			b.advance(10 * time.Minute)
		},
	} {
		t.Run(name, func(t *testing.T) { inBubble(t, f, engine.WithConcurrency(3)) })
	}
}

// An attempt may end while a claim is under way that has found its key full, and before
// the engine knows of that. Another claim follows (rule L026).
func TestEndBesideAClaimThatFindsNoSlot(t *testing.T) {
	s := &storagetest.Faulty{Storage: memory.New()}
	inBubbleOn(t, s, func(b *rig) {
		end := make(chan struct{})
		b.handle("first", func(context.Context, *ojs.Job[any]) error { <-end; return nil })
		b.handle("next", nothing)
		one := ojs.WithRateLimit(ojs.RateLimit{Key: "k", Concurrency: 1})
		b.run()
		b.enqueue("first", one)
		b.advance(time.Millisecond)
		var once sync.Once
		s.OnCall(func(c *storagetest.Call) {
			if c.Method == "Claim" || c.Method == "SettleAndClaim" {
				once.Do(func() {
					c.Do()
					close(end)
					<-time.After(time.Millisecond) // until the outcome is stored
				})
			}
		})
		next := b.enqueue("next", one).ID
		b.advance(time.Second)
		b.want(next, ojs.StateCompleted, 1)
	}, engine.WithConcurrency(3))
}

// The call that stores the end of a job of a full key claims the next job of the key
// (rule L026), unless a claim that is under way at that moment finds it first.
func TestFreedSlotIsTakenByTheStepThatFreesIt(t *testing.T) {
	s := &storagetest.Faulty{Storage: memory.New()}
	inBubbleOn(t, s.Stepping(), func(b *rig) {
		b.handle("x", func(ctx context.Context, _ *ojs.Job[any]) error {
			return handler.Sleep(ctx, time.Second)
		})
		b.run()
		const jobs = 20
		for range jobs {
			b.enqueue("x", ojs.WithRateLimit(ojs.RateLimit{Key: "k", Concurrency: 1}))
		}
		b.advance(time.Millisecond)
		claimed := 0 // by calls that store an outcome
		s.OnCall(func(c *storagetest.Call) {
			step, ok := c.In.(storagetest.Step)
			if c.Do(); ok && len(step.To) > 0 {
				claimed += c.Out.(int)
			}
		})
		b.advance(jobs * time.Second)
		if most := jobs - 5; claimed < most {
			t.Errorf("%d of %d jobs are claimed so, want %d at least", claimed, jobs-1, most)
		}
	}, engine.WithConcurrency(3))
}
