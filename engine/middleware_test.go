package engine_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/ojsengine/ojs"
	"github.com/ojsengine/ojs/engine"
	"github.com/ojsengine/ojs/handler"
	"github.com/ojsengine/ojs/inspect"
	"github.com/ojsengine/ojs/policy"
)

func TestMiddleware(t *testing.T) {
	var log []string
	mark := func(name string) handler.Middleware {
		return func(ctx context.Context, job *ojs.JobHeader, next handler.Next) error {
			err := next(ctx)
			log = append(log, fmt.Sprintf("%s:%v", name, err))
			return err
		}
	}
	t.Run("P0.9 engine-wide outside of the handler's, panics are errors to both", func(t *testing.T) {
		log = nil
		inBubble(t, func(b *rig) {
			b.Handle("x", func(context.Context, *ojs.Job[any]) error { panic("no") },
				handler.WithMiddleware(mark("own")))
			b.run()
			id := b.enqueue("x", ojs.WithMaxAttempts(1)).ID
			b.advance(time.Second)
			job := b.want(id, ojs.StateDiscarded, 1)
			if job.Error.Type != policy.ErrorTypePanic || job.Error.Message != "panic: no" ||
				!strings.Contains(job.Error.Backtrace[0], "TestMiddleware") {
				t.Errorf("%+v", job.Error)
			}
			if got := strings.Join(log, " "); got != "inner:panic: no outer:panic: no" {
				t.Errorf("saw %q", got)
			}
		}, engine.WithMiddleware(mark("outer"), mark("inner")))
	})
	t.Run("P0.9 the middlewares of a chain, and a panic in one of them", func(t *testing.T) {
		log = nil
		panics := func(context.Context, *ojs.JobHeader, handler.Next) error { panic("no") }
		chain := handler.Chain{}.Add("mark", mark("m")).Add("panics", panics)
		inBubble(t, func(b *rig) {
			b.Handle("x", func(context.Context, *ojs.Job[any]) error { return nil })
			b.run()
			id := b.enqueue("x", ojs.WithMaxAttempts(1)).ID
			b.advance(time.Second)
			job := b.want(id, ojs.StateDiscarded, 1)
			if job.Error.Type != policy.ErrorTypePanic || log != nil {
				t.Errorf("%+v, %v", job.Error, log)
			}
		}, engine.WithMiddleware(chain.Middlewares()...))
	})
	t.Run("what a middleware returns decides", func(t *testing.T) {
		inBubble(t, func(b *rig) {
			b.handle("x", func(context.Context, *ojs.Job[any]) error { return errBoom })
			b.run()
			id := b.enqueue("x").ID
			b.advance(time.Second)
			if job := b.want(id, ojs.StateDiscarded, 1); job.Error.Code != ojs.CodeFail ||
				job.Error.Message != "wrapped: boom" {
				t.Errorf("%+v", job.Error)
			}
		}, engine.WithMiddleware(func(ctx context.Context, _ *ojs.JobHeader, next handler.Next) error {
			if err := next(ctx); err != nil {
				return ojs.Permanent(fmt.Errorf("wrapped: %w", err))
			}
			return nil
		}))
	})
	t.Run("args that do not decode stay a dead letter under middlewares", func(t *testing.T) {
		inBubble(t, func(b *rig) {
			b.Register(handler.For(ojs.Define[int]("text"),
				func(context.Context, *ojs.Job[int]) error { return nil }))
			bad, err := b.EnqueueMany(b.ctx, ojs.NewDraft("text", json.RawMessage(`"no number"`)))
			must(t, err)
			b.run()
			b.advance(time.Second)
			if job := b.want(bad[0].ID, ojs.StateDiscarded, 1); job.Error.Type != policy.ErrorTypeArgs ||
				!job.DeadLettered() {
				t.Errorf("%+v", job.Error)
			}
		}, engine.WithMiddleware(mark("m")))
	})
	t.Run("a timeout middleware ends the context and fails the attempt as a timeout", func(t *testing.T) {
		inBubble(t, func(b *rig) {
			b.handle("wait", func(ctx context.Context, _ *ojs.Job[any]) error {
				<-ctx.Done()
				if context.Cause(ctx) != ojs.ErrTimeout {
					t.Errorf("cause %v", context.Cause(ctx))
				}
				return ctx.Err()
			})
			b.handle("sleep",
				func(ctx context.Context, _ *ojs.Job[any]) error { return handler.Sleep(ctx, time.Hour) })
			b.handle("done", func(ctx context.Context, _ *ojs.Job[any]) error { <-ctx.Done(); return nil })
			b.handle("quick", func(ctx context.Context, _ *ojs.Job[any]) error { return errBoom })
			b.run()
			for typ, want := range map[string]string{
				"wait": policy.ErrorTypeTimeout, "sleep": policy.ErrorTypeTimeout,
				"done": "", "quick": policy.ErrorTypeError,
			} {
				at := b.elapsed()
				id := b.enqueue(typ, ojs.WithMaxAttempts(1)).ID
				b.advance(2 * time.Second)
				job := b.job(id)
				if want == "" && job.State == ojs.StateCompleted {
					continue
				}
				if job.Error == nil || job.Error.Type != want {
					t.Errorf("%s: %s, %+v", typ, job.State, job.Error)
				}
				if want == policy.ErrorTypeTimeout && (job.FinishedAt.Sub(b.start)-at != time.Second ||
					job.Error.Details["limit_seconds"] != 1.0) {
					t.Errorf("%s: at %v, %+v", typ, job.FinishedAt.Sub(b.start)-at, job.Error)
				}
			}
		}, engine.WithMiddleware(handler.Timeout(time.Second)))
	})
	t.Run("bad settings are refused", func(t *testing.T) {
		_, err := engine.New[any](newMemory(t), engine.WithMiddleware(nil))
		wantInvalid(t, err, "middleware")
		_, err = engine.New[any](newMemory(t), engine.WithEnqueueHook(nil))
		wantInvalid(t, err, "enqueue_hook")
	})
	t.Run("an error that wraps itself ends as any other", func(t *testing.T) {
		inBubble(t, func(b *rig) {
			b.handle("x", func(context.Context, *ojs.Job[any]) error {
				e := &ojs.Error{Type: "circle"}
				e.Err = &ojs.RetryAfterError{Err: e}
				return e
			})
			b.run()
			id := b.enqueue("x", ojs.WithMaxAttempts(1)).ID
			b.advance(time.Second)
			if job := b.want(id, ojs.StateDiscarded, 1); job.Error.Type != "circle" {
				t.Errorf("%+v", job.Error)
			}
		})
	})
}

