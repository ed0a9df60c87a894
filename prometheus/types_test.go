package ojsprometheus_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/ojsengine/ojs"
	ojsprometheus "github.com/ojsengine/ojs/prometheus"
)

// The collector selects the events that change a metric, and no others.
func TestEventTypes(t *testing.T) {
	file, err := parser.ParseFile(token.NewFileSet(), "../event.go", nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	selected := ojsprometheus.New().EventTypes()
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
		ev := ojs.Event{Type: ojs.EventType(text), Queue: "q", Wait: time.Second}
		switch {
		case strings.HasPrefix(text, "workflow."):
			ev.Workflow = new(ojs.WorkflowEvent)
		case strings.HasPrefix(text, "rate_limit."):
			ev.Limit = new(ojs.LimitEvent)
		case text == string(ojs.EventDeadLetterPruned):
			ev.Pruned = 1
		default:
			ev.Job = &ojs.JobInfo{JobHeader: ojs.JobHeader{Queue: "q", Type: "t"}}
		}
		c, reg := ojsprometheus.New(), prometheus.NewRegistry()
		reg.MustRegister(c)
		zero := ev
		zero.Type = "none"
		c.Observe(&zero) // makes its series
		before := samples(scrape(t, reg))
		c.Observe(&ev)
		counts := !slices.Equal(before, samples(scrape(t, reg)))
		if counts != slices.Contains(selected, ev.Type) {
			t.Errorf("%s changes a metric: %v", text, counts)
		}
		return true
	})
}
