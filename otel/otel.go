package ojsotel

import (
	"context"
	"errors"
	"fmt"

	"github.com/benbjohnson/clock"
	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"

	"github.com/ojsengine/ojs/engine"
	"github.com/ojsengine/ojs/internal/foreign"
	"github.com/ojsengine/ojs/internal/labels"
)

const scope = "github.com/ojsengine/ojs/otel"

// Telemetry is an engine.Observer and engine.Tracer that makes spans and metrics. It may
// serve several engines.
type Telemetry struct {
	brief
	tracer     trace.Tracer
	propagator propagation.TextMapPropagator
	meter      metric.Meter
	clock      clock.Clock
	keys       *labels.Names // of rate limits
	instruments
}

// brief says that Observe keeps nothing of an event.
type brief = foreign.BriefObserver

var (
	_ engine.Tracer        = (*Telemetry)(nil)
	_ engine.EventSelector = (*Telemetry)(nil)
	_ brief                = Telemetry{}.brief // engines look for it
)

// Option configures a Telemetry.
type Option func(*config)

type config struct {
	tracers    trace.TracerProvider
	meters     metric.MeterProvider
	propagator propagation.TextMapPropagator
	clock      clock.Clock
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

// New makes a Telemetry. Its error is that of an instrument that could not be made.
func New(opts ...Option) (*Telemetry, error) {
	c := config{
		tracers: otel.GetTracerProvider(), meters: otel.GetMeterProvider(), clock: clock.New(),
		propagator: propagation.NewCompositeTextMapPropagator(propagation.TraceContext{},
			propagation.Baggage{}),
	}
	for _, opt := range opts {
		opt(&c)
	}
	if c.tracers == nil || c.meters == nil || c.propagator == nil || c.clock == nil {
		return nil, errors.New("ojs: otel: an option is nil")
	}
	t := &Telemetry{tracer: c.tracers.Tracer(scope), propagator: c.propagator, meter: c.meters.Meter(scope),
		clock: c.clock, keys: labels.New(mostKeys)}
	var err error
	if t.instruments, err = newInstruments(t.meter); err != nil {
		return nil, fmt.Errorf("ojs: otel: %w", err)
	}
	return t, nil
}

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
	}, t.depth, t.active, t.busy, t.quarantined)
	if err != nil {
		return nil, fmt.Errorf("ojs: otel: %w", err)
	}
	return r.Unregister, nil
}
