package server_test

import (
	"errors"
	"net/http/httptest"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/ojsengine/ojs/engine"
	"github.com/ojsengine/ojs/enginetest"
	"github.com/ojsengine/ojs/internal/test/bindingtest"
	"github.com/ojsengine/ojs/internal/test/pace"
	"github.com/ojsengine/ojs/storage/storagetest"
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

// The silence of callers without an id tells nothing of the others: their jobs stay with
// them as long as their reservations.
func TestSilenceWithoutAnID(t *testing.T) {
	r := newRig(t)
	r.enqueue("A", job)
	r.enqueue("B", job)
	for range 2 {
		r.want("F060", r.do("POST /workers/fetch\n\n"+`{"queues":["default"]}`), 200, "jobs.0.attempt", 1)
	}
	r.want("F068", r.do("POST /workers/heartbeat\n\n"+`{"worker_id":"w","active_jobs":["$A"]}`), 200)
	r.advance(5 * time.Minute)
	for _, id := range []string{"$A", "$B"} {
		r.want("F079", r.do("GET /jobs/"+id), 200, "job.state", "active", "job.attempt", 1)
	}
}

// A worker that tells of its progress alone has sent no heartbeat that could stop.
func TestProgressIsNoHeartbeat(t *testing.T) {
	r := newRig(t)
	r.enqueue("A", job)
	r.fetch("w")
	r.want("F181", r.do("POST /workers/progress\n\n"+`{"job_id":"$A","worker_id":"w","percentage":50}`), 200)
	r.advance(5 * time.Minute)
	r.want("F079", r.do("GET /jobs/$A"), 200, "job.state", "active", "job.attempt", 1)
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
	r := rigOf(t, enginetest.NewOn[any](t, bindingtest.Fresh(t),
		append(engineOptions(), engine.WithReports(engine.Reports{}))...))
	for _, end := range []string{"ack", "nack"} {
		r.enqueue("A", job)
		r.fetch("w")
		r.advance(2 * time.Second)
		r.want("", r.do("POST /workers/"+end+"\n\n"+`{"job_id":"$A"}`), 200)
	}
	pace.Until(t, "the engine has reported", func() bool {
		r.advance(time.Second)
		w := httptest.NewRecorder()
		r.srv.ServeHTTP(w, bindingtest.Request("GET /queues/default/stats"))
		return member(t, w, "stats.failed_last_hour") == 1.0
	})
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
	r.want("W021", r.do("POST /jobs/$B/activate"), 409, "error.code", "conflict",
		"error.details.current_state", "pending")
	r.want("W021", r.do("POST /workers/fetch\n\n"+`{"queues":["default"],"count":9}`), 200, "jobs.0.type",
		"a", "jobs.1", "absent")
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
	st := &storagetest.Faulty{Storage: bindingtest.Fresh(t)}
	r := rigOf(t, enginetest.NewOn[any](t, st, engineOptions()...))
	r.want("F068", r.do("POST /workers/heartbeat\n\n"+`{"worker_id":"w"}`), 200)
	st.OnCall(func(c *storagetest.Call) { c.Err = errors.New("gone") })
	r.want("F031", r.do("POST /workers/heartbeat\n\n"+`{"worker_id":"w"}`), 503, "error.code",
		"backend_error")
	st.OnCall(nil)
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

// The refusal of a batch names the member that cannot be stored.
func TestRefusedMember(t *testing.T) {
	r := newRig(t)
	const id = `"id":"0190a8d4-1111-7000-8000-000000000001",`
	r.want("F049", r.do("POST /jobs/batch\n\n"+`{"jobs":[{"type":"a","args":[]},{`+
		id+`"type":"a","args":[]},{`+id+`"type":"a","args":[]}]}`), 409, "error.details.index", 2)
	const unique = `{"type":"u","args":[],"options":{"unique":{"keys":["type"]}}}`
	r.want("F049", r.do("POST /jobs/batch\n\n"+`{"jobs":[`+unique+`,`+unique+`]}`), 409,
		"error.details.index", 1)
	r.want("", r.do("POST /queues\n\n"+`{"name":"full","config":{"max_depth":1}}`), 201)
	const full = `{"type":"u","args":[],"queue":"full"}`
	r.want("F049", r.do("POST /jobs/batch\n\n"+`{"jobs":[{"type":"a","args":[]},`+full+`,`+full+`]}`), 429,
		"error.code", "QUEUE_FULL", "error.details.index", 2, "error.details.field", "jobs[2]")
	r.do("POST /jobs\n\n" + full)
	r.want("F049", r.do("POST /jobs/batch\n\n"+`{"jobs":[`+full+`]}`), 429, "error.details.index", 0,
		"error.details.field", "jobs[0]")
	r.want("F028", r.do("POST /jobs\n\n"+`{"type":"a","args":["`+strings.Repeat("x", 1<<20-8)+`"]}`), 413,
		"error.details.max_bytes", 1<<20)
}

func TestCanonicalCodes(t *testing.T) {
	r := newRig(t)
	for body, code := range map[string]string{
		`{"type":"A","args":[]}`:                               "INVALID_JOB_TYPE",
		`{"type":"a","args":{}}`:                               "INVALID_ARGS",
		`{"type":"a","args":[],"meta":1}`:                      "INVALID_METADATA",
		`{"type":"a","args":[],"options":{"queue":"Q"}}`:       "INVALID_QUEUE",
		`{"type":"a","args":[],"options":{"priority":"high"}}`: "INVALID_PAYLOAD",
	} {
		r.want("F159", r.do("POST /jobs\n\n"+body), 400, "error.canonical_code", code)
	}
	r.want("F159", r.do("POST /cron\n\n"+`{"name":"c","cron":"x","type":"a","args":[]}`), 400,
		"error.canonical_code", "INVALID_CRON_EXPRESSION")
}

func TestRefusedForms(t *testing.T) {
	r := newRig(t)
	r.dead("D", "dies")
	r.enqueue("A", job)
	r.fetch("w")
	r.want("F153", r.do("POST /workers/progress\n\n"+`{"job_id":"$A","percentage":25}`), 200)
	r.want("F153", r.do("GET /jobs/$A/progress"), 200, "progress", 0.25, "updated_at",
		"2000-01-01T00:00:00.000Z")
	r.want("F152", r.do("GET /jobs/$A/result?wait=zz"), 400, "error.details.field", "wait")
	r.want("F073", r.do("POST /workers/nack\n\n"+`{"job_id":"$A","error":{}}`), 400, "error.details.field",
		"error.message")
	r.want("F068", r.do("POST /workers/heartbeat\n\n"+`{"worker_id":"w","active_jobs":"x"}`), 400,
		"error.details.field", "active_jobs")
	r.want("F168", r.do("POST /workers/heartbeat\n\n"+
		`{"worker_id":"w","active_jobs":1,"active_job_ids":["$A"]}`), 200, "jobs_extended.0", r.vars["A"])
	r.want("F068", r.do("POST /workers/heartbeat\n\n"+`{"worker_id":"w","state":"terminate"}`), 200, "state",
		"terminate", "directive", "terminate")
	r.want("V001", r.do("POST /jobs\n\n"+`{"type":"a","args":[],"version":1.5}`), 400, "error.details.field",
		"version")
	r.want("V001", r.do("POST /jobs\n\n"+`{"type":"a","args":[],"version":3}`), 201, "job.version", 3)
	r.want("F166", r.do("POST /jobs\n\n"+`{"type":"a","args":[],"options":{"expires_at":"+PT1H"}}`), 201,
		"job.expires_at", "2000-01-01T01:00:00.000Z")
	r.want("F086", r.do("POST /dead-letter/$D/retry\n\n"+`{"override":{"argz":[1]}}`), 400,
		"error.details.field", "override.argz")
	r.want("F149", r.do("DELETE /dead-letter?older_than=PT1H&confirm=true"), 200, "purged_count", 0)
	r.advance(time.Hour + time.Second)
	r.want("F149", r.do("DELETE /dead-letter\n\n"+`{"older_than":"PT1H","confirm":true}`), 200,
		"purged_count", 1)
	r.want("", r.do("POST /queues\n\n"+`{"name":"q","config":{"max_depth":7}}`), 201)
	r.want("F091", r.do("POST /queues\n\n"+`{"name":"q"}`), 201, "config.max_depth", 7)
}

func TestSagaInItsQueue(t *testing.T) {
	r := newRig(t)
	r.want("W080", r.do("POST /workflows\n\n"+`{"type":"saga","name":"n","steps":[
 {"type":"a","args":[],"compensate_type":"undo.a","options":{"queue":"q"}},{"type":"b","args":[]}]}`), 201)
	r.want("W082", r.do("GET /admin/jobs?type=undo.a"), 200, "items.0.queue", "q")
}

func TestAllFaultsOfAMember(t *testing.T) {
	r := newRig(t)
	w := r.do("POST /workflows\n\n" +
		`{"type":"chain","name":"n","steps":[{"type":"A","args":{}},{"type":"b"}]}`)
	r.want("W009", w, 400, "error.details.validation_errors.0.path", "$.steps[0].type",
		"error.details.validation_errors.1.path", "$.steps[0].args",
		"error.details.validation_errors.2.path", "$.steps[1].args")
	r.want("W009", r.do("POST /workflows\n\n"+`{"type":"chain","name":5,"steps":[{"type":"a","args":[]}]}`),
		400, "error.code", "invalid_workflow", "error.details.validation_errors.0.path", "$.name")
}

func TestErrorOfAnExpiredJob(t *testing.T) {
	r := newRig(t)
	r.enqueue("A", `{"type":"a","args":[],"options":{"expires_at":"+PT1S"}}`)
	r.advance(2 * time.Second)
	r.want("F076", r.do("GET /jobs/$A"), 200, "job.state", "discarded", "job.error.retryable", false)
}
