package ojsprometheus

import (
	"sync"

	"github.com/benbjohnson/clock"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/ojsengine/ojs"
	"github.com/ojsengine/ojs/event"
	"github.com/ojsengine/ojs/internal/foreign"
	"github.com/ojsengine/ojs/telemetry"
)

const namespace = "ojs"

// Collector is a telemetry.Observer that counts, and a prometheus.Collector of what it
// and the Meter of the engine have counted. It may observe several engines that share a
// storage. Its methods may be called concurrently.
type Collector struct {
	brief
	pairs      *pairs
	queues     *queues
	workflows  *workflows
	limits     *limits
	givenUp    *prometheus.CounterVec
	pruned     prometheus.Counter
	triggered  prometheus.Counter
	skipped    *prometheus.CounterVec
	metered    metered
	gauges     gauges
	collectors []prometheus.Collector // all of the above that collect for themselves

	mu        sync.Mutex // guards meters, watched and limitList
	meters    []func() []telemetry.Meter
	watched   []stats
	limitList limitList // nil: none
}

// brief says that Observe keeps nothing of an event.
type brief = foreign.BriefObserver

var (
	_ telemetry.EventSelector = (*Collector)(nil)
	_ telemetry.MeterReader   = (*Collector)(nil)
	_ prometheus.Collector    = (*Collector)(nil)
	_ brief                   = Collector{}.brief // engines look for it
)

// New makes a Collector.
func New(opts ...Option) *Collector {
	cfg := config{
		maxPairs: defaultMaxPairs, maxKeys: defaultMaxKeys, timeout: defaultTimeout, clock: clock.New(),
	}
	for _, o := range opts {
		o(&cfg)
	}
	c := &Collector{pairs: newPairs(&cfg), queues: newQueues(&cfg), workflows: newWorkflows(&cfg),
		limits: newLimits(&cfg), metered: newMetered(), gauges: newGauges(&cfg)}
	c.givenUp = prometheus.NewCounterVec(prometheus.CounterOpts{Namespace: namespace,
		Name: "job_given_up_total",
		Help: "Jobs that ended without success and were not cancelled, by reason."},
		[]string{"queue", "type", "reason"})
	c.pruned = prometheus.NewCounter(prometheus.CounterOpts{Namespace: namespace,
		Name: "dead_letter_pruned_total",
		Help: "Dead letters that retention deleted."})
	c.triggered = prometheus.NewCounter(prometheus.CounterOpts{Namespace: namespace,
		Name: "cron_triggered_total",
		Help: "Runs of recurring jobs that were enqueued."})
	c.skipped = prometheus.NewCounterVec(prometheus.CounterOpts{Namespace: namespace,
		Name: "cron_skipped_total",
		Help: "Runs of recurring jobs that were not enqueued, by reason."}, []string{"reason"})
	for reason := range skips {
		c.skipped.WithLabelValues(reason)
	}
	c.collectors = append(c.collectors, c.givenUp, c.pruned, c.triggered, c.skipped)
	c.collectors = append(append(c.collectors, c.pairs.vectors()...), c.queues.vectors()...)
	c.collectors = append(c.collectors, c.workflows.vectors()...)
	c.collectors = append(c.collectors, c.limits.vectors()...)
	return c
}

// Describe is prometheus.Collector's.
func (c *Collector) Describe(ch chan<- *prometheus.Desc) {
	for _, v := range c.collectors {
		v.Describe(ch)
	}
	c.metered.describe(ch)
	c.gauges.describe(ch)
}

// Collect is prometheus.Collector's. It reads the Meter of the engines, and asks what
// Watch and WatchLimits were given.
func (c *Collector) Collect(ch chan<- prometheus.Metric) {
	c.mu.Lock()
	meters, watched, limits := c.meters, c.watched, c.limitList
	c.mu.Unlock()
	c.metered.collect(ch, meters, c.pairs) // makes series
	for _, v := range c.collectors {
		v.Collect(ch)
	}
	c.gauges.collect(ch, watched)
	if limits != nil {
		c.gauges.limits(ch, limits, c.limits)
	}
}