func TestEnqueueHooks(t *testing.T) {
	type key struct{}
	t.Run("P0.9 change a job, in order, each of a batch", func(t *testing.T) {
		inBubble(t, func(b *rig) {
			tickets, err := b.EnqueueMany(context.WithValue(b.ctx, key{}, "t1"),
				ojs.NewDraft("x", 1, ojs.WithDelay(time.Minute)), ojs.NewDraft("x", 2,
					ojs.WithMeta("own", true)))
			must(t, err)
			for i, ticket := range tickets {
				job := b.job(ticket.ID)
				if job.Queue != "chosen" || job.Priority != 7 || job.Meta["tenant_id"] != "t1" ||
					job.Args.String() != fmt.Sprint((i+1)*10) || job.ID != ticket.ID {
					t.Errorf("%+v", job)
				}
			}
			if b.job(tickets[1].ID).Meta["own"] != true {
				t.Error("the caller's meta is gone")
			}
		}, engine.WithEnqueueHook(func(ctx context.Context, job *ojs.Job[any]) error {
			job.Meta["tenant_id"] = ctx.Value(key{})
			job.Queue, job.ID = "first", "other"
			if n := job.Args.(int); job.ScheduledAt.IsZero() == (n == 1) || job.MaxAttempts != 3 ||
				job.Type != "x" {
				t.Errorf("saw %+v", job)
			}
			return nil
		}, func(_ context.Context, job *ojs.Job[any]) error {
			if job.Queue != "first" {
				t.Errorf("queue %s", job.Queue)
			}
			job.Queue, job.Priority, job.Args = "chosen", 7, job.Args.(int)*10
			return nil
		}))
	})
	t.Run("P0.9 drop", func(t *testing.T) {
		inBubble(t, func(b *rig) {
			tickets, err := b.EnqueueMany(b.ctx, ojs.NewDraft("x", 1), ojs.NewDraft("drop", 2),
				ojs.NewDraft("x", 3))
			if err != nil || len(tickets) != 3 || !tickets[1].Dropped || tickets[0].Dropped ||
				b.job(tickets[2].ID).Args.String() != "3" {
				t.Errorf("%+v, %v", tickets, err)
			}
			if _, err := tickets[1].Wait(b.ctx); !errors.Is(err, ojs.ErrDropped) {
				t.Errorf("%v", err)
			}
			if _, err := b.Enqueue(b.ctx, "drop", nil); !errors.Is(err, ojs.ErrDropped) {
				t.Errorf("%v", err)
			}
			if _, err := ojs.Define[int]("drop").Enqueue(b.ctx, b, 1); !errors.Is(err, ojs.ErrDropped) {
				t.Errorf("%v", err)
			}
			if n := len(b.listed(inspect.Filter{})); n != 2 {
				t.Errorf("%d stored", n)
			}
		}, engine.WithEnqueueHook(func(_ context.Context, job *ojs.Job[any]) error {
			if job.Type == "drop" {
				return fmt.Errorf("not this one: %w", ojs.ErrDropped)
			}
			return nil
		}))
	})
	t.Run("P0.9 refuse, with the whole batch; a panic refuses too", func(t *testing.T) {
		inBubble(t, func(b *rig) {
			for _, typ := range []string{"refuse", "panic", "circle"} {
				if _, err := b.EnqueueMany(b.ctx, ojs.NewDraft("x", 1), ojs.NewDraft(typ, 2)); err == nil ||
					!strings.HasPrefix(err.Error(), "ojs: ") {
					t.Errorf("%v", err)
				}
			}
			if _, err := b.Enqueue(b.ctx, "refuse", nil); !errors.Is(err, errBoom) {
				t.Errorf("%v", err)
			}
			_, err := b.Enqueue(b.ctx, "bad", nil)
			wantInvalid(t, err, "queue")
			if n := len(b.listed(inspect.Filter{})); n != 0 {
				t.Errorf("%d stored", n)
			}
		}, engine.WithEnqueueHook(func(_ context.Context, job *ojs.Job[any]) error {
			switch job.Type {
			case "refuse":
				return errBoom
			case "panic":
				panic("no")
			case "circle":
				e := &ojs.Error{Type: "circle"}
				e.Err = e
				return e
			case "bad":
				job.Queue = "Not A Queue"
			}
			return nil
		}))
	})
	t.Run("a draft stays as it is", func(t *testing.T) {
		inBubble(t, func(b *rig) {
			d := ojs.NewDraft("x", 1, ojs.WithMeta("k", "v"))
			for range 2 {
				tickets, err := b.EnqueueMany(b.ctx, d)
				must(t, err)
				if meta := b.job(tickets[0].ID).Meta; !reflect.DeepEqual(meta,
					map[string]any{"k": "v", "n": 1.0}) {
					t.Errorf("meta %v", meta)
				}
			}
		}, engine.WithEnqueueHook(func(_ context.Context, job *ojs.Job[any]) error {
			n, _ := job.Meta["n"].(int)
			job.Meta["n"] = n + 1
			return nil
		}))
	})
}

// An enqueue hook learns the id of a job before that is stored. If another job is
// enqueued with that id then, only one of the two is stored.
func TestIDThatAHookGivesAway(t *testing.T) {
	var eng *engine.Engine[any]
	eng, err := engine.New[any](newMemory(t), quiet,
		engine.WithEnqueueHook(func(ctx context.Context, j *ojs.Job[any]) error {
			if j.Type != "first" {
				return nil
			}
			_, err := eng.Enqueue(ctx, "second", nil, ojs.WithID(j.ID))
			return err
		}))
	must(t, err)
	_, err = eng.Enqueue(t.Context(), "first", nil)
	if !errors.Is(err, ojs.ErrDuplicate) {
		t.Errorf("error %v, want a duplicate", err)
	}
	var jobs []string
	for j, err := range eng.Jobs().List(t.Context(), inspect.Filter{}) {
		must(t, err)
		jobs = append(jobs, j.Type)
	}
	if !slices.Equal(jobs, []string{"second"}) {
		t.Errorf("stored: %v", jobs)
	}
}
