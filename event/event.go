// Package event has the events of jobs, workflows, queues, limits, recurring jobs and
// workers: their types, and the data of each (OJS events). An engine publishes them,
// engine.Engine.Subscribe delivers them, and a telemetry.Observer sees them.
package event

import (
	"encoding/json"
	"math"
	"regexp"
	"strings"
	"time"

	"github.com/ojsengine/ojs"
	"github.com/ojsengine/ojs/internal/encoded"
)

// Type is the type of an event (OJS events).
type Type string

// The events of a job. A subscriber gets the events of one job in the order of its
// transitions.
const (
	Enqueued Type = "job.enqueued" // it was stored
	// it waits for a later time: it is delayed, snoozed or returned
	Scheduled Type = "job.scheduled"
	// it waits for a worker: activated, retried or rescheduled by hand
	Available Type = "job.available"
	Started   Type = "job.started"   // its handler starts, or a worker has fetched it
	Completed Type = "job.completed" // it ended with success
	Failed    Type = "job.failed"    // an attempt failed
	Retrying  Type = "job.retrying"  // it will be retried after a failure
	Discarded Type = "job.discarded" // it ended without success
	Cancelled Type = "job.cancelled" // a call cancelled it
	Expired   Type = "job.expired"   // it was still waiting at its ExpiresAt
	// its first attempt had not started when its EnqueueTTL was over
	TTLExpired   Type = "job.ttl_expired"
	Timeout      Type = "job.timeout"       // an attempt exceeded its timeout
	TotalTimeout Type = "job.total_timeout" // it exceeded its total timeout
	// an attempt's lease expired, perhaps before its handler started, or its worker died
	Stalled         Type = "job.stalled"
	Progress        Type = "job.progress"     // its handler reported progress; at most once a second
	Checkpointed    Type = "job.checkpointed" // its handler saved a checkpoint
	Heartbeat       Type = "job.heartbeat"    // its handler or worker renewed its lease
	PriorityChanged Type = "priority.changed" // its priority was changed while it waited
	Edited          Type = "job.edited"       // its args, meta or queue were changed while it waited
)

// The events of dead letters.
const (
	DeadLetterAdded    Type = "dead_letter.added"
	DeadLetterRetried  Type = "dead_letter.retried"  // by a call
	DeadLetterReplayed Type = "dead_letter.replayed" // by the replay rule in meta "ojs.replay_rule"
	DeadLetterDeleted  Type = "dead_letter.deleted"
	DeadLetterPruned   Type = "dead_letter.pruned" // retention deleted some; Job is nil
)

// The events of workflows (package workflow). Their Subject is the workflow's id, and
// their Workflow is set. Job is the step's job in the events of a step, and the record of
// the workflow in the others.
//
// Each is published by the engine that makes the transition: the engine that enqueues a
// workflow publishes its creation, and the one that stores the end of its last step
// publishes its end. WorkflowStarted is published when an engine starts one of the
// first steps, and is the first one of the workflow that this engine starts: engines that
// share the first steps of a workflow publish it each.
const (
	WorkflowCreated       Type = "workflow.created"
	WorkflowStarted       Type = "workflow.started"
	WorkflowStepCompleted Type = "workflow.step_completed"
	WorkflowStepFailed    Type = "workflow.step_failed" // and is not retried
	// The end of a member of a group or batch, after the event of the step.
	WorkflowJobCompleted  Type = "workflow.job_completed"
	WorkflowJobFailed     Type = "workflow.job_failed"
	WorkflowCallbackFired Type = "workflow.callback_fired" // a callback may run
	WorkflowCompensating  Type = "workflow.compensating"   // a saga begins to undo its steps
	WorkflowRetried       Type = "workflow.retried"        // by a call: failed steps run again

	// The end, when all steps have ended. Steps of a cancelled workflow may still run.
	WorkflowCompleted   Type = "workflow.completed"
	WorkflowFailed      Type = "workflow.failed"
	WorkflowCompensated Type = "workflow.compensated"
	WorkflowCancelled   Type = "workflow.cancelled"
)

// The events of queues. Their Job is nil.
const (
	QueuePaused   Type = "queue.paused"
	QueueResumed  Type = "queue.resumed"
	QueueDraining Type = "queue.draining"
	NearlyFull    Type = "backpressure.warning"  // a bounded queue has reached 0.8 of its depth
	Rejected      Type = "backpressure.rejected" // a full queue refused jobs
	// a full queue dropped an old job, Job, for a new one
	Dropped Type = "backpressure.dropped"
	Room    Type = "backpressure.cleared" // an enqueue found the queue below 0.8 again
)

