package engine_test

import (
	"context"
	"testing"
	"time"

	"github.com/ojsengine/ojs/engine"
)

var keepAll = engine.WithRetention(engine.Retention{
	Completed: -1, Cancelled: -1, Discarded: -1, DeadLetters: -1, MaxFinished: -1, MaxDeadLetters: -1,
})

// started runs an engine until the test ends, which wants a clean stop.
func started[T any](t *testing.T, eng *engine.Engine[T]) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- eng.Run(ctx) }()
	stopped := false
	stop = func() {
		if stopped {
			return
		}
		stopped = true
		cancel()
		select {
		case err := <-ended:
			if err != nil {
				t.Errorf("Run: %v", err)
			}
		case <-time.After(2 * time.Minute):
			t.Error("Run does not return")
		}
	}
	t.Cleanup(stop)
	return stop
}
