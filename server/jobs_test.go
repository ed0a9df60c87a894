package server_test

import (
	"context"
	"net/http/httptest"
	"runtime"
	"sync"
	"testing"
	"time"

	"github.com/benbjohnson/clock"

	"github.com/ojsengine/ojs"
	"github.com/ojsengine/ojs/engine"
	"github.com/ojsengine/ojs/enginetest"
	"github.com/ojsengine/ojs/internal/test/bindingtest"
	"github.com/ojsengine/ojs/server"
	"github.com/ojsengine/ojs/storage/storagetest"
)

func TestEnqueue(t *testing.T) {
	r := newRig(t)
	w := r.do("POST /jobs\n\n" + `{"type":"email.send","args":[{"to":"a@b.c"}]}`)
	r.want("F041", w, 201, "job.state", "available", "job.attempt", 0, "job.started_at", "absent")
	r.keep("ID", w, "job.id")
	if got := w.Header().Get("Location"); got != "/ojs/v1/jobs/"+r.vars["ID"] {
		t.Errorf("F041: Location %q", got)
	}
	r.want("F050", r.do("GET /jobs/$ID"), 200, "job.state", "available")
	w = r.do("POST /jobs\n\n" +
		`{"type":"email-send.v2","args":[1,"x",null],"meta":{"trace_id":"t"},"color":"red",
		"state":"completed","options":{"queue":"mail","priority":7,"tags":["a"],"timeout_ms":5000,
		"visibility_timeout_ms":60000,"scheduled_at":"2030-01-01T00:00:00Z",
		"retry":{"max_attempts":5,"initial_interval_ms":500,"backoff_type":"linear"},
		"unique":{"keys":["type","args"],"period":"PT1H","on_conflict":"ignore"}}}`)
	r.want("F040, F042, F044, F045", w, 201, "job.state", "scheduled", "job.color", "red", "job.timeout_ms",
		5000,
		"job.tags.0", "a", "job.meta.tags", "absent", "job.scheduled_at", "2030-01-01T00:00:00Z")
	w = r.do("POST /jobs/batch\n\n" + `{"jobs":[{"type":"a","args":[]},{"type":"b","args":[2]}]}`)
	r.want("F048", w, 201, "count", 2, "jobs.0.type", "a", "jobs.1.type", "b")
	r.want("F048", r.do("POST /jobs/batch\n\n"+`{"jobs":[]}`), 400, "error.code", "invalid_request")
	r.want("F049", r.do("POST /jobs/batch\n\n"+`{"jobs":[{"type":"a","args":[]},{"type":"A B","args":[2]}]}`),
		400,
		"error.details.index", 1, "error.details.field", "jobs[1].type")
	r.want("F051", r.do("DELETE /jobs/$ID"), 200, "job.state", "cancelled", "job.previous_state", "available",
		"job.completed_at", "absent")
	r.want("F051", r.do("DELETE /jobs/$ID"), 409, "error.code", "conflict", "error.details.current_state",
		"cancelled")
	r.golden("enqueue")
}

func TestWorkers(t *testing.T) {
	r := newRig(t)
	r.keep("ID", r.do("POST /jobs\n\n"+`{"type":"a","args":[]}`), "job.id")
	r.want("F061", r.do("POST /workers/fetch\n\n"+`{"queues":["other"]}`), 200, "jobs", []any{})
	w := r.do("POST /workers/fetch\n\n" + `{"queues":["default"],"worker_id":"w1"}`)
	r.want("F060, F157", w, 200, "jobs.0.state", "active", "jobs.0.attempt", 1, "jobs.0.worker_id", "w1",
		"job.id", r.vars["ID"])
	r.want("F069", r.do("POST /workers/ack\n\n"+`{"job_id":"$ID","worker_id":"w2"}`), 409, "error.code",
		"conflict")
	w = r.do("POST /workers/nack\n\n" + `{"job_id":"$ID","worker_id":"w1","error":{"message":"no"}}`)
	r.want("F067", w, 200, "state", "retryable", "attempt", 1)
	r.advance(2 * time.Second)
	w = r.do("POST /workers/fetch\n\n" + `{"queues":["default"],"worker_id":"w1","count":1}`)
	r.want("F060", w, 200, "jobs.0.attempt", 2, "job", "absent", "jobs.0.error.code", "handler_error")
	w = r.do("POST /workers/heartbeat\n\n" + `{"worker_id":"w1","active_jobs":["$ID","x"]}`)
	r.want("F068", w, 200, "state", "running", "directive", "", "jobs_extended", []any{r.vars["ID"]},
		"jobs_lost", []any{"x"})
	w = r.do("POST /workers/ack\n\n" + `{"job_id":"$ID","result":{"ok":true}}`)
	r.want("F066", w, 200, "acknowledged", true, "state", "completed", "job.state", "completed")
	r.want("F066", r.do("GET /jobs/$ID"), 200, "job.result.ok", true, "job.error", "absent")
	r.golden("workers")
}

