package ojsotel_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"

	"go.opentelemetry.io/otel/baggage"
	"go.opentelemetry.io/otel/codes"
	noopmetric "go.opentelemetry.io/otel/metric/noop"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.opentelemetry.io/otel/trace"
	nooptrace "go.opentelemetry.io/otel/trace/noop"

	"github.com/ojsengine/ojs"
	"github.com/ojsengine/ojs/engine"
	ojsotel "github.com/ojsengine/ojs/otel"
	"github.com/ojsengine/ojs/storage/memory"
)

func find(t *testing.T, spans tracetest.SpanStubs, name string) tracetest.SpanStub {
	t.Helper()
	for _, s := range spans {
		if s.Name == name {
			return s
		}
	}
	t.Fatalf("no span %q", name)
	return tracetest.SpanStub{}
}

func withBaggage(t *testing.T, ctx context.Context, value string) context.Context {
	t.Helper()
	member, err := baggage.NewMember("tenant", value)
	if err != nil {
		t.Fatal(err)
	}
	b, err := baggage.New(member)
	if err != nil {
		t.Fatal(err)
	}
	return baggage.ContextWithBaggage(ctx, b)
}

// A request enqueues in one engine and another one, on the same storage, runs the job.
func TestContextTravels(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memory.New()
		web, worker := newRig(t, store), newRig(t, store)
		var inside trace.SpanContext
		worker.Handle("mail.send", func(ctx context.Context, job *ojs.Job[any]) error {
			inside = trace.SpanContextFromContext(ctx)
			if tenant := baggage.FromContext(ctx).Member("tenant").Value(); tenant != "acme" {
				t.Errorf("the handler's tenant is %q", tenant)
			}
			_, err := worker.Enqueue(ctx, "mail.log", nil)
			return err
		})
		ctx, request := web.tracers.Tracer("web").Start(withBaggage(t, t.Context(), "acme"), "POST /signup")
		id := web.enqueue(ctx, "mail.send")
		request.End()
		worker.during(func(context.Context) { synctest.Wait() })

		enqueue := find(t, web.spans.GetSpans(), "default enqueue")
		process := find(t, worker.spans.GetSpans(), "default process")
		if enqueue.Parent.SpanID() != request.SpanContext().SpanID() {
			t.Error("the enqueue is no part of the request")
		}
		if len(process.Links) != 1 || process.Links[0].SpanContext.SpanID() != enqueue.SpanContext.SpanID() ||
			process.Links[0].SpanContext.TraceID() != enqueue.SpanContext.TraceID() {
			t.Errorf("P1.10 the attempt is linked to %v, want %v", process.Links, enqueue.SpanContext)
		}
		if process.Parent.IsValid() || process.SpanContext.TraceID() == enqueue.SpanContext.TraceID() {
			t.Error("the attempt is no trace of its own")
		}
		if !inside.Equal(process.SpanContext) {
			t.Errorf("the handler is in %v, want %v", inside, process.SpanContext)
		}
		var next tracetest.SpanStub
		for _, s := range worker.spans.GetSpans() {
			if s.Name == "default enqueue" {
				next = s
			}
		}
		if next.Parent.SpanID() != process.SpanContext.SpanID() {
			t.Error("what the handler enqueued is no part of the attempt")
		}
		job, err := web.Get(t.Context(), id)
		if err != nil {
			t.Fatal(err)
		}
		parent, _ := job.Meta["traceparent"].(string)
		if !strings.Contains(parent, enqueue.SpanContext.TraceID().String()) ||
			job.Meta["baggage"] != "tenant=acme" {
			t.Errorf("P1.10 meta %v", job.Meta)
		}
	})
}

func TestEveryAttemptIsLinked(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, memory.New())
		r.Handle("flaky", func(_ context.Context, job *ojs.Job[any]) error {
			if job.Attempt < 3 {
				return ojs.RetryAfter(0, errors.New("again"))
			}
			return nil
		})
		r.enqueue(t.Context(), "flaky")
		r.during(func(context.Context) { synctest.Wait() })
		enqueue := find(t, r.spans.GetSpans(), "default enqueue")
		attempts := 0
		for _, s := range r.spans.GetSpans() {
			if s.Name == "default process" {
				attempts++
				if len(s.Links) != 1 || s.Links[0].SpanContext.SpanID() != enqueue.SpanContext.SpanID() {
					t.Errorf("attempt %d is linked to %v", attempts, s.Links)
				}
			}
		}
		if attempts != 3 {
			t.Errorf("%d attempts", attempts)
		}
	})
}

