package ojsotel_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"

	"github.com/ojsengine/ojs"
	"github.com/ojsengine/ojs/internal/test/eventtypes"
	ojsotel "github.com/ojsengine/ojs/otel"
)

// Telemetry selects the events that change a metric, and no others. With a Producer these
// are none of a job that succeeds.
func TestEventTypes(t *testing.T) {
	succeeds := []ojs.EventType{ojs.EventEnqueued, ojs.EventStarted, ojs.EventCompleted}
	for _, event := range eventtypes.Read(t, "../event.go") {
		ev := ojs.Event{Type: event, Wait: time.Second}
		switch {
		case strings.HasPrefix(string(event), "workflow."):
			ev.Workflow = new(ojs.WorkflowEvent)
		case strings.HasPrefix(string(event), "rate_limit."):
			ev.Limit = new(ojs.LimitEvent)
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
			if counts != slices.Contains(tel.EventTypes(), event) {
				t.Errorf("%s changes a metric: %v", event, counts)
			}
			if counts && producer != nil && slices.Contains(succeeds, event) {
				t.Errorf("%s changes a metric beside a Producer", event)
			}
		}
	}
}
