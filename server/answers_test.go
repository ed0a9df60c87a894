package server_test

import (
	"net/http/httptest"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/ojsengine/ojs/engine"
	"github.com/ojsengine/ojs/enginetest"
	"github.com/ojsengine/ojs/storage/memory"
)

// An answer tells what the storage has.
func TestAttemptNamed(t *testing.T) {
	r := newRig(t)
	r.enqueue("A", job)
	r.fetch("w")
	for _, path := range []string{"ack", "nack"} {
		r.want("F069", r.do("POST /workers/"+path+"\n\n"+`{"job_id":"$A","attempt":0}`), 409, "error.code",
			"conflict")
	}
	r.want("F070", r.do("POST /workers/ack\n\n"+`{"job_id":"$A","attempt":1}`), 200)
}

func TestNackOfCancelledWorkflow(t *testing.T) {
	r := newRig(t)
	r.keep("W", r.do("POST /workflows\n\n"+`{"type":"chain","name":"n","steps":[{"type":"a","args":[]},{"type":"b","args":[]}]}`),
		"workflow.id")
	r.keep("A", r.fetch("w"), "jobs.0.id")
	r.want("W051", r.do("DELETE /workflows/$W"), 200)
	w := r.do("POST /workers/nack\n\n" + `{"job_id":"$A","error":{"message":"m","code":"c"}}`)
	r.want("W051", w, 200, "state", "cancelled", "job.state", "cancelled", "next_attempt_at", "absent",
		"next_retry_at", "absent", "retry_delay_ms", "absent", "job.next_retry_at", "absent")
	r.want("W051", r.do("GET /jobs/$A"), 200, "job.state", "cancelled")
}

func TestUniqueJobsHavePolicies(t *testing.T) {
	r := newRig(t)
	r.enqueue("A", job)
	r.enqueue("B", `{"type":"u","args":[],"options":{"unique":{"keys":["type"]}}}`)
	r.want("F184", r.do("GET /unique-jobs"), 200, "pagination.total", 1)
	t.Log(r.do("GET /unique-jobs").Body)
}

// A name that no storage could keep is refused before the storage sees it.
func TestNamesWithNUL(t *testing.T) {
	r := newRig(t)
	r.want("F022", r.do("POST /cron\n\n"+`{"name":"a\u0000b","expression":"* * * * *","type":"a","args":[]}`),
		400, "error.details.field", "name")
	for _, name := range []string{"%00", "%ff", "UPPER"} {
		r.want("F092", r.do("GET /cron/"+name), 404, "error.details.resource_type", "cron")
		r.want("F092", r.do("PATCH /cron/"+name+"\n\n"+`{"enabled":true}`), 404)
		r.want("F092", r.do("DELETE /cron/"+name), 404)
	}
	for _, path := range []string{"fetch", "heartbeat", "register", "deregister"} {
		r.want("F022", r.do("POST /workers/"+path+"\n\n"+`{"worker_id":"\u0000","queues":["default"]}`), 400,
			"error.details.field", "worker_id")
	}
}

// Times in the data of events have milliseconds, too.
func TestTimesOfEvents(t *testing.T) {
	r := newRig(t)
	r.advance(time.Nanosecond)
	r.do("POST /jobs\n\n" + `{"type":"a","args":[],"options":{"retry":{"max_attempts":2,"on_exhaustion":"dead_letter",` +
		`"jitter":false}}}`)
	for range 2 {
		r.keep("A", r.fetch("w"), "jobs.0.id")
		r.want("", r.do("POST /workers/nack\n\n"+`{"job_id":"$A","error":{"message":"m"}}`), 200)
		r.advance(time.Second + time.Nanosecond)
	}
	r.do("POST /jobs\n\n" + `{"type":"a","args":[],"options":{"delay_until":"2000-01-01T01:00:00.000000001Z"}}`)
	r.want("F086", r.do("POST /dead-letter/$A/retry"), 200)
	long := regexp.MustCompile(`"[a-z._]*":"\d{4}-[^"]*:\d\d(\.\d{4,}|)Z"`)
	w := r.do("GET /events")
	for _, name := range []string{"next_retry_at", "dead_lettered_at", "scheduled_at"} {
		if !strings.Contains(w.Body.String(), name) {
			t.Errorf("no event has %s", name)
		}
	}
	if at := long.FindString(w.Body.String()); at != "" {
		t.Errorf("F009: %s", at)
	}
	if at := long.FindString(r.do("GET /jobs/$A").Body.String()); at != "" {
		t.Errorf("F009: %s", at)
	}
}