func TestBaggageTravels(t *testing.T) {
	value := strings.Repeat("x", 8192-len("tenant="))
	r := newRig(t, memory.New())
	id := r.enqueue(withBaggage(t, t.Context(), value), "job")
	job, err := r.Get(t.Context(), id)
	if err != nil {
		t.Fatal(err)
	}
	if job.Meta["baggage"] != "tenant="+value {
		t.Errorf("P1.10 8192 bytes of baggage do not travel")
	}
}

// Metadata that no propagator wrote is no context.
func TestForeignMeta(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memory.New()
		other, err := engine.New[any](store) // without telemetry, which would put its own there
		if err != nil {
			t.Fatal(err)
		}
		if _, err := other.Enqueue(t.Context(), "job", nil, ojs.WithMeta("traceparent", 7),
			ojs.WithMeta("baggage", []string{"x"})); err != nil {
			t.Fatal(err)
		}
		r := newRig(t, store)
		r.Handle("job", func(context.Context, *ojs.Job[any]) error { return nil })
		r.during(func(context.Context) { synctest.Wait() })
		if s := find(t, r.spans.GetSpans(), "default process"); len(s.Links) > 0 {
			t.Errorf("linked to %v", s.Links)
		}
	})
}

type evil struct{ err error }

func (e *evil) Error() string { panic("no message") }
func (e *evil) Unwrap() error { return e.err }

type circle struct{ next error }

func (c *circle) Error() string { return "round" }
func (c *circle) Unwrap() error { return c.next }

func TestHostileErrors(t *testing.T) {
	round := &circle{}
	round.next = round
	for _, tt := range []struct {
		err          error
		kind, status string
	}{
		{&evil{}, "error", "the Error method of *ojsotel_test.evil panicked"},
		{round, "error", "round"},
		{errors.Join(errors.New("a"), ojs.Errorf("b.c", "d")), "b.c", "a\nd"},
	} {
		synctest.Test(t, func(t *testing.T) {
			r := newRig(t, memory.New())
			r.Handle("job", func(context.Context, *ojs.Job[any]) error { return tt.err })
			r.enqueue(t.Context(), "job", ojs.WithMaxAttempts(1))
			r.during(func(context.Context) { synctest.Wait() })
			s := find(t, r.spans.GetSpans(), "default process")
			kind := ""
			for _, a := range s.Attributes {
				if a.Key == "error.type" {
					kind = a.Value.AsString()
				}
			}
			if s.Status.Code != codes.Error || s.Status.Description != tt.status || kind != tt.kind {
				t.Errorf("status %v, type %q", s.Status, kind)
			}
		})
	}
}

func TestNew(t *testing.T) {
	for name, opt := range map[string]ojsotel.Option{
		"tracers": ojsotel.WithTracerProvider(nil), "meters": ojsotel.WithMeterProvider(nil),
		"propagator": ojsotel.WithPropagator(nil), "clock": ojsotel.WithClock(nil),
	} {
		if _, err := ojsotel.New(opt); err == nil {
			t.Errorf("no %s: no error", name)
		}
	}
	telemetry, err := ojsotel.New(ojsotel.WithTracerProvider(nooptrace.NewTracerProvider()),
		ojsotel.WithMeterProvider(noopmetric.NewMeterProvider()))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := telemetry.Watch(nil); err == nil {
		t.Error("it watches nothing")
	}
	if _, err := ojsotel.New(); err != nil {
		t.Errorf("with the global providers: %v", err)
	}
}

func TestFailingStats(t *testing.T) {
	r := newRig(t, memory.New())
	boom := errors.New("no stats")
	stop, err := r.Watch(func(context.Context) (engine.Stats, error) { return engine.Stats{}, boom })
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := stop(); err != nil {
			t.Error(err)
		}
	}()
	if err := r.reader.Collect(t.Context(), &metricdata.ResourceMetrics{}); !errors.Is(err, boom) {
		t.Errorf("collecting: %v", err)
	}
}
