package publish_test

import (
	"io"
	"log/slog"
	"testing"
	"time"

	"github.com/ojsengine/ojs"
	"github.com/ojsengine/ojs/engine/internal/eventlog"
	"github.com/ojsengine/ojs/engine/internal/ids"
	"github.com/ojsengine/ojs/engine/internal/logs"
	"github.com/ojsengine/ojs/engine/internal/publish"
	"github.com/ojsengine/ojs/storage"
)

// The event of a job that the end of another has moved has the time of the step that
// moved it, however late it is published.
func TestMovedJobsHaveTheTimeOfTheStep(t *testing.T) {
	step := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	logger := slog.New(slog.NewTextHandler(io.Discard, nil))
	p := &publish.Publisher{Lines: &logs.Lines{Log: logger}, EventIDs: ids.New(nil),
		Now: func() time.Time { return step.Add(time.Hour) }}
	p.Events = eventlog.New(nil, logger, p.IdentifyEvent)
	sub := p.Events.Subscribe(eventlog.Filter{})
	defer sub.Close()
	record := func(id string, state ojs.State) (r storage.Record) {
		r.ID, r.Type, r.Queue, r.State = id, "t", "default", state
		return r
	}
	available, cancelled := record("a", ojs.StateAvailable), record("b", ojs.StateCancelled)
	available.EnqueuedAt, cancelled.FinishedAt = step, step
	op := p.Events.Begin(eventlog.Ends)
	p.DependentEvents(op, []storage.Record{available, cancelled})
	op.End()
	for range 2 {
		if ev := <-sub.C(); !ev.Time.Equal(step) {
			t.Errorf("%s of %s is of %v, want %v", ev.Type, ev.Subject, ev.Time, step)
		}
	}
}
