package ojs_test

import (
	"encoding/json"
	"maps"
	"reflect"
	"testing"
	"time"

	"github.com/ojsengine/ojs"
)

func TestEventJSON(t *testing.T) {
	failure := &ojs.Failure{Attempt: 2, Type: "a.b", Message: "m", Reason: ojs.ReasonHandlerError}
	problem := func(retryable bool) map[string]any {
		return map[string]any{"code": "HANDLER_ERROR", "type": "a.b", "message": "m", "retryable": retryable}
	}
	const finished, soon = "2026-02-12T10:32:05.123456789Z", "2026-02-12T10:31:06.123456789Z"
	tests := []struct {
		typ   ojs.EventType
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
		{"dead_letter.added", "discarded", map[string]any{"total_attempts": 2.0, "dead_lettered_at": finished,
			"last_error": problem(false)}},
		{"dead_letter.retried", "available", nil},
		{"dead_letter.deleted", "discarded", nil},
	}
	for _, tt := range tests {
		t.Run("P0.8 "+string(tt.typ)+" "+string(tt.state), func(t *testing.T) {
			j := full(tt.state)
			b, err := json.Marshal(ojs.Event{ID: "evt_" + jobID, Subject: j.ID, Type: tt.typ,
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
		j := full(ojs.StateCompleted)
		j.Meta, j.Result = nil, nil
		for typ, want := range map[ojs.EventType]map[string]any{
			"job.completed": {"job_type": "email.send", "queue": "mail", "attempt": 2,
				"duration_ms": int64(0)},
			"job.discarded": {"job_type": "email.send", "queue": "mail", "total_attempts": 2},
		} {
			if got := (ojs.Event{Type: typ, Job: &j}).Data(); !reflect.DeepEqual(got, want) {
				t.Errorf("%s: %v, want %v", typ, got, want)
			}
		}
	})
	t.Run("P0.8 names", func(t *testing.T) {
		for typ, want := range map[ojs.EventType]string{
			ojs.EventEnqueued: "job.enqueued", ojs.EventScheduled: "job.scheduled",
			ojs.EventStarted:   "job.started",
			ojs.EventCompleted: "job.completed", ojs.EventFailed: "job.failed",
			ojs.EventRetrying:  "job.retrying",
			ojs.EventDiscarded: "job.discarded", ojs.EventCancelled: "job.cancelled",
			ojs.EventExpired: "job.expired", ojs.EventTTLExpired: "job.ttl_expired",
			ojs.EventTimeout: "job.timeout", ojs.EventTotalTimeout: "job.total_timeout",
			ojs.EventStalled:         "job.stalled",
			ojs.EventDeadLetterAdded: "dead_letter.added", ojs.EventDeadLetterRetried: "dead_letter.retried",
			ojs.EventDeadLetterReplayed: "dead_letter.replayed",
			ojs.EventDeadLetterDeleted:  "dead_letter.deleted",
			ojs.EventDeadLetterPruned:   "dead_letter.pruned",
		} {
			if string(typ) != want {
				t.Errorf("%s, want %s", typ, want)
			}
		}
	})
	t.Run("L050 limits", func(t *testing.T) {
		key := &ojs.LimitEvent{Key: "k", Strategy: ojs.LimitedByRate, Bound: 5, Current: 7, JobID: jobID,
			JobType: "email.send"}
		for typ, want := range map[string]map[string]any{
			"rate_limit.exceeded": {"key": "k", "strategy": "rate", "limit": 5, "current": 7},
			"rate_limit.released": {"key": "k", "strategy": "rate", "job_id": jobID, "queue": "mail"},
			"rate_limit.dropped":  {"key": "k", "job_id": jobID, "job_type": "email.send", "queue": "mail"},
			"rate_limit.dynamic_adjusted": {"key": "k", "reason": "handler",
				"until": "2026-02-12T10:31:05.123456789Z"},
		} {
			ev := ojs.Event{Type: ojs.EventType(typ), Limit: key}
			switch ev.Type {
			case ojs.EventLimitReleased, ojs.EventLimitDropped:
				ev.Queue = "mail"
			case ojs.EventLimitAdjusted:
				ev.Until, ev.Reason = at, "handler"
			}
			if got := ev.Data(); !reflect.DeepEqual(got, want) {
				t.Errorf("%s: %v, want %v", typ, got, want)
			}
		}
		if got := (ojs.Event{Type: ojs.EventLimitAdjusted, Limit: key}).Data()["until"]; got != nil {
			t.Errorf("bounds without end end at %v", got)
		}
	})
	t.Run("P0.8 an event of no job", func(t *testing.T) {
		b, err := json.Marshal(ojs.Event{ID: "evt_1", Type: "queue.paused", Source: "ojs://a/b/c", Time: at})
		want := `{"specversion":"1.0","id":"evt_1","type":"queue.paused","source":"ojs://a/b/c","time":"2026-02-12T10:31:05.123456789Z","data":{}}`
		if err != nil || string(b) != want {
			t.Errorf("%s, %v", b, err)
		}
	})
}
