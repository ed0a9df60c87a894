package engine_test

import (
	"context"
	"testing"
	"time"

	"github.com/benbjohnson/clock"

	"github.com/ojsengine/ojs"
	"github.com/ojsengine/ojs/engine"
	"github.com/ojsengine/ojs/engine/fetch"
	"github.com/ojsengine/ojs/storage"
	"github.com/ojsengine/ojs/storage/memory"
)

// ahead is a storage whose clock is ahead of this machine's.
type ahead struct {
	storage.Storage
	by time.Duration
}

func (s ahead) Unwrap() storage.Storage    { return s.Storage }
func (s ahead) ClockOffset() time.Duration { return s.by }

// An engine goes by the clock of its storage, so that machines whose clocks differ agree
// on what is due. A clock that it is given goes before that.
func TestStorageClock(t *testing.T) {
	for _, by := range []time.Duration{-time.Minute, time.Minute} {
		eng, err := engine.New[any](ahead{memory.New(), by}, quiet)
		must(t, err)
		before := time.Now().Add(by)
		ticket, err := eng.Enqueue(t.Context(), "x", nil, ojs.WithDelay(time.Hour))
		must(t, err)
		after := time.Now().Add(by)
		job, err := eng.Get(t.Context(), ticket.ID)
		must(t, err)
		if job.CreatedAt.Before(before) || job.CreatedAt.After(after) ||
			job.ScheduledAt.Sub(job.CreatedAt) != time.Hour {
			t.Errorf("%v off: created at %v, not between %v and %v, for %v", by, job.CreatedAt, before, after,
				job.ScheduledAt)
		}
	}
	mock := clock.NewMock()
	eng, err := engine.New[any](ahead{memory.New(), time.Minute}, quiet, engine.WithClock(mock))
	must(t, err)
	ticket, err := eng.Enqueue(t.Context(), "x", nil)
	must(t, err)
	if job, err := eng.Get(t.Context(), ticket.ID); err != nil || !job.CreatedAt.Equal(mock.Now()) {
		t.Errorf("%+v, %v", job, err)
	}
}

// Two machines, one of which is a minute ahead: neither takes a job before its time, nor
// a lease that still holds.
func TestMachinesWhoseClocksDiffer(t *testing.T) {
	store := memory.New()
	defer store.Close()
	// The clock of each machine is wrong by as much as the storage tells it.
	fast, err := engine.NewOn(ahead{store, -time.Minute}, wrong{clock.New(), time.Minute}, quiet)
	must(t, err)
	slow, err := engine.NewOn(ahead{store, time.Minute}, wrong{clock.New(), -time.Minute}, quiet)
	must(t, err)
	lease := ojs.WithLease(30 * time.Second)
	_, err = slow.Enqueue(t.Context(), "x", nil, lease)
	must(t, err)
	d, err := slow.Worker("w", fetch.Config{}).Fetch(t.Context())
	must(t, err)
	early, err := slow.Enqueue(t.Context(), "x", nil, ojs.WithDelay(30*time.Second))
	must(t, err)
	fast.Handle("x",
		func(context.Context, *ojs.Job[any]) error { t.Error("the fast machine ran a job"); return nil })
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- fast.Run(ctx) }()
	must(t, fast.WaitIdle(ctx))
	if job, err := fast.Get(ctx, early.ID); err != nil || job.State != ojs.StateScheduled {
		t.Errorf("%+v, %v", job, err)
	}
	must(t, d.Ack(ctx, nil))
	stop()
	must(t, <-ended)
}

// wrong is a clock that is wrong.
type wrong struct {
	clock.Clock
	by time.Duration
}

func (c wrong) Now() time.Time { return c.Clock.Now().Add(c.by) }
