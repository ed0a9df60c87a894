package engine_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/ojsengine/ojs"
	"github.com/ojsengine/ojs/engine"
	"github.com/ojsengine/ojs/engine/fetch"
	"github.com/ojsengine/ojs/event"
	"github.com/ojsengine/ojs/handler"
	"github.com/ojsengine/ojs/inspect"
	"github.com/ojsengine/ojs/internal/test/pace"
	"github.com/ojsengine/ojs/storage"
	"github.com/ojsengine/ojs/storage/memory"
)

// of lists the jobs of a type.
func (b *rig) of(jobType string) (list []*ojs.JobInfo) {
	b.t.Helper()
	for job, err := range b.Jobs().List(b.ctx, inspect.Filter{Types: []string{jobType}}) {
		must(b.t, err)
		list = append(list, job)
	}
	return list
}

// wantOf wants a number of jobs of a type, all in a state.
func (b *rig) wantOf(jobType string, n int, state ojs.State) []*ojs.JobInfo {
	b.t.Helper()
	list := b.of(jobType)
	for _, job := range list {
		if job.State != state {
			b.t.Errorf("%s %s is %s, want %s", jobType, job.ID, job.State, state)
		}
	}
	if len(list) != n {
		b.t.Errorf("%d jobs %s are stored, want %d", len(list), jobType, n)
	}
	return list
}

// plainMemory is a memory storage without optional abilities.
type plainMemory struct{ storage.Storage }

