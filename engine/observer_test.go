package engine_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/ojsengine/ojs"
	"github.com/ojsengine/ojs/engine"
	"github.com/ojsengine/ojs/event"
	"github.com/ojsengine/ojs/internal/test/pace"
	"github.com/ojsengine/ojs/storage/memory"
	"github.com/ojsengine/ojs/telemetry"
)

// record is an observer that keeps what it sees.
type record struct {
	mu     sync.Mutex // guards events
	events []event.Event
}

func (r *record) Observe(ev *event.Event) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.events = append(r.events, *ev)
}

func (r *record) seen() []event.Event {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.events)
}

func TestObserverSeesDurations(t *testing.T) {
	var seen record
	inBubble(t, func(b *rig) {
		b.handle("slow", func(_ context.Context, job *ojs.Job[any]) error {
			pace.Virtual(3 * time.Second)
			if job.Attempt == 1 {
				return errBoom
			}
			return nil
		})
		b.enqueue("slow", ojs.WithDelay(time.Second),
			ojs.WithRetry(ojs.RetryPolicy{InitialInterval: 5 * time.Second, Jitter: ojs.JitterOff}))
		pace.Virtual(2 * time.Second)
		b.run()
		b.advance(time.Minute)
	}, engine.WithObserver(&seen))
	var got []string
	for _, ev := range seen.seen() {
		if ev.Job != nil {
			got = append(got, fmt.Sprintf("%s %v %v", ev.Type, ev.Duration, ev.Wait))
		}
	}
	want := []string{
		"job.enqueued 0s 0s", "job.scheduled 0s 0s", "job.started 0s 0s", "job.failed 3s 0s",
		"job.retrying 3s 5s", "job.started 0s 0s", "job.completed 3s 0s",
	}
	if !slices.Equal(got, want) {
		t.Errorf("saw\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

// selective is an observer of some events that reads the meter.
type selective struct {
	record
	types []event.Type
	meter func() []telemetry.Meter
}

func (s *selective) EventTypes() []event.Type                 { return s.types }
func (s *selective) ReadMeter(meter func() []telemetry.Meter) { s.meter = meter }

// An observer sees the events that it selects, and has the meter from the start. Another
// one sees what it selects itself.
func TestSelectiveObservers(t *testing.T) {
	failures := &selective{types: []event.Type{event.Failed, event.Discarded}}
	enqueues := &selective{types: []event.Type{event.Enqueued}}
	inBubble(t, func(b *rig) {
		if failures.meter == nil || len(failures.meter()) != 0 {
			t.Fatal("the observer has no empty meter")
		}
		b.handle("fails", func(context.Context, *ojs.Job[any]) error { return ojs.Permanent(errBoom) })
		b.handle("job", func(context.Context, *ojs.Job[any]) error { return nil })
		b.enqueue("fails")
		b.enqueue("job")
		b.run()
		b.advance(time.Minute)
	}, engine.WithObserver(failures, enqueues))
	types := func(s *selective) (list []event.Type) {
		for _, ev := range s.seen() {
			list = append(list, ev.Type)
		}
		return list
	}
	if got := types(failures); !slices.Equal(got, failures.types) {
		t.Errorf("saw %v", got)
	}
	if got := types(enqueues); !slices.Equal(got, []event.Type{event.Enqueued, event.Enqueued}) {
		t.Errorf("saw %v", got)
	}
	m := failures.meter()
	if len(m) != 2 || m[0].Type != "fails" || m[0].Discarded != 1 || m[1].Completed != 1 {
		t.Errorf("%+v", m)
	}
}

func TestObserverSeesTheWait(t *testing.T) {
	var seen record
	inBubble(t, func(b *rig) {
		b.handle("job", func(context.Context, *ojs.Job[any]) error { return nil })
		b.enqueue("job")
		pace.Virtual(7 * time.Second)
		b.run()
		b.advance(0)
	}, engine.WithObserver(&seen))
	for _, ev := range seen.seen() {
		if ev.Type == event.Started {
			if ev.Wait != 7*time.Second {
				t.Errorf("P1.10 started after a wait of %v", ev.Wait)
			}
			return
		}
	}
	t.Error("nothing started")
}

func TestDiscardedSaysWhy(t *testing.T) {
	for _, tt := range []struct {
		why string
		err error
		opt ojs.Option
	}{
		{"exhausted", errBoom, ojs.WithMaxAttempts(2)},
		{"code", ojs.Discard(errBoom), nil},
		{"code", ojs.Permanent(errBoom), nil},
		{"marker", permanent{errBoom}, nil},
		{"non_retryable", ojs.Errorf("auth.denied", "no"),
			ojs.WithRetry(ojs.RetryPolicy{NonRetryableErrors: []string{"auth.*"}})},
		{"total_timeout", ojs.RetryAfter(time.Minute, errBoom), ojs.WithTotalTimeout(30 * time.Second)},
		{"expired", nil, ojs.WithTTL(time.Second)},
		{"expired", nil, ojs.WithEnqueueTTL(time.Second)},
	} {
		t.Run(tt.why, func(t *testing.T) {
			var seen record
			inBubble(t, func(b *rig) {
				opts := []ojs.Option{noJitter}
				if tt.opt != nil {
					opts = append(opts, tt.opt)
				}
				if tt.err == nil { // it shall wait in vain
					b.enqueue("nobody", append(opts, ojs.WithDelay(time.Second/2))...)
				} else {
					b.handle("fail", func(context.Context, *ojs.Job[any]) error { return tt.err })
					b.enqueue("fail", opts...)
				}
				b.run()
				b.advance(time.Hour)
			}, engine.WithObserver(&seen))
			var got []string
			for _, ev := range seen.seen() {
				if ev.Type == event.Discarded {
					got = append(got, ev.Reason)
				}
			}
			if !slices.Equal(got, []string{tt.why}) {
				t.Errorf("discarded: %v", got)
			}
		})
	}
}

// Every event comes, and those of a job in order, however many workers and enqueuers
// there are.
func TestObserverMissesNothing(t *testing.T) {
	const enqueuers, each = 8, 200
	var seen record
	eng, err := engine.New[any](memory.New(), quiet, engine.WithObserver(&seen))
	if err != nil {
		t.Fatal(err)
	}
	eng.Handle("job", func(_ context.Context, job *ojs.Job[any]) error {
		if job.Attempt == 1 {
			return ojs.RetryAfter(0, errBoom)
		}
		return nil
	})
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan error)
	go func() { ended <- eng.Run(ctx) }()
	var group sync.WaitGroup
	for range enqueuers {
		group.Go(func() {
			for range each {
				if _, err := eng.Enqueue(ctx, "job", nil); err != nil {
					t.Error(err)
				}
			}
		})
	}
	group.Wait()
	if err := eng.WaitIdle(ctx); err != nil {
		t.Error(err)
	}
	stop()
	if err := <-ended; err != nil {
		t.Error(err)
	}
	of := make(map[string][]event.Event)
	for _, ev := range seen.seen() {
		if ev.Job != nil {
			of[ev.Job.ID] = append(of[ev.Job.ID], ev)
		}
	}
	if len(of) != enqueuers*each {
		t.Errorf("events of %d jobs", len(of))
	}
	for id, events := range of {
		if got := names(events); got != "enqueued started failed retrying started completed" {
			t.Errorf("job %s: %s", id, got)
		}
	}
}

type panics struct{}

func (panics) Observe(*event.Event) { panic("out of metrics") }

func TestObserverPanics(t *testing.T) {
	var log bytes.Buffer
	var seen record
	inBubble(t, func(b *rig) {
		b.handle("job", func(context.Context, *ojs.Job[any]) error { return nil })
		b.run()
		ticket := b.enqueue("job")
		b.advance(time.Second)
		b.want(ticket.ID, ojs.StateCompleted, 1)
	}, engine.WithLogger(slog.New(slog.NewTextHandler(&log, nil))), engine.WithObserver(panics{}, &seen))
	if !strings.Contains(log.String(), `msg="observer panicked" event=job.completed panic="out of metrics"`) {
		t.Errorf("log:\n%s", &log)
	}
	if got := names(seen.seen()); !strings.Contains(got, "enqueued started completed") {
		t.Errorf("the other observer saw %s", got)
	}
}

func TestObserverNil(t *testing.T) {
	if _, err := engine.New[any](memory.New(), engine.WithObserver(nil)); !errors.Is(err, ojs.ErrInvalid) {
		t.Errorf("error %v", err)
	}
}
