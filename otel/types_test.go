package ojsotel_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"

	"github.com/ojsengine/ojs"
	"github.com/ojsengine/ojs/event"
	"github.com/ojsengine/ojs/internal/test/eventtypes"
	ojsotel "github.com/ojsengine/ojs/otel"
)

// Telemetry selects the events that change a metric, and no others. With a Producer these
// are none of a job that succeeds.
func TestEventTypes(t *testing.T) {
	succeeds := []event.Type{event.Enqueued, event.Started, event.Completed}
	for _, typ := range eventtypes.Read(t, "../event/event.go") {
		ev := event.Event{Type: typ, Wait: time.Second}
		switch {
		case strings.HasPrefix(string(typ), "workflow."):
			ev.Workflow = new(event.Workflow)
		case strings.HasPrefix(string(typ), "rate_limit."):
			ev.Limit = new(event.Limit)
		default:
			ev.Job = &ojs.JobInfo{JobHeader: ojs.JobHeader{Attempt: 1}}
		}
		for _, producer := range []*ojsotel.Producer{nil, ojsotel.NewProducer()} {
			reader := sdkmetric.NewManualReader()
			meters := sdkmetric.NewMeterProvider(sdkmetric.WithReader(reader))
			tel, err := ojsotel.New(ojsotel.WithMeterProvider(meters), ojsotel.WithProducer(producer))
			if err != nil {
				t.Fatal(err)
			}
			tel.Observe(&ev)
			var all metricdata.ResourceMetrics
			if err := reader.Collect(t.Context(), &all); err != nil {
				t.Fatal(err)
			}
			counts := len(all.ScopeMetrics) > 0
			if counts != slices.Contains(tel.EventTypes(), typ) {
				t.Errorf("%s changes a metric: %v", typ, counts)
			}
			if counts && producer != nil && slices.Contains(succeeds, typ) {
				t.Errorf("%s changes a metric beside a Producer", typ)
			}
		}
	}
}