// Declare makes the series of a queue and of types in it, at zero, before their first
// event. Without it an alert may miss the first failure of a type, since the first value
// that Prometheus sees is 1. Declared pairs count towards WithMaxPairs.
func (c *Collector) Declare(queue string, types ...string) {
	c.queues.of(queue)
	for _, t := range types {
		c.pairs.of(queue, t)
	}
}

// EventTypes are the types of the events that Observe counts. It is
// telemetry.EventSelector's. A job that is stored, starts and completes makes no event
// for them.
func (c *Collector) EventTypes() []event.Type {
	return []event.Type{
		event.Failed, event.Retrying, event.Discarded, event.Cancelled, event.Expired,
		event.TTLExpired, event.Timeout, event.Stalled,
		event.DeadLetterAdded, event.DeadLetterRetried, event.DeadLetterReplayed,
		event.DeadLetterDeleted, event.DeadLetterPruned,
		event.NearlyFull, event.Rejected, event.Dropped,
		event.CronTriggered, event.CronSkipped,
		event.LimitExceeded, event.LimitReleased,
		event.WorkflowCreated, event.WorkflowStepCompleted, event.WorkflowStepFailed,
		event.WorkflowCompleted, event.WorkflowFailed, event.WorkflowCompensated,
		event.WorkflowCancelled,
	}
}

// Observe counts an event. It is telemetry.Observer's. It costs a fraction of a
// microsecond and allocates nothing, but for the first event of a queue and type.
func (c *Collector) Observe(ev *event.Event) {
	if ev.Workflow != nil {
		c.workflows.observe(ev)
		return
	}
	if ev.Limit != nil {
		c.limits.observe(ev)
		return
	}
	if ev.Job != nil {
		c.aboutJob(ev)
	}
	switch ev.Type {
	case event.NearlyFull:
		c.queues.of(ev.Queue).warned.Inc()
	case event.Rejected:
		c.queues.of(ev.Queue).rejected.Inc()
	case event.Dropped:
		c.queues.of(ev.Queue).dropped.Inc()
	case event.DeadLetterPruned:
		c.pruned.Add(float64(max(ev.Pruned, 0)))
	case event.CronTriggered:
		c.triggered.Inc()
	case event.CronSkipped:
		c.skipped.WithLabelValues(known(skips, ev.Reason)).Inc()
	}
}

func (c *Collector) aboutJob(ev *event.Event) {
	p := c.pairs.of(ev.Job.Queue, ev.Job.Type)
	switch ev.Type {
	case event.Failed:
		if ev.Failure != nil && ev.Failure.Code == ojs.CodeDiscard {
			p.counters[discarded].Inc()
		} else {
			p.counters[failed].Inc()
		}
	case event.Retrying:
		p.counters[retried].Inc()
		p.counters[retries].Inc()
		p.retryLatency.observe(ev.Wait)
	case event.Discarded:
		reason := known(reasons, ev.Reason)
		if reason == exhaustedReason {
			p.counters[exhausted].Inc()
		}
		c.givenUp.WithLabelValues(p.queue, p.jobType, reason).Inc()
	case event.Cancelled:
		p.counters[cancelled].Inc()
	case event.Expired, event.TTLExpired:
		p.counters[expired].Inc()
	case event.Timeout:
		p.counters[timedOut].Inc()
	case event.Stalled:
		p.counters[stalled].Inc()
	case event.DeadLetterAdded:
		p.counters[deadAdded].Inc()
	case event.DeadLetterRetried, event.DeadLetterReplayed:
		p.counters[deadRetried].Inc()
	case event.DeadLetterDeleted:
		p.counters[deadDeleted].Inc()
	}
}
