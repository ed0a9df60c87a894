package engine

import (
	"context"
	"testing"
	"time"

	"github.com/benbjohnson/clock"

	"github.com/ojsengine/ojs"
	internal "github.com/ojsengine/ojs/internal/attempt"
	"github.com/ojsengine/ojs/scheduler"
	"github.com/ojsengine/ojs/storage"
	"github.com/ojsengine/ojs/storage/memory"
)

// The time that an attempt waits on a pile is not its handler's, and none passes for it there.
func TestTimeOnThePile(t *testing.T) {
	const timeout, wait = time.Second, 300 * time.Millisecond
	start := func(t *testing.T, change func(*storage.Record)) (*attempt, time.Time) {
		eng, err := New[any](memory.New())
		if err != nil {
			t.Fatal(err)
		}
		eng.Handle("x", func(context.Context, *ojs.Job[any]) error { return nil })
		c := eng.core
		r := &run{c: c, base: t.Context(), sched: scheduler.New(clock.NewMock()), contexts: internal.NewRun(context.Background())}
		t.Cleanup(r.sched.Stop)
		now := c.now()
		var rec storage.Record
		rec.ID, rec.Type, rec.State, rec.Attempt, rec.Timeout, rec.Lease = "1", "x", ojs.StateActive, 1, timeout, time.Hour
		rec.CreatedAt, rec.StartedAt, rec.LeaseUntil = now, now, now.Add(time.Hour)
		change(&rec)
		a := r.newAttempt(&rec)
		r.begin(a)
		return a, now
	}
	for name, c := range map[string]struct {
		change func(*storage.Record)
		ends   time.Duration
	}{
		"timeout":                   {func(*storage.Record) {}, timeout + wait},
		"and a total one later":     {func(r *storage.Record) { r.TotalTimeout = time.Hour }, timeout + wait},
		"and a total one, too soon": {func(r *storage.Record) { r.TotalTimeout = timeout + wait/2 }, timeout + wait/2},
		"total timeout":             {func(r *storage.Record) { r.TotalTimeout = timeout / 2 }, timeout / 2},
	} {
		t.Run(name, func(t *testing.T) {
			a, now := start(t, c.change)
			a.piled.Store(true)
			a.tick(now.Add(time.Minute))
			if a.cause != nil {
				t.Errorf("ended on the pile: %v", a.cause)
			}
			a.putOff(now.Add(wait))
			if !a.begins(&pile{}) {
				t.Error("does not begin")
			}
			if d, _ := a.context.Deadline(); !d.Equal(now.Add(c.ends)) || !a.overdue().Equal(d) {
				t.Errorf("times out after %v, its context after %v, want %v", a.overdue().Sub(now), d.Sub(now), c.ends)
			}
			if a.tick(now.Add(c.ends - 1)); a.cause != nil {
				t.Errorf("ended before: %v", a.cause)
			}
			if a.tick(now.Add(c.ends)); a.cause != ojs.ErrTimeout {
				t.Errorf("ended by %v", a.cause)
			}
		})
	}
}
