package engine_test

import (
	"context"
	"fmt"
	"math"
	"reflect"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ojsengine/ojs"
	"github.com/ojsengine/ojs/engine"
	"github.com/ojsengine/ojs/handler"
)

func nothing(context.Context, *ojs.Job[any]) error { return nil }

func TestRateLimits(t *testing.T) {
	t.Run("P1.5 a queue starts no more than its rate allows in any period", func(t *testing.T) {
		inBubble(t, func(b *rig) {
			b.handle("x", nothing)
			b.run()
			for range 10 {
				b.enqueue("x", ojs.WithQueue("q"))
			}
			b.advance(500 * time.Millisecond)
			for range 5 {
				b.enqueue("x", ojs.WithQueue("q"))
			}
			b.advance(time.Hour)
			got := b.times()
			if len(got) != 15 {
				t.Fatalf("%d ran: %v", len(got), got)
			}
			for i := range got[3:] {
				if got[i+3]-got[i] < time.Second {
					t.Errorf("4 starts within a second: %v", got[i:i+4])
				}
			}
			if last := got[14]; last != 4*time.Second {
				t.Errorf("the last started at %v, later than it might have", last)
			}
		}, engine.WithQueueConfig("q",
			engine.QueueConfig{RateLimit: ojs.RateLimit{Rate: ojs.Rate{Limit: 3, Per: time.Second}}}))
	})
	t.Run("P1.5 a throttle spaces starts", func(t *testing.T) {
		inBubble(t, func(b *rig) {
			b.handle("x", nothing)
			b.run()
			for range 4 {
				b.enqueue("x",
					ojs.WithRateLimit(ojs.RateLimit{Key: "api",
						Throttle: ojs.Rate{Limit: 2, Per: time.Second}}))
			}
			b.advance(time.Minute)
			if got, want := b.times(), seconds(0, 0.5, 1, 1.5); !reflect.DeepEqual(got, want) {
				t.Errorf("ran at %v, want %v", got, want)
			}
		})
	})
	t.Run("P1.5 limited jobs are passed over, not waited on", func(t *testing.T) {
		inBubble(t, func(b *rig) {
			var order []string
			b.Handle("x", func(_ context.Context, job *ojs.Job[any]) error {
				order = append(order, fmt.Sprint(job.Args, "@", b.elapsed()))
				return nil
			})
			slow := ojs.WithRateLimit(ojs.RateLimit{Key: "slow", Rate: ojs.Rate{Limit: 1, Per: time.Minute}})
			for _, d := range []ojs.Draft{
				ojs.NewDraft("x", "a", slow, ojs.WithPriority(9)), ojs.NewDraft("x", "b", slow,
					ojs.WithPriority(9)),
				ojs.NewDraft("x", "c", ojs.WithPriority(1)), ojs.NewDraft("x", "d"),
				ojs.NewDraft("x", "e", ojs.WithRateLimit(ojs.RateLimit{Key: "other", Concurrency: 1})),
			} {
				if _, err := b.EnqueueMany(b.ctx, d); err != nil {
					t.Fatal(err)
				}
			}
			b.run()
			b.advance(time.Hour)
			if want := []string{"a@0s", "c@0s", "d@0s", "e@0s", "b@1m0s"}; !slices.Equal(order, want) {
				t.Errorf("ran %v, want %v", order, want)
			}
		}, engine.WithConcurrency(1))
	})
	t.Run("P1.5 concurrency of a key, a queue and a handler", func(t *testing.T) {
		for name, tt := range map[string]struct {
			job     []ojs.Option
			engine  []engine.Option
			handler []handler.Option
		}{
			"key": {job: []ojs.Option{ojs.WithRateLimit(ojs.RateLimit{Key: "k", Concurrency: 2})}},
			"queue": {job: []ojs.Option{ojs.WithQueue("q")},
				engine: []engine.Option{engine.WithQueueConfig("q", engine.QueueConfig{Concurrency: 2}),
					engine.WithQueueConfig("default", engine.QueueConfig{})}},
			"handler": {handler: []handler.Option{handler.WithSlots(2)}},
		} {
			t.Run(name, func(t *testing.T) {
				inBubble(t, func(b *rig) {
					var running, most atomic.Int32
					b.Handle("x", func(ctx context.Context, _ *ojs.Job[any]) error {
						n := running.Add(1)
						defer running.Add(-1)
						for old := most.Load(); n > old && !most.CompareAndSwap(old, n); old = most.Load() {
						}
						return handler.Sleep(ctx, time.Second)
					}, tt.handler...)
					b.handle("free", nothing)
					b.run()
					for range 7 {
						b.enqueue("x", tt.job...)
					}
					b.enqueue("free")
					b.advance(0)
					if len(b.times()) != 1 {
						t.Error("a job that is not limited did not run")
					}
					b.advance(4 * time.Second)
					stats, err := b.Stats(b.ctx)
					if err != nil || stats.Total[ojs.StateCompleted] != 8 || most.Load() != 2 {
						t.Errorf("%d ran at once; %+v, %v", most.Load(), stats.Total, err)
					}
				}, tt.engine...)
			})
		}
	})
	t.Run("P1.5 all limits have to hold, and retries count", func(t *testing.T) {
		inBubble(t, func(b *rig) {
			b.handle("x", func(_ context.Context, job *ojs.Job[any]) error {
				if job.Attempt == 1 {
					return errBoom
				}
				return nil
			})
			b.run()
			b.enqueue("x", noJitter, ojs.WithQueue("q"),
				ojs.WithRateLimit(ojs.RateLimit{Key: "k", Rate: ojs.Rate{Limit: 1, Per: 10 * time.Second}}))
			b.enqueue("x", noJitter, ojs.WithQueue("q"),
				ojs.WithRateLimit(ojs.RateLimit{Key: "l", Rate: ojs.Rate{Limit: 1, Per: time.Second}}))
			b.advance(time.Minute)
			if got, want := b.times(), seconds(0, 3, 6, 10); !reflect.DeepEqual(got, want) {
				t.Errorf("ran at %v, want %v", got, want)
			}
		}, engine.WithQueueConfig("q",
			engine.QueueConfig{RateLimit: ojs.RateLimit{Throttle: ojs.Rate{Limit: 1, Per: 3 * time.Second}}}))
	})
	t.Run("L013 each job of a key is held to its own bounds", func(t *testing.T) {
		inBubble(t, func(b *rig) {
			b.handle("x", nothing)
			b.run()
			b.enqueue("x",
				ojs.WithRateLimit(ojs.RateLimit{Key: "k", Rate: ojs.Rate{Limit: 1, Per: time.Minute}}))
			b.advance(0)
			b.enqueue("x",
				ojs.WithRateLimit(ojs.RateLimit{Key: "k", Rate: ojs.Rate{Limit: 1, Per: time.Second}}))
			b.enqueue("x",
				ojs.WithRateLimit(ojs.RateLimit{Key: "k", Rate: ojs.Rate{Limit: 1, Per: time.Second}}))
			b.advance(time.Hour)
			if got, want := b.times(), seconds(0, 1, 2); !reflect.DeepEqual(got, want) {
				t.Errorf("ran at %v, want %v", got, want)
			}
		})
	})
	t.Run("P1.5 limits that reach beyond the end of time hold", func(t *testing.T) {
		for name, tt := range map[string]struct {
			limit ojs.RateLimit
			runs  int
		}{
			"a rate":                {ojs.RateLimit{Rate: ojs.Rate{Limit: 1, Per: math.MaxInt64}}, 1},
			"a throttle":            {ojs.RateLimit{Throttle: ojs.Rate{Limit: 1, Per: math.MaxInt64}}, 1},
			"a throttle of several": {ojs.RateLimit{Throttle: ojs.Rate{Limit: 2, Per: math.MaxInt64}}, 1},
			"a throttle of as many": {ojs.RateLimit{Throttle: ojs.Rate{Limit: math.MaxInt,
				Per: math.MaxInt64}}, 3},
			"a rate that lets go on": {ojs.RateLimit{Rate: ojs.Rate{Limit: math.MaxInt, Per: math.MaxInt64}},
				3},
		} {
			t.Run(name, func(t *testing.T) {
				inBubble(t, func(b *rig) {
					b.handle("x", nothing)
					b.run()
					tt.limit.Key = "k"
					for range 3 {
						b.enqueue("x", ojs.WithRateLimit(tt.limit))
					}
					b.advance(time.Hour)
					if n := len(b.times()); n != tt.runs {
						t.Errorf("%d ran, want %d", n, tt.runs)
					}
				})
			})
		}
	})
	t.Run("an engine with closed limits is idle", func(t *testing.T) {
		inBubble(t, func(b *rig) {
			b.handle("x", nothing)
			b.run()
			for range 2 {
				b.enqueue("x",
					ojs.WithRateLimit(ojs.RateLimit{Key: "k", Rate: ojs.Rate{Limit: 1, Per: time.Minute}}))
			}
			if err := b.WaitIdle(b.ctx); err != nil || len(b.times()) != 1 || b.elapsed() != 0 {
				t.Errorf("%v after %v with %v", err, b.elapsed(), b.times())
			}
			b.advance(time.Minute)
		})
	})
	t.Run("bad limits are refused", func(t *testing.T) {
		inBubble(t, func(b *rig) {
			for field, l := range map[string]ojs.RateLimit{
				"rate_limit.key":            {Key: "-x", Concurrency: 1},
				"rate_limit.concurrency":    {Key: "x", Concurrency: -2},
				"rate_limit.rate.limit":     {Key: "x", Rate: ojs.Rate{Limit: -1, Per: time.Second}},
				"rate_limit.rate.period":    {Key: "x", Rate: ojs.Rate{Limit: 1}},
				"rate_limit.throttle.limit": {Key: "x", Throttle: ojs.Rate{Per: time.Second}},
			} {
				_, err := b.Enqueue(b.ctx, "x", nil, ojs.WithRateLimit(l))
				wantInvalid(t, err, field)
			}
		})
	})
}

