// Package ojsprometheus makes Prometheus metrics of what an engine does.
//
//	import ojsprometheus "github.com/ojsengine/ojs/prometheus"
//
//	collector := ojsprometheus.New()
//	prometheus.MustRegister(collector)
//	eng, err := engine.New[any](store, engine.WithObserver(collector))
//	collector.Watch(eng.Stats)
//
// The figures are those of OJS observability, which the module
// github.com/ojsengine/ojs/otel has too, with the names that Prometheus asks for:
// ojs.job.duration is ojs_job_duration_seconds. Beside them are retries_total,
// retry_exhausted_total and retry_latency_seconds, which the Go queue document names
// without a prefix (D036, D037, D038); WithRetryPrefix gives them one.
//
// # What counts as what
//
// An attempt whose handler answered DISCARD counts in ojs_job_discarded_total and not in
// ojs_job_failed_total; every other failure, FAIL included, counts as failed, once for
// each attempt. Why jobs ended without success is in ojs_job_given_up_total by reason,
// DISCARD and FAIL under "code". A snoozed or given-back attempt counts as started and as
// nothing else, and if it was the first, the next one counts in
// ojs_job_queue_time_seconds again, with all the time since the job first became
// available. ojs_job_duration_seconds has the attempts that completed or failed, by the
// state of the job after them.
//
// retry_latency_seconds is the time between a failure and the next attempt as it was
// decided. It does not include the wait for a free worker, nor a retry that an operator
// makes earlier.
//
// Jobs that are stored, start and complete make no event: each scrape reads them, and how
// long attempts took, from the engine's Meter, which engine.WithObserver hands to the
// collector. An observer of your own that passes events on to a Collector embeds it, so
// that the engine finds its methods.
//
// An engine counts what it does itself. Where several share a storage, the sum over all
// of them is the truth, except for ojs_queue_depth, ojs_queue_state and ojs_storage_up,
// which each of them reads from the storage: take their maximum.
//
// docs/operations.md has a table of the metrics, alerts on them and what to do about
// each; docs/grafana.json is a dashboard.
//
// # Labels
//
// Labels are queues, job types, states and reasons: never ids, args, results or texts of
// errors. States and reasons are few. Queues and types are as many as the program has,
// and a program that takes them from outside could be made to have very many: a collector
// counts what comes beyond WithMaxPairs as of queue and type "other". An engine's Meter
// has 1,000 pairs (telemetry.MeterPairs), so a higher WithMaxPairs is for the failures
// alone, or for several engines.
//
// Prometheus sees that a counter has grown only if it has seen it before. The counters of
// a queue and type are there from the first scrape after one of its jobs was stored or
// started, or from the first event of one. Declare has them there from the start.
//
// # Several engines
//
// One collector may observe several engines that share a storage; it then has their sum.
// The counts of an engine stay in the sum when the engine stops, since a counter must not
// fall. They take 2 kB for each pair of a queue and a type. The collector does not keep
// the engine itself, unless Watch was given its Stats. Engines on different storages need
// a collector each, registered with a label of their own:
//
//	prometheus.WrapRegistererWith(prometheus.Labels{"engine": "mail"}, registry).MustRegister(collector)
package ojsprometheus
