package event_test

import (
	"encoding/json"
	"maps"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/ojsengine/ojs"
	"github.com/ojsengine/ojs/event"
	"github.com/ojsengine/ojs/storage"
)

const jobID = "0197f000-0000-7000-8000-000000000001"

var at = time.Date(2026, 2, 12, 10, 31, 5, 123456789, time.UTC)

// job returns a job of a state, with what events say of one.
func job(state ojs.State) ojs.JobInfo {
	j := ojs.JobInfo{JobHeader: ojs.JobHeader{ID: jobID, Type: "email.send", Queue: "mail", Attempt: 2,
		MaxAttempts: 3, Meta: map[string]any{"trace_id": "t"}, CreatedAt: at,
		ScheduledAt: at.Add(time.Second)},
		State: state, EnqueueTTL: 30 * time.Minute, ExpiresAt: at.Add(time.Hour)}
	switch state {
	case ojs.StateActive:
		j.Progress = 0.655
	case ojs.StateRetryable:
		j.NextRetryAt = at.Add(time.Minute)
	case ojs.StateCompleted:
		j.Result = json.RawMessage(`{"rows":3}`)
	case ojs.StateDiscarded:
		j.FinishedAt, j.DeadLetteredAt = at.Add(time.Minute), at.Add(time.Minute)
	}
	return j
}

