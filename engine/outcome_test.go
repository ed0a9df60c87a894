package engine_test

import (
	"context"
	"encoding/json"
	"fmt"
	"math"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/ojsengine/ojs"
	"github.com/ojsengine/ojs/engine"
	"github.com/ojsengine/ojs/engine/fetch"
	"github.com/ojsengine/ojs/handler"
	"github.com/ojsengine/ojs/inspect"
	"github.com/ojsengine/ojs/policy"
)

func explode() { panic(fmt.Sprintf("boom %d", 7)) }

func TestOutcomes(t *testing.T) {
	tests := []struct {
		name   string
		f      func(ctx context.Context, job *ojs.Job[any]) error
		reason ojs.Reason
		typ    string
		says   string
	}{
		{"D002 panic", func(context.Context, *ojs.Job[any]) error { explode(); return nil },
			ojs.ReasonHandlerPanic, policy.ErrorTypePanic, "boom 7"},
		{"Goexit", func(context.Context, *ojs.Job[any]) error { runtime.Goexit(); return nil },
			ojs.ReasonHandlerPanic, policy.ErrorTypeGoexit, "Goexit"},
		{"typed nil", func(context.Context, *ojs.Job[any]) error { var e *ojs.Error; return e },
			ojs.ReasonHandlerError, policy.ErrorTypeError, "nil *ojs.Error"},
		{"Error method panics", func(context.Context, *ojs.Job[any]) error { return panickyError{} },
			ojs.ReasonHandlerError, policy.ErrorTypeError, "panicked"},
		{"result does not encode",
			func(ctx context.Context, _ *ojs.Job[any]) error { return handler.SetResult(ctx, math.Inf(1)) },
			ojs.ReasonHandlerError, policy.ErrorTypeError, "result"},
		{"D001 plain error", func(context.Context, *ojs.Job[any]) error { return errBoom },
			ojs.ReasonHandlerError, policy.ErrorTypeError, "boom"},
		{"A071 typed error",
			func(context.Context, *ojs.Job[any]) error { return ojs.Errorf("a.b", "it %s", "broke") },
			ojs.ReasonHandlerError, "a.b", "it broke"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			inBubble(t, func(b *rig) {
				b.handle("x", tt.f)
				b.run()
				ticket := b.enqueue("x", ojs.WithMaxAttempts(1))
				b.advance(0)
				job := b.want(ticket.ID, ojs.StateDiscarded, 1)
				f := job.Error
				if f.Reason != tt.reason || f.Type != tt.typ || !strings.Contains(f.Message, tt.says) {
					t.Errorf("failure %+v", f)
				}
				if tt.typ == policy.ErrorTypePanic && (len(f.Backtrace) == 0 || len(f.Backtrace) > 50 ||
					!strings.Contains(f.Backtrace[0], "explode")) {
					t.Errorf("backtrace %q", f.Backtrace)
				}
				again := b.enqueue("x") // the slot has survived
				b.advance(time.Minute)
				b.want(again.ID, ojs.StateDiscarded, 3)
			}, engine.WithConcurrency(1))
		})
	}
	t.Run("reading 58 args that do not decode become a dead letter at once", func(t *testing.T) {
		inBubble(t, func(b *rig) {
			b.Register(handler.For(sendEmail,
				func(context.Context, *ojs.Job[email]) error { t.Error("called"); return nil }))
			b.run()
			tickets, err := b.EnqueueMany(b.ctx, ojs.NewDraft("email.send", json.RawMessage(`{"To":17}`)))
			if err != nil {
				t.Fatal(err)
			}
			b.advance(0)
			job := b.want(tickets[0].ID, ojs.StateDiscarded, 1)
			if !job.DeadLettered() || job.Error.Type != policy.ErrorTypeArgs {
				t.Errorf("dead-lettered %v, failure %+v", job.DeadLettered(), job.Error)
			}
		})
	})
	t.Run("a result only if the attempt completes the job", func(t *testing.T) {
		inBubble(t, func(b *rig) {
			b.handle("x", func(ctx context.Context, job *ojs.Job[any]) error {
				if err := handler.SetResult(ctx, job.Attempt); err != nil {
					return err
				}
				if job.Attempt == 1 {
					return errBoom
				}
				return nil
			})
			b.run()
			ticket := b.enqueue("x", noJitter)
			b.advance(500 * time.Millisecond)
			if job := b.want(ticket.ID, ojs.StateRetryable, 1); job.Result != nil {
				t.Errorf("result %s of a failed attempt", job.Result)
			}
			var n int
			if err := ticket.Result(b.ctx, &n); err != nil || n != 2 {
				t.Errorf("result %d, %v", n, err)
			}
		})
	})
}

