package ojsotel_test

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"go.opentelemetry.io/otel/attribute"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.opentelemetry.io/otel/trace"
	"go.uber.org/goleak"

	"github.com/ojsengine/ojs"
	"github.com/ojsengine/ojs/cron"
	"github.com/ojsengine/ojs/engine"
	"github.com/ojsengine/ojs/engine/fetch"
	"github.com/ojsengine/ojs/internal/test/pace"
	ojsotel "github.com/ojsengine/ojs/otel"
	"github.com/ojsengine/ojs/storage"
	"github.com/ojsengine/ojs/storage/memory"
	"github.com/ojsengine/ojs/workflow"
)

var update = flag.Bool("update", false, "write the golden files anew")

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var anID = regexp.MustCompile(`[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}`)

// rig is an engine whose telemetry stays in memory.
type rig struct {
	*engine.Engine[any]
	*ojsotel.Telemetry
	t       *testing.T
	spans   *tracetest.InMemoryExporter
	tracers *sdktrace.TracerProvider
	reader  *sdkmetric.ManualReader
}

func newRig(t *testing.T, store storage.Storage, opts ...engine.Option) *rig {
	t.Helper()
	return newProducingRig(t, store, nil, opts...)
}

// newProducingRig makes a rig whose telemetry has a Producer.
func newProducingRig(
	t *testing.T, store storage.Storage, producer *ojsotel.Producer, opts ...engine.Option,
) *rig {
	t.Helper()
	r := &rig{t: t, spans: tracetest.NewInMemoryExporter(), reader: sdkmetric.NewManualReader()}
	if producer != nil {
		r.reader = sdkmetric.NewManualReader(sdkmetric.WithProducer(producer))
	}
	r.tracers = sdktrace.NewTracerProvider(sdktrace.WithSyncer(r.spans))
	meters := sdkmetric.NewMeterProvider(sdkmetric.WithReader(r.reader))
	var err error
	if r.Telemetry, err = ojsotel.New(ojsotel.WithTracerProvider(r.tracers),
		ojsotel.WithMeterProvider(meters), ojsotel.WithProducer(producer)); err != nil {
		t.Fatal(err)
	}
	quiet := engine.WithLogger(slog.New(slog.NewTextHandler(io.Discard, nil)))
	opts = append([]engine.Option{quiet, engine.WithName("test"), engine.WithConcurrency(1),
		engine.WithObserver(r.Telemetry)}, opts...)
	if r.Engine, err = engine.New[any](store, opts...); err != nil {
		t.Fatal(err)
	}
	return r
}

// during runs the engine while f does what it does. It is called in a bubble.
func (r *rig) during(f func(ctx context.Context)) {
	r.t.Helper()
	ctx, stop := context.WithCancel(r.t.Context())
	ended := make(chan error)
	go func() { ended <- r.Run(ctx) }()
	synctest.Wait()
	f(ctx)
	stop()
	if err := <-ended; err != nil {
		r.t.Error(err)
	}
}

func (r *rig) enqueue(ctx context.Context, jobType string, opts ...ojs.Option) string {
	r.t.Helper()
	ticket, err := r.Enqueue(ctx, jobType, "args", opts...)
	if err != nil {
		r.t.Fatal(err)
	}
	return ticket.ID
}

// lines writes spans down, one a line and sorted, with what differs from run to run left
// out.
func lines(spans tracetest.SpanStubs) string {
	names := make(map[trace.SpanID]string)
	for _, s := range spans {
		names[s.SpanContext.SpanID()] = s.Name
	}
	var all []string
	for _, s := range spans {
		line := fmt.Sprintf("%s (%s)", s.Name, s.SpanKind)
		if s.Parent.IsValid() {
			line += " in " + names[s.Parent.SpanID()]
		}
		for _, l := range s.Links {
			line += " linked to " + names[l.SpanContext.SpanID()]
		}
		if s.Status.Code != 0 {
			line += fmt.Sprintf(" %s %q", s.Status.Code, s.Status.Description)
		}
		line += fmt.Sprintf(" %v", s.EndTime.Sub(s.StartTime))
		line = anID.ReplaceAllString(line, "…")
		var attrs []string
		for _, a := range s.Attributes {
			if a.Key == "ojs.worker.id" {
				a = attribute.String("ojs.worker.id", "…")
			}
			attrs = append(attrs, string(a.Key)+"="+anID.ReplaceAllString(a.Value.String(), "…"))
		}
		slices.Sort(attrs)
		all = append(all, line+"\n    "+strings.Join(attrs, " ")+"\n")
	}
	slices.Sort(all)
	return strings.Join(all, "")
}

