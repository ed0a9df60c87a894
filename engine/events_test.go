package engine_test

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/ojsengine/ojs"
	"github.com/ojsengine/ojs/engine"
	"github.com/ojsengine/ojs/event"
	"github.com/ojsengine/ojs/internal/test/pace"
)

// received takes what has come by now.
func received(sub *engine.Subscription) (events []event.Event) {
	for {
		select {
		case ev := <-sub.C():
			events = append(events, ev)
		default:
			return events
		}
	}
}

func names(events []event.Event) string {
	var s []string
	for _, ev := range events {
		s = append(s, strings.TrimPrefix(string(ev.Type), "job."))
	}
	return strings.Join(s, " ")
}

func TestEvents(t *testing.T) {
	deadLetter := ojs.WithRetry(ojs.RetryPolicy{MaxAttempts: 1, OnExhaustion: ojs.ExhaustionDeadLetter})
	tests := []struct {
		name string
		f    func(b *rig, ctx context.Context, job *ojs.Job[any]) error
		opts []ojs.Option
		then func(b *rig, id string)
		want string
	}{
		{"completed", func(*rig, context.Context, *ojs.Job[any]) error { return nil }, nil, nil,
			"enqueued started completed"},
		{"delayed", func(*rig, context.Context, *ojs.Job[any]) error { return nil },
			[]ojs.Option{ojs.WithDelay(time.Second)}, nil,
			"enqueued scheduled started completed"},
		{"E042 retried", func(_ *rig, _ context.Context, job *ojs.Job[any]) error {
			if job.Attempt == 1 {
				return errBoom
			}
			return nil
		}, nil, nil, "enqueued started failed retrying started completed"},
		{"discarded", func(*rig, context.Context, *ojs.Job[any]) error { return ojs.Discard(errBoom) }, nil,
			nil, "enqueued started failed discarded"},
		{"dead letter", func(*rig, context.Context, *ojs.Job[any]) error { return errBoom },
			[]ojs.Option{deadLetter}, nil,
			"enqueued started failed discarded dead_letter.added"},
		{"dead letter retried and deleted",
			func(*rig, context.Context, *ojs.Job[any]) error { return errBoom },
			[]ojs.Option{deadLetter}, func(b *rig, id string) {
				if err := b.DeadLetters().Retry(b.ctx, id); err != nil {
					b.t.Error(err)
				}
				b.advance(time.Minute)
				if err := b.DeadLetters().Delete(b.ctx, id); err != nil {
					b.t.Error(err)
				}
			},
			"enqueued started failed discarded dead_letter.added dead_letter.retried started failed discarded dead_letter.added dead_letter.deleted"},
		{"cancelled while it waits", nil, []ojs.Option{ojs.WithDelay(time.Hour)}, func(b *rig, id string) {
			for range 2 {
				if err := b.Cancel(b.ctx, id); err != nil {
					b.t.Error(err)
				}
			}
		}, "enqueued scheduled cancelled"},
		{"cancelled while it runs",
			func(b *rig, ctx context.Context,
				job *ojs.Job[any]) error {
				return b.Cancel(ctx, job.ID)
			}, nil, nil,
			"enqueued started cancelled"},
		{"snoozed", func(b *rig, _ context.Context, _ *ojs.Job[any]) error {
			if len(b.times()) == 1 {
				return ojs.Snooze(time.Second)
			}
			return nil
		}, nil, nil, "enqueued started scheduled started completed"},
		{"expired", func(b *rig, _ context.Context, _ *ojs.Job[any]) error { return errBoom },
			[]ojs.Option{ojs.WithTTL(500 * time.Millisecond), noJitter}, nil,
			"enqueued started failed retrying expired discarded"},
		{"enqueue TTL", nil, []ojs.Option{ojs.WithEnqueueTTL(500 * time.Millisecond)}, nil,
			"enqueued ttl_expired discarded"},
		{"timeout",
			func(b *rig, ctx context.Context, _ *ojs.Job[any]) error { <-ctx.Done(); return ctx.Err() },
			[]ojs.Option{ojs.WithTimeout(time.Second), ojs.WithMaxAttempts(1)}, nil,
			"enqueued started timeout failed discarded"},
		{"total timeout",
			func(b *rig, ctx context.Context, _ *ojs.Job[any]) error { <-ctx.Done(); return ctx.Err() },
			[]ojs.Option{ojs.WithTotalTimeout(time.Second)}, nil,
			"enqueued started total_timeout failed discarded"},
		{"panic", func(*rig, context.Context, *ojs.Job[any]) error { panic("boom") },
			[]ojs.Option{ojs.WithMaxAttempts(1)}, nil, "enqueued started failed discarded"},
	}
	for _, tt := range tests {
		t.Run("P0.8 "+tt.name, func(t *testing.T) {
			inBubble(t, func(b *rig) {
				sub := b.Subscribe(engine.EventFilter{Types: jobEvents})
				defer sub.Close()
				if tt.f != nil {
					b.handle("x",
						func(ctx context.Context, job *ojs.Job[any]) error { return tt.f(b, ctx, job) })
				}
				b.run()
				ticket := b.enqueue("x", tt.opts...)
				b.advance(time.Minute)
				if tt.then != nil {
					tt.then(b, ticket.ID)
				}
				events := received(sub)
				if got := names(events); got != tt.want {
					t.Errorf("got  %s\nwant %s", got, tt.want)
				}
				for _, ev := range events {
					if raw, err := json.Marshal(ev); err != nil || ev.Job.ID != ticket.ID ||
						!strings.HasPrefix(ev.ID, "evt_") ||
						!strings.HasPrefix(ev.Source, "ojs://ojs/engine/") ||
						ev.Time.Before(b.start) || ev.Missed != 0 {
						t.Errorf("%s, %v", raw, err)
					}
				}
			})
		})
	}
	t.Run("P0.8 stalled", func(t *testing.T) {
		inBubble(t, func(b *rig) {
			sub := b.Subscribe(engine.EventFilter{Types: jobEvents})
			b.enqueue("x", ojs.WithLease(time.Second))
			crash(b, 1)
			b.run()
			b.advance(1100 * time.Millisecond)
			if got := names(received(sub)); got != "enqueued stalled failed retrying" {
				t.Errorf("got %s", got)
			}
			sub.Close()
		})
	})
	t.Run("P0.8 data", func(t *testing.T) {
		inBubble(t, func(b *rig) {
			sub := b.Subscribe(engine.EventFilter{Types: []event.Type{event.Completed,
				event.Started}})
			b.handle("x",
				func(context.Context,
					*ojs.Job[any]) error {
					pace.Virtual(1500 * time.Millisecond)
					return nil
				})
			b.run()
			b.enqueue("x", ojs.WithMeta("trace_id", "t"))
			b.advance(time.Minute)
			events := received(sub)
			started, completed := events[0].Data(), events[1].Data()
			if started["worker_id"] == "" || started["attempt"] != 1 ||
				completed["duration_ms"] != int64(1500) || completed["trace_id"] != "t" {
				t.Errorf("%v, %v", started, completed)
			}
			sub.Close()
		})
	})
}

