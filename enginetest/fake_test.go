package enginetest_test

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"log/slog"
	"strings"
	"sync"
	"testing"

	"github.com/ojsengine/ojs"
	"github.com/ojsengine/ojs/engine"
	"github.com/ojsengine/ojs/enginetest"
)

// A fake has no handlers, and does not complain of that; of other things it does.
func TestFakeWarnings(t *testing.T) {
	small := engine.WithQueueConfig("small", engine.QueueConfig{MaxDepth: 10})
	warned := func(eng *enginetest.Engine[any], log *lockedBuffer) string {
		for i := range 8 {
			eng.MustEnqueue(ojs.NewDraft(fmt.Sprint("x", i), nil, ojs.WithQueue("small")))
		}
		return log.String()
	}
	const unhandled, full = "without a handler", "queue is nearly full"
	for name, fake := range map[string]func(log *lockedBuffer) *enginetest.Engine[any]{
		"in the test's log": func(log *lockedBuffer) *enginetest.Engine[any] {
			return enginetest.NewFake[any](logging{t, log}, small)
		},
		"to a logger": func(log *lockedBuffer) *enginetest.Engine[any] {
			return enginetest.NewFake[any](t, small,
				engine.WithLogger(slog.New(slog.NewTextHandler(log, nil))))
		},
	} {
		var log lockedBuffer
		if got := warned(fake(&log), &log); strings.Contains(got, unhandled) || !strings.Contains(got, full) {
			t.Errorf("%s:\n%s", name, got)
		}
	}
	var log lockedBuffer
	eng := enginetest.New[any](logging{t, &log}, small)
	eng.Handle("known", func(context.Context, *ojs.Job[any]) error { return nil })
	if got := warned(eng, &log); !strings.Contains(got, unhandled) || !strings.Contains(got, full) {
		t.Errorf("an engine that runs jobs:\n%s", got)
	}
}

// lockedBuffer is a buffer that may be read while it is written to.
type lockedBuffer struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (b *lockedBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.Write(p)
}

func (b *lockedBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.String()
}

// logging is a test whose log can be read.
type logging struct {
	testing.TB
	log io.Writer
}

func (t logging) Output() io.Writer { return t.log }
