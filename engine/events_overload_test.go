package engine_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/ojsengine/ojs"
	"github.com/ojsengine/ojs/engine"
	"github.com/ojsengine/ojs/event"
	"github.com/ojsengine/ojs/storage"
	"github.com/ojsengine/ojs/storage/memory"
	"github.com/ojsengine/ojs/storage/storagetest"
)

// One call that hangs silences no events of jobs that are not in it. The events of its
// own jobs come in order when it returns.
func TestHungCallSilencesNoOtherJob(t *testing.T) {
	const others = 3000
	synctest.Test(t, func(t *testing.T) {
		var seen record
		// The storage stores the outcome of one job and does not return until it may.
		gate, with := make(chan struct{}), 0 // other jobs in the call that hangs
		s := &storagetest.Faulty{Storage: memory.New()}
		eng, err := engine.New[any](s, quiet, engine.WithObserver(&seen), engine.WithConcurrency(4))
		if err != nil {
			t.Fatal(err)
		}
		eng.Handle("job", func(context.Context, *ojs.Job[any]) error { return nil })
		hung, err := eng.Enqueue(t.Context(), "job", nil)
		if err != nil {
			t.Fatal(err)
		}
		s.OnCall(func(c *storagetest.Call) {
			changes, _ := c.In.([]storage.Change)
			if slices.ContainsFunc(changes, func(ch storage.Change) bool { return ch.Record.ID == hung.ID }) {
				c.Do()
				with = len(changes) - 1
				<-gate
			}
		})
		drafts := make([]ojs.Draft, others)
		for i := range drafts {
			drafts[i] = ojs.NewDraft("job", any(nil))
		}
		if _, err := eng.EnqueueMany(t.Context(), drafts...); err != nil {
			t.Fatal(err)
		}
		ctx, stop := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- eng.Run(ctx) }()
		synctest.Wait()
		count := func() (completed int, ofHung []string) {
			for _, ev := range seen.seen() {
				if ev.Type == event.Completed {
					completed++
				}
				if ev.Subject == hung.ID {
					ofHung = append(ofHung, string(ev.Type))
				}
			}
			return completed, ofHung
		}
		if n, _ := count(); n != others-with || with > 3 {
			t.Errorf("while a call of %d jobs hangs, %d of %d others are seen to complete", with+1, n, others)
		}
		close(gate)
		stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
		n, of := count()
		if n != others+1 || strings.Join(of, " ") != "job.enqueued job.started job.completed" {
			t.Errorf("in the end %d completed, and the job of the call has %v", n, of)
		}
	})
}

// A subscription makes no snapshots of jobs that it does not select.
func TestUnselectedEventsAreNotMade(t *testing.T) {
	allocs := func(f *engine.EventFilter) float64 {
		eng, err := engine.New[any](memory.New(), quiet)
		if err != nil {
			t.Fatal(err)
		}
		if f != nil {
			defer eng.Subscribe(*f).Close()
		}
		drafts := make([]ojs.Draft, 200)
		for i := range drafts {
			drafts[i] = ojs.NewDraft("job", any(nil))
		}
		return testing.AllocsPerRun(5, func() {
			if _, err := eng.EnqueueMany(t.Context(), drafts...); err != nil {
				t.Fatal(err)
			}
		}) / float64(len(drafts))
	}
	unheard := allocs(nil)
	for name, f := range map[string]engine.EventFilter{
		"type":  {Types: []event.Type{"cron.*"}},
		"queue": {Queues: []string{"other"}},
		"job":   {JobIDs: []string{"other"}},
	} {
		t.Run(name, func(t *testing.T) {
			if n := allocs(&f); n > unheard+1 {
				t.Errorf("%v allocations for a job, and %v without a subscription", n, unheard)
			}
		})
	}
}

// BenchmarkObservedBatch enqueues a batch while an observer listens: a job of a large
// batch costs what one of a small batch does.
func BenchmarkObservedBatch(b *testing.B) {
	for _, n := range []int{100, 16_000} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			var seen ignore
			eng, err := engine.New[int](memory.New(), quiet, engine.WithObserver(seen))
			if err != nil {
				b.Fatal(err)
			}
			drafts := make([]ojs.Draft, n)
			for i := range drafts {
				drafts[i] = ojs.NewDraft("job", i)
			}
			for b.Loop() {
				if _, err := eng.EnqueueMany(b.Context(), drafts...); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/float64(n), "ns/job")
		})
	}
}

type ignore struct{}

func (ignore) Observe(*event.Event) {}

// BenchmarkListeners runs jobs without a listener, with a subscription that selects none
// of their events, and with an observer.
func BenchmarkListeners(b *testing.B) {
	for _, tt := range []struct {
		name   string
		filter *engine.EventFilter
		opts   []engine.Option
	}{
		{name: "none"},
		{name: "other type", filter: &engine.EventFilter{Types: []event.Type{"cron.*"}}},
		{name: "other queue", filter: &engine.EventFilter{Queues: []string{"other"}}},
		{name: "other job", filter: &engine.EventFilter{JobIDs: []string{"other"}}},
		{name: "observer", opts: []engine.Option{engine.WithObserver(ignore{})}},
	} {
		b.Run(tt.name, func(b *testing.B) {
			eng, err := engine.New[int](memory.New(), append(tt.opts, quiet)...)
			if err != nil {
				b.Fatal(err)
			}
			eng.Handle("job", func(context.Context, *ojs.Job[int]) error { return nil })
			if tt.filter != nil {
				defer eng.Subscribe(*tt.filter).Close()
			}
			ctx, stop := context.WithCancel(b.Context())
			ended := make(chan error, 1)
			go func() { ended <- eng.Run(ctx) }()
			for i := 0; b.Loop(); i++ {
				if _, err := eng.Enqueue(ctx, "job", i); err != nil {
					b.Fatal(err)
				}
			}
			if err := eng.WaitIdle(ctx); err != nil {
				b.Fatal(err)
			}
			stop()
			if err := <-ended; err != nil {
				b.Fatal(err)
			}
		})
	}
}