func TestThen(t *testing.T) {
	outcomes := map[string]struct {
		end    func(ctx context.Context) error
		stored int
		state  ojs.State // of the parent
	}{
		"completes": {func(context.Context) error { return nil }, 2, ojs.StateCompleted},
		"retries":   {func(context.Context) error { return errBoom }, 0, ojs.StateRetryable},
		"discards":  {func(context.Context) error { return ojs.Discard(errBoom) }, 0, ojs.StateDiscarded},
		"snoozes":   {func(context.Context) error { return ojs.Snooze(time.Hour) }, 0, ojs.StateRetryable},
		"panics":    {func(context.Context) error { panic("boom") }, 0, ojs.StateRetryable},
		"times out": {func(ctx context.Context) error { <-ctx.Done(); return context.Cause(ctx) }, 0,
			ojs.StateRetryable},
		"overruns": {func(context.Context) error { pace.Virtual(4 * time.Second); return nil }, 0,
			ojs.StateRetryable},
	}
	stores := map[string]func() storage.Storage{
		"memory": func() storage.Storage { return memory.New() },
		"plain":  func() storage.Storage { return plainMemory{memory.New()} },
	}
	for on, open := range stores {
		for how, o := range outcomes {
			t.Run("W024 stored if and only if the attempt completes: it "+how+", "+on, func(t *testing.T) {
				inBubbleOn(t, open(), func(b *rig) {
					b.handle("parent", func(ctx context.Context, _ *ojs.Job[any]) error {
						must(b.t, handler.Then(ctx, ojs.NewDraft("child", 1)))
						must(b.t, handler.Then(ctx, ojs.NewDraft("child", 2)))
						if len(b.of("child")) > 0 {
							t.Error("stored before the end of the attempt")
						}
						return o.end(ctx)
					})
					b.handle("child", nothing)
					b.run()
					id := b.enqueue("parent", noJitter, ojs.WithTimeout(time.Second),
						ojs.WithRetry(ojs.RetryPolicy{InitialInterval: time.Minute,
							Jitter: ojs.JitterOff})).ID
					b.advance(5 * time.Second)
					if got := b.job(id).State; got != o.state {
						t.Errorf("the parent is %s, want %s", got, o.state)
					}
					b.wantOf("child", o.stored, ojs.StateCompleted)
				}, engine.WithGracePeriod(time.Second))
			})
		}
	}
	t.Run("W024 a retry that completes stores its own, once", func(t *testing.T) {
		inBubble(t, func(b *rig) {
			b.handle("parent", func(ctx context.Context, job *ojs.Job[any]) error {
				must(b.t, handler.Then(ctx, ojs.NewDraft("child", job.Attempt)))
				if job.Attempt < 3 {
					return errBoom
				}
				return nil
			})
			b.run()
			b.enqueue("parent", noJitter)
			b.advance(time.Minute)
			if got := b.wantOf("child", 1, ojs.StateAvailable); string(got[0].Args.JSON()) != "3" {
				t.Errorf("%s", got[0].Args.JSON())
			}
		})
	})
	t.Run("W024 a job that is cancelled or whose lease is lost stores none", func(t *testing.T) {
		inBubble(t, func(b *rig) {
			b.handle("parent", func(ctx context.Context, _ *ojs.Job[any]) error {
				must(b.t, handler.Then(ctx, ojs.NewDraft("child", nil)))
				<-ctx.Done()
				if err := handler.Then(ctx, ojs.NewDraft("child", nil)); !errors.Is(err, ojs.ErrCancelled) {
					t.Errorf("after the cancel: %v", err)
				}
				return nil
			})
			b.run()
			id := b.enqueue("parent").ID
			b.advance(time.Second)
			must(t, b.Cancel(b.ctx, id))
			b.advance(time.Second)
			b.want(id, ojs.StateCancelled, 1)
			b.wantOf("child", 0, "")
		})
	})
	t.Run("W024 times count from the end of the attempt", func(t *testing.T) {
		inBubble(t, func(b *rig) {
			at := b.start.Add(5 * time.Second)
			b.handle("parent", func(ctx context.Context, _ *ojs.Job[any]) error {
				must(b.t, handler.Then(ctx, ojs.NewDraft("delayed", nil, ojs.WithDelay(time.Minute)),
					ojs.NewDraft("brief", nil, ojs.WithTTL(time.Minute)),
					ojs.NewDraft("at", nil, ojs.WithScheduledAt(at)),
					ojs.NewDraft("waits", nil, ojs.WithPending())))
				return handler.Sleep(ctx, 10*time.Second)
			})
			b.run()
			b.enqueue("parent")
			b.advance(10 * time.Second)
			end := b.start.Add(10 * time.Second)
			if job := b.wantOf("delayed", 1, ojs.StateScheduled)[0]; !job.ScheduledAt.Equal(
				end.Add(time.Minute)) || !job.CreatedAt.Equal(end) {
				t.Errorf("delayed: %v, created %v", job.ScheduledAt, job.CreatedAt)
			}
			if job := b.wantOf("brief", 1, ojs.StateAvailable)[0]; !job.ExpiresAt.Equal(
				end.Add(time.Minute)) || !job.EnqueuedAt.Equal(end) {
				t.Errorf("brief: %v, enqueued %v", job.ExpiresAt, job.EnqueuedAt)
			}
			if job := b.wantOf("at", 1, ojs.StateAvailable)[0]; !job.ScheduledAt.Equal(at) ||
				!job.EnqueuedAt.Equal(end) {
				t.Errorf("at: %v, enqueued %v", job.ScheduledAt, job.EnqueuedAt)
			}
			b.wantOf("waits", 1, ojs.StatePending)
		})
	})
	t.Run("W024 the enqueue is told after the completion", func(t *testing.T) {
		inBubble(t, func(b *rig) {
			b.handle("parent", func(ctx context.Context, _ *ojs.Job[any]) error {
				return handler.Then(ctx,
					ojs.NewDraft("child", nil,
						ojs.WithUnique(ojs.UniquePolicy{OnConflict: ojs.ConflictReplace})))
			})
			b.enqueue("child", ojs.WithUnique(ojs.UniquePolicy{}))
			sub := b.Subscribe(engine.EventFilter{Types: jobEvents})
			defer sub.Close()
			b.enqueue("parent")
			b.run()
			b.advance(0)
			if got := names(received(sub)); got != "enqueued started completed cancelled enqueued" {
				t.Errorf("%s", got)
			}
		})
	})
}

