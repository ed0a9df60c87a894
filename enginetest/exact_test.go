package enginetest_test

import (
	"context"
	"slices"
	"testing"
	"time"

	"github.com/ojsengine/ojs"
	"github.com/ojsengine/ojs/engine"
	"github.com/ojsengine/ojs/engine/fetch"
	"github.com/ojsengine/ojs/enginetest"
	"github.com/ojsengine/ojs/event"
	"github.com/ojsengine/ojs/handler"
)

// Each timer fires at its nanosecond: starts, retries with jitter, snoozes, sleeps,
// timeouts, deadlines, lost leases. Only retention waits for up to a millisecond more.
func TestExactToTheNanosecond(t *testing.T) {
	const odd = time.Second + 1234567*time.Nanosecond
	both(t, func(t *testing.T, eng *enginetest.Engine[any]) {
		sub := eng.Subscribe(engine.EventFilter{Types: []event.Type{event.Retrying}, Buffer: 100})
		var starts, retries, snoozes, sleeps note
		eng.Handle("start", func(context.Context, *ojs.Job[any]) error {
			starts.add(eng.Elapsed())
			return nil
		})
		eng.Handle("retry", func(context.Context, *ojs.Job[any]) error {
			retries.add(eng.Elapsed())
			return errBoom
		})
		eng.Handle("snooze", func(context.Context, *ojs.Job[any]) error {
			if snoozes.add(eng.Elapsed()) < 3 {
				return ojs.Snooze(odd)
			}
			return nil
		})
		eng.Handle("sleep", func(ctx context.Context, _ *ojs.Job[any]) error {
			err := handler.Sleep(ctx, odd)
			sleeps.add(eng.Elapsed())
			return err
		})
		eng.Handle("slow", func(ctx context.Context,
			_ *ojs.Job[any]) error {
			return handler.Sleep(ctx, time.Hour)
		})
		var wantStarts []time.Duration
		for i := range 50 {
			at := odd + time.Duration(i)
			wantStarts = append(wantStarts, at)
			eng.MustEnqueue(ojs.NewDraft("start", i, ojs.WithDelay(at)))
		}
		retry := eng.MustEnqueue(ojs.NewDraft("retry", nil, ojs.WithMaxAttempts(6)))
		eng.MustEnqueue(ojs.NewDraft("snooze", nil))
		eng.MustEnqueue(ojs.NewDraft("sleep", nil))
		ends := map[string]string{
			"timeout": eng.MustEnqueue(ojs.NewDraft("slow", nil, ojs.WithTimeout(odd),
				ojs.WithMaxAttempts(1))).ID,
			"total timeout": eng.MustEnqueue(ojs.NewDraft("slow", nil, ojs.WithTotalTimeout(odd))).ID,
			"enqueue TTL":   eng.MustEnqueue(ojs.NewDraft("nobody", nil, ojs.WithEnqueueTTL(odd))).ID,
			"deadline":      eng.MustEnqueue(ojs.NewDraft("nobody", nil, ojs.WithTTL(odd))).ID,
			"lease": eng.MustEnqueue(ojs.NewDraft("foreign", nil, ojs.WithLease(odd),
				ojs.WithMaxAttempts(1))).ID,
		}
		_, err := eng.Worker("w", fetch.Config{Types: []string{"foreign"}}).Fetch(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		eng.Advance(time.Hour)

		sub.Close()
		wantRetries := []time.Duration{0}
		for ev := range sub.C() {
			if ev.Subject == retry.ID {
				wantRetries = append(wantRetries, ev.Job.NextRetryAt.Sub(enginetest.Start))
			}
		}
		if !slices.ContainsFunc(wantRetries,
			func(at time.Duration) bool { return at%time.Microsecond != 0 }) || len(wantRetries) != 6 {
			t.Errorf("retries are due at %v, not at five times of any nanosecond", wantRetries[1:])
		}
		for what, tt := range map[string]struct{ got, want []time.Duration }{
			"starts": {starts.times(), wantStarts}, "retries": {retries.times(), wantRetries},
			"snoozes": {snoozes.times(), []time.Duration{0, odd, 2 * odd}},
			"sleeps":  {sleeps.times(), []time.Duration{odd}},
		} {
			if !slices.Equal(tt.got, tt.want) {
				t.Errorf("%s at %v, want %v", what, tt.got, tt.want)
			}
		}
		for what, id := range ends {
			if got := eng.RequireState(id, ojs.StateDiscarded).FinishedAt.Sub(enginetest.Start); got != odd {
				t.Errorf("the %s came after %v, want %v", what, got, odd)
			}
		}
	})
}

// A handler may sleep on after its timeout.
func TestSleepBeyondTheTimeout(t *testing.T) {
	eng := enginetest.New[any](t)
	var woke time.Duration
	eng.Handle("x", func(ctx context.Context, _ *ojs.Job[any]) error {
		defer func() { woke = eng.Elapsed() }()
		return handler.Sleep(context.WithoutCancel(ctx), time.Hour)
	})
	id := eng.MustEnqueue(ojs.NewDraft("x", nil, ojs.WithTimeout(time.Minute), ojs.WithMaxAttempts(1))).ID
	eng.Advance(2 * time.Hour)
	job := eng.RequireState(id, ojs.StateDiscarded)
	if job.FinishedAt.Sub(enginetest.Start) != time.Minute+engine.DefaultGracePeriod ||
		woke != time.Hour {
		t.Errorf("ended at %v, woke after %v", job.FinishedAt, woke)
	}
}
