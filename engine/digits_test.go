package engine_test

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/ojsengine/ojs"
	"github.com/ojsengine/ojs/codec"
	"github.com/ojsengine/ojs/engine"
	"github.com/ojsengine/ojs/handler"
	"github.com/ojsengine/ojs/workflow"
)

// An integer that no float64 holds keeps its digits wherever a value of JSON meets an
// any, with and without codecs.
func TestDigitsAreKept(t *testing.T) {
	const id = 3889108265204450030
	args := map[string]any{"id": id, "list": []any{-id}, "o": map[string]any{"id": uint64(id)}}
	digits := func(t *testing.T, what string, v any) {
		t.Helper()
		if text := fmt.Sprint(v); !strings.Contains(text, "3889108265204450030") {
			t.Errorf("%s has lost digits: %s", what, text)
		}
	}
	for name, opts := range map[string][]engine.Option{
		"plain":   nil,
		"encoded": {engine.WithCodec(codec.Gzip())},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(b *rig) {
				b.handle("x", func(ctx context.Context, job *ojs.Job[any]) error {
					m := job.Args.(map[string]any)
					if m["id"] != json.Number("3889108265204450030") {
						t.Errorf("the handler's args have a %T", m["id"])
					}
					digits(t, "a list of the args", m["list"])
					digits(t, "an object of the args", m["o"])
					digits(t, "the handler's meta", job.Meta["id"])
					var at any
					if there, err := handler.LoadCheckpoint(ctx, &at); err != nil {
						t.Error(err)
					} else if there {
						digits(t, "the checkpoint", at)
						return handler.SetResult(ctx, m)
					}
					must(t, handler.SaveCheckpoint(ctx, id))
					return &ojs.Error{Type: "late", Message: "no", Details: map[string]any{"id": id}}
				})
				b.handle("struct", func(_ context.Context, job *ojs.Job[any]) error {
					digits(t, "args of a struct", job.Args)
					return nil
				})
				b.handle("after", func(ctx context.Context, _ *ojs.Job[any]) error {
					of, err := workflow.Result[any](ctx, "first")
					digits(t, "the result of a step", of)
					return err
				})
				b.run()
				ticket := must1(b.Enqueue(b.ctx, "x", args, ojs.WithMeta("id", id)))
				must1(b.Enqueue(b.ctx, "struct", struct{ ID int64 }{id}))
				flow := must1(b.Workflows().Start(b.ctx, workflow.New("w", workflow.Chain(
					workflow.Step("first", ojs.NewDraft("x", args, ojs.WithMeta("id", id))),
					workflow.Step("second", ojs.NewDraft("after", nil))))))
				must1(b.Workflows().Wait(b.ctx, flow.ID))
				job := must1(b.Wait(b.ctx, ticket.ID))
				job = must1(b.Jobs().Decode(b.ctx, job))
				var result any
				must(t, job.DecodeResult(&result))
				digits(t, "the result", result)
				digits(t, "the meta", job.Meta["id"])
				digits(t, "the details of an error", job.Errors[0].Details["id"])
			}, opts...)
		})
	}
}