func TestThenRefused(t *testing.T) {
	t.Run("what can be known is refused at the call", func(t *testing.T) {
		inBubble(t, func(b *rig) {
			b.Register(handler.For(ojs.Define[int]("typed"),
				func(context.Context, *ojs.Job[int]) error { return nil }))
			b.handle("parent", func(ctx context.Context, _ *ojs.Job[any]) error {
				wantInvalid(t, handler.Then(ctx, ojs.NewDraft("typed", "text")), "args")
				err := handler.Then(ctx, ojs.NewDraft("child", 1), ojs.NewDraft("Not A Type", 2))
				wantInvalid(t, err, "type")
				if err == nil || !strings.Contains(err.Error(), "draft 2 of 2") {
					t.Errorf("%v", err)
				}
				if err := handler.Then(storage.WithTx(ctx, "a transaction"),
					ojs.NewDraft("child", 1)); !errors.Is(err, ojs.ErrUnsupported) {
					t.Errorf("in a transaction: %v", err)
				}
				return handler.Then(ctx)
			})
			b.run()
			id := b.enqueue("parent").ID
			b.advance(0)
			b.want(id, ojs.StateCompleted, 1)
			b.wantOf("child", 0, "")
		})
		if err := handler.Then(t.Context(), ojs.NewDraft("child", 1)); err != handler.ErrNoAttempt {
			t.Errorf("outside of an attempt: %v", err)
		}
	})
	t.Run("a full queue fails the attempt, and the retry has room", func(t *testing.T) {
		for _, overflow := range []engine.Overflow{engine.OverflowReject, engine.OverflowBlock} {
			inBubble(t, func(b *rig) {
				b.handle("parent", func(ctx context.Context, _ *ojs.Job[any]) error {
					return handler.Then(ctx, ojs.NewDraft("free", nil),
						ojs.NewDraft("child", nil, ojs.WithQueue("small")))
				})
				other := b.enqueue("other", ojs.WithQueue("small")).ID
				b.run()
				id := b.enqueue("parent", noJitter).ID
				b.advance(0)
				if job := b.want(id, ojs.StateRetryable, 1); job.Error == nil ||
					!strings.Contains(job.Error.Message, "small") {
					t.Errorf("%v", job.Error)
				}
				b.wantOf("child", 0, "")
				b.wantOf("free", 0, "")
				must(t, b.Cancel(b.ctx, other))
				b.advance(time.Minute)
				b.want(id, ojs.StateCompleted, 2)
				b.wantOf("child", 1, ojs.StateAvailable)
			}, engine.WithQueueConfig("small", engine.QueueConfig{MaxDepth: 1, Overflow: overflow}),
				engine.WithQueueConfig("default", engine.QueueConfig{}))
		}
	})
	t.Run("an equal job fails the attempt unless it is ignored", func(t *testing.T) {
		inBubble(t, func(b *rig) {
			once := ojs.WithUnique(ojs.UniquePolicy{})
			b.handle("rejects", func(ctx context.Context, _ *ojs.Job[any]) error {
				return handler.Then(ctx, ojs.NewDraft("child", nil, once))
			})
			b.handle("ignores", func(ctx context.Context, _ *ojs.Job[any]) error {
				return handler.Then(ctx,
					ojs.NewDraft("child", nil,
						ojs.WithUnique(ojs.UniquePolicy{OnConflict: ojs.ConflictIgnore})))
			})
			b.handle("again", func(ctx context.Context, job *ojs.Job[any]) error {
				if b.ran() > 8 {
					return nil
				}
				return handler.Then(ctx, ojs.NewDraft("again", nil, once))
			})
			b.enqueue("child", once)
			b.run()
			rejects, ignores := b.enqueue("rejects", ojs.WithMaxAttempts(1)).ID, b.enqueue("ignores").ID
			b.enqueue("again", once)
			b.advance(time.Minute)
			b.want(rejects, ojs.StateDiscarded, 1)
			b.want(ignores, ojs.StateCompleted, 1)
			b.wantOf("child", 1, ojs.StateAvailable)
			if n := len(b.of("again")); n < 3 { // the job that ends is not in the way of its successor
				t.Errorf("%d jobs in the chain", n)
			}
		})
	})
	t.Run("a batch of jobs has none, each of its jobs may", func(t *testing.T) {
		inBubble(t, func(b *rig) {
			b.Register(handler.ForBatch(ojs.Define[int]("batch"),
				func(ctx context.Context, jobs []*ojs.Job[int]) []error {
					err := handler.Then(ctx, ojs.NewDraft("child", nil))
					if !errors.Is(err, ojs.ErrUnsupported) {
						t.Errorf("%v", err)
					}
					errs := make([]error, len(jobs))
					for i, job := range jobs {
						must(b.t, handler.Then(handler.JobContext(ctx, job), ojs.NewDraft("child", job.Args)))
						if job.Args == 2 {
							errs[i] = ojs.Permanent(errBoom)
						}
					}
					return errs
				}, handler.WithBatch(3, time.Second)))
			b.run()
			for i := range 3 {
				must1(b.Enqueue(b.ctx, "batch", i+1))
			}
			b.advance(2 * time.Second)
			b.wantOf("child", 2, ojs.StateAvailable)
		})
	})
	t.Run("an enqueue hook leaves a job out", func(t *testing.T) {
		inBubble(t, func(b *rig) {
			b.handle("parent", func(ctx context.Context, _ *ojs.Job[any]) error {
				return handler.Then(ctx, ojs.NewDraft("dropped", nil), ojs.NewDraft("child", nil))
			})
			b.run()
			id := b.enqueue("parent").ID
			b.advance(0)
			b.want(id, ojs.StateCompleted, 1)
			b.wantOf("dropped", 0, "")
			if child := b.wantOf("child", 1, ojs.StateAvailable); child[0].Meta["hook"] != true {
				t.Errorf("%v", child[0].Meta)
			}
		}, engine.WithEnqueueHook(func(_ context.Context, job *ojs.Job[any]) error {
			job.Meta["hook"] = true
			if job.Type == "dropped" {
				return ojs.ErrDropped
			}
			return nil
		}))
	})
}

