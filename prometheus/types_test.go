package ojsprometheus_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/ojsengine/ojs"
	"github.com/ojsengine/ojs/event"
	"github.com/ojsengine/ojs/internal/test/eventtypes"
	ojsprometheus "github.com/ojsengine/ojs/prometheus"
)

// The collector selects the events that change a metric, and no others.
func TestEventTypes(t *testing.T) {
	selected := ojsprometheus.New().EventTypes()
	for _, typ := range eventtypes.Read(t, "../event/event.go") {
		ev := event.Event{Type: typ, Queue: "q", Wait: time.Second}
		switch {
		case strings.HasPrefix(string(typ), "workflow."):
			ev.Workflow = new(event.Workflow)
		case strings.HasPrefix(string(typ), "rate_limit."):
			ev.Limit = new(event.Limit)
		case typ == event.DeadLetterPruned:
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
			t.Errorf("%s changes a metric: %v", typ, counts)
		}
	}
}
