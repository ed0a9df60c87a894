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

// lookedAt is a storage that sends to inVain when a claim has found no job.
type lookedAt struct {
	*memory.Storage
	inVain chan struct{}
}

func (s lookedAt) Bind(any, storage.Storage) storage.Storage { return s }

func (s lookedAt) Claim(ctx context.Context, now time.Time, c storage.Claim, dst []storage.Record) ([]storage.Record, error) {
	recs, err := s.Storage.Claim(ctx, now, c, dst)
	if len(recs) == len(dst) {
		select {
		case s.inVain <- struct{}{}:
		default:
		}
	}
	return recs, err
}

// A job that another engine enqueues while an engine starts is noticed, also when the
// storage has been looked at before.
func TestEnqueuedWhileAnotherStarts(t *testing.T) {
	store := memory.New()
	other, err := engine.New[int](store, quiet)
	must(t, err)
	looked := lookedAt{store, make(chan struct{}, 1)}
	eng, err := engine.New[int](looked, engine.WithLogger(slog.New(atLine{line: "engine started", f: func() {
		<-looked.inVain
		_, err := other.Enqueue(t.Context(), "x", 1)
		must(t, err)
	}})))
	must(t, err)
	ran := make(chan struct{})
	eng.Handle("x", func(context.Context, *ojs.Job[int]) error { close(ran); return nil })
	started(t, eng)
	select {
	case <-ran:
	case <-time.After(20 * time.Second):
		t.Error("nobody has noticed the job")
	}
}