func TestWeights(t *testing.T) {
	weights := map[string]int{"a": 5, "b": 3, "c": 1}
	opts := []engine.Option{engine.WithConcurrency(1)}
	for name, w := range weights {
		opts = append(opts, engine.WithQueueConfig(name, engine.QueueConfig{Weight: w}))
	}
	t.Run("P0.4 shares are those of the weights", func(t *testing.T) {
		inBubble(t, func(b *rig) {
			const total = 9_000
			started := make(map[string]int)
			n := 0
			b.Handle("x", func(_ context.Context, job *ojs.Job[any]) error {
				if n++; n <= total {
					started[job.Queue]++
				}
				return nil
			})
			for name, w := range weights {
				drafts := make([]ojs.Draft, total*w/9+100)
				for i := range drafts {
					drafts[i] = ojs.NewDraft("x", nil, ojs.WithQueue(name))
				}
				if _, err := b.EnqueueMany(b.ctx, drafts...); err != nil {
					t.Fatal(err)
				}
			}
			b.run()
			b.advance(time.Second)
			for name, w := range weights {
				share, want := float64(started[name])/total, float64(w)/9
				if share < want*0.999 || share > want*1.001 {
					t.Errorf("queue %s of weight %d: %.4f of the starts, want %.4f", name, w, share, want)
				}
			}
		}, opts...)
	})
	t.Run("P0.4 a queue that was empty takes its share, and no more", func(t *testing.T) {
		inBubble(t, func(b *rig) {
			var order []byte
			b.Handle("x", func(_ context.Context, job *ojs.Job[any]) error {
				order = append(order, job.Queue[0])
				return nil
			})
			b.run()
			for range 20 {
				b.enqueue("x", ojs.WithQueue("c"))
			}
			b.advance(time.Second)
			order = nil
			for range 12 {
				b.enqueue("x", ojs.WithQueue("a"), ojs.WithDelay(time.Second))
				b.enqueue("x", ojs.WithQueue("c"), ojs.WithDelay(time.Second))
			}
			b.advance(2 * time.Second)
			if len(order) != 24 || slices.Index(order, 'c') > 5 {
				t.Errorf("order %s", order)
			}
		}, opts...)
	})
	t.Run("P0.4 a queue that was empty is owed nothing, and every weight is served", func(t *testing.T) {
		inBubble(t, func(b *rig) {
			var order []byte
			b.Handle("x", func(_ context.Context, job *ojs.Job[any]) error {
				order = append(order, job.Queue[0])
				return nil
			})
			b.run()
			for range 20 {
				b.enqueue("x", ojs.WithQueue("c"))
			}
			b.advance(time.Second)
			order = nil
			if _, err := b.Queues().Pause(b.ctx, "a"); err != nil {
				t.Fatal(err)
			}
			for range 18 {
				b.enqueue("x", ojs.WithQueue("a"))
			}
			b.advance(time.Second)
			for range 8 {
				b.enqueue("x", ojs.WithQueue("b"))
				b.enqueue("x", ojs.WithQueue("c"))
			}
			b.advance(time.Second)
			order = nil
			for range 9 {
				b.enqueue("x", ojs.WithQueue("b"), ojs.WithDelay(time.Second))
				b.enqueue("x", ojs.WithQueue("c"), ojs.WithDelay(time.Second))
			}
			b.advance(time.Second / 2)
			if _, err := b.Queues().Resume(b.ctx, "a"); err != nil {
				t.Fatal(err)
			}
			b.advance(time.Second)
			// a alone, then b and c three to one
			if len(order) != 36 || string(order[:18]) != "aaaaaaaaaaaaaaaaaa" ||
				slices.Index(order[18:], 'c') > 3 {
				t.Errorf("order %s", order)
			}
		}, opts...)
	})
	t.Run("some weights are refused", func(t *testing.T) {
		_, err := engine.New[any](newMemory(t), engine.WithQueueConfig("a", engine.QueueConfig{Weight: 1}),
			engine.WithQueueConfig("b", engine.QueueConfig{}))
		wantInvalid(t, err, "weight")
	})
}