func TestSubscriptions(t *testing.T) {
	t.Run("filters", func(t *testing.T) {
		inBubble(t, func(b *rig) {
			b.handle("x", func(context.Context, *ojs.Job[any]) error { return nil })
			b.run()
			subs := map[string]*engine.Subscription{}
			first := b.enqueue("x", ojs.WithDelay(time.Second), ojs.WithQueue("q"))
			for name, f := range map[string]engine.EventFilter{
				"all": {}, "types": {Types: []event.Type{"job.st*", "job.enqueued"}},
				"jobs":  {JobIDs: []string{first.ID}},
				"queue": {Queues: []string{"q"}}, "none": {Types: []event.Type{"dead_letter.*"}},
				"both": {Types: []event.Type{"*"}, Queues: []string{"default"}},
			} {
				subs[name] = b.Subscribe(f)
			}
			b.enqueue("x")
			b.advance(time.Minute)
			for name, want := range map[string]string{
				"all": "enqueued started completed started completed", "types": "enqueued started started",
				"jobs":  "started completed",
				"queue": "started completed", "none": "", "both": "enqueued started completed",
			} {
				if got := names(received(subs[name])); got != want {
					t.Errorf("%s: %q, want %q", name, got, want)
				}
				subs[name].Close()
				subs[name].Close()
				if _, open := <-subs[name].C(); open {
					t.Errorf("%s: not closed", name)
				}
			}
			b.enqueue("x")
			b.advance(time.Minute)
		})
	})
	t.Run("a slow subscriber holds nobody up and is told", func(t *testing.T) {
		inBubble(t, func(b *rig) {
			b.handle("x", func(context.Context, *ojs.Job[any]) error { return nil })
			sub := b.Subscribe(engine.EventFilter{Types: []event.Type{event.Enqueued}, Buffer: 2})
			defer sub.Close()
			b.run()
			for range 7 {
				b.enqueue("x")
			}
			b.advance(0)
			if got := received(sub); len(got) != 2 || got[0].Missed+got[1].Missed != 0 {
				t.Errorf("%+v", got)
			}
			b.enqueue("x")
			b.advance(0) // an event may wait for a call that is under way
			if got := received(sub); len(got) != 1 || got[0].Missed != 5 {
				t.Errorf("missed %+v", got)
			}
			b.enqueue("x")
			b.advance(0)
			if got := received(sub); len(got) != 1 || got[0].Missed != 0 {
				t.Errorf("told twice: %+v", got)
			}
		})
	})
}