func TestDeadLetters(t *testing.T) {
	deadLetter := ojs.WithRetry(ojs.RetryPolicy{MaxAttempts: 1, OnExhaustion: ojs.ExhaustionDeadLetter})
	t.Run("A010 P0.7 listed in the order of their death, with filters", func(t *testing.T) {
		inBubble(t, func(b *rig) {
			for _, typ := range []string{"a", "b"} {
				b.handle(typ, func(context.Context, *ojs.Job[any]) error { return errBoom })
			}
			b.run()
			late := b.enqueue("a", deadLetter, ojs.WithDelay(time.Second))
			early := b.enqueue("b", deadLetter, ojs.WithQueue("q"))
			b.advance(time.Minute)
			if got := b.deadLetters(); len(got) != 2 || got[0] != early.ID || got[1] != late.ID {
				t.Errorf("listed %v", got)
			}
			for _, f := range []inspect.Filter{{Types: []string{"b"}}, {Queues: []string{"q"}}} {
				n := 0
				for job, err := range b.DeadLetters().List(b.ctx, f) {
					if n++; err != nil || job.ID != early.ID {
						t.Errorf("%+v lists %v, %v", f, job, err)
					}
				}
				if n != 1 {
					t.Errorf("%+v lists %d", f, n)
				}
			}
			for range b.DeadLetters().List(b.ctx, inspect.Filter{}) {
				break
			}
		})
	})
	t.Run("P0.7 reading 23 retried: same id, attempt 0, errors kept", func(t *testing.T) {
		inBubble(t, func(b *rig) {
			healed := false
			b.handle("x", func(context.Context, *ojs.Job[any]) error {
				if healed {
					return nil
				}
				return errBoom
			})
			b.run()
			ticket := b.enqueue("x", deadLetter, ojs.WithMeta("kept", 1))
			b.advance(time.Minute)
			if err := b.DeadLetters().Retry(b.ctx, ticket.ID); err != nil {
				t.Fatal(err)
			}
			b.advance(time.Minute)
			if job := b.want(ticket.ID, ojs.StateDiscarded, 1); len(job.Errors) != 2 || !job.DeadLettered() {
				t.Errorf("errors %+v, dead-lettered %v", job.Errors, job.DeadLettered())
			}
			healed = true
			err := b.DeadLetters().Retry(b.ctx, ticket.ID, ojs.WithQueue("slow"), ojs.WithMaxAttempts(5),
				ojs.WithMeta("more", true))
			if err != nil {
				t.Fatal(err)
			}
			job, err := ticket.Wait(b.ctx)
			if err != nil {
				t.Fatal(err)
			}
			if job.Queue != "slow" || job.MaxAttempts != 5 || job.Meta["kept"] != 1.0 ||
				job.Meta["more"] != true || job.Attempt != 1 ||
				job.DeadLettered() || job.Error != nil || !job.CreatedAt.Equal(b.start) ||
				!job.EnqueuedAt.Equal(b.start.Add(2*time.Minute)) {
				t.Errorf("job %+v", job)
			}
			if len(b.deadLetters()) != 0 {
				t.Error("still among the dead letters")
			}
		})
	})
	t.Run("P0.7 a deadline that has passed no longer holds", func(t *testing.T) {
		inBubble(t, func(b *rig) {
			b.handle("x", func(context.Context, *ojs.Job[any]) error {
				if len(b.times()) < 2 {
					return errBoom
				}
				return nil
			})
			b.run()
			ticket := b.enqueue("x", deadLetter, ojs.WithTTL(time.Minute), ojs.WithTotalTimeout(time.Hour))
			b.advance(2 * time.Hour)
			if err := b.DeadLetters().Retry(b.ctx, ticket.ID); err != nil {
				t.Fatal(err)
			}
			b.advance(0)
			b.want(ticket.ID, ojs.StateCompleted, 1)
		})
	})
	t.Run("P0.7 another total timeout cuts the default timeout anew", func(t *testing.T) {
		inBubble(t, func(b *rig) {
			total, timeout := ojs.WithTotalTimeout, ojs.WithTimeout
			for _, tt := range []struct {
				first, again   []ojs.Option
				total, timeout time.Duration // 0: refused
			}{
				{[]ojs.Option{total(10 * time.Minute)}, []ojs.Option{total(5 * time.Minute)}, 5 * time.Minute,
					5 * time.Minute},
				{[]ojs.Option{total(10 * time.Minute)}, []ojs.Option{total(time.Hour)}, time.Hour,
					ojs.DefaultTimeout},
				{[]ojs.Option{total(10 * time.Minute)},
					[]ojs.Option{total(time.Hour), timeout(10 * time.Minute)}, time.Hour, 10 * time.Minute},
				{[]ojs.Option{total(10 * time.Minute)}, nil, 10 * time.Minute, 10 * time.Minute},
				{[]ojs.Option{total(time.Hour), timeout(time.Hour)}, nil, time.Hour, time.Hour},
				{nil, []ojs.Option{total(5 * time.Minute)}, 5 * time.Minute, 5 * time.Minute},
				{[]ojs.Option{total(10 * time.Minute), timeout(6 * time.Minute)},
					[]ojs.Option{total(5 * time.Minute)}, 0, 0},
			} {
				id := b.enqueue("x", append(tt.first, deadLetter)...).ID
				w := b.Worker("w", fetch.Config{})
				must(t, fetched(b, w).Fail(b.ctx, errBoom))
				err := b.DeadLetters().Retry(b.ctx, id, tt.again...)
				if tt.timeout == 0 {
					wantInvalid(t, err, "total_timeout")
					continue
				}
				must(t, err)
				if job := b.job(id); job.TotalTimeout != tt.total || job.Timeout != tt.timeout {
					t.Errorf("total timeout %v, timeout %v, want %v, %v", job.TotalTimeout, job.Timeout,
						tt.total, tt.timeout)
				}
				must(t, fetched(b, w).Ack(b.ctx, nil))
			}
		})
	})
	t.Run("refusals", func(t *testing.T) {
		inBubble(t, func(b *rig) {
			b.handle("x", func(context.Context, *ojs.Job[any]) error { return errBoom })
			discarded := b.enqueue("x", ojs.WithMaxAttempts(1))
			dead := b.enqueue("x", deadLetter)
			b.run()
			b.advance(0)
			d := b.DeadLetters()
			for what, tt := range map[string]struct{ err, want error }{
				"retry of a discarded job":  {d.Retry(b.ctx, discarded.ID), ojs.ErrTransition},
				"delete of a discarded job": {d.Delete(b.ctx, discarded.ID), ojs.ErrTransition},
				"retry of nothing":          {d.Retry(b.ctx, "nope"), ojs.ErrNotFound},
				"delete of nothing":         {d.Delete(b.ctx, "nope"), ojs.ErrNotFound},
				"retry later": {d.Retry(b.ctx, dead.ID, ojs.WithDelay(time.Hour)),
					ojs.ErrInvalid},
				"retry under another id": {d.Retry(b.ctx, dead.ID,
					ojs.WithID("01890a5d-ac96-774b-bcce-b302099a8057")), ojs.ErrInvalid},
				"retry with a bad policy": {d.Retry(b.ctx, dead.ID,
					ojs.WithRetry(ojs.RetryPolicy{InitialInterval: time.Hour})), ojs.ErrInvalid},
				"retry with a bad meta": {d.Retry(b.ctx, dead.ID, ojs.WithMeta("f", func() {})),
					ojs.ErrInvalid},
			} {
				if !strings.HasPrefix(fmt.Sprint(tt.err), "ojs: ") || !isErr(tt.err, tt.want) {
					t.Errorf("%s: %v, want %v", what, tt.err, tt.want)
				}
			}
			b.want(dead.ID, ojs.StateDiscarded, 1)
		})
	})
	t.Run("deleted", func(t *testing.T) {
		inBubble(t, func(b *rig) {
			b.handle("x", func(context.Context, *ojs.Job[any]) error { return errBoom })
			dead := b.enqueue("x", deadLetter)
			b.run()
			if err := b.DeadLetters().Delete(b.ctx, dead.ID); err != nil {
				t.Fatal(err)
			}
			if _, err := b.Get(b.ctx, dead.ID); !isErr(err, ojs.ErrPruned) {
				t.Errorf("Get: %v", err)
			}
		})
	})
}
