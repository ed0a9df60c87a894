package ojsotel

import (
	"context"
	"errors"
	"fmt"

	"github.com/benbjohnson/clock"
	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/metric/noop"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"

	"github.com/ojsengine/ojs/engine"
	"github.com/ojsengine/ojs/event"
	"github.com/ojsengine/ojs/internal/foreign"
	"github.com/ojsengine/ojs/internal/labels"
	"github.com/ojsengine/ojs/telemetry"
)

const scope = "github.com/ojsengine/ojs/otel"

// Telemetry is a telemetry.Observer and telemetry.Tracer that makes spans and metrics.
// It may serve several engines.
type Telemetry struct {
	brief
	tracer     trace.Tracer
	propagator propagation.TextMapPropagator
	meter      metric.Meter
	clock      clock.Clock
	keys       *labels.Names // of rate limits
	producer   *Producer     // nil: the instruments count all
	instruments
}

// brief says that Observe keeps nothing of an event.
type brief = foreign.BriefObserver

var (
	_ telemetry.Tracer        = (*Telemetry)(nil)
	_ telemetry.EventSelector = (*Telemetry)(nil)
	_ telemetry.MeterReader   = (*Telemetry)(nil)
	_ brief                   = Telemetry{}.brief // engines look for it
)

// Option configures a Telemetry.
type Option func(*config)

type config struct {
	tracers    trace.TracerProvider
	meters     metric.MeterProvider
	propagator propagation.TextMapPropagator
	clock      clock.Clock
	producer   *Producer
}

// WithTracerProvider sets where spans go. The default is otel's global provider.
func WithTracerProvider(p trace.TracerProvider) Option { return func(c *config) { c.tracers = p } }

// WithMeterProvider sets where metrics go. The default is otel's global provider.
func WithMeterProvider(p metric.MeterProvider) Option { return func(c *config) { c.meters = p } }

// WithPropagator sets how contexts travel in metadata. The default is the W3C trace
// context and baggage, as OJS distributed tracing has it.
func WithPropagator(p propagation.TextMapPropagator) Option {
	return func(c *config) { c.propagator = p }
}

// WithClock sets the clock that dates the spans, for tests under virtual time. The
// default is the system's.
func WithClock(cl clock.Clock) Option { return func(c *config) { c.clock = cl } }

// WithProducer has a Producer make the metrics of jobs that succeed, so that these jobs
// make no events. The Producer belongs to the reader of the metrics, too. The default is
// none.
func WithProducer(p *Producer) Option { return func(c *config) { c.producer = p } }

// New makes a Telemetry. Its error is that of an instrument that could not be made.
func New(opts ...Option) (*Telemetry, error) {
	c := config{
		tracers: otel.GetTracerProvider(), meters: otel.GetMeterProvider(), clock: clock.New(),
		propagator: propagation.NewCompositeTextMapPropagator(propagation.TraceContext{},
			propagation.Baggage{}),
	}
	for _, opt := range opts {
		if opt == nil {
			return nil, errors.New("ojs: otel: an option is nil")
		}
		opt(&c)
	}
	if c.tracers == nil || c.meters == nil || c.propagator == nil || c.clock == nil {
		return nil, errors.New("ojs: otel: an option is nil")
	}
	t := &Telemetry{tracer: c.tracers.Tracer(scope), propagator: c.propagator, meter: c.meters.Meter(scope),
		clock: c.clock, keys: labels.New(mostKeys), producer: c.producer}
	var err error
	if t.instruments, err = newInstruments(t.meter); err != nil {
		return nil, fmt.Errorf("ojs: otel: %w", err)
	}
	if t.producer != nil {
		t.enqueued, t.completed = noop.Int64Counter{}, noop.Int64Counter{}
		t.duration, t.queueTime, t.enqueueDuration = noop.Float64Histogram{}, noop.Float64Histogram{},
			noop.Float64Histogram{}
		t.producer.begin(t.clock)
	}
	return t, nil
}

// ReadMeter is telemetry.MeterReader's: engine.WithObserver calls it.
func (t *Telemetry) ReadMeter(meter func() []telemetry.Meter) {
	if t.producer != nil {
		t.producer.read(meter)
	}
}

// Metrics is the Telemetry without spans. An engine that observes it does nothing for
// them, while a tracer that records nothing still costs several times what a small job in
// memory costs. Contexts do not travel with the jobs then.
func (t *Telemetry) Metrics() telemetry.Observer { return metricsOf{t.brief, t} }

// metricsOf is a Telemetry that is no telemetry.Tracer.
type metricsOf struct {
	brief
	t *Telemetry
}

var (
	_ telemetry.EventSelector = metricsOf{}
	_ telemetry.MeterReader   = metricsOf{}
	_ brief                   = metricsOf{}.brief
)

func (m metricsOf) Observe(ev *event.Event)                  { m.t.Observe(ev) }
func (m metricsOf) EventTypes() []event.Type                 { return m.t.EventTypes() }
func (m metricsOf) ReadMeter(meter func() []telemetry.Meter) { m.t.ReadMeter(meter) }

// Watch adds the gauges of a storage's queues and an engine's workers: call it with the
// engine's Stats method. It is asked whenever metrics are collected. If engines share a
// storage watch only one, or the queues count twice.
//
// Stop ends it; its error, and that of Watch, is the meter's.
func (t *Telemetry) Watch(stats func(context.Context) (engine.Stats, error)) (stop func() error, err error) {
	if stats == nil {
		return nil, errors.New("ojs: otel: stats is nil")
	}
	r, err := t.meter.RegisterCallback(func(ctx context.Context, o metric.Observer) error {
		s, err := stats(ctx)
		if err != nil {
			return err
		}
		t.gauges(o, &s)
		return nil
	}, t.depth, t.active, t.busy, t.quarantined, t.notified)
	if err != nil {
		return nil, fmt.Errorf("ojs: otel: %w", err)
	}
	return r.Unregister, nil
}
