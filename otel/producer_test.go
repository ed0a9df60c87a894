package ojsotel_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"testing/synctest"

	sdkmetric "go.opentelemetry.io/otel/sdk/metric"

	"github.com/ojsengine/ojs"
	"github.com/ojsengine/ojs/engine"
	"github.com/ojsengine/ojs/event"
	ojsotel "github.com/ojsengine/ojs/otel"
	"github.com/ojsengine/ojs/storage/memory"
	"github.com/ojsengine/ojs/telemetry"
)

var _ sdkmetric.Producer = (*ojsotel.Producer)(nil)

// selector is what an engine finds in the metrics of a Telemetry.
type selector interface {
	telemetry.EventSelector
	telemetry.MeterReader
}

// watcher notes the events that pass it.
type watcher struct {
	selector
	seen []event.Type
}

func (w *watcher) Observe(ev *event.Event) {
	w.seen = append(w.seen, ev.Type)
	w.selector.Observe(ev)
}

// With a Producer and without spans, a job makes events only if it fails.
func TestMetricsWithoutEvents(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newProducingRig(t, memory.New(), ojsotel.NewProducer())
		w := &watcher{selector: r.Metrics().(selector)}
		if _, ok := r.Metrics().(telemetry.Tracer); ok {
			t.Error("the metrics trace")
		}
		var engines [2]*engine.Engine[any]
		for i := range engines { // the second one on a storage of its own
			eng, err := engine.New[any](memory.New(), engine.WithObserver(w))
			if err != nil {
				t.Fatal(err)
			}
			eng.Handle("job", func(_ context.Context, job *ojs.Job[any]) error {
				if job.Args == "fails" {
					return ojs.Permanent(errors.New("no"))
				}
				return nil
			})
			engines[i] = eng
		}
		run := func(eng *engine.Engine[any], args ...any) {
			r.Engine = eng
			for _, a := range args {
				if _, err := eng.Enqueue(t.Context(), "job", a); err != nil {
					t.Fatal(err)
				}
			}
			r.during(func(context.Context) { synctest.Wait() })
		}
		run(engines[0], "succeeds", "succeeds")
		if len(w.seen) > 0 {
			t.Errorf("jobs that succeed make %v", w.seen)
		}
		run(engines[1], "succeeds", "fails")
		if want := []event.Type{event.Failed}; !slices.Equal(w.seen, want) {
			t.Errorf("a job that fails makes %v", w.seen)
		}
		got := r.figures()
		for _, want := range []string{
			"ojs.job.enqueued{queue=default,type=job} 4 {job}",
			"ojs.job.completed{queue=default,type=job} 3 {job}",
			"ojs.job.failed{queue=default,type=job} 1 {attempt}",
			"ojs.job.duration{queue=default,state=completed,type=job} 3 times",
			"ojs.job.duration{queue=default,state=discarded,type=job} 1 times",
			"ojs.job.queue_time{queue=default,type=job} 4 times",
			"ojs.job.enqueue_duration{queue=default,type=job} 4 times",
		} {
			if !strings.Contains(got, want) {
				t.Errorf("no %s in\n%s", want, got)
			}
		}
		if n := strings.Count(got, "\n"); n != 7 {
			t.Errorf("%d series:\n%s", n, got)
		}
		if spans := r.spans.GetSpans(); len(spans) > 0 {
			t.Errorf("%d spans", len(spans))
		}
	})
}

// A Producer without engines produces nothing.
func TestIdleProducer(t *testing.T) {
	if scopes, err := ojsotel.NewProducer().Produce(t.Context()); len(scopes) > 0 || err != nil {
		t.Error(scopes, err)
	}
}