// The events of limits of keys that the storage counts (ojs.RateLimit). Their Limit is
// set. The engine publishes what its own claims meet: engines that share a storage
// publish it each.
const (
	// LimitExceeded says that a limit holds back the next job of a key. It is
	// published when a claim finds the key closed: once for all jobs that wait, and again
	// after the key has let a job start. Subject is the key, Job is nil.
	LimitExceeded Type = "rate_limit.exceeded"
	// LimitReleased says that a job of such a key may start. Subject is the key, Job
	// is nil.
	LimitReleased Type = "rate_limit.released"
	LimitDropped  Type = "rate_limit.dropped" // a job ended by ojs.OnLimitDrop
	// LimitAdjusted says that ojs.RateLimitedUntil or a call has given a key other
	// bounds or has blocked it. Subject is the key, Job is nil.
	LimitAdjusted Type = "rate_limit.dynamic_adjusted"
)

// The events of recurring jobs. Their Job is nil; the job of a run has events of its own.
const (
	CronTriggered Type = "cron.triggered"
	CronSkipped   Type = "cron.skipped"
)

// The events of workers: an engine's Run, and workers that fetch jobs from it. Their Job
// is nil.
const (
	WorkerStarted Type = "worker.started"
	WorkerQuiet   Type = "worker.quiet"
	WorkerStopped Type = "worker.stopped"
	// WorkerHeartbeat is published for each fetch.Worker.Heartbeat. An engine's Run sends
	// no heartbeats.
	WorkerHeartbeat Type = "worker.heartbeat"
)

// Event is a transition or another fact about a job, a workflow, a queue, a worker or a
// recurring entry. Job is a snapshot of the job right after it, nil for an event about no
// job. Subscribers share Job and must not change it. An Event encodes to the standard's
// event envelope.
type Event struct {
	ID     string // "evt_" and a UUIDv7
	Type   Type
	Source string // "ojs://service/component/instance"
	Time   time.Time
	Job    *ojs.JobInfo
	// the id of the job, the workflow or the worker, or the name of the queue or the
	// recurring entry
	Subject  string
	WorkerID string // started, progress, checkpointed, heartbeat, worker
	Queue    string // the job's, or the one the event is about
	// of the attempt that ended; enqueued: of the call; the end of a workflow: since its
	// creation
	Duration time.Duration
	// started, the first attempt: since the job became available; retrying: until the
	// next attempt; rate_limit.released, the first attempt: how long the limit has held
	// the job back, as far as this engine knows
	Wait time.Duration
	// failed, retrying, timeouts, stalled, expired, discarded, dead_letter.added,
	// workflow.failed, workflow.step_failed
	Failure  *ojs.Failure
	Depth    int       // backpressure: unfinished jobs of the queue
	MaxDepth int       // backpressure: the maximum of Depth
	Pruned   int       // dead_letter.pruned
	Due      time.Time // cron: when the run was due
	// heartbeat, checkpointed: the end of the lease. rate_limit.dynamic_adjusted: the end
	// of the block or of the bounds; zero: none
	Until    time.Time
	Limit    *Limit    // of the events of limits; shared as Job is
	Cron     *Cron     // of the events of recurring jobs; shared as Job is
	Held     int       // worker.heartbeat, worker.quiet: jobs that the worker holds
	Queues   []string  // worker.started of an engine: the queues of its jobs; empty: all
	Slots    int       // worker.started: jobs at once; 0: a worker that fetches
	Workflow *Workflow // of the events of workflows; shared as Job is
	State    string    // worker.heartbeat: the state to go to: running, quiet or terminate
	// worker.stopped: shutdown, signal or error. cron.skipped: overlap_skip, dst_skip,
	// dst_repeat, duplicate, dropped, enqueue_failed or missed; that one stands for all
	// runs that were missed from Due on. discarded: a policy.Rule, expired, dropped or
	// rate_limited. cancelled: workflow, if it was cancelled along with its workflow.
	// rate_limit.dynamic_adjusted: handler, set, cleared, blocked or unblocked.
	Reason string
	// the number of events that this subscriber missed just before this one; not part of
	// the envelope
	Missed int
}

// MarshalJSON encodes the event envelope with the data its type requires (OJS events).
func (e Event) MarshalJSON() ([]byte, error) {
	type wire struct {
		SpecVersion string         `json:"specversion"`
		ID          string         `json:"id"`
		Type        Type           `json:"type"`
		Source      string         `json:"source"`
		Time        string         `json:"time"`
		Subject     string         `json:"subject,omitempty"`
		Data        map[string]any `json:"data"`
	}
	w := wire{SpecVersion: "1.0", ID: e.ID, Type: e.Type, Source: e.Source, Time: formatTime(e.Time),
		Subject: e.Subject, Data: e.Data()}
	return json.Marshal(w)
}

// traceparent is the form of W3C Trace Context. Its second part is the id of the trace.
var traceparent = regexp.MustCompile(`^[0-9a-f]{2}-([0-9a-f]{32})-[0-9a-f]{16}-[0-9a-f]{2}(-.*)?$`)

