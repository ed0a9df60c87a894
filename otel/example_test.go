package ojsotel_test

import (
	"context"
	"fmt"
	"log"

	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"
	"go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"

	"github.com/ojsengine/ojs"
	"github.com/ojsengine/ojs/engine"
	ojsotel "github.com/ojsengine/ojs/otel"
	"github.com/ojsengine/ojs/storage/memory"
)

// A request, the job that it enqueues, and the job's attempt, as spans.
func Example() {
	exporter := tracetest.NewInMemoryExporter() // or that of your backend
	provider := trace.NewTracerProvider(trace.WithSyncer(exporter))
	telemetry, err := ojsotel.New(ojsotel.WithTracerProvider(provider))
	if err != nil {
		log.Fatal(err)
	}
	eng, err := engine.New[string](memory.New(), engine.WithObserver(telemetry))
	if err != nil {
		log.Fatal(err)
	}
	if _, err := telemetry.Watch(eng.Stats); err != nil {
		log.Fatal(err)
	}
	tracer := provider.Tracer("example")
	eng.Handle("mail.send", func(ctx context.Context, job *ojs.Job[string]) error {
		_, span := tracer.Start(ctx, "smtp")
		defer span.End()
		return nil
	})

	ctx, request := tracer.Start(context.Background(), "POST /signup")
	if _, err := eng.Enqueue(ctx, "mail.send", "ada@example.org"); err != nil {
		log.Fatal(err)
	}
	request.End()

	run, stop := context.WithCancel(context.Background())
	ended := make(chan error)
	go func() { ended <- eng.Run(run) }()
	if err := eng.WaitIdle(run); err != nil {
		log.Fatal(err)
	}
	stop()
	if err := <-ended; err != nil {
		log.Fatal(err)
	}
	for _, s := range exporter.GetSpans() {
		if len(s.Links) > 0 || s.Name == "smtp" || s.Name == "default enqueue" {
			fmt.Println(s.Name, "links:", len(s.Links))
		}
	}
	// Output:
	// default enqueue links: 0
	// smtp links: 0
	// default process links: 1
}

// Metrics without spans, for which a job that succeeds makes no event.
func ExampleNewProducer() {
	producer := ojsotel.NewProducer()
	// or sdkmetric.NewPeriodicReader(exporter, sdkmetric.WithProducer(producer))
	reader := sdkmetric.NewManualReader(sdkmetric.WithProducer(producer))
	meters := sdkmetric.NewMeterProvider(sdkmetric.WithReader(reader))
	telemetry, err := ojsotel.New(ojsotel.WithMeterProvider(meters), ojsotel.WithProducer(producer))
	if err != nil {
		log.Fatal(err)
	}
	eng, err := engine.New[string](memory.New(), engine.WithObserver(telemetry.Metrics()))
	if err != nil {
		log.Fatal(err)
	}
	if _, err := eng.Enqueue(context.Background(), "mail.send", "ada@example.org"); err != nil {
		log.Fatal(err)
	}
	var collected metricdata.ResourceMetrics
	if err := reader.Collect(context.Background(), &collected); err != nil {
		log.Fatal(err)
	}
	for _, scope := range collected.ScopeMetrics {
		for _, m := range scope.Metrics {
			fmt.Println(m.Name, m.Unit)
		}
	}
	// Output:
	// ojs.job.enqueued {job}
	// ojs.job.enqueue_duration s
}