// figures writes metrics down, one series a line and sorted.
func (r *rig) figures() string {
	r.t.Helper()
	var data metricdata.ResourceMetrics
	if err := r.reader.Collect(context.Background(), &data); err != nil {
		r.t.Fatal(err)
	}
	var all []string
	series := func(m metricdata.Metrics, set attribute.Set, value any) {
		var attrs []string
		for _, a := range set.ToSlice() {
			attrs = append(attrs, string(a.Key)+"="+a.Value.String())
		}
		all = append(all, fmt.Sprintf("%s{%s} %v %s\n", m.Name, strings.Join(attrs, ","), value, m.Unit))
	}
	for _, scope := range data.ScopeMetrics {
		for _, m := range scope.Metrics {
			switch d := m.Data.(type) {
			case metricdata.Sum[int64]:
				for _, p := range d.DataPoints {
					series(m, p.Attributes, p.Value)
				}
			case metricdata.Gauge[int64]:
				for _, p := range d.DataPoints {
					series(m, p.Attributes, p.Value)
				}
			case metricdata.Histogram[float64]:
				for _, p := range d.DataPoints {
					series(m, p.Attributes, fmt.Sprintf("%d times, %v in all, %d buckets to %v", p.Count,
						p.Sum, len(p.Bounds), p.Bounds[len(p.Bounds)-1]))
				}
			default:
				r.t.Errorf("%s is a %T", m.Name, d)
			}
		}
	}
	slices.Sort(all)
	return strings.Join(all, "")
}

