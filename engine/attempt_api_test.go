package engine_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/ojsengine/ojs"
	"github.com/ojsengine/ojs/engine"
	"github.com/ojsengine/ojs/event"
	"github.com/ojsengine/ojs/handler"
	"github.com/ojsengine/ojs/internal/test/pace"
	"github.com/ojsengine/ojs/storage"
	"github.com/ojsengine/ojs/storage/storagetest"
)

func TestProgress(t *testing.T) {
	inBubble(t, func(b *rig) {
		sub := b.Subscribe(engine.EventFilter{Types: []event.Type{event.Progress}})
		defer sub.Close()
		report := func(ctx context.Context, values ...float64) {
			for _, v := range values {
				handler.Progress(ctx, v)
			}
		}
		stored := func(job *ojs.Job[any]) float64 { return b.job(job.ID).Progress }
		b.handle("x", func(ctx context.Context, job *ojs.Job[any]) error {
			if job.Attempt == 2 {
				if got := stored(job); got != 0 {
					t.Errorf("P1.3: the second attempt began at %v", got)
				}
				report(ctx, 0.1)
				pace.Virtual(10 * time.Millisecond)
				return nil
			}
			report(ctx, 0.2, 0.1, math.NaN(), -1)
			pace.Virtual(10 * time.Millisecond)
			if got := stored(job); got != 0.2 {
				t.Errorf("P1.3: stored %v, want 0.2", got)
			}
			report(ctx, 0.3, 0.5)
			pace.Virtual(500 * time.Millisecond)
			if got := stored(job); got != 0.2 {
				t.Errorf("P1.3: stored %v within a second", got)
			}
			pace.Virtual(500 * time.Millisecond)
			if got := stored(job); got != 0.5 {
				t.Errorf("P1.3: stored %v, want 0.5", got)
			}
			report(ctx, 0.6, 7)
			return errBoom
		})
		b.run()
		id := b.enqueue("x", noJitter).ID
		b.advance(1500 * time.Millisecond)
		if job := b.want(id, ojs.StateRetryable, 1); job.Progress != 1 {
			t.Errorf("P1.3: a failed attempt keeps %v", job.Progress)
		}
		b.advance(time.Minute)
		if job := b.want(id, ojs.StateCompleted, 2); job.Progress != 1 {
			t.Errorf("P1.3: completed at %v", job.Progress)
		}
		var got []any
		for _, ev := range received(sub) {
			got = append(got, ev.Data()["progress_percent"])
		}
		if want := []any{20.0, 50.0, 10.0}; !reflect.DeepEqual(got, want) {
			t.Errorf("P1.3: events %v, want %v", got, want)
		}
		handler.Progress(b.ctx, 0.5) // outside of an attempt: nothing
	})
}

func TestHeartbeat(t *testing.T) {
	t.Run("P0.6 renews the lease at once", func(t *testing.T) {
		inBubble(t, func(b *rig) {
			b.handle("x", func(ctx context.Context, job *ojs.Job[any]) error {
				before, err := b.store.Get(ctx, job.ID)
				must(t, err)
				pace.Virtual(time.Second)
				must(t, handler.Heartbeat(ctx))
				after, err := b.store.Get(ctx, job.ID)
				must(t, err)
				if d := after.LeaseUntil.Sub(before.LeaseUntil); d != time.Second {
					t.Errorf("the lease grew by %v", d)
				}
				return nil
			})
			b.run()
			sub := b.Subscribe(engine.EventFilter{Types: []event.Type{event.Heartbeat}})
			defer sub.Close()
			id := b.enqueue("x").ID
			b.advance(time.Minute)
			b.want(id, ojs.StateCompleted, 1)
			if events := received(sub); len(events) != 1 || events[0].WorkerID == "" {
				t.Errorf("%v", events)
			}
		})
	})
	t.Run("P0.6 tells who has lost the job", func(t *testing.T) {
		for name, c := range map[string]struct {
			hides bool // the storage tells engines nothing of each other
			cause error
		}{"at once": {false, ojs.ErrCancelled}, "when it looks": {true, ojs.ErrLeaseLost}} {
			t.Run(name, func(t *testing.T) {
				inBubble(t, func(b *rig) {
					other, err := engine.New[any](b.store, quiet)
					must(t, err)
					var got, saved error
					if c.hides {
						b.Engine, err = engine.New[any](struct{ storage.Storage }{b.store}, quiet)
						must(t, err)
					}
					b.handle("x", func(ctx context.Context, job *ojs.Job[any]) error {
						must(t, other.Cancel(b.ctx, job.ID))
						got, saved = handler.Heartbeat(ctx), handler.SaveCheckpoint(ctx, 1)
						if context.Cause(ctx) != c.cause {
							t.Errorf("cause %v", context.Cause(ctx))
						}
						return nil
					})
					b.run()
					id := b.enqueue("x").ID
					b.advance(time.Minute)
					b.want(id, ojs.StateCancelled, 1)
					if !errors.Is(got, c.cause) || !errors.Is(saved, c.cause) {
						t.Errorf("%v, %v", got, saved)
					}
				})
			})
		}
	})
	t.Run("outside of an attempt", func(t *testing.T) {
		_, err := handler.LoadCheckpoint(t.Context(), nil)
		for _, err := range []error{handler.Heartbeat(t.Context()),
			handler.SaveCheckpoint(t.Context(), 1), err} {
			if !errors.Is(err, handler.ErrNoAttempt) {
				t.Errorf("%v", err)
			}
		}
	})
}