// A hook that enqueues a job of its own does not change the answer about the caller's.
func TestHookThatEnqueues(t *testing.T) {
	var eng *enginetest.Engine[any]
	eng = enginetest.NewOn[any](t, bindingtest.Fresh(t), append(engineOptions(), engine.WithEnqueueHook(
		func(ctx context.Context, j *ojs.Job[any]) error {
			if j.Type != "a" {
				return nil
			}
			_, err := eng.Enqueue(ctx, "audit", nil)
			return err
		}))...)
	r := rigOf(t, eng)
	r.want("F041", r.do("POST /jobs\n\n"+job), 201, "job.type", "a")
	r.want("F048", r.do("POST /jobs/batch\n\n"+`{"jobs":[`+job+`]}`), 201, "jobs.0.type", "a",
		"jobs.1", "absent")
}

// The time that an enqueue waits for room does not end the call that stores its jobs: the
// caller would repeat what is stored (F030).
func TestBlockTimeoutOfASlowStorage(t *testing.T) {
	mock, st := clock.NewMock(), &storagetest.Faulty{Storage: bindingtest.Fresh(t)}
	r := rigOf(t, enginetest.NewOn[any](t, st, engineOptions()...), server.WithClock(mock))
	r.want("F091", r.do("PUT /queues/b/config\n\n"+`{"max_depth":2,"overflow":"block"}`), 200)
	st.OnCall(func(c *storagetest.Call) {
		if c.Method == "Insert" {
			mock.Add(time.Minute)
			for range 1000 {
				runtime.Gosched()
			}
			if c.Do(); c.Context.Err() != nil {
				c.Err = c.Context.Err()
			}
		}
	})
	for _, seconds := range []string{"0", "3"} {
		r.want("F030", r.do("POST /jobs\nOJS-Block-Timeout: "+seconds+"\n\n"+
			`{"type":"a","args":[],"queue":"b"}`), 201)
	}
	st.OnCall(nil)
	w := r.do("POST /jobs/batch\nOJS-Block-Timeout: 0\n\n" +
		`{"jobs":[{"type":"a","args":[]},{"type":"a","args":[],"queue":"b"}]}`)
	r.want("F030, F049", w, 429, "error.code", "QUEUE_FULL", "error.strategy", "block",
		"error.details.index", 1, "error.retryable", true)
}

// A full queue refuses, waits for room or drops its oldest job, as its configuration says
// (F030).
func TestOverflow(t *testing.T) {
	mock := clock.NewMock()
	r := newRig(t, server.WithClock(mock))
	configure := func(queue, overflow string, status int) {
		r.want("F091", r.do("PUT /queues/"+queue+"/config\n\n"+
			`{"max_depth":1,"overflow":"`+overflow+`"}`), status)
	}
	configure("q", "vanish", 400)
	enqueue := func(queue, header string) *httptest.ResponseRecorder {
		return r.do("POST /jobs" + header + "\n\n" + `{"type":"a","args":[],"queue":"` + queue + `"}`)
	}
	configure("r", "reject", 200)
	configure("d", "drop_oldest", 200)
	configure("b", "block", 200)
	r.want("F030", enqueue("r", ""), 201)
	r.want("F030", enqueue("r", ""), 429, "error.code", "QUEUE_FULL", "error.strategy", "reject")
	r.keep("D", enqueue("d", ""), "job.id")
	r.want("F030", enqueue("d", ""), 201)
	r.want("F030, F076", r.do("GET /jobs/$D"), 200, "job.state", "discarded")
	r.keep("B", enqueue("b", ""), "job.id")
	answers := make(chan *httptest.ResponseRecorder, 1)
	wait := func(header string, until func()) *httptest.ResponseRecorder {
		req := bindingtest.Request("POST /jobs" + header + "\n\n" + `{"type":"a","args":[],"queue":"b"}`)
		go func() {
			w := httptest.NewRecorder()
			r.srv.ServeHTTP(w, req)
			answers <- w
		}()
		for len(answers) == 0 {
			until()
			runtime.Gosched()
		}
		return <-answers
	}
	begun := mock.Now()
	w := wait("\nOJS-Block-Timeout: 3", func() { mock.Add(100 * time.Millisecond) })
	r.want("F030: no room in time", w, 429, "error.code", "QUEUE_FULL", "error.strategy", "block",
		"error.queue", "b", "error.bound", 1, "error.retryable", true)
	if waited := mock.Now().Sub(begun); waited < 3*time.Second || w.Header().Get("Retry-After") == "" {
		t.Errorf("F030: after %v, %v", waited, w.Header())
	}
	r.want("F030: room in time", wait("", sync.OnceFunc(func() { r.do("DELETE /jobs/$B") })), 201)
	closing := sync.OnceFunc(func() { go closed(t, r.srv) })
	w = wait("", closing)
	if w.Code != 429 && w.Code != 503 {
		t.Errorf("F199: an enqueue that waits: %d %s", w.Code, w.Body)
	}
}