func TestEventJSON(t *testing.T) {
	failure := &ojs.Failure{Attempt: 2, Type: "a.b", Message: "m", Reason: ojs.ReasonHandlerError}
	problem := func(retryable bool) map[string]any {
		return map[string]any{"code": "HANDLER_ERROR", "type": "a.b", "message": "m", "retryable": retryable}
	}
	const finished, soon = "2026-02-12T10:32:05.123456789Z", "2026-02-12T10:31:06.123456789Z"
	tests := []struct {
		typ   event.Type
		state ojs.State
		want  map[string]any // data beside job_type, queue and trace_id
	}{
		{"job.enqueued", "available", nil},
		{"job.scheduled", "scheduled", map[string]any{"scheduled_at": soon}},
		{"job.scheduled", "retryable", map[string]any{"scheduled_at": finished}},
		{"job.started", "active", map[string]any{"worker_id": "w", "attempt": 2.0}},
		{"job.completed", "completed", map[string]any{"duration_ms": 1500.0, "attempt": 2.0,
			"result": map[string]any{"rows": 3.0}}},
		{"job.failed", "retryable", map[string]any{"duration_ms": 1500.0, "attempt": 2.0,
			"error": problem(true)}},
		{"job.failed", "discarded", map[string]any{"duration_ms": 1500.0, "attempt": 2.0,
			"error": problem(false)}},
		{"job.retrying", "retryable", map[string]any{"attempt": 2.0, "max_attempts": 3.0,
			"next_retry_at": finished, "error": problem(true)}},
		{"job.discarded", "discarded", map[string]any{"total_attempts": 2.0, "last_error": problem(false)}},
		{"job.cancelled", "cancelled", nil},
		{"job.expired", "discarded", map[string]any{"created_at": "2026-02-12T10:31:05.123456789Z",
			"expired_at": finished, "ttl_ms": 3600_000.0}},
		{"job.ttl_expired", "discarded", map[string]any{"created_at": "2026-02-12T10:31:05.123456789Z",
			"expired_at": finished, "ttl_ms": 1800_000.0}},
		{"job.timeout", "retryable", map[string]any{"duration_ms": 1500.0, "attempt": 2.0,
			"error": problem(true)}},
		{"job.total_timeout", "discarded", map[string]any{"duration_ms": 1500.0, "attempt": 2.0,
			"error": problem(false)}},
		{"job.stalled", "retryable", map[string]any{"duration_ms": 1500.0, "attempt": 2.0,
			"error": problem(true)}},
		{"job.heartbeat", "active", map[string]any{"attempt": 2.0, "worker_id": "w",
			"visible_until": finished}},
		{"job.progress", "active", map[string]any{"attempt": 2.0, "worker_id": "w", "progress_percent": 65.5,
			"progress": 66.0}},
		{"priority.changed", "available", map[string]any{"priority": 0.0, "new_priority": 0.0}},
		{"dead_letter.added", "discarded", map[string]any{"total_attempts": 2.0, "dead_lettered_at": finished,
			"last_error": problem(false)}},
		{"dead_letter.retried", "available", nil},
		{"dead_letter.deleted", "discarded", nil},
	}
	for _, tt := range tests {
		t.Run("P0.8 "+string(tt.typ)+" "+string(tt.state), func(t *testing.T) {
			j := job(tt.state)
			b, err := json.Marshal(event.Event{ID: "evt_" + jobID, Subject: j.ID, Type: tt.typ,
				Source: "ojs://app/engine/1", Time: at.In(time.FixedZone("", 3600)), Job: &j,
				WorkerID: "w", Duration: 1500 * time.Millisecond, Failure: failure,
				Until: at.Add(time.Minute), Missed: 7})
			if err != nil {
				t.Fatal(err)
			}
			var got map[string]any
			if err := json.Unmarshal(b, &got); err != nil {
				t.Fatal(err)
			}
			data := map[string]any{"job_type": "email.send", "queue": "mail", "trace_id": "t"}
			maps.Copy(data, tt.want)
			want := map[string]any{
				"specversion": "1.0", "id": "evt_" + jobID, "type": string(tt.typ),
				"source": "ojs://app/engine/1",
				"time":   "2026-02-12T10:31:05.123456789Z", "subject": jobID, "data": data,
			}
			if !reflect.DeepEqual(got, want) {
				t.Errorf("\n got %v\nwant %v", got, want)
			}
		})
	}
	t.Run("P0.8 what is not there is left out", func(t *testing.T) {
		j := job(ojs.StateCompleted)
		j.Meta, j.Result = nil, nil
		for typ, want := range map[event.Type]map[string]any{
			"job.completed": {"job_type": "email.send", "queue": "mail", "attempt": 2,
				"duration_ms": int64(0)},
			"job.discarded": {"job_type": "email.send", "queue": "mail", "total_attempts": 2},
		} {
			if got := (event.Event{Type: typ, Job: &j}).Data(); !reflect.DeepEqual(got, want) {
				t.Errorf("%s: %v, want %v", typ, got, want)
			}
		}
	})
	t.Run("P0.8 workers", func(t *testing.T) {
		queues := []string{"a", "b"}
		e := event.Event{Subject: "w", WorkerID: "w", Held: 3, Queues: queues, Slots: 5, State: "running"}
		for typ, want := range map[event.Type]map[string]any{
			event.WorkerStarted:   {"worker_id": "w", "queues": queues, "concurrency": 5},
			event.WorkerQuiet:     {"worker_id": "w", "active_jobs": 3},
			event.WorkerHeartbeat: {"worker_id": "w", "active_jobs": 3, "state": "running"},
		} {
			if e.Type = typ; !reflect.DeepEqual(e.Data(), want) {
				t.Errorf("%s: %v, want %v", typ, e.Data(), want)
			}
		}
		for slots, want := range map[int]map[string]any{
			0: {"worker_id": "w"}, 5: {"worker_id": "w", "queues": []string{}, "concurrency": 5},
		} {
			e = event.Event{Type: event.WorkerStarted, WorkerID: "w", Slots: slots}
			if got := e.Data(); !reflect.DeepEqual(got, want) {
				t.Errorf("of %d slots: %v, want %v", slots, got, want)
			}
		}
	})
	t.Run("P0.8 a trace", func(t *testing.T) {
		const parent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
		for meta, want := range map[string]any{parent: "0af7651916cd43dd8448eb211c80319c", parent[:54]: nil,
			parent + "x": nil,
			parent[:3] + strings.Repeat("0", 32) + parent[35:]: nil, strings.ToUpper(parent): nil,
			parent + "-more": "0af7651916cd43dd8448eb211c80319c"} {
			j := job(ojs.StateAvailable)
			j.Meta = map[string]any{"traceparent": meta}
			if got := (event.Event{Type: event.Enqueued, Job: &j}).Data()["trace_id"]; got != want {
				t.Errorf("%s: %v, want %v", meta, got, want)
			}
		}
	})
	t.Run("P0.8 recurring jobs", func(t *testing.T) {
		const due, now = "2026-02-12T10:31:05.123456789Z", "2026-02-12T10:32:05.123456789Z"
		entry := event.Cron{Schedule: "@daily", JobType: "report", JobID: jobID, Runs: 3}
		common := map[string]any{"cron_name": "daily", "cron_expr": "@daily", "cron_expression": "@daily",
			"timezone": "UTC", "job_type": "report", "scheduled_at": due, "scheduled_time": due}
		for _, tt := range []struct {
			typ    event.Type
			reason string
			want   map[string]any // in addition to common
		}{
			{event.CronTriggered, "", map[string]any{"job_id": jobID, "run_count": 3, "actual_time": now}},
			{event.CronSkipped, "overlap_skip", map[string]any{"reason": "overlap_skip",
				"existing_job_id": jobID, "active_job_id": jobID}},
			{event.CronSkipped, "missed", map[string]any{"reason": "missed"}},
		} {
			e := event.Event{Type: tt.typ, Subject: "daily", Due: at, Time: at.Add(time.Minute),
				Reason: tt.reason, Cron: &entry}
			maps.Copy(tt.want, common)
			if got := e.Data(); !reflect.DeepEqual(got, tt.want) {
				t.Errorf("%s %s: %v, want %v", tt.typ, tt.reason, got, tt.want)
			}
		}
	})
	t.Run("P0.8 names", func(t *testing.T) {
		for typ, want := range map[event.Type]string{
			event.Enqueued: "job.enqueued", event.Scheduled: "job.scheduled",
			event.Started:   "job.started",
			event.Completed: "job.completed", event.Failed: "job.failed",
			event.Retrying:  "job.retrying",
			event.Discarded: "job.discarded", event.Cancelled: "job.cancelled",
			event.Expired: "job.expired", event.TTLExpired: "job.ttl_expired",
			event.Timeout: "job.timeout", event.TotalTimeout: "job.total_timeout",
			event.Stalled:         "job.stalled",
			event.DeadLetterAdded: "dead_letter.added", event.DeadLetterRetried: "dead_letter.retried",
			event.DeadLetterReplayed: "dead_letter.replayed",
			event.DeadLetterDeleted:  "dead_letter.deleted",
			event.DeadLetterPruned:   "dead_letter.pruned",
		} {
			if string(typ) != want {
				t.Errorf("%s, want %s", typ, want)
			}
		}
	})
	t.Run("L050 limits", func(t *testing.T) {
		key := &event.Limit{Key: "k", Strategy: storage.LimitedByRate, Bound: 5, Current: 7, JobID: jobID,
			JobType: "email.send"}
		for typ, want := range map[string]map[string]any{
			"rate_limit.exceeded": {"key": "k", "strategy": "rate", "limit": 5, "current": 7},
			"rate_limit.released": {"key": "k", "strategy": "rate", "job_id": jobID, "queue": "mail"},
			"rate_limit.dropped":  {"key": "k", "job_id": jobID, "job_type": "email.send", "queue": "mail"},
			"rate_limit.dynamic_adjusted": {"key": "k", "reason": "handler",
				"until": "2026-02-12T10:31:05.123456789Z"},
		} {
			ev := event.Event{Type: event.Type(typ), Limit: key}
			switch ev.Type {
			case event.LimitReleased, event.LimitDropped:
				ev.Queue = "mail"
			case event.LimitAdjusted:
				ev.Until, ev.Reason = at, "handler"
			}
			if got := ev.Data(); !reflect.DeepEqual(got, want) {
				t.Errorf("%s: %v, want %v", typ, got, want)
			}
		}
		if got := (event.Event{Type: event.LimitAdjusted, Limit: key}).Data()["until"]; got != nil {
			t.Errorf("bounds without end end at %v", got)
		}
	})
	t.Run("P0.8 an event of no job", func(t *testing.T) {
		b, err := json.Marshal(event.Event{
			ID: "evt_1", Type: "queue.paused", Source: "ojs://a/b/c", Time: at})
		want := `{"specversion":"1.0","id":"evt_1","type":"queue.paused","source":"ojs://a/b/c","time":"2026-02-12T10:31:05.123456789Z","data":{}}`
		if err != nil || string(b) != want {
			t.Errorf("%s, %v", b, err)
		}
	})
}