// A settle that is made again after an unclear answer stores nothing twice.
func TestThenAfterAnUnclearAnswer(t *testing.T) {
	for _, after := range []bool{false, true} {
		calls := 0
		store := hooked(breaks("Settle", after, func() bool { calls++; return calls <= 3 }))
		inBubbleOn(t, store, func(b *rig) {
			b.handle("parent", func(ctx context.Context, _ *ojs.Job[any]) error {
				return handler.Then(ctx, ojs.NewDraft("child", nil))
			})
			sub := b.Subscribe(engine.EventFilter{Types: []event.Type{"job.completed", "job.enqueued"}})
			defer sub.Close()
			b.run()
			id := b.enqueue("parent").ID
			b.advance(time.Minute)
			b.want(id, ojs.StateCompleted, 1)
			b.wantOf("child", 1, ojs.StateAvailable)
			if got := names(received(sub)); got != "enqueued completed enqueued" {
				t.Errorf("after the work %t: %s", after, got)
			}
		})
	}
	t.Run("and a refusal found late fails the attempt", func(t *testing.T) {
		calls := 0
		store := hooked(breaks("Settle", false, func() bool { calls++; return calls <= 2 }))
		inBubbleOn(t, store, func(b *rig) {
			b.handle("parent", func(ctx context.Context, job *ojs.Job[any]) error {
				if job.Attempt > 1 {
					return nil
				}
				return handler.Then(ctx, ojs.NewDraft("child", nil, ojs.WithUnique(ojs.UniquePolicy{})))
			})
			b.enqueue("child", ojs.WithUnique(ojs.UniquePolicy{}))
			b.run()
			id := b.enqueue("parent", noJitter).ID
			b.advance(time.Minute)
			if job := b.want(id, ojs.StateCompleted, 2); len(job.Errors) != 1 {
				t.Errorf("%v", job.Errors)
			}
			b.wantOf("child", 1, ojs.StateAvailable)
		})
	})
}

