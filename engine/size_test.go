package engine_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/ojsengine/ojs"
	"github.com/ojsengine/ojs/handler"
	"github.com/ojsengine/ojs/inspect"
	"github.com/ojsengine/ojs/internal/jsonvalue"
)

// A job that exceeds a limit is refused with the field and the reason. Nothing is stored,
// and the engine goes on.
func TestLimits(t *testing.T) {
	deep := func(n int) any {
		var v any = 1
		for range n {
			v = []any{v}
		}
		return v
	}
	str := func(n int) string { return strings.Repeat("x", n-2) } // n bytes of JSON
	envelope := func(b *rig, argsLen int) int {
		ticket, err := b.Enqueue(b.ctx, "y", str(argsLen))
		must(b.t, err)
		raw, err := json.Marshal(b.job(ticket.ID))
		must(b.t, err)
		must(b.t, b.Cancel(b.ctx, ticket.ID))
		must(b.t, b.Jobs().Delete(b.ctx, ticket.ID))
		return len(raw)
	}
	inBubble(t, func(b *rig) {
		b.handle("x", nothing)
		b.run()
		rest := envelope(b, 100) - 100
		for name, tt := range map[string]struct {
			args  any
			opts  []ojs.Option
			field string // "": accepted
			code  ojs.InvalidCode
		}{
			"envelope at the limit": {args: str(jsonvalue.MaxEnvelope - rest)},
			"envelope over the limit": {args: str(jsonvalue.MaxEnvelope - rest + 1), field: "envelope",
				code: ojs.InvalidCodeTooLarge},
			"args far over it": {
				args: str(10 << 20), field: "envelope", code: ojs.InvalidCodeTooLarge,
			},
			"meta at the limit": {opts: []ojs.Option{ojs.WithMeta("k", str(jsonvalue.MaxMeta-6))}},
			"meta over the limit": {opts: []ojs.Option{ojs.WithMeta("k", str(jsonvalue.MaxMeta-5))},
				field: "meta", code: ojs.InvalidCodeMetaTooLarge},
			"args at the depth": {args: deep(jsonvalue.MaxDepth)},
			"args too deep": {args: deep(jsonvalue.MaxDepth + 1), field: "args",
				code: ojs.InvalidCodeArgs},
			"args a million deep": {args: deep(1_000_000), field: "args", code: ojs.InvalidCodeArgs},
			"raw args too deep": {args: json.RawMessage(strings.Repeat("[", 33) +
				strings.Repeat("]", 33)), field: "args", code: ojs.InvalidCodeArgs},
			"meta too deep": {opts: []ojs.Option{ojs.WithMeta("k", deep(jsonvalue.MaxDepth))},
				field: "meta", code: ojs.InvalidCodeMeta},
			"queue": {opts: []ojs.Option{ojs.WithQueue(strings.Repeat("q", 129))},
				field: "queue", code: ojs.InvalidCodeQueue},
			"many non-retryable patterns": {
				opts: []ojs.Option{
					ojs.WithRetry(ojs.RetryPolicy{NonRetryableErrors: patterns(60_000)}),
				},
				field: "envelope", code: ojs.InvalidCodeTooLarge,
			},
		} {
			before := len(b.listed(inspect.Filter{}))
			_, err := b.Enqueue(b.ctx, "y", tt.args, tt.opts...)
			stored := len(b.listed(inspect.Filter{})) - before
			if tt.field == "" {
				if err != nil || stored != 1 {
					t.Errorf("%s: %v, %d stored", name, err, stored)
				}
				continue
			}
			var inv *ojs.InvalidError
			if !errors.As(err, &inv) || inv.Field != tt.field || inv.Code != tt.code || inv.Reason == "" ||
				stored != 0 {
				t.Errorf("%s: %v, %d stored", name, err, stored)
			}
		}
		ticket := b.enqueue("x")
		b.advance(time.Second)
		b.want(ticket.ID, ojs.StateCompleted, 1)
	})
	t.Run("results", func(t *testing.T) {
		inBubble(t, func(b *rig) {
			b.handle("x", func(ctx context.Context, _ *ojs.Job[any]) error {
				must(t, handler.SetResult(ctx, "first"))
				for _, v := range []any{
					str(jsonvalue.MaxResult + 1), deep(jsonvalue.MaxDepth + 1), deep(1_000_000),
				} {
					err := handler.SetResult(ctx, v)
					wantInvalid(t, err, "result")
				}
				return nil
			})
			b.handle("fits",
				func(ctx context.Context,
					_ *ojs.Job[any]) error {
					return handler.SetResult(ctx, str(jsonvalue.MaxResult))
				})
			b.run()
			small, large := b.enqueue("x"), b.enqueue("fits")
			b.advance(time.Second)
			if job := b.want(small.ID, ojs.StateCompleted, 1); string(job.Result) != `"first"` {
				t.Errorf("result %.50s", job.Result)
			}
			if job := b.want(large.ID, ojs.StateCompleted, 1); len(job.Result) != jsonvalue.MaxResult {
				t.Errorf("result of %d bytes", len(job.Result))
			}
		})
	})
	t.Run("a replay's meta", func(t *testing.T) {
		inBubble(t, func(b *rig) {
			b.handle("x", func(context.Context, *ojs.Job[any]) error { return ojs.DeadLetter(errBoom) })
			b.run()
			id := b.enqueue("x").ID
			b.advance(0)
			tooLarge := ojs.WithMeta("k", str(jsonvalue.MaxMeta))
			wantInvalid(t, b.DeadLetters().Retry(b.ctx, id, tooLarge), "meta")
			b.want(id, ojs.StateDiscarded, 1)
		})
	})
}

