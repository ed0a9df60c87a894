package ojsotel_test

import (
	"context"
	"fmt"
	"log"

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
