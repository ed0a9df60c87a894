package ojsotel

import (
	"context"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"

	"github.com/ojsengine/ojs"
	"github.com/ojsengine/ojs/engine"
	"github.com/ojsengine/ojs/event"
	"github.com/ojsengine/ojs/telemetry"
)

// workflowBuckets bound how long workflows take, in seconds.
var workflowBuckets = []float64{.1, .5, 1, 5, 10, 30, 60, 300, 600, 1800, 3600, 21600, 86400, 604800}

// seconds are boundaries as OpenTelemetry has them.
func seconds(bounds []time.Duration) []float64 {
	list := make([]float64, len(bounds))
	for i, d := range bounds {
		list[i] = d.Seconds()
	}
	return list
}

// instruments are the metrics of OJS observability, and one of the quarantine.
type instruments struct {
	enqueued, completed, failed, discarded, retried, cancelled, expired metric.Int64Counter

	workflowsCreated, workflowsEnded, workflowSteps metric.Int64Counter

	duration, queueTime, enqueueDuration, workflowDuration metric.Float64Histogram

	depth, active, busy, quarantined, notified metric.Int64ObservableGauge

	limitExceeded             metric.Int64Counter
	limitWait                 metric.Float64Histogram
	limitActive, limitWaiting metric.Int64ObservableGauge
}

func newInstruments(m metric.Meter) (in instruments, err error) {
	durationBuckets, waitBuckets := seconds(telemetry.DurationBounds()), seconds(telemetry.WaitBounds())
	counter := func(to *metric.Int64Counter, name, unit, what string) {
		if err == nil {
			*to, err = m.Int64Counter(name, metric.WithUnit(unit), metric.WithDescription(what))
		}
	}
	histogram := func(to *metric.Float64Histogram, name, what string, buckets []float64) {
		if err == nil {
			*to, err = m.Float64Histogram(name, metric.WithUnit("s"), metric.WithDescription(what),
				metric.WithExplicitBucketBoundaries(buckets...))
		}
	}
	gauge := func(to *metric.Int64ObservableGauge, name, unit, what string) {
		if err == nil {
			*to, err = m.Int64ObservableGauge(name, metric.WithUnit(unit), metric.WithDescription(what))
		}
	}
	counter(&in.enqueued, enqueued.Name, enqueued.Unit, enqueued.Description)
	counter(&in.completed, completed.Name, completed.Unit, completed.Description)
	counter(&in.failed, "ojs.job.failed", "{attempt}",
		"Attempts that failed, except those that answered DISCARD.")
	counter(&in.discarded, "ojs.job.discarded", "{job}", "Jobs whose handlers answered DISCARD.")
	counter(&in.retried, "ojs.job.retried", "{attempt}",
		"Failed attempts after which the job waits for another.")
	counter(&in.cancelled, "ojs.job.cancelled", "{job}", "Jobs cancelled.")
	counter(&in.expired, "ojs.job.expired", "{job}", "Jobs that were still waiting at their deadline.")
	histogram(&in.duration, duration.Name, duration.Description, durationBuckets)
	histogram(&in.queueTime, queueTime.Name, queueTime.Description, waitBuckets)
	histogram(&in.enqueueDuration, enqueueDuration.Name, enqueueDuration.Description, durationBuckets)
	counter(&in.workflowsCreated, "ojs.workflow.created", "{workflow}", "Workflows stored.")
	counter(&in.workflowsEnded, "ojs.workflow.ended", "{workflow}",
		"Workflows that ended, by the state they ended in.")
	counter(&in.workflowSteps, "ojs.workflow.step.ended", "{step}",
		"Steps of workflows that completed or failed, callbacks and compensations included.")
	histogram(&in.workflowDuration, "ojs.workflow.duration",
		"How long workflows took from their creation to their end.", workflowBuckets)
	gauge(&in.depth, "ojs.queue.depth", "{job}", "Jobs in the storage.")
	gauge(&in.quarantined, "ojs.storage.quarantined", "{record}",
		"Records of the storage that do not decode and are in the quarantine.")
	gauge(&in.notified, "ojs.storage.notifications_up", "1",
		"0 if notices of other processes do not arrive, so that their jobs start later.")
	gauge(&in.active, "ojs.workers.active", "{worker}", "How many attempts may run at once.")
	gauge(&in.busy, "ojs.workers.busy", "{worker}", "Attempts that run.")
	counter(&in.limitExceeded, "ojs.rate_limit.exceeded_total", "{time}",
		"How often the rate limit of a key began to hold jobs back, by the bound that did.")
	histogram(&in.limitWait, "ojs.rate_limit.wait_duration",
		"How long rate limits held back jobs before their first attempt.", waitBuckets)
	gauge(&in.limitActive, "ojs.rate_limit.active", "{job}", "Active jobs of the key of a rate limit.")
	gauge(&in.limitWaiting, "ojs.rate_limit.waiting", "{job}",
		"Available jobs of the key of a rate limit, whether the limit holds them back or not.")
	return in, err
}

