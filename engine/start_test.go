package engine_test

import (
	"context"
	"log/slog"
	"testing"
	"time"

	"github.com/ojsengine/ojs"
	"github.com/ojsengine/ojs/engine"
	"github.com/ojsengine/ojs/storage"
	"github.com/ojsengine/ojs/storage/memory"
	"github.com/ojsengine/ojs/storage/storagetest"
)

// atLine calls a function when a line is logged.
type atLine struct {
	slog.Handler
	line string
	f    func()
}

func (atLine) Enabled(context.Context, slog.Level) bool { return true }

func (a atLine) WithAttrs([]slog.Attr) slog.Handler { return a }

func (a atLine) Handle(_ context.Context, r slog.Record) error {
	if r.Message == a.line {
		a.f()
	}
	return nil
}

// A job that another engine enqueues while an engine starts is noticed, also when the
// storage has been looked at before.
func TestEnqueuedWhileAnotherStarts(t *testing.T) {
	store := memory.New()
	other, err := engine.New[int](store, quiet)
	must(t, err)
	inVain := make(chan struct{}, 1) // a claim has found no job
	looked := &storagetest.Faulty{Storage: store}
	looked.OnCall(func(c *storagetest.Call) {
		if c.Method != "Claim" {
			return
		}
		if c.Do(); len(c.Out.([]storage.Record)) == 0 {
			select {
			case inVain <- struct{}{}:
			default:
			}
		}
	})
	log := slog.New(atLine{line: "engine started", f: func() {
		<-inVain
		_, err := other.Enqueue(t.Context(), "x", 1)
		must(t, err)
	}})
	eng, err := engine.New[int](looked.Stepping(), engine.WithLogger(log))
	must(t, err)
	ran := make(chan struct{})
	eng.Handle("x", func(context.Context, *ojs.Job[int]) error { close(ran); return nil })
	started(t, eng)
	select {
	case <-ran:
	case <-time.After(time.Minute):
		t.Error("nobody has noticed the job")
	}
}
