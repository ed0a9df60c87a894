package engine_test

import (
	"context"
	"testing"

	"github.com/ojsengine/ojs"
	"github.com/ojsengine/ojs/engine"
	"github.com/ojsengine/ojs/storage/memory"
)

// BenchmarkThroughput takes jobs from their enqueue to their completion.
func BenchmarkThroughput(b *testing.B) {
	type args struct {
		N int
		S string
	}
	b.ReportAllocs()
	eng, err := engine.New[args](memory.New(), engine.WithConcurrency(8))
	if err != nil {
		b.Fatal(err)
	}
	eng.Handle("noop", func(context.Context, *ojs.Job[args]) error { return nil })
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- eng.Run(ctx) }()
	b.ResetTimer()
	for i := range b.N {
		if _, err := eng.Enqueue(ctx, "noop", args{i, "x"}); err != nil {
			b.Fatal(err)
		}
	}
	if err := eng.WaitIdle(ctx); err != nil {
		b.Fatal(err)
	}
	b.StopTimer()
	cancel()
	if err := <-ended; err != nil {
		b.Fatal(err)
	}
}
