package workflow_test

import (
	"context"
	"fmt"
	"log/slog"
	"testing"
	"time"

	"github.com/ojsengine/ojs"
	"github.com/ojsengine/ojs/engine"
	"github.com/ojsengine/ojs/storage/memory"
	"github.com/ojsengine/ojs/workflow"
)

// The time of a step, from its enqueue to the end of the last: of single jobs, of a
// chain, and of batches of several sizes.
func BenchmarkStep(b *testing.B) {
	steps := func(n int) []workflow.Part {
		parts := make([]workflow.Part, n)
		for i := range parts {
			parts[i] = step("")
		}
		return parts
	}
	brief := ojs.WithResultTTL(time.Millisecond)
	report := ojs.NewDraft("x", nil)
	batch := func(n int) *workflow.Workflow {
		return workflow.New("", workflow.Batch(workflow.Group(steps(n)...), workflow.OnComplete(report)),
			brief)
	}
	for _, c := range []struct {
		name string
		n    int
		w    *workflow.Workflow // nil: single jobs
	}{
		{"single", 1000, nil},
		{"chain", 1000, workflow.New("", workflow.Chain(steps(1000)...), brief)},
		{"batch", 100, batch(99)},
		{"batch", 1000, batch(999)},
		{"batch", 10_000, batch(9999)},
	} {
		b.Run(fmt.Sprintf("%s of %d", c.name, c.n), func(b *testing.B) {
			eng, err := engine.New[any](memory.New(), engine.WithLogger(slog.New(slog.DiscardHandler)),
				engine.WithRetention(engine.Retention{MinAge: -1}))
			must(b, err)
			eng.Handle("x", func(context.Context, *ojs.Job[any]) error { return nil })
			ctx, stop := context.WithCancel(context.Background())
			ended := make(chan error, 1)
			go func() { ended <- eng.Run(ctx) }()
			singles := make([]ojs.Draft, c.n)
			for i := range singles {
				singles[i] = ojs.NewDraft("x", nil, brief)
			}
			for b.Loop() {
				if c.w == nil {
					tickets, err := eng.EnqueueMany(ctx, singles...)
					must(b, err)
					for _, ticket := range tickets {
						_, err := ticket.Wait(ctx)
						must(b, err)
					}
					continue
				}
				ticket, err := eng.Workflows().Start(ctx, c.w)
				must(b, err)
				_, err = ticket.Wait(ctx)
				must(b, err)
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*c.n), "ns/step")
			stop()
			must(b, <-ended)
		})
	}
}