// walk checks that the events of one job tell a life that the transition table allows.
func walk(events []event.Event) error {
	var state ojs.State
	for _, ev := range events {
		if err := step(&state, ev); err != nil {
			return fmt.Errorf("%w in %s", err, names(events))
		}
	}
	return nil
}

// step checks one event of a job that was in a state, "" before its first event, and
// moves the state on.
func step(state *ojs.State, ev event.Event) error {
	was, is := *state, ev.Job.State
	*state = is
	legal := was == is || was.CanBecome(is)
	// A job becomes available without an event when its time comes.
	if !legal && (was == ojs.StateScheduled || was == ojs.StateRetryable) {
		legal = ojs.StateAvailable.CanBecome(is)
	}
	// The lease of a claim may end before the handler starts.
	if ev.Type == event.Stalled && was.Waiting() {
		legal = ojs.StateActive.CanBecome(is)
	}
	if was == "" {
		legal = ev.Type == event.Enqueued
	}
	if ev.Type == event.Started && was == ojs.StateActive {
		legal = false
	}
	if !legal {
		return fmt.Errorf("%s: from %q to %s", ev.Type, was, is)
	}
	return nil
}

func byJob(events []event.Event) map[string][]event.Event {
	jobs := make(map[string][]event.Event)
	for _, ev := range events {
		jobs[ev.Job.ID] = append(jobs[ev.Job.ID], ev)
	}
	return jobs
}

func TestWalkFindsFaults(t *testing.T) {
	life := func(s ...ojs.State) (events []event.Event) {
		for i, state := range s {
			typ := event.Started
			if i == 0 {
				typ = event.Enqueued
			} else if state != ojs.StateActive {
				typ = event.Failed
			}
			events = append(events, event.Event{Type: typ, Job: &ojs.JobInfo{State: state}})
		}
		return events
	}
	if err := walk(life("available", "active", "retryable", "active", "completed")); err != nil {
		t.Error(err)
	}
	for _, bad := range [][]event.Event{
		life("available", "completed"), life("available", "active", "active"), life("scheduled", "completed"),
		life("available", "active", "completed", "active"), slices.Concat(life("available", "active")[1:],
			life("available")),
	} {
		if walk(bad) == nil {
			t.Errorf("%s is taken for a life", names(bad))
		}
	}
}