// The jobs that are done over HTTP are in the statistics.
func TestJobsAreCounted(t *testing.T) {
	r := rigOf(t, enginetest.New[any](t, append(engineOptions(), engine.WithReports(engine.Reports{}))...))
	for _, end := range []string{"ack", "nack"} {
		r.enqueue("A", job)
		r.fetch("w")
		r.advance(2 * time.Second)
		r.want("", r.do("POST /workers/"+end+"\n\n"+`{"job_id":"$A"}`), 200)
	}
	r.advance(10 * time.Second)
	r.want("F155", r.do("GET /queues/default/stats"), 200, "stats.completed_last_hour", 1,
		"stats.failed_last_hour", 1, "stats.avg_duration_ms", 2000)
	r.want("F148", r.do("GET /admin/stats/history?period=1m"), 200, "data.0.processed", 1, "data.0.failed", 1,
		"data.0.enqueued", 2)
	r.want("F147", r.do("GET /admin/workers"), 200, "pagination.total", 1, "items.0.id", "w")
}

// A step that waits for others cannot be activated.
func TestActivateStep(t *testing.T) {
	r := newRig(t)
	r.do("POST /workflows\n\n" + `{"type":"chain","name":"n","steps":[{"type":"a","args":[]},{"type":"b","args":[]}]}`)
	r.keep("B", r.do("GET /admin/jobs?type=b"), "items.0.id")
	r.want("W021", r.do("POST /jobs/$B/activate"), 409, "error.code", "conflict", "error.details.current_state",
		"pending")
	r.want("W021", r.do("POST /workers/fetch\n\n"+`{"queues":["default"],"count":9}`), 200, "jobs.0.type", "a",
		"jobs.1", "absent")
}

func TestDeletedWorkers(t *testing.T) {
	r := newRig(t)
	r.enqueue("A", job)
	r.fetch("w")
	r.want("", r.do("POST /workers/ack\n\n"+`{"job_id":"$A"}`), 200)
	r.advance(31 * time.Second)
	r.want("F147", r.do("DELETE /admin/workers/w"), 200)
	r.want("F147", r.do("GET /admin/workers/w"), 404)
	r.advance(time.Second)
	r.fetch("w")
	r.want("F147: it is back", r.do("GET /admin/workers/w"), 200, "state", "running")
	r.want("F078", r.do("POST /workers/deregister\n\n"+`{"worker_id":"w"}`), 200)
	r.want("F078", r.do("GET /admin/workers/w"), 404)
}

func TestHeartbeatOfAStorageGone(t *testing.T) {
	st := memory.New()
	r := rigOf(t, enginetest.NewOn[any](t, st, engineOptions()...))
	r.want("F068", r.do("POST /workers/heartbeat\n\n"+`{"worker_id":"w"}`), 200)
	st.Close()
	r.want("F031", r.do("POST /workers/heartbeat\n\n"+`{"worker_id":"w"}`), 503, "error.code", "backend_error")
}

// A stream has each transition of a job once, as GET /jobs/{id} has its state.
func TestTransitions(t *testing.T) {
	r := newRig(t)
	ts := httptest.NewServer(r.srv)
	t.Cleanup(ts.Close)
	s := r.stream(ts.URL, "/events/stream?channel=all&event_types=job.state_changed", "")
	begin := func(options string) {
		t.Helper()
		r.enqueue("A", `{"type":"a","args":[],"options":`+options+`}`)
		r.want("", r.fetch("w"), 200, "jobs.0.id", r.vars["A"])
		s.want("F125", "<nil>>available", "available>active")
	}
	nack := func(more string) {
		r.want("", r.do("POST /workers/nack\n\n"+`{"job_id":"$A"`+more+`}`), 200)
	}
	begin(`{"retry":{"max_attempts":1,"on_exhaustion":"dead_letter"}}`)
	nack("")
	r.want("F086", r.do("POST /dead-letter/$A/retry"), 200)
	r.fetch("w")
	s.want("F125: a dead letter", "active>discarded", "discarded>available", "available>active")
	nack(`,"requeue":true`)
	r.want("F071", r.do("GET /jobs/$A"), 200, "job.state", "available")
	r.fetch("w")
	nack("")
	s.want("F125: requeue", "active>available", "available>active", "active>discarded")

	begin(`{"visibility_timeout_ms":1000}`)
	r.advance(2 * time.Second)
	r.want("F163", r.do("GET /jobs/$A"), 200, "job.state", "available")
	r.fetch("w")
	s.want("F125: an expired reservation", "active>available", "available>active")
	nack("")
	r.want("F144", r.do("POST /admin/jobs/$A/retry"), 200)
	r.fetch("w")
	s.want("F125: a retry by hand", "active>retryable", "retryable>available", "available>active")
	nack("")
	r.advance(time.Minute)
	r.want("F067", r.do("GET /jobs/$A"), 200, "job.state", "discarded")
	s.want("F125", "active>discarded")
}
