package ojsprometheus

import (
	"context"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/ojsengine/ojs/event"
	"github.com/ojsengine/ojs/internal/labels"
	"github.com/ojsengine/ojs/operate"
	"github.com/ojsengine/ojs/telemetry"
)

// limits are the series by key of a rate limit. Keys come from clients, so only the first
// ones have series of their own.
type limits struct {
	exceeded *prometheus.CounterVec
	wait     *prometheus.HistogramVec
	names    *labels.Names
}

func newLimits(cfg *config) *limits {
	return &limits{
		names: labels.New(cfg.maxKeys),
		exceeded: prometheus.NewCounterVec(prometheus.CounterOpts{Namespace: namespace,
			Subsystem: "rate_limit", Name: "exceeded_total",
			Help: "How often the rate limit of a key began to hold jobs back, by the bound that did."},
			[]string{"key", "strategy"}),
		wait: prometheus.NewHistogramVec(prometheus.HistogramOpts{Namespace: namespace,
			Subsystem: "rate_limit", Name: "wait_duration_seconds",
			Help:    "How long rate limits held back jobs before their first attempt.",
			Buckets: seconds(telemetry.WaitBounds())}, []string{"key"}),
	}
}

func (l *limits) vectors() []prometheus.Collector { return []prometheus.Collector{l.exceeded, l.wait} }

// label is the label of a key.
func (l *limits) label(key string) string { return label(l.names.Of(key)) }

// observe counts an event of a limit.
func (l *limits) observe(ev *event.Event) {
	switch ev.Type {
	case event.LimitExceeded:
		l.exceeded.WithLabelValues(l.label(ev.Limit.Key), string(ev.Limit.Strategy)).Inc()
	case event.LimitReleased:
		if ev.Wait > 0 {
			l.wait.WithLabelValues(l.label(ev.Limit.Key)).Observe(ev.Wait.Seconds())
		}
	}
}

type limitList func(context.Context, operate.LimitQuery) ([]operate.Limit, error)

// WatchLimits adds gauges of the keys of rate limits, which each scrape asks for:
// collector.WatchLimits(eng.Limits().List). They describe the storage: of engines that
// share one, give one. A nil function adds nothing. The gauges have the first 1,000 keys
// by name that have jobs, a setting or a block. A list that fails, or does not answer in
// time (WithTimeout), leaves the gauges out of the scrape.
func (c *Collector) WatchLimits(list func(context.Context, operate.LimitQuery) ([]operate.Limit, error)) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.limitList = list
}

// mostLimits is how many keys a scrape asks for.
const mostLimits = 1000

// limits sets the gauges of keys.
func (g *gauges) limits(ch chan<- prometheus.Metric, list limitList, names *limits) {
	ctx, cancel := g.clock.WithTimeout(context.Background(), g.timeout)
	defer cancel()
	keys, err := list(ctx, operate.LimitQuery{Limit: mostLimits})
	if err != nil {
		return
	}
	type counts struct{ active, waiting int }
	byName := make(map[string]counts)
	for _, k := range keys {
		name := names.label(k.Name)
		n := byName[name]
		byName[name] = counts{n.active + k.Active, n.waiting + k.Waiting}
	}
	for name, n := range byName {
		ch <- prometheus.MustNewConstMetric(g.limitActive, prometheus.GaugeValue, float64(n.active), name)
		ch <- prometheus.MustNewConstMetric(g.limitWaiting, prometheus.GaugeValue, float64(n.waiting), name)
	}
}
