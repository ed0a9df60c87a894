//go:build unix

package ojsotel_test

import (
	"context"
	"testing"

	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"
	nooptrace "go.opentelemetry.io/otel/trace/noop"

	"github.com/ojsengine/ojs/engine"
	"github.com/ojsengine/ojs/internal/test/watchcost"
	ojsotel "github.com/ojsengine/ojs/otel"
	"github.com/ojsengine/ojs/telemetry"
)

// BenchmarkWatched runs jobs without telemetry, with metrics and spans that nothing
// records, with metrics alone, and with metrics of a Producer.
func BenchmarkWatched(b *testing.B) {
	type makes func(*ojsotel.Telemetry) telemetry.Observer
	way := func(name string, produced bool, observer makes) watchcost.Way {
		return watchcost.Way{Name: name, Begin: func(b *testing.B) watchcost.Watch {
			var producer *ojsotel.Producer
			reader := sdkmetric.NewManualReader()
			if produced {
				producer = ojsotel.NewProducer()
				reader = sdkmetric.NewManualReader(sdkmetric.WithProducer(producer))
			}
			meters := sdkmetric.NewMeterProvider(sdkmetric.WithReader(reader))
			telemetry, err := ojsotel.New(ojsotel.WithTracerProvider(nooptrace.NewTracerProvider()),
				ojsotel.WithMeterProvider(meters), ojsotel.WithProducer(producer))
			if err != nil {
				b.Fatal(err)
			}
			return watchcost.Watch{Options: []engine.Option{engine.WithObserver(observer(telemetry))},
				Scrape: func() error {
					return reader.Collect(context.Background(), new(metricdata.ResourceMetrics))
				}}
		}}
	}
	whole := func(t *ojsotel.Telemetry) telemetry.Observer { return t }
	watchcost.Benchmark(b, watchcost.Way{Name: "alone"}, way("spans", false, whole),
		way("metrics", false, (*ojsotel.Telemetry).Metrics),
		way("producer", true, (*ojsotel.Telemetry).Metrics))
}
