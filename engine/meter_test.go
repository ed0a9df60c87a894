package engine_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/ojsengine/ojs"
	"github.com/ojsengine/ojs/engine"
	"github.com/ojsengine/ojs/workflow"
)

// The meter counts each kind of end once, and how long jobs waited and ran.
func TestMeter(t *testing.T) {
	inBubble(t, func(b *rig) {
		b.Handle("x", func(ctx context.Context, job *ojs.Job[any]) error {
			time.Sleep(100 * time.Millisecond)
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
		wait, run := got.Wait, got.Run
		got.Wait, got.Run = engine.Histogram{}, engine.Histogram{}
		var none engine.MetricHistogram
		enqueues, queued := got.EnqueueTime, got.QueueTime
		completed, retried, discarded := got.CompletedTime, got.RetriedTime, got.DiscardedTime
		got.EnqueueTime, got.QueueTime = none, none
		got.CompletedTime, got.RetriedTime, got.DiscardedTime = none, none, none
		want := engine.JobMeter{
			Queue: "default", Type: "x", Enqueued: 6, Started: 6, Completed: 3, Failed: 2, Retried: 1,
			Discarded: 1, DeadLettered: 1, Returned: 1, Cancelled: 1, Expired: 1,
		}
		if got != want {
			t.Errorf("%+v, want %+v", got, want)
		}
		if run.Count != 6 || run.Sum != 600*time.Millisecond {
			t.Errorf("run %+v", run)
		}
		// 100 ms is in the bucket that ends at 100 ms, 5 s in the one that ends there.
		none.Buckets[0] = 6
		if enqueues != none {
			t.Errorf("enqueues %+v", enqueues)
		}
		none.Buckets[0], none.Buckets[4], none.Sum = 0, 3, 300*time.Millisecond
		if completed != none {
			t.Errorf("completed %+v", completed)
		}
		none.Buckets[4], none.Sum = 1, 100*time.Millisecond
		if retried != none || discarded != none {
			t.Errorf("retried %+v, discarded %+v", retried, discarded)
		}
		// The snoozed attempt was the first, and so is the one after it.
		if b := queued.Buckets; b[5] != 4 || b[len(engine.WaitBounds())] != 1 ||
			queued.Sum.Round(time.Second) != 2*time.Hour+25*time.Second {
			t.Errorf("queue times %+v", queued)
		}
		if p := run.Quantile(0.5); p < 50*time.Millisecond || p > 200*time.Millisecond {
			t.Errorf("median of runs: %v", p)
		}
		if p := wait.Quantile(0.5); wait.Count < 3 || p < 2500*time.Millisecond || p > 10*time.Second {
			t.Errorf("median of %d waits: %v", wait.Count, p)
		}
		sum := m[0]
		sum.Add(&m[1])
		if sum.Enqueued != 7 || sum.Completed != 4 || sum.Run.Count != 7 || sum.Queue != "default" ||
			sum.Started != 7 || sum.EnqueueTime.Buckets[0] != 7 || sum.CompletedTime.Buckets[4] != 4 ||
			sum.RetriedTime.Buckets[4] != 1 || sum.DiscardedTime.Buckets[4] != 1 {
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
			want := engine.JobMeter{Enqueued: 1, Completed: 1}
			if m.Type == "later" || m.Type == "after" {
				want = engine.JobMeter{Enqueued: 1, Cancelled: 1}
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
		for n := range engine.MeterPairs + 50 {
			_, err := b.Enqueue(b.ctx, "x", n, ojs.WithQueue(fmt.Sprint("q", n)))
			must(t, err)
		}
		m := b.Meter()
		i := slices.IndexFunc(m, func(m engine.JobMeter) bool { return m.Queue == engine.MeterOther })
		if len(m) != engine.MeterPairs+1 || i < 0 || m[i].Enqueued != 50 || m[i].Type != engine.MeterOther {
			t.Errorf("%d pairs, the others at %d", len(m), i)
		}
	})
}

// A quantile is at most twice or half of the one of the durations themselves.
func TestQuantiles(t *testing.T) {
	rnd := rand.New(rand.NewPCG(1, 2))
	for range 200 {
		var h engine.Histogram
		var all []time.Duration
		for range 1 + rnd.IntN(500) {
			d := time.Duration(float64(int64(1000)<<rnd.IntN(30)) * (1 + rnd.Float64()))
			all = append(all, d)
			var one engine.Histogram
			engine.Observe(&one, d)
			h.Add(&one)
		}
		slices.Sort(all)
		for _, q := range []float64{0, 0.5, 0.95, 0.99, 1} {
			want := all[max(0, int(q*float64(len(all))+0.999999)-1)]
			if got := h.Quantile(q); got < want/2-time.Microsecond || got > 2*want {
				t.Fatalf("quantile %v of %d: %v, want %v", q, len(all), got, want)
			}
		}
	}
	var none engine.Histogram
	if none.Quantile(0.5) != 0 {
		t.Error("a histogram without durations has a median")
	}
	engine.Observe(&none, 100*365*24*time.Hour)
	if got := none.Quantile(0.5); got < 76*time.Hour {
		t.Errorf("a century: %v", got)
	}
}