// Data returns the event's data in the standard's layout: job_type and queue in every
// event of a job, trace_id if the job's meta has one, and the members of the event's
// type. Durations are in milliseconds, times RFC 3339.
func (e Event) Data() map[string]any {
	d := make(map[string]any)
	if e.Workflow != nil {
		e.aboutWorkflow(d)
		return d
	}
	if e.Limit != nil {
		e.aboutLimit(d)
		return d
	}
	if e.Job == nil {
		e.aboutNoJob(d)
		return d
	}
	j := e.Job
	d["job_type"], d["queue"] = j.Type, j.Queue
	if id, ok := j.Meta["trace_id"]; ok {
		d["trace_id"] = id
	} else if parent, _ := j.Meta["traceparent"].(string); parent != "" {
		parts := traceparent.FindStringSubmatch(parent)
		if parts != nil && strings.Trim(parts[1], "0") != "" {
			d["trace_id"] = parts[1]
		}
	}
	failure := func(key string) {
		if e.Failure != nil {
			d[key] = map[string]any{
				"code": string(e.Failure.Reason), "type": e.Failure.Type, "message": e.Failure.Message,
				"retryable": j.State == ojs.StateRetryable,
			}
		}
	}
	switch e.Type {
	case Scheduled:
		at := j.ScheduledAt
		if j.State == ojs.StateRetryable {
			at = j.NextRetryAt
		}
		d["scheduled_at"] = formatTime(at)
	case Started:
		d["worker_id"], d["attempt"] = e.WorkerID, j.Attempt
	case Completed:
		d["attempt"], d["duration_ms"] = j.Attempt, e.Duration.Milliseconds()
		switch {
		case encoded.Value(j.Result):
			d["result"] = encoded.Redacted
		case j.Result != nil:
			d["result"] = j.Result
		}
	case Failed, Timeout, TotalTimeout, Stalled:
		d["attempt"], d["duration_ms"] = j.Attempt, e.Duration.Milliseconds()
		failure("error")
	case Progress:
		d["attempt"], d["worker_id"] = j.Attempt, e.WorkerID
		d["progress_percent"], d["progress"] = j.Progress*100, math.Round(j.Progress*100)
	case Checkpointed:
		d["attempt"], d["worker_id"] = j.Attempt, e.WorkerID
	case Heartbeat:
		d["attempt"], d["worker_id"], d["visible_until"] = j.Attempt, e.WorkerID, formatTime(e.Until)
	case PriorityChanged:
		d["priority"], d["new_priority"] = j.Priority, j.Priority
	case Dropped:
		d["depth"], d["max_depth"], d["bound"] = e.Depth, e.MaxDepth, e.MaxDepth
	case Retrying:
		d["attempt"], d["max_attempts"], d["next_retry_at"] = j.Attempt, j.MaxAttempts,
			formatTime(j.NextRetryAt)
		failure("error")
	case Discarded:
		d["total_attempts"] = j.Attempt
		failure("last_error")
	case Expired:
		d["created_at"], d["expired_at"] = formatTime(j.CreatedAt), formatTime(j.FinishedAt)
		d["ttl_ms"] = j.ExpiresAt.Sub(j.CreatedAt).Milliseconds()
	case TTLExpired:
		d["created_at"], d["expired_at"] = formatTime(j.CreatedAt), formatTime(j.FinishedAt)
		d["ttl_ms"] = j.EnqueueTTL.Milliseconds()
	case DeadLetterAdded:
		d["total_attempts"], d["dead_lettered_at"] = j.Attempt, formatTime(j.DeadLetteredAt)
		failure("last_error")
	}
	return d
}

func (e *Event) aboutNoJob(d map[string]any) {
	if e.Queue != "" {
		d["queue"] = e.Queue
	}
	switch e.Type {
	case NearlyFull, Rejected, Room:
		d["depth"], d["max_depth"], d["bound"] = e.Depth, e.MaxDepth, e.MaxDepth
	case WorkerStarted:
		d["worker_id"] = e.WorkerID
		if e.Slots > 0 {
			d["queues"], d["concurrency"] = append([]string{}, e.Queues...), e.Slots
		}
	case WorkerQuiet:
		d["worker_id"], d["active_jobs"] = e.WorkerID, e.Held
	case WorkerStopped:
		d["worker_id"], d["reason"] = e.WorkerID, e.Reason
	case WorkerHeartbeat:
		d["worker_id"], d["state"], d["active_jobs"] = e.WorkerID, e.State, e.Held
	case CronTriggered, CronSkipped:
		e.aboutCron(d)
	case DeadLetterPruned:
		d["count"] = e.Pruned
	}
}

func formatTime(t time.Time) string { return t.UTC().Format(time.RFC3339Nano) }
