//go:build unix

package ojsprometheus_test

import (
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/ojsengine/ojs/engine"
	"github.com/ojsengine/ojs/event"
	"github.com/ojsengine/ojs/internal/test/watchcost"
	ojsprometheus "github.com/ojsengine/ojs/prometheus"
)

// BenchmarkWatched runs jobs without and with a collector, and with a history and a
// subscription to events that do not happen.
func BenchmarkWatched(b *testing.B) {
	watchcost.Benchmark(b,
		watchcost.Way{Name: "alone"},
		watchcost.Way{Name: "collector", Begin: func(*testing.B) watchcost.Watch {
			c, reg := ojsprometheus.New(), prometheus.NewRegistry()
			reg.MustRegister(c)
			return watchcost.Watch{Options: []engine.Option{engine.WithObserver(c)},
				Scrape: func() error { _, err := reg.Gather(); return err }}
		}},
		watchcost.Way{Name: "history", Begin: func(*testing.B) watchcost.Watch {
			return watchcost.Watch{
				Options:   []engine.Option{engine.WithReports(engine.Reports{Every: time.Second})},
				Subscribe: &engine.EventFilter{Types: []event.Type{event.Discarded}}}
		}})
}