// EventTypes are the types of the events that Observe counts. An instrument for durations
// takes them one by one, so jobs that succeed need their events, unless there is a
// Producer.
func (t *Telemetry) EventTypes() []event.Type {
	types := []event.Type{
		event.Failed, event.Retrying, event.Cancelled, event.Expired, event.TTLExpired,
		event.LimitExceeded, event.LimitReleased,
		event.WorkflowCreated, event.WorkflowStepCompleted, event.WorkflowStepFailed,
		event.WorkflowCompleted, event.WorkflowFailed, event.WorkflowCompensated,
		event.WorkflowCancelled,
	}
	if t.producer == nil {
		types = append(types, event.Enqueued, event.Started, event.Completed)
	}
	return types
}

// Observe counts an event.
func (t *Telemetry) Observe(ev *event.Event) {
	switch {
	case ev.Workflow != nil:
		t.observeWorkflow(ev)
		return
	case ev.Limit != nil:
		t.observeLimit(ev)
		return
	case ev.Job == nil:
		return
	}
	queue, jobType := attribute.String("queue", ev.Job.Queue), attribute.String("type", ev.Job.Type)
	labels := metric.WithAttributeSet(attribute.NewSet(queue, jobType))
	ctx := context.Background()
	ended := func() {
		set := attribute.NewSet(queue, jobType, attribute.String("state", string(ev.Job.State)))
		t.duration.Record(ctx, ev.Duration.Seconds(), metric.WithAttributeSet(set))
	}
	switch ev.Type {
	case event.Enqueued:
		t.enqueued.Add(ctx, 1, labels)
		t.enqueueDuration.Record(ctx, ev.Duration.Seconds(), labels)
	case event.Started:
		if ev.Job.Attempt == 1 {
			t.queueTime.Record(ctx, ev.Wait.Seconds(), labels)
		}
	case event.Completed:
		t.completed.Add(ctx, 1, labels)
		ended()
	case event.Failed:
		if ev.Failure != nil && ev.Failure.Code == ojs.CodeDiscard {
			t.discarded.Add(ctx, 1, labels)
		} else {
			t.failed.Add(ctx, 1, labels)
		}
		ended()
	case event.Retrying:
		t.retried.Add(ctx, 1, labels)
	case event.Cancelled:
		t.cancelled.Add(ctx, 1, labels)
	case event.Expired, event.TTLExpired:
		t.expired.Add(ctx, 1, labels)
	}
}

// observeWorkflow counts an event of a workflow.
func (t *Telemetry) observeWorkflow(ev *event.Event) {
	name := attribute.String("workflow", ev.Workflow.Name)
	ctx := context.Background()
	in := func(state string) metric.MeasurementOption {
		return metric.WithAttributeSet(attribute.NewSet(name, attribute.String("state", state)))
	}
	ended := func(state string) {
		t.workflowsEnded.Add(ctx, 1, in(state))
		t.workflowDuration.Record(ctx, ev.Duration.Seconds(), in(state))
	}
	switch ev.Type {
	case event.WorkflowCreated:
		t.workflowsCreated.Add(ctx, 1, metric.WithAttributeSet(attribute.NewSet(name)))
	case event.WorkflowStepCompleted:
		t.workflowSteps.Add(ctx, 1, in("completed"))
	case event.WorkflowStepFailed:
		t.workflowSteps.Add(ctx, 1, in("failed"))
	case event.WorkflowCompleted:
		ended("completed")
	case event.WorkflowFailed:
		ended("failed")
	case event.WorkflowCompensated:
		ended("compensated")
	case event.WorkflowCancelled:
		ended("cancelled")
	}
}

func (t *Telemetry) gauges(o metric.Observer, s *engine.Stats) {
	for _, q := range s.Queues {
		for state, n := range q.Counts {
			o.ObserveInt64(t.depth, int64(n), metric.WithAttributes(attribute.String("queue", q.Name),
				attribute.String("state", string(state))))
		}
	}
	slots := 0
	if s.Running {
		slots = s.Slots
	}
	o.ObserveInt64(t.active, int64(slots))
	o.ObserveInt64(t.busy, int64(s.Busy))
	o.ObserveInt64(t.quarantined, int64(s.Quarantined))
	notified := int64(1)
	if s.Notifications != nil {
		notified = 0
	}
	o.ObserveInt64(t.notified, notified)
}
