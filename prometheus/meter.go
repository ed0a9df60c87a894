package ojsprometheus

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/ojsengine/ojs"
	"github.com/ojsengine/ojs/telemetry"
)

// Jobs that were stored, that start and that complete make no event for the collector.
// Each scrape reads them from the Meter of the engines, and how long attempts took.

// metered are the metrics that the Meter counts.
type metered struct {
	enqueued, started, completed         *prometheus.Desc
	enqueueDuration, queueTime, duration *prometheus.Desc
	durationBounds, waitBounds           []time.Duration
}

func newMetered() metered {
	desc := func(name, help string, more ...string) *prometheus.Desc {
		return prometheus.NewDesc(name, help, append([]string{"queue", "type"}, more...), nil)
	}
	return metered{
		enqueued:  desc("ojs_job_enqueued_total", "Jobs stored."),
		started:   desc("ojs_job_started_total", "Attempts that began."),
		completed: desc("ojs_job_completed_total", "Jobs completed."),
		enqueueDuration: desc("ojs_job_enqueue_duration_seconds",
			"How long calls that enqueued took, for each of their jobs."),
		queueTime: desc("ojs_job_queue_time_seconds",
			"How long jobs waited from being available to the start of their first attempt."),
		duration: desc("ojs_job_duration_seconds",
			"How long attempts took, by the state of the job after them.", "state"),
		durationBounds: telemetry.DurationBounds(), waitBounds: telemetry.WaitBounds(),
	}
}

// seconds are boundaries as Prometheus has them.
func seconds(bounds []time.Duration) []float64 {
	list := make([]float64, len(bounds))
	for i, d := range bounds {
		list[i] = d.Seconds()
	}
	return list
}

// ReadMeter is telemetry.MeterReader's: engine.WithObserver calls it.
func (c *Collector) ReadMeter(meter func() []telemetry.Meter) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.meters = append(c.meters[:len(c.meters):len(c.meters)], meter)
}

func (m *metered) describe(ch chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{m.enqueued, m.started, m.completed, m.enqueueDuration, m.queueTime,
		m.duration} {
		ch <- d
	}
}

// collect makes the metrics of the pairs that the engines have counted, and makes the
// pairs that are new.
func (m *metered) collect(ch chan<- prometheus.Metric, meters []func() []telemetry.Meter, ps *pairs) {
	sums := make(map[*pair]*telemetry.Meter)
	for _, meter := range meters {
		counted := meter()
		for i := range counted {
			p := ps.of(counted[i].Queue, counted[i].Type)
			if sums[p] == nil {
				sums[p] = new(telemetry.Meter)
			}
			sums[p].Add(&counted[i])
		}
	}
	for _, p := range ps.all() {
		sum := sums[p]
		if sum == nil {
			sum = new(telemetry.Meter)
		}
		for d, n := range map[*prometheus.Desc]uint64{
			m.enqueued: sum.Enqueued, m.started: sum.Started, m.completed: sum.Completed,
		} {
			ch <- prometheus.MustNewConstMetric(d, prometheus.CounterValue, float64(n), p.queue, p.jobType)
		}
		histogram(ch, m.enqueueDuration, &sum.EnqueueTime, m.durationBounds, p.queue, p.jobType)
		histogram(ch, m.queueTime, &sum.Wait, m.waitBounds, p.queue, p.jobType)
		for state, h := range map[ojs.State]*telemetry.Histogram{
			ojs.StateCompleted: &sum.CompletedTime, ojs.StateRetryable: &sum.RetriedTime,
			ojs.StateDiscarded: &sum.DiscardedTime,
		} {
			histogram(ch, m.duration, h, m.durationBounds, p.queue, p.jobType, string(state))
		}
	}
}

// histogram makes a histogram, if it has counted something.
func histogram(
	ch chan<- prometheus.Metric, desc *prometheus.Desc, h *telemetry.Histogram, bounds []time.Duration,
	labels ...string,
) {
	if h.Count == 0 {
		return
	}
	buckets := make(map[float64]uint64, len(bounds))
	for _, b := range bounds {
		buckets[b.Seconds()] = h.Within(b)
	}
	ch <- prometheus.MustNewConstHistogram(desc, h.Count, h.Sum.Seconds(), buckets, labels...)
}