func golden(t *testing.T, file, got string) {
	t.Helper()
	if *update {
		if err := os.WriteFile(file, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if got != string(want) {
		t.Errorf("not as in %s; got\n%s", file, got)
	}
}

// run lets an engine do everything that leaves a trace.
func run(t *testing.T, producer *ojsotel.Producer, then func(r *rig)) {
	synctest.Test(t, func(t *testing.T) {
		r := newProducingRig(t, memory.New(), producer, engine.WithGracePeriod(0))
		stop, err := r.Watch(r.Stats)
		if err != nil {
			t.Fatal(err)
		}
		once := ojs.WithMaxAttempts(1)
		r.Handle("mail.send", func(ctx context.Context, job *ojs.Job[any]) error {
			pace.Virtual(2 * time.Second)
			_, err := r.Enqueue(ctx, "mail.log", nil, ojs.WithPriority(5))
			return err
		})
		r.Handle("mail.log", func(context.Context, *ojs.Job[any]) error { return nil })
		r.Handle("flaky", func(_ context.Context, job *ojs.Job[any]) error {
			if job.Attempt == 1 {
				return ojs.Errorf("net.reset", "connection reset")
			}
			return nil
		})
		r.Handle("doomed",
			func(context.Context, *ojs.Job[any]) error {
				return ojs.DeadLetter(errors.New("no such account"))
			})
		r.Handle("needless",
			func(context.Context, *ojs.Job[any]) error {
				return ojs.Discard(errors.New("already sent"))
			})
		r.Handle("broken",
			func(context.Context, *ojs.Job[any]) error {
				return ojs.Permanent(errors.New("cannot be"))
			})
		r.Handle("panics", func(context.Context, *ojs.Job[any]) error { panic("ouch") })
		r.Handle("slow", func(ctx context.Context, _ *ojs.Job[any]) error {
			<-ctx.Done()
			return context.Cause(ctx)
		})
		r.enqueue(t.Context(), "mail.send", ojs.WithQueue("mail"))
		pace.Virtual(3 * time.Second)
		r.during(func(ctx context.Context) {
			settle := func() { pace.Virtual(time.Minute); synctest.Wait() }
			settle()
			r.enqueue(ctx, "flaky", ojs.WithRetry(ojs.RetryPolicy{InitialInterval: 4 * time.Second,
				Jitter: ojs.JitterOff}))
			settle()
			for _, jobType := range []string{"doomed", "needless", "broken", "panics"} {
				r.enqueue(ctx, jobType, once)
				settle()
			}
			cancelled := r.enqueue(ctx, "slow")
			synctest.Wait()
			if err := r.Cancel(ctx, cancelled); err != nil {
				t.Error(err)
			}
			if _, err := r.Get(ctx, cancelled); err != nil {
				t.Error(err)
			}
			settle()
			r.enqueue(ctx, "slow", once, ojs.WithTimeout(7*time.Second))
			settle()
			r.enqueue(ctx, "elsewhere", ojs.WithQueue("other"), ojs.WithTTL(time.Second))
			settle()
			r.enqueue(ctx, "elsewhere", ojs.WithQueue("other"), ojs.WithEnqueueTTL(time.Second))
			settle()
			late := ojs.NewDraft("mail.log", nil, ojs.WithDelay(time.Hour))
			if _, err := r.EnqueueMany(ctx, late, late); err != nil {
				t.Error(err)
			}
			unique := ojs.WithUnique(ojs.UniquePolicy{})
			r.enqueue(ctx, "elsewhere", unique, ojs.WithDelay(time.Hour))
			if _, err := r.Enqueue(ctx, "elsewhere", nil, unique); err == nil {
				t.Error("a duplicate was stored")
			}
			then(r)
		})
		if err := stop(); err != nil {
			t.Error(err)
		}
	})
}

// Spans have the size of a payload and nothing else of it (rule K016).
func TestSpans(t *testing.T) {
	run(t, nil, func(r *rig) {
		spans := r.spans.GetSpans()
		// How often an engine looks for what is due is its own business.
		spans = slices.DeleteFunc(spans, func(s tracetest.SpanStub) bool {
			return s.Name == "ojs.scheduler.poll" || s.Name == "ojs.reaper.check"
		})
		golden(t, "testdata/spans.golden", lines(spans))
	})
}

// A Producer makes the metrics that the instruments make.
func TestMetrics(t *testing.T) {
	for name, producer := range map[string]*ojsotel.Producer{
		"instruments": nil, "producer": ojsotel.NewProducer(),
	} {
		t.Run(name, func(t *testing.T) {
			run(t, producer, func(r *rig) {
				got := r.figures()
				golden(t, "testdata/metrics.golden", got)
				for _, secret := range []string{"no such account", "ouch", "args", "0199", "019a"} {
					if strings.Contains(got, secret) {
						t.Errorf("P1.10 the metrics say %q", secret)
					}
				}
			})
		})
	}
}

func TestWorkflowMetrics(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, memory.New())
		r.Handle("step", func(_ context.Context, job *ojs.Job[any]) error {
			if job.Args == "fails" {
				return ojs.Discard(errors.New("ouch"))
			}
			return nil
		})
		for _, second := range []string{"", "fails"} {
			w := workflow.New("report", workflow.Chain(workflow.Step("a", ojs.NewDraft("step", "")),
				workflow.Step("b", ojs.NewDraft("step", second))))
			if _, err := r.Workflows().Start(t.Context(), w); err != nil {
				t.Fatal(err)
			}
		}
		r.during(func(context.Context) { pace.Virtual(time.Second) })
		got := r.figures()
		for _, want := range []string{"ojs.workflow.created{workflow=report} 2 {workflow}",
			"ojs.workflow.ended{state=completed,workflow=report} 1 {workflow}",
			"ojs.workflow.ended{state=failed,workflow=report} 1 {workflow}",
			"ojs.workflow.step.ended{state=completed,workflow=report} 3 {step}",
			"ojs.workflow.step.ended{state=failed,workflow=report} 1 {step}",
			"ojs.workflow.duration{state=failed,workflow=report}"} {
			if !strings.Contains(got, want) {
				t.Errorf("no %s in\n%s", want, got)
			}
		}
	})
}

func TestEngineOperations(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, memory.New())
		r.Handle("tick", func(context.Context, *ojs.Job[any]) error { return nil })
		r.enqueue(t.Context(), "lost", ojs.WithMaxAttempts(1), ojs.WithLease(time.Second))
		if _, err := r.Worker("w", fetch.Config{}).Fetch(t.Context()); err != nil {
			t.Fatal(err)
		}
		if err := r.Cron().Set(t.Context(), cron.Entry{Name: "hourly", Schedule: "@hourly",
			Job: ojs.NewDraft("tick", nil)}); err != nil {
			t.Fatal(err)
		}
		r.during(func(context.Context) { pace.Virtual(61 * time.Minute) })
		seen := make(map[string]bool)
		for _, s := range r.spans.GetSpans() {
			seen[fmt.Sprintf("%s %s", s.Name, s.SpanKind)] = true
		}
		for _, want := range []string{"ojs.scheduler.poll internal", "ojs.reaper.check internal",
			"ojs.visibility.check internal",
			"ojs.retry.evaluate internal", "ojs.nack client", "ojs.cron.trigger internal",
			"default enqueue producer"} {
			if !seen[want] {
				t.Errorf("P1.10 no span %q among %q", want, slices.Sorted(maps.Keys(seen)))
			}
		}
	})
}
