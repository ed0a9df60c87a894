package ojs_test

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/ojsengine/ojs"
)

func TestEventJSON(t *testing.T) {
	failure := &ojs.Failure{Attempt: 2, Type: "a.b", Message: "m", Reason: ojs.ReasonHandlerError}
	tests := []struct {
		typ   ojs.EventType
		state ojs.State
		want  []string // members of data beside job_type, queue and trace_id
	}{
		{"job.enqueued", "available", nil},
		{"job.scheduled", "scheduled", []string{"scheduled_at"}},
		{"job.started", "active", []string{"worker_id", "attempt"}},
		{"job.completed", "completed", []string{"duration_ms", "attempt", "result"}},
		{"job.failed", "retryable", []string{"attempt", "duration_ms", "error"}},
		{"job.retrying", "retryable", []string{"attempt", "max_attempts", "next_retry_at", "error"}},
		{"job.discarded", "discarded", []string{"total_attempts", "last_error"}},
		{"job.cancelled", "cancelled", nil},
		{"job.expired", "discarded", []string{"created_at", "expired_at", "ttl_ms"}},
		{"job.timeout", "retryable", []string{"attempt", "duration_ms", "error"}},
		{"job.total_timeout", "discarded", []string{"attempt", "duration_ms", "error"}},
		{"job.stalled", "retryable", []string{"attempt", "duration_ms", "error"}},
		{"dead_letter.added", "discarded", []string{"total_attempts", "dead_lettered_at", "last_error"}},
		{"dead_letter.retried", "available", nil},
		{"dead_letter.deleted", "discarded", nil},
	}
	for _, tt := range tests {
		t.Run("P0.8 "+string(tt.typ), func(t *testing.T) {
			j := full(tt.state)
			b, err := json.Marshal(ojs.Event{ID: "evt_" + jobID, Type: tt.typ, Source: "ojs://app/engine/1", Time: at, Job: &j,
				WorkerID: "w", Duration: 1500 * time.Millisecond, Failure: failure})
			if err != nil {
				t.Fatal(err)
			}
			var e struct {
				SpecVersion, ID, Type, Source, Time, Subject string
				Data                                         map[string]any
			}
			if err := json.Unmarshal(b, &e); err != nil {
				t.Fatal(err)
			}
			if e.SpecVersion != "1.0" || e.ID != "evt_"+jobID || e.Type != string(tt.typ) || e.Source != "ojs://app/engine/1" ||
				e.Time != "2026-02-12T10:31:05.123456789Z" || e.Subject != jobID {
				t.Errorf("envelope %s", b)
			}
			want := append([]string{"job_type", "queue", "trace_id"}, tt.want...)
			for _, name := range want {
				if v, ok := e.Data[name]; !ok || v == nil || v == "" {
					t.Errorf("data lacks %s: %v", name, e.Data)
				}
				delete(e.Data, name)
			}
			if len(e.Data) > 0 {
				t.Errorf("data has %v, too", e.Data)
			}
		})
	}
	t.Run("P0.8 values", func(t *testing.T) {
		j := full(ojs.StateRetryable)
		d := ojs.Event{Type: ojs.EventFailed, Job: &j, Duration: 1500 * time.Millisecond, Failure: failure}.Data()
		e, _ := d["error"].(map[string]any)
		if d["duration_ms"] != int64(1500) || e["retryable"] != true || e["code"] != "HANDLER_ERROR" || e["message"] != "m" {
			t.Errorf("%v", d)
		}
		j.State = ojs.StateDiscarded
		e, _ = ojs.Event{Type: ojs.EventFailed, Job: &j, Failure: failure}.Data()["error"].(map[string]any)
		if e["retryable"] != false {
			t.Errorf("%v", e)
		}
	})
	t.Run("without a job", func(t *testing.T) {
		if b, err := json.Marshal(ojs.Event{Type: "queue.paused", Time: at}); err != nil {
			t.Errorf("%s, %v", b, err)
		}
	})
}
