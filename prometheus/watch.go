package ojsprometheus

import (
	"context"
	"time"

	"github.com/benbjohnson/clock"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/ojsengine/ojs"
	"github.com/ojsengine/ojs/engine"
	"github.com/ojsengine/ojs/engine/fetch"
	"github.com/ojsengine/ojs/operate"
)

type stats func(context.Context) (engine.Stats, error)

// Watch adds gauges of an engine, which each scrape asks for: collector.Watch(eng.Stats).
// With several engines the workers add up, and the queues and the quarantine are the
// first one's, since they share a storage. A nil function adds nothing.
//
// Stats that fail, or do not answer in time (WithTimeout), do not fail the scrape: it has
// ojs_storage_up 0 and none of the other gauges, rather than outdated figures. A scrape
// costs the Stats of each engine, which is a count of the storage and no walk over its
// jobs.
func (c *Collector) Watch(stats func(context.Context) (engine.Stats, error)) {
	if stats == nil {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.watched = append(c.watched[:len(c.watched):len(c.watched)], stats)
}

// gauges are what is asked at each scrape.
type gauges struct {
	depth, state, active, busy, stuck, fetching, quarantined, up *prometheus.Desc
	notified, limitActive, limitWaiting                          *prometheus.Desc

	most    int
	timeout time.Duration
	clock   clock.Clock
}

func newGauges(cfg *config) gauges {
	gauge := func(name, help string, labels ...string) *prometheus.Desc {
		return prometheus.NewDesc(namespace+"_"+name, help, labels, nil)
	}
	return gauges{
		depth: gauge("queue_depth",
			"Jobs in the storage, finished ones included until they are deleted.", "queue", "state"),
		state: gauge("queue_state", "1 for the state that the queue is in: active, paused or draining.",
			"queue", "state"),
		active: gauge("workers_active", "Attempts that may run at once in running engines."),
		busy:   gauge("workers_busy", "Attempts that run."),
		stuck: gauge("workers_stuck",
			"Handlers that go on long after their contexts ended."),
		fetching: gauge("workers_fetching", "Workers that fetch jobs for themselves and may get more."),
		quarantined: gauge("storage_quarantined",
			"Records of the storage that do not decode and are in the quarantine."),
		up: gauge("storage_up", "1 if the storage answered this scrape."),
		notified: gauge("storage_notifications_up",
			"0 if notices of other processes do not arrive, so that their jobs start later."),
		limitActive: gauge("rate_limit_active", "Active jobs of the key of a rate limit.", "key"),
		limitWaiting: gauge("rate_limit_waiting",
			"Available jobs of the key of a rate limit, whether the limit holds them back or not.", "key"),
		most: cfg.maxPairs, timeout: cfg.timeout, clock: cfg.clock,
	}
}

func (g *gauges) describe(ch chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{g.depth, g.state, g.active, g.busy, g.stuck, g.fetching,
		g.quarantined, g.up, g.notified, g.limitActive, g.limitWaiting} {
		ch <- d
	}
}

func (g *gauges) collect(ch chan<- prometheus.Metric, watched []stats) {
	if len(watched) == 0 {
		return
	}
	set := func(d *prometheus.Desc, n int, labels ...string) {
		ch <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, float64(n), labels...)
	}
	all, err := g.ask(watched)
	if err != nil {
		set(g.up, 0)
		return
	}
	set(g.up, 1)
	active, busy, stuck, fetching, notified := 0, 0, 0, 0, 1
	for _, s := range all {
		if s.Notifications != nil {
			notified = 0
		}
		if s.Running {
			active += s.Slots
		}
		busy += s.Busy
		stuck += s.Stuck
		for _, w := range s.Workers {
			if w.State == fetch.Running {
				fetching++
			}
		}
	}
	set(g.active, active)
	set(g.busy, busy)
	set(g.stuck, stuck)
	set(g.fetching, fetching)
	set(g.quarantined, all[0].Quarantined)
	set(g.notified, notified)
	g.queues(set, all[0].Queues)
}

// queues sets the gauges of queues. Every state has one, at zero if need be: one that
// came and went would leave gaps.
func (g *gauges) queues(set func(*prometheus.Desc, int, ...string), rows []operate.QueueStats) {
	depths := make(map[string]map[ojs.State]int)
	for i, row := range rows {
		name := label(row.Name)
		if i >= g.most {
			name = other
		}
		if depths[name] == nil {
			depths[name] = make(map[ojs.State]int)
			if i < g.most {
				for _, s := range []ojs.QueueState{ojs.QueueActive, ojs.QueuePaused, ojs.QueueDraining} {
					is := 0
					if s == row.State {
						is = 1
					}
					set(g.state, is, name, string(s))
				}
			}
		}
		for _, s := range ojs.AllStates() {
			depths[name][s] += row.Counts[s]
		}
	}
	for name, counts := range depths {
		for s, n := range counts {
			set(g.depth, n, name, string(s))
		}
	}
}

// ask returns the stats of all, or the error of the first that gives none.
func (g *gauges) ask(watched []stats) ([]engine.Stats, error) {
	ctx, cancel := g.clock.WithTimeout(context.Background(), g.timeout)
	defer cancel()
	all := make([]engine.Stats, len(watched))
	for i, f := range watched {
		var err error
		if all[i], err = f(ctx); err != nil {
			return nil, err
		}
	}
	return all, nil
}
