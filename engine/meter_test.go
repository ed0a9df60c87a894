package engine_test

import (
	"context"
	"fmt"
	"reflect"
	"slices"
	"testing"
	"time"

	"github.com/ojsengine/ojs"
	"github.com/ojsengine/ojs/internal/test/pace"
	"github.com/ojsengine/ojs/telemetry"
	"github.com/ojsengine/ojs/workflow"
)

// The meter counts each kind of end once, and how long jobs waited and ran.
func TestMeter(t *testing.T) {
	inBubble(t, func(b *rig) {
		b.Handle("x", func(ctx context.Context, job *ojs.Job[any]) error {
			pace.Virtual(100 * time.Millisecond)
			switch {
			case job.Args == "fails once" && job.Attempt == 1:
				return ojs.Errorf("t", "no")
			case job.Args == "dies":
				return ojs.DeadLetter(ojs.Errorf("t", "no"))
			case job.Args == "snoozes" && job.Meta["snoozed"] == nil && time.Since(b.start) < time.Hour:
				return ojs.Snooze(2 * time.Hour)
			}
			return nil
		})
		add := func(args string, opts ...ojs.Option) string {
			ticket, err := b.Enqueue(b.ctx, "x", args, opts...)
			must(t, err)
			return ticket.ID
		}
		add("fine")
		add("fails once")
		add("dies")
		add("snoozes")
		cancelled := add("late", ojs.WithDelay(24*time.Hour))
		add("expires", ojs.WithPending(), ojs.WithExpiresAt(time.Now().Add(30*time.Minute)))
		add("other", ojs.WithQueue("q2"))
		must(t, b.Cancel(b.ctx, cancelled))
		b.advance(5 * time.Second)
		b.run()
		b.advance(4 * time.Hour)
		m := b.Meter()
		if len(m) != 2 || m[0].Queue != "default" || m[1].Queue != "q2" ||
			m[1].Completed != 1 || m[1].Enqueued != 1 {
			t.Fatalf("%+v", m)
		}
		got := m[0]
		want := telemetry.Meter{
			Queue: "default", Type: "x", Enqueued: 6, Started: 6, Completed: 3, Failed: 2, Retried: 1,
			Discarded: 1, DeadLettered: 1, Returned: 1, Cancelled: 1, Expired: 1,
		}
		counters := got
		for _, h := range []*telemetry.Histogram{&counters.Wait, &counters.Run, &counters.EnqueueTime,
			&counters.CompletedTime, &counters.RetriedTime, &counters.DiscardedTime} {
			*h = telemetry.Histogram{}
		}
		if !reflect.DeepEqual(counters, want) {
			t.Errorf("%+v, want %+v", counters, want)
		}
		// 100 ms is within 100 ms.
		const short, long = 50 * time.Millisecond, 100 * time.Millisecond
		for name, h := range map[string]struct {
			got    telemetry.Histogram
			n      uint64
			longer time.Duration
			within time.Duration
			sum    time.Duration
		}{
			"run":       {got.Run, 6, short, long, 600 * time.Millisecond},
			"enqueue":   {got.EnqueueTime, 6, -1, time.Millisecond, 0},
			"completed": {got.CompletedTime, 3, short, long, 300 * time.Millisecond},
			"retried":   {got.RetriedTime, 1, short, long, 100 * time.Millisecond},
			"discarded": {got.DiscardedTime, 1, short, long, 100 * time.Millisecond},
		} {
			below := uint64(0)
			if h.longer >= 0 {
				below = h.got.Within(h.longer)
			}
			if h.got.Count != h.n || below != 0 || h.got.Within(h.within) != h.n || h.got.Sum != h.sum {
				t.Errorf("%s: %+v", name, h.got)
			}
		}
		// The snoozed attempt was the first, and so is the one after it.
		if w := got.Wait; w.Count != 5 || w.Within(time.Second) != 0 || w.Within(5*time.Second) != 4 ||
			w.Within(time.Hour) != 4 || w.Sum.Round(time.Second) != 2*time.Hour+25*time.Second {
			t.Errorf("waits %+v", w)
		}
		sum := m[0]
		sum.Add(&m[1])
		if sum.Enqueued != 7 || sum.Completed != 4 || sum.Run.Count != 7 || sum.Queue != "default" ||
			sum.Started != 7 || sum.EnqueueTime.Count != 7 || sum.CompletedTime.Count != 4 ||
			sum.RetriedTime.Count != 1 || sum.DiscardedTime.Count != 1 {
			t.Errorf("%+v", sum)
		}
	})
}

// A job without a handler that completes because others have ended counts as well, and so
// does one that such an end cancels.
func TestMeterOfDependentJobs(t *testing.T) {
	inBubble(t, func(b *rig) {
		b.Handle("x", func(ctx context.Context, job *ojs.Job[any]) error { return nil })
		step := workflow.Step("", ojs.NewDraft("x", any(nil)))
		w, err := b.Workflows().Start(b.ctx, workflow.New("w", step))
		must(t, err)
		cancelled, err := b.Enqueue(b.ctx, "later", nil, ojs.WithDelay(time.Hour))
		must(t, err)
		_, err = b.Enqueue(b.ctx, "after", nil, ojs.WithDependsOn(cancelled.ID))
		must(t, err)
		must(t, b.Cancel(b.ctx, cancelled.ID))
		b.run()
		b.advance(time.Minute)
		if _, err := b.Workflows().Get(b.ctx, w.ID); err != nil {
			t.Error(err)
		}
		for _, m := range b.Meter() {
			want := telemetry.Meter{Enqueued: 1, Completed: 1}
			if m.Type == "later" || m.Type == "after" {
				want = telemetry.Meter{Enqueued: 1, Cancelled: 1}
			}
			if m.Enqueued != want.Enqueued || m.Completed != want.Completed || m.Cancelled != want.Cancelled {
				t.Errorf("%s: %+v, want %+v", m.Type, m, want)
			}
		}
		if n := len(b.Meter()); n != 5 { // with the record and the join of the workflow
			t.Errorf("%d types", n)
		}
	})
}

// However many queues and types there are, the meter keeps a bounded number.
func TestMeterIsBounded(t *testing.T) {
	inBubble(t, func(b *rig) {
		for n := range telemetry.MeterPairs + 50 {
			_, err := b.Enqueue(b.ctx, "x", n, ojs.WithQueue(fmt.Sprint("q", n)))
			must(t, err)
		}
		m := b.Meter()
		i := slices.IndexFunc(m, func(m telemetry.Meter) bool { return m.Queue == telemetry.MeterOther })
		if len(m) != telemetry.MeterPairs+1 || i < 0 || m[i].Enqueued != 50 ||
			m[i].Type != telemetry.MeterOther {
			t.Errorf("%d pairs, the others at %d", len(m), i)
		}
	})
}