func TestAckThen(t *testing.T) {
	inBubble(t, func(b *rig) {
		b.run()
		w := b.Worker("w1", fetch.Config{Types: []string{"parent"}})
		once := ojs.WithUnique(ojs.UniquePolicy{})
		child := b.enqueue("child", once).ID
		id := b.enqueue("parent").ID
		d := fetched(b, w)
		wantInvalid(t, d.Ack(b.ctx, nil, ojs.NewDraft("Not A Type", nil)), "type")
		if err := d.Ack(b.ctx, 1, ojs.NewDraft("child", nil, once)); !errors.Is(err, ojs.ErrDuplicate) {
			t.Errorf("a duplicate: %v", err)
		}
		b.want(id, ojs.StateActive, 1)
		must(t, d.Heartbeat(b.ctx))
		must(t, b.Cancel(b.ctx, child))
		must(t, d.Ack(b.ctx, 2, ojs.NewDraft("child", nil, once), ojs.NewDraft("other", nil)))
		if job := b.want(id, ojs.StateCompleted, 1); string(job.Result) != "2" {
			t.Errorf("%s", job.Result)
		}
		b.wantOf("other", 1, ojs.StateAvailable)
		b.enqueue("parent")
		d = fetched(b, w)
		must(t, d.Fail(b.ctx, errBoom))
		if err := d.Ack(b.ctx, nil, ojs.NewDraft("late", nil)); !errors.Is(err, ojs.ErrLeaseLost) {
			t.Errorf("after the end: %v", err)
		}
		b.wantOf("late", 0, "")
	})
	t.Run("an answer that was lost", func(t *testing.T) {
		calls := 0
		store := hooked(breaks("Settle", true, func() bool { calls++; return calls == 1 }))
		inBubbleOn(t, store, func(b *rig) {
			w := b.Worker("w1", fetch.Config{Types: []string{"parent"}})
			id := b.enqueue("parent").ID
			d := fetched(b, w)
			if err := d.Ack(b.ctx, nil, ojs.NewDraft("child", nil)); !errors.Is(err, errStorage) {
				t.Errorf("%v", err)
			}
			must(t, d.Ack(b.ctx, nil, ojs.NewDraft("child", nil)))
			b.want(id, ojs.StateCompleted, 1)
			b.wantOf("child", 1, ojs.StateAvailable)
		})
	})
}

func TestEnqueuer(t *testing.T) {
	inBubble(t, func(b *rig) {
		child := ojs.Define[int]("child")
		b.handle("parent", func(ctx context.Context, _ *ojs.Job[any]) error {
			ticket, err := child.Enqueue(ctx, handler.Enqueuer(ctx), 1)
			must(t, err)
			b.want(ticket.ID, ojs.StateAvailable, 0)
			return ojs.Permanent(errBoom)
		})
		b.run()
		b.enqueue("parent")
		b.advance(0)
		b.wantOf("child", 1, ojs.StateAvailable)
		if _, err := child.Enqueue(b.ctx, handler.Enqueuer(b.ctx), 1); err != handler.ErrNoAttempt {
			t.Errorf("outside of an attempt: %v", err)
		}
	})
}

// Engines that work side by side store what follows each job once.
func TestThenUnderLoad(t *testing.T) {
	const jobs = 500
	store := memory.New()
	var engines []*engine.Engine[int]
	for range 2 {
		eng, err := engine.New[int](store, quiet, engine.WithConcurrency(4), keepAll)
		must(t, err)
		eng.Handle("parent", func(ctx context.Context, job *ojs.Job[int]) error {
			return handler.Then(ctx, ojs.NewDraft("child", job.Args))
		})
		eng.Handle("child", func(context.Context, *ojs.Job[int]) error { return nil })
		engines = append(engines, eng)
		defer started(t, eng)()
	}
	for i := range jobs {
		_, err := engines[i%2].Enqueue(t.Context(), "parent", i)
		must(t, err)
	}
	late := time.Now().Add(time.Minute)
	for ended := 0; ended < 2*jobs; {
		for _, eng := range engines {
			must(t, eng.WaitIdle(t.Context()))
		}
		stats, err := engines[0].Stats(t.Context())
		must(t, err)
		if ended = stats.Total[ojs.StateCompleted]; time.Now().After(late) {
			t.Fatalf("%+v", stats)
		}
	}
	seen := make(map[string]int)
	for job, err := range engines[0].Jobs().List(t.Context(), inspect.Filter{Types: []string{"child"}}) {
		must(t, err)
		seen[string(job.Args.JSON())]++
	}
	for args, n := range seen {
		if n != 1 {
			t.Errorf("%d children of the parent %s", n, args)
		}
	}
	if len(seen) != jobs {
		t.Errorf("%d children", len(seen))
	}
}
