package engine_test

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ojsengine/ojs"
	"github.com/ojsengine/ojs/engine"
	"github.com/ojsengine/ojs/storage/memory"
)

// A closed storage does not open again: Run says so and returns.
func TestRunOnAClosedStorage(t *testing.T) {
	for name, before := range map[string]bool{"before Run": true, "while Run works": false} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var log bytes.Buffer
				store := memory.New()
				eng, err := engine.New[any](store,
					engine.WithLogger(slog.New(slog.NewTextHandler(&log, nil))))
				must(t, err)
				eng.Handle("x", func(context.Context, *ojs.Job[any]) error { return nil })
				if before {
					must(t, store.Close())
				}
				ctx, stop := context.WithTimeout(t.Context(), time.Hour) // of the virtual clock
				defer stop()
				ended := make(chan error, 1)
				go func() { ended <- eng.Run(ctx) }()
				synctest.Wait()
				if !before {
					_, err := eng.Enqueue(t.Context(), "x", nil, ojs.WithDelay(time.Minute))
					must(t, err)
					must(t, store.Close())
				}
				if err := <-ended; !errors.Is(err, ojs.ErrClosed) {
					t.Errorf("Run returned %v", err)
				}
				if n := strings.Count(log.String(), "level=ERROR"); n > 1 {
					t.Errorf("%d lines of errors:\n%s", n, &log)
				}
			})
		})
	}
}

// A ticket of an enqueue in a transaction finds its job after the commit, and says so
// before it.
func TestWaitNamesTheTransaction(t *testing.T) {
	inBubble(t, func(b *rig) {
		_, err := b.Get(b.ctx, "01890a5d-ac96-774b-bcce-000000000001")
		if !errors.Is(err, ojs.ErrNotFound) ||
			!strings.Contains(err.Error(), "its transaction is not committed") {
			t.Error(err)
		}
	})
}