func TestCheckpoints(t *testing.T) {
	type place struct{ Row int }
	t.Run("P1.3 survive failures, shutdowns and crashes, and go when the job ends", func(t *testing.T) {
		inBubble(t, func(b *rig) {
			var rows []string
			b.handle("x", func(ctx context.Context, job *ojs.Job[any]) error {
				var at place
				found, err := handler.LoadCheckpoint(ctx, &at)
				must(t, err)
				rows = append(rows, fmt.Sprint(found, at.Row))
				must(t, handler.SaveCheckpoint(ctx, place{at.Row + 1}))
				must(t, handler.SaveCheckpoint(ctx, place{at.Row + 10}))
				before := at.Row
				if found, err := handler.LoadCheckpoint(ctx, &at); !found || err != nil ||
					at.Row != before+10 {
					t.Errorf("an attempt reads its own: %v %v %v", found, at, err)
				}
				switch len(rows) {
				case 1:
					return errBoom
				case 2:
					<-ctx.Done() // shutdown
					must(t, handler.SaveCheckpoint(ctx, place{25}))
					return ctx.Err()
				case 3:
					return ojs.Snooze(time.Second)
				}
				return nil
			})
			b.run()
			id := b.enqueue("x", noJitter).ID
			b.advance(2 * time.Second)
			b.halt()
			b.run()
			b.advance(time.Minute)
			b.want(id, ojs.StateCompleted, 2)
			if want := []string{"false 0", "true 10", "true 25", "true 35"}; !reflect.DeepEqual(rows, want) {
				t.Errorf("%v, want %v", rows, want)
			}
			if rec, err := b.store.Get(b.ctx, id); err != nil || rec.Checkpoint != nil {
				t.Errorf("left behind: %s, %v", rec.Checkpoint, err)
			}
		}, engine.WithGracePeriod(0))
	})
	t.Run("P1.3 one that does not encode or is too large is refused, and the one before stays", func(t *testing.T) {
		inBubble(t, func(b *rig) {
			b.handle("x", func(ctx context.Context, _ *ojs.Job[any]) error {
				must(t, handler.SaveCheckpoint(ctx, 1))
				for _, v := range []any{func() {}, strings.Repeat("x", 1<<20)} {
					if err := handler.SaveCheckpoint(ctx, v); err == nil {
						t.Errorf("%T was saved", v)
					}
				}
				var n int
				if found, err := handler.LoadCheckpoint(ctx, &n); !found || err != nil || n != 1 {
					t.Errorf("%v %v %v", found, n, err)
				}
				var wrong []string
				if _, err := handler.LoadCheckpoint(ctx, &wrong); err == nil {
					t.Error("decoded into something else")
				}
				return nil
			})
			b.run()
			id := b.enqueue("x").ID
			b.advance(time.Second)
			b.want(id, ojs.StateCompleted, 1)
		})
	})
	t.Run("P1.3 a storage that fails is an error, and the job goes on", func(t *testing.T) {
		inBubble(t, func(b *rig) {
			f := &storagetest.Faulty{Storage: b.store}
			eng, err := engine.New[any](f, quiet)
			must(t, err)
			eng.Handle("x", func(ctx context.Context, _ *ojs.Job[any]) error {
				failures := 1
				f.OnCall(breaks("Extend", false, func() bool { failures--; return failures >= 0 }))
				if err := handler.SaveCheckpoint(ctx, json.RawMessage("1")); err == nil {
					t.Error("saved by a storage that fails")
				}
				return handler.SaveCheckpoint(ctx, 2)
			})
			ctx, cancel := context.WithCancel(b.ctx)
			done := make(chan error, 1)
			go func() { done <- eng.Run(ctx) }()
			ticket, err := eng.Enqueue(ctx, "x", nil)
			must(t, err)
			if _, err := ticket.Wait(ctx); err != nil {
				t.Error(err)
			}
			cancel()
			must(t, <-done)
		})
	})
}
