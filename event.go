package ojs

import (
	"encoding/json"
	"time"
)

// EventType names what happened (OJS events).
type EventType string

// The events of a job. Those of one job come in the order in which they happened.
const (
	EventEnqueued     EventType = "job.enqueued"      // it was stored
	EventScheduled    EventType = "job.scheduled"     // it waits for a later time: a delayed, snoozed or given-back job
	EventStarted      EventType = "job.started"       // an attempt began
	EventCompleted    EventType = "job.completed"     // it ended well
	EventFailed       EventType = "job.failed"        // an attempt failed, whatever follows
	EventRetrying     EventType = "job.retrying"      // and it will be retried
	EventDiscarded    EventType = "job.discarded"     // it ended without success
	EventCancelled    EventType = "job.cancelled"     // somebody ended it
	EventExpired      EventType = "job.expired"       // it was still waiting at its ExpiresAt
	EventTimeout      EventType = "job.timeout"       // an attempt exceeded its timeout
	EventTotalTimeout EventType = "job.total_timeout" // it exceeded its total timeout
	EventStalled      EventType = "job.stalled"       // an attempt's lease ran out
)

// The events of dead letters.
const (
	EventDeadLetterAdded   EventType = "dead_letter.added"
	EventDeadLetterRetried EventType = "dead_letter.retried"
	EventDeadLetterDeleted EventType = "dead_letter.deleted"
)

// Event is something that happened. Job is a snapshot of the job right after it; subscribers share it and must not change
// it. An Event encodes to the standard's event envelope.
type Event struct {
	ID       string // "evt_" and a UUIDv7
	Type     EventType
	Source   string // "ojs://service/component/instance"
	Time     time.Time
	Job      *JobInfo
	WorkerID string        // started
	Duration time.Duration // of the attempt: completed, failed, timeout
	Failure  *Failure      // failed, retrying, timeout, stalled, discarded if an attempt failed
	Missed   int           // how many events this subscriber missed just before this one; not part of the envelope
}

// MarshalJSON encodes the event envelope with the data its type requires (OJS events).
func (e Event) MarshalJSON() ([]byte, error) {
	type wire struct {
		SpecVersion string         `json:"specversion"`
		ID          string         `json:"id"`
		Type        EventType      `json:"type"`
		Source      string         `json:"source"`
		Time        wireTime       `json:"time"`
		Subject     string         `json:"subject,omitempty"`
		Data        map[string]any `json:"data"`
	}
	w := wire{SpecVersion: specVersion, ID: e.ID, Type: e.Type, Source: e.Source, Time: wireTime(e.Time), Data: e.Data()}
	if e.Job != nil {
		w.Subject = e.Job.ID
	}
	return json.Marshal(w)
}

// Data returns the event's data as the standard lays it out: job_type and queue in every event of a job, trace_id where
// the job's meta has one, and what the type adds. Durations are in milliseconds, times RFC 3339.
func (e Event) Data() map[string]any {
	d := make(map[string]any)
	if e.Job == nil {
		return d
	}
	j := e.Job
	d["job_type"], d["queue"] = j.Type, j.Queue
	if id, ok := j.Meta["trace_id"]; ok {
		d["trace_id"] = id
	}
	failure := func(key string) {
		if e.Failure != nil {
			d[key] = map[string]any{
				"code": string(e.Failure.Reason), "type": e.Failure.Type, "message": e.Failure.Message,
				"retryable": j.State == StateRetryable,
			}
		}
	}
	switch e.Type {
	case EventScheduled:
		at := j.ScheduledAt
		if j.State == StateRetryable {
			at = j.NextRetryAt
		}
		d["scheduled_at"] = formatTime(at)
	case EventStarted:
		d["worker_id"], d["attempt"] = e.WorkerID, j.Attempt
	case EventCompleted:
		d["attempt"], d["duration_ms"] = j.Attempt, e.Duration.Milliseconds()
		if j.Result != nil {
			d["result"] = j.Result
		}
	case EventFailed, EventTimeout, EventTotalTimeout, EventStalled:
		d["attempt"], d["duration_ms"] = j.Attempt, e.Duration.Milliseconds()
		failure("error")
	case EventRetrying:
		d["attempt"], d["max_attempts"], d["next_retry_at"] = j.Attempt, j.MaxAttempts, formatTime(j.NextRetryAt)
		failure("error")
	case EventDiscarded:
		d["total_attempts"] = j.Attempt
		failure("last_error")
	case EventExpired:
		d["created_at"], d["expired_at"] = formatTime(j.CreatedAt), formatTime(j.FinishedAt)
		d["ttl_ms"] = j.ExpiresAt.Sub(j.CreatedAt).Milliseconds()
	case EventDeadLetterAdded:
		d["total_attempts"], d["dead_lettered_at"] = j.Attempt, formatTime(j.DeadLetteredAt)
		failure("last_error")
	}
	return d
}

func formatTime(t time.Time) string { return t.UTC().Format(time.RFC3339Nano) }
