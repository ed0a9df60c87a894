package ojsotel

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/benbjohnson/clock"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/sdk/instrumentation"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"

	"github.com/ojsengine/ojs"
	"github.com/ojsengine/ojs/telemetry"
)

// The metrics that either instruments or a Producer make.
var (
	enqueued  = metricdata.Metrics{Name: "ojs.job.enqueued", Unit: "{job}", Description: "Jobs stored."}
	completed = metricdata.Metrics{Name: "ojs.job.completed", Unit: "{job}",
		Description: "Jobs completed."}
	duration = metricdata.Metrics{Name: "ojs.job.duration", Unit: "s",
		Description: "How long attempts took."}
	queueTime = metricdata.Metrics{Name: "ojs.job.queue_time", Unit: "s",
		Description: "How long jobs waited from being available to the start of their first attempt."}
	enqueueDuration = metricdata.Metrics{Name: "ojs.job.enqueue_duration", Unit: "s",
		Description: "How long calls that enqueued took."}
)

// Producer makes ojs.job.enqueued, completed, duration, queue_time and enqueue_duration
// of what engines count in their Meter, whenever a reader collects. It is a Producer of
// the metric SDK: give it to each reader (sdkmetric.WithProducer) and to New
// (WithProducer).
//
// The SDK hands these metrics on as they are: cumulative, also for an exporter
// that prefers deltas, and without views, exemplars and the limit of attribute sets. Each
// engine counts the first 1,000 pairs of a queue and a type, and all others as "other"
// (telemetry.MeterPairs). The counts of an engine stay when it stops, so that no metric
// falls.
type Producer struct {
	mu     sync.Mutex // guards the fields below
	clock  clock.Clock
	since  time.Time // since when the engines count
	meters []func() []telemetry.Meter
}

// NewProducer makes a Producer. It produces nothing until New has got it.
func NewProducer() *Producer { return new(Producer) }

// begin has the Producer count from now on, if it does not yet.
func (p *Producer) begin(c clock.Clock) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.clock == nil {
		p.clock, p.since = c, c.Now()
	}
}

func (p *Producer) read(meter func() []telemetry.Meter) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.meters = append(p.meters[:len(p.meters):len(p.meters)], meter)
}

// Produce is that of the metric SDK's Producer, for readers.
func (p *Producer) Produce(context.Context) ([]metricdata.ScopeMetrics, error) {
	p.mu.Lock()
	c, since, meters := p.clock, p.since, p.meters
	p.mu.Unlock()
	if len(meters) == 0 {
		return nil, nil
	}
	type pair struct{ queue, jobType string }
	sums := make(map[pair]*telemetry.Meter)
	for _, meter := range meters {
		counted := meter()
		for i := range counted {
			m := &counted[i]
			if sum := sums[pair{m.Queue, m.Type}]; sum != nil {
				sum.Add(m)
			} else {
				sums[pair{m.Queue, m.Type}] = m
			}
		}
	}
	pairs := slices.SortedFunc(maps.Keys(sums), func(a, b pair) int {
		return cmp.Or(cmp.Compare(a.queue, b.queue), cmp.Compare(a.jobType, b.jobType))
	})
	points := producedPoints{since: since, now: c.Now()}
	durations, waits := telemetry.DurationBounds(), telemetry.WaitBounds()
	for _, k := range pairs {
		sum := sums[k]
		queue, jobType := attribute.String("queue", k.queue), attribute.String("type", k.jobType)
		set := attribute.NewSet(queue, jobType)
		points.count(&points.enqueued, sum.Enqueued, set)
		points.count(&points.completed, sum.Completed, set)
		points.histogram(&points.enqueueDuration, &sum.EnqueueTime, durations, set)
		points.histogram(&points.queueTime, &sum.Wait, waits, set)
		for _, ended := range []struct {
			state ojs.State
			took  *telemetry.Histogram
		}{
			{ojs.StateCompleted, &sum.CompletedTime}, {ojs.StateDiscarded, &sum.DiscardedTime},
			{ojs.StateRetryable, &sum.RetriedTime},
		} {
			points.histogram(&points.duration, ended.took, durations,
				attribute.NewSet(queue, jobType, attribute.String("state", string(ended.state))))
		}
	}
	of := instrumentation.Scope{Name: scope}
	return []metricdata.ScopeMetrics{{Scope: of, Metrics: points.metrics()}}, nil
}

// producedPoints are the data points of one collection.
type producedPoints struct {
	since, now time.Time

	enqueued, completed                  []metricdata.DataPoint[int64]
	duration, queueTime, enqueueDuration []metricdata.HistogramDataPoint[float64]
}

// count adds a point, if something was counted.
func (p *producedPoints) count(to *[]metricdata.DataPoint[int64], n uint64, set attribute.Set) {
	if n > 0 {
		*to = append(*to, metricdata.DataPoint[int64]{Attributes: set, StartTime: p.since, Time: p.now,
			Value: int64(n)})
	}
}

// histogram adds a point, if something was counted.
func (p *producedPoints) histogram(
	to *[]metricdata.HistogramDataPoint[float64], h *telemetry.Histogram, bounds []time.Duration,
	set attribute.Set,
) {
	if h.Count == 0 {
		return
	}
	point := metricdata.HistogramDataPoint[float64]{Attributes: set, StartTime: p.since, Time: p.now,
		Bounds: seconds(bounds), Sum: h.Sum.Seconds()}
	for _, b := range bounds {
		within := h.Within(b)
		point.BucketCounts = append(point.BucketCounts, within-point.Count)
		point.Count = within
	}
	point.BucketCounts = append(point.BucketCounts, h.Count-point.Count)
	point.Count = h.Count
	*to = append(*to, point)
}

// metrics returns the metrics that have points.
func (p *producedPoints) metrics() []metricdata.Metrics {
	var list []metricdata.Metrics
	for _, of := range []struct {
		metric metricdata.Metrics
		points []metricdata.DataPoint[int64]
	}{{enqueued, p.enqueued}, {completed, p.completed}} {
		if len(of.points) > 0 {
			of.metric.Data = metricdata.Sum[int64]{DataPoints: of.points, IsMonotonic: true,
				Temporality: metricdata.CumulativeTemporality}
			list = append(list, of.metric)
		}
	}
	for _, of := range []struct {
		metric metricdata.Metrics
		points []metricdata.HistogramDataPoint[float64]
	}{{duration, p.duration}, {queueTime, p.queueTime}, {enqueueDuration, p.enqueueDuration}} {
		if len(of.points) > 0 {
			of.metric.Data = metricdata.Histogram[float64]{DataPoints: of.points,
				Temporality: metricdata.CumulativeTemporality}
			list = append(list, of.metric)
		}
	}
	return list
}
