// Package ojsotel makes OpenTelemetry traces and metrics of what an engine does, with the
// names of OJS observability.
//
//	import ojsotel "github.com/ojsengine/ojs/otel"
//
//	telemetry, err := ojsotel.New()
//	eng, err := engine.New[any](store, engine.WithObserver(telemetry))
//	telemetry.Watch(eng.Stats)
//
// # Spans
//
// An enqueue is a producer's span "{queue} enqueue" (or enqueue_batch), whose context
// travels in the job's metadata as traceparent, tracestate and baggage. Each attempt is a
// consumer's span "{queue} process": the root of a trace of its own, with a link to the
// span of the enqueue, since a job may run long after the request that enqueued it, and
// several times. Its handler finds the span and the baggage in its context.
//
// A workflow is one trace, which goes on from the call that starts it. The span of the
// enqueue has a child "{queue} create" for each step, with links to those of the steps
// that it waits for. Joins between steps have such spans, too. The attempts of a step are
// children of its span. So a sampler that goes by the parent samples a workflow as a
// whole. Jobs of a batch that wait for each other without package workflow have such
// spans, too, and their attempts have links to them. A job that was stored before the
// batch gets no link. A provider of the SDK keeps 128 links of a span, unless its limits
// say otherwise.
//
// There are also the client's spans "{queue} fetch", "ojs.ack", "ojs.nack", "ojs.cancel"
// and "ojs.get_job", and what the engine does by itself: "ojs.scheduler.poll",
// "ojs.cron.trigger", "ojs.reaper.check", "ojs.visibility.check" and
// "ojs.retry.evaluate". A fetch that finds nothing leaves no span.
//
// A span of an attempt that was cancelled is not an error. Args and results are in no
// span; the messages of errors are.
//
// # Metrics
//
// Counters ojs.job.enqueued, completed, failed, discarded, retried, cancelled and expired
// count by queue and type. An attempt whose handler answered DISCARD counts as discarded
// and not as failed; every other failure, FAIL included, counts as failed, once for each
// attempt. Histograms in seconds are ojs.job.duration of attempts by queue, type and
// state after it, ojs.job.queue_time of first attempts and ojs.job.enqueue_duration.
// Workflows count by name and state in ojs.workflow.created, ended, step.ended and
// duration. With Watch there are the gauges ojs.queue.depth by queue and state,
// ojs.workers.active, ojs.workers.busy, ojs.storage.quarantined and
// ojs.storage.notifications_up. No metric has an id, args or a message as an attribute.
//
// # Cost
//
// An instrument for durations takes them one by one, so each job makes events, and with
// them a small job in memory takes two to five times as long. Spans cost several times
// more, also if the tracer provider records nothing. Programs with many small jobs avoid
// both: Telemetry.Metrics has no spans, and with a Producer a job that succeeds makes no
// event, since the metrics are read from the engine's Meter:
//
//	producer := ojsotel.NewProducer()
//	reader := sdkmetric.NewPeriodicReader(exporter, sdkmetric.WithProducer(producer))
//	meters := sdkmetric.NewMeterProvider(sdkmetric.WithReader(reader))
//	telemetry, err := ojsotel.New(ojsotel.WithMeterProvider(meters), ojsotel.WithProducer(producer))
//	eng, err := engine.New[any](store, engine.WithObserver(telemetry.Metrics()))
//
// # Rate limits
//
// Rate limits count by key in ojs.rate_limit.exceeded_total, which has the strategy too,
// and ojs.rate_limit.wait_duration. With WatchLimits there are the gauges
// ojs.rate_limit.active and ojs.rate_limit.waiting. The first 100 keys have an attribute
// of their own, later ones are "other".
package ojsotel