func patterns(n int) []string {
	list := make([]string, n)
	for i := range list {
		list[i] = fmt.Sprintf("error.number.%d", i)
	}
	return list
}

// A value that is too large is refused without being encoded. The memory that this takes
// does not depend on the size of the value.
func TestLargeValuesAreNotEncoded(t *testing.T) {
	large := strings.Repeat("x", 32<<20)
	type pair struct {
		A string
		B []string
	}
	raw := json.RawMessage(`"` + large + `"`)
	stored, err := ojs.NewArgs(large)
	must(t, err)
	inBubble(t, func(b *rig) {
		var handled func(context.Context) error
		b.handle("large", func(ctx context.Context, _ *ojs.Job[any]) error { return handled(ctx) })
		allocated := func(f func()) uint64 {
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			f()
			runtime.ReadMemStats(&after)
			return after.TotalAlloc - before.TotalAlloc
		}
		enqueue := func(args any, opts ...ojs.Option) func() error {
			return func() error { _, err := b.Enqueue(b.ctx, "x", args, opts...); return err }
		}
		for name, f := range map[string]func() error{
			"args, a string":   enqueue(large),
			"args, a struct":   enqueue(pair{B: []string{large}}),
			"args, a map":      enqueue(map[string]any{"k": large}),
			"args, raw JSON":   enqueue(raw),
			"args, made":       enqueue(stored),
			"meta":             enqueue(nil, ojs.WithMeta("k", large)),
			"result":           nil,
			"error's details":  nil,
			"panic's value":    nil,
			"handler's error":  nil,
			"checkpoint":       nil,
			"pointer to large": enqueue(&large),
		} {
			handled = nil
			switch name {
			case "result":
				handled = func(ctx context.Context) error { return handler.SetResult(ctx, large) }
			case "checkpoint":
				handled = func(ctx context.Context) error { return handler.SaveCheckpoint(ctx, []any{large}) }
			case "error's details":
				handled = func(context.Context) error {
					return &ojs.Error{Type: "x", Details: map[string]any{"k": large}}
				}
			case "panic's value":
				handled = func(context.Context) error { panic(large) }
			case "handler's error":
				handled = func(context.Context) error { return errors.New(large) }
			}
			if handled != nil {
				f = func() error {
					id := b.enqueue("large", ojs.WithMaxAttempts(1)).ID
					ctx, stop := context.WithCancel(b.ctx)
					ended := make(chan error, 1)
					go func() { ended <- b.Run(ctx) }()
					b.advance(0)
					stop()
					must(b.t, <-ended)
					if e := b.job(id).Error; e != nil {
						return errors.New(e.Message)
					}
					return nil
				}
			}
			if n := allocated(func() { err = f() }); n > 2<<20 || err == nil {
				t.Errorf("%s: %d bytes allocated, and the error is %.100v", name, n, err)
			}
		}
	})
}
