package ojsotel_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"

	"github.com/ojsengine/ojs"
	ojsotel "github.com/ojsengine/ojs/otel"
)

// Telemetry selects the events that change a metric, and no others.
func TestEventTypes(t *testing.T) {
	file, err := parser.ParseFile(token.NewFileSet(), "../event.go", nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	ast.Inspect(file, func(n ast.Node) bool {
		spec, ok := n.(*ast.ValueSpec)
		if !ok {
			return true
		}
		if of, ok := spec.Type.(*ast.Ident); !ok || of.Name != "EventType" {
			return true
		}
		text, err := strconv.Unquote(spec.Values[0].(*ast.BasicLit).Value)
		if err != nil {
			t.Fatal(err)
		}
		ev := ojs.Event{Type: ojs.EventType(text), Wait: time.Second}
		switch {
		case strings.HasPrefix(text, "workflow."):
			ev.Workflow = new(ojs.WorkflowEvent)
		case strings.HasPrefix(text, "rate_limit."):
			ev.Limit = new(ojs.LimitEvent)
		default:
			ev.Job = &ojs.JobInfo{JobHeader: ojs.JobHeader{Attempt: 1}}
		}
		reader := sdkmetric.NewManualReader()
		meters := sdkmetric.NewMeterProvider(sdkmetric.WithReader(reader))
		tel, err := ojsotel.New(ojsotel.WithMeterProvider(meters))
		if err != nil {
			t.Fatal(err)
		}
		tel.Observe(&ev)
		var all metricdata.ResourceMetrics
		if err := reader.Collect(t.Context(), &all); err != nil {
			t.Fatal(err)
		}
		counts := len(all.ScopeMetrics) > 0
		if counts != slices.Contains(tel.EventTypes(), ev.Type) {
			t.Errorf("%s changes a metric: %v", text, counts)
		}
		return true
	})
}
