package enginetest_test

import (
	"context"
	"testing"
	"time"

	"github.com/ojsengine/ojs"
	"github.com/ojsengine/ojs/engine"
	"github.com/ojsengine/ojs/enginetest"
	"github.com/ojsengine/ojs/handler"
)

// Handlers that sleep for microseconds do not keep the clock from being moved.
func TestAdvanceShortSleeps(t *testing.T) {
	eng := enginetest.New[int](t, engine.WithConcurrency(2))
	eng.Handle("nap", func(ctx context.Context,
		_ *ojs.Job[int]) error {
		return handler.Sleep(ctx, 10*time.Microsecond)
	})
	for i := range 400 {
		eng.MustEnqueue(ojs.NewDraft("nap", i))
	}
	eng.Advance(2 * time.Millisecond)
	stats, err := eng.Stats(t.Context())
	if err != nil || stats.Total[ojs.StateCompleted] != 400 {
		t.Errorf("%v, %v", stats.Total, err)
	}
}
