package server_test

import (
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/benbjohnson/clock"

	"github.com/ojsengine/ojs/engine"
	"github.com/ojsengine/ojs/enginetest"
	"github.com/ojsengine/ojs/internal/test/bindingtest"
	"github.com/ojsengine/ojs/server"
	"github.com/ojsengine/ojs/storage"
)

// enqueue makes a job and keeps its id under a name.
func (r *rig) enqueue(name, body string) {
	r.t.Helper()
	w := r.do("POST /jobs\n\n" + body)
	r.want("F041", w, 201)
	r.keep(name, w, "job.id")
}

func (r *rig) fetch(worker string) *httptest.ResponseRecorder {
	r.t.Helper()
	return r.do("POST /workers/fetch\n\n" + `{"queues":["default"],"worker_id":"` + worker + `"}`)
}

func TestFetch(t *testing.T) {
	r := newRig(t, server.WithLimits(server.Limits{Fetch: 3}))
	r.want("F061", r.do("POST /workers/fetch\n\n"+`{}`), 400, "error.details.field", "queues")
	r.want("F061", r.do("POST /workers/fetch\n\n"+`{"queues":[]}`), 400, "error.details.field", "queues")
	r.want("F061", r.do("POST /workers/fetch\n\n"+`{"queues":["a"],"count":0}`), 400, "error.details.field",
		"count")
	for _, name := range []string{"a", "b", "a", "b"} {
		r.do("POST /jobs\n\n" + `{"type":"t","args":[],"options":{"queue":"` + name + `"}}`)
	}
	r.do("POST /jobs\n\n" + `{"type":"t","args":[],"options":{"queue":"a","priority":9}}`)
	w := r.do("POST /workers/fetch\n\n" + `{"queues":["b","a"],"count":100}`)
	r.want("F061, F062", w, 200, "jobs.0.queue", "b", "jobs.1.queue", "b", "jobs.2.queue", "a",
		"jobs.2.priority", 9,
		"jobs.3", "absent", "jobs.0.worker_id", "absent")
	r.do("POST /queues/a/pause")
	r.want("F063", r.do("POST /workers/fetch\n\n"+`{"queues":["a"]}`), 200, "jobs", []any{})
	r.do("POST /queues/a/resume")
	r.do("POST /admin/system/maintenance\n\n" + `{"enabled":true}`)
	r.advance(time.Second)
	r.want("F063, F150", r.do("POST /workers/fetch\n\n"+`{"queues":["a"]}`), 200, "jobs", []any{})
	r.do("POST /admin/system/maintenance\n\n" + `{"enabled":false}`)
	r.advance(time.Second)
	r.want("F150", r.do("POST /workers/fetch\n\n"+`{"queues":["a"]}`), 200, "jobs.0.state", "active")
	r.golden("fetch")
}

func TestReservations(t *testing.T) {
	r := newRig(t)
	get := func(rule, name string, values ...any) {
		t.Helper()
		r.want(rule, r.do("GET /jobs/$"+name), 200, values...)
	}
	r.enqueue("A", `{"type":"a","args":[],"options":{"visibility_timeout_ms":60000}}`)
	r.do("POST /workers/fetch\n\n" + `{"queues":["default"],"worker_id":"w","visibility_timeout_ms":5000}`)
	r.advance(4 * time.Second)
	r.want("F077",
		r.do("POST /workers/heartbeat\n\n"+`{"worker_id":"w","active_job_ids":["$A"],"active_jobs":1}`), 200,
		"jobs_extended.0", r.vars["A"])
	r.advance(4 * time.Second)
	get("F065: the fetch's value, again", "A", "job.state", "active")
	r.advance(time.Second + time.Nanosecond)
	get("F065, F163", "A", "job.state", "available", "job.attempt", 1, "job.errors.0.type",
		"visibility_timeout")
	r.fetch("w2") // which never beats, and so is not taken for dead
	r.advance(59 * time.Second)
	get("F065: the job's value", "A", "job.state", "active", "job.attempt", 2)
	r.want("F065", r.do("POST /workers/heartbeat\n\n"+
		`{"worker_id":"w2","job_id":"$A","visibility_timeout_ms":2000}`), 200, "jobs_extended.0", r.vars["A"])
	r.advance(2*time.Second + time.Nanosecond)
	get("F065: the heartbeat's value", "A", "job.state", "available")

	r.enqueue("B", `{"type":"a","args":[],"options":{"priority":5}}`)
	r.fetch("dies")
	r.do("POST /workers/heartbeat\n\n" + `{"worker_id":"dies","active_jobs":["$B"]}`)
	r.advance(30*time.Second + time.Nanosecond)
	get("F079", "B", "job.state", "available", "job.errors.0.type", "worker_death", "job.attempt", 1)

	r.enqueue("C",
		`{"type":"a","args":[],"options":{"priority":9,"timeout_ms":3000,"retry":{"max_attempts":1}}}`)
	r.fetch("slow")
	r.advance(2 * time.Second)
	r.do("POST /workers/heartbeat\n\n" + `{"worker_id":"slow","active_jobs":["$C"]}`)
	r.advance(time.Second)
	get("F081, F076", "C", "job.state", "discarded", "job.error.type", "timeout",
		"job.completed_at", member(t, r.do("GET /jobs/$C"), "job.discarded_at"))
}

func TestSettle(t *testing.T) {
	r := newRig(t)
	take := func(name, options string) {
		t.Helper()
		r.enqueue(name, `{"type":"t","args":[],"options":`+options+`}`)
		r.want("F060", r.fetch("w"), 200, "jobs.0.id", r.vars[name])
	}
	nack := func(rule, name, report string, values ...any) {
		t.Helper()
		r.want(rule, r.do("POST /workers/nack\n\n"+`{"job_id":"$`+name+`"`+report+`}`), 200, values...)
	}
	off := `{"retry":{"jitter":false,"max_attempts":2}}`
	take("A", off)
	nack("F067, F073", "A", "", "state", "retryable", "retry_delay_ms", 1000, "attempt", 1, "max_attempts", 2)
	r.want("F073, F074", r.do("GET /jobs/$A"), 200, "job.error.code", "handler_error", "job.error.type",
		"handler_error",
		"job.error.retryable", true, "job.errors.0.attempt", 1)
	r.advance(time.Second)
	r.want("F075", r.fetch("w"), 200, "jobs.0.retry_delay_ms", 1000)
	nack("F076", "A", `,"error":{"message":"m","code":"E","type":"x.y","details":{"k":1}}`, "state",
		"discarded")
	w := r.do("GET /jobs/$A")
	r.want("F074, F076", w, 200, "job.error.code", "E", "job.error.type", "x.y", "job.error.message", "m",
		"job.errors.1.details.k", 1, "job.completed_at", member(t, w, "job.discarded_at"))

	take("B", `{}`)
	nack("F072", "B", `,"error":{"message":"m","code":"E","retryable":false}`, "state", "discarded")
	r.want("F072", r.do("GET /jobs/$B"), 200, "job.error.retryable", false, "job.error.code", "E")
	take("C", `{"retry":{"on_exhaustion":"dead_letter"}}`)
	nack("F072", "C", `,"error":{"message":"m","retryable":false}`, "state", "discarded")
	r.want("F085", r.do("GET /dead-letter/$C"), 200, "job.id", r.vars["C"])
	take("D", `{"retry":{"non_retryable_errors":["E1"]}}`)
	nack("F072: the code", "D", `,"error":{"message":"m","code":"E1"}`, "state", "discarded")
	take("E", `{"retry":{"non_retryable_errors":["net.*"]}}`)
	nack("F072: the class", "E", `,"error":{"message":"m","code":"c","details":{"error_class":"net.down"}}`,
		"state", "discarded")
	take("F", `{}`)
	nack("F072", "F", `,"error":{"message":"m","code":"DEAD_LETTER"}`, "state", "discarded")
	r.want("F072", r.do("GET /dead-letter/$F"), 200, "job.error.code", "DEAD_LETTER")
	take("G", `{}`)
	nack("F071", "G", `,"requeue":true,"error":{"message":"m","code":"DISCARD"}`, "state", "available",
		"attempt", 0)
	r.want("F071", r.do("GET /jobs/$G"), 200, "job.state", "available", "job.attempt", 0, "job.errors",
		"absent")
	r.want("F071", r.fetch("w"), 200, "jobs.0.attempt", 1)
	r.want("F073", r.do("POST /workers/nack\n\n"+`{"job_id":"$G","error":"text"}`), 400,
		"error.details.field", "error")
	r.want("F073", r.do("POST /workers/nack\n\n"+`{"job_id":"$G","error":{"code":"x"}}`), 400,
		"error.details.field", "error.message")
	r.want("F069", r.do("POST /workers/ack\n\n"+`{"id":"$G","attempt":2}`), 409, "error.code", "conflict")
	r.want("F069", r.do("POST /workers/ack\n\n"+`{"id":"$G","worker_id":"other"}`), 409)
	r.want("F156, F066", r.do("POST /workers/ack\n\n"+`{"id":"$G","result":null}`), 200, "id", r.vars["G"],
		"job_id", r.vars["G"],
		"job.state", "completed")
	r.want("F066: null is a result", r.do("GET /jobs/$G"), 200, "job.result", nil, "job.state", "completed")
	r.want("F069", r.do("POST /workers/ack\n\n"+`{"job_id":"$G"}`), 409, "error.details.current_state",
		"completed",
		"error.details.expected_state", "active")
	r.want("F069", r.do("POST /workers/ack\n\n"+`{"job_id":"0190a8d4-1111-7000-8000-000000000001"}`), 404)
	r.want("F022", r.do("POST /workers/ack\n\n"+`{}`), 400, "error.details.field", "job_id")

	take("H", `{}`)
	r.want("F052", r.do("DELETE /jobs/$H"), 200, "job.state", "cancelled", "job.previous_state", "active")
	r.want("F052", r.do("POST /workers/ack\n\n"+`{"job_id":"$H"}`), 409)
	r.want("F052", r.do("POST /workers/heartbeat\n\n"+`{"worker_id":"w","active_jobs":["$H"]}`), 200,
		"jobs_lost.0", r.vars["H"], "jobs_extended", []any{})
	take("I", `{}`)
	r.want("F181", r.do("POST /workers/progress\n\n"+`{"job_id":"$I","percentage":25}`), 200, "progress",
		0.25)
	r.want("F181", r.do("POST /jobs/$I/ack\n\n{}"), 200, "state", "completed")
	r.golden("settle")
}

func TestBacktraces(t *testing.T) {
	r := newRig(t)
	fails := func(name, given string, want any) {
		t.Helper()
		r.enqueue(name, `{"type":"a","args":[],"options":{"retry":{"max_attempts":1}}}`)
		r.fetch("w")
		r.want("R14", r.do("POST /workers/nack\n\n"+`{"job_id":"$`+name+`","error":{"message":"m","code":"E",
			"details":{"k":1},"backtrace":`+given+`}}`), 200)
		r.want("R14", r.do("GET /jobs/$"+name), 200, "job.error.backtrace", want,
			"job.errors.0.backtrace", want,
			"job.error.details", map[string]any{"k": 1}, "job.error.code", "E")
	}
	fails("A", `["inner","outer"]`, []any{"inner", "outer"})
	fails("B", `"inner\nouter"`, []any{"inner", "outer"})
	fails("C", `{"frames":1}`, "absent")
	fails("D", `[]`, "absent")
	long := strings.Repeat(`"frame",`, 50)
	fails("E", `[`+long+`"last"]`, slices.Repeat([]any{"frame"}, 50))
	wide := strings.Repeat("x", 6000)
	fails("F", `["`+wide+`","`+wide+`"]`, []any{wide})
}

func TestLargeDetails(t *testing.T) {
	r := newRig(t)
	limited := `{"type":"a","args":[],"options":{"rate_limit":{"key":"api","concurrency":9}}}`
	r.enqueue("A", limited)
	r.enqueue("B", limited)
	r.want("F060", r.fetch("w"), 200, "jobs.0.id", r.vars["A"])
	r.want("F067", r.do("POST /workers/nack\n\n"+`{"job_id":"$A","error":{"message":"m","code":"E","type":"t",
		"backtrace":["f"],"rate_limit_until":"2000-01-01T00:01:00Z","details":{"k":"`+
		strings.Repeat("<", 20_000)+`"}}}`), 200, "state", "retryable")
	r.want("F074", r.do("GET /jobs/$A"), 200, "job.error.code", "E", "job.error.type", "t",
		"job.error.backtrace", []any{"f"}, "job.error.details.k", "absent",
		"job.error.details.details_error", "more than 65536 bytes of JSON")
	r.want("L040", r.fetch("w"), 200, "jobs", []any{})
}

func TestLargeResult(t *testing.T) {
	r := newRig(t)
	r.enqueue("A", job)
	r.fetch("w")
	r.want("F028", r.do("POST /workers/ack\n\n"+`{"job_id":"$A","result":"`+strings.Repeat("x", 1<<20)+`"}`),
		413, "error.details.field", "result", "error.details.max_bytes", 1<<20)
	r.want("F028: it is not settled", r.do("GET /jobs/$A"), 200, "job.state", "active")
}

func TestWorkerStates(t *testing.T) {
	r := newRig(t)
	r.want("F078",
		r.do("POST /workers/register\n\n"+`{"worker_id":"w","hostname":"h","queues":["default"],"concurrency":4,
		"metadata":{"region":"eu"}}`), 200, "ok", true, "heartbeat_interval", 5, "heartbeat_timeout", 30,
		"visibility_timeout_default", 1800)
	r.want("F078", r.do("POST /workers/heartbeat\n\n{}"), 400, "error.details.field", "worker_id")
	r.want("F147", r.do("GET /admin/workers"), 200, "items.0.id", "w", "items.0.state", "running",
		"items.0.concurrency", 4,
		"summary.running", 1)
	r.want("F181", r.do("POST /workers/beat\n\n"+`{"worker_id":"w","state":"running"}`), 200, "acknowledged",
		true,
		"directive", "")
	r.enqueue("A", job)
	r.want("F147", r.do("POST /admin/workers/w/quiet"), 200, "state", "quiet")
	r.want("F068, F147", r.do("POST /workers/heartbeat\n\n"+`{"worker_id":"w"}`), 200, "state", "quiet",
		"directive", "quiet")
	r.want("F063", r.fetch("w"), 200, "jobs", []any{})
	r.want("F147", r.do("DELETE /admin/workers/w"), 409, "error.code", "conflict")
	r.advance(31 * time.Second)
	r.want("F147", r.do("GET /admin/workers/w"), 200, "state", "stale", "jobs", []any{})
	r.want("F147", r.do("DELETE /admin/workers/w"), 200, "deleted", true)
	r.fetch("x")
	r.advance(31 * time.Second)
	r.want("F147", r.do("DELETE /admin/workers/x"), 200, "jobs_recovered", 1)
	r.advance(time.Nanosecond)
	r.want("F147", r.do("GET /jobs/$A"), 200, "job.state", "available", "job.errors.0.type", "worker_death")
	r.want("F147", r.do("GET /admin/workers/nobody"), 404, "error.details.resource_type", "worker")
	r.do("POST /workers/register\n\n" + `{"worker_id":"gone"}`)
	r.want("F078", r.do("POST /workers/deregister\n\n"+`{"worker_id":"gone"}`), 200, "ok", true)
	r.want("V005",
		r.do("POST /workers/register\n\n"+`{"worker_id":"v","handlers":[{"type":"a","versions":"^2"}]}`), 400,
		"error.details.field", "handlers.versions")
	r.do("POST /workers/register\n\n" + `{"worker_id":"v2","handlers":[{"type":"a","versions":">=2.0"}]}`)
	for _, jobType := range []string{"a@1.0", "a@2.1", "a", "b"} {
		r.do("POST /jobs\n\n" + `{"type":"` + jobType + `","args":[],"queue":"versions"}`)
	}
	r.want("V003, V004, V006", r.do("POST /workers/fetch\n\n"+
		`{"queues":["versions"],"worker_id":"v2","count":9}`), 200, "jobs.0.version", "2.1", "jobs.1.type",
		"a",
		"jobs.2.type", "b", "jobs.3", "absent")
	r.golden("workerstates")
}

// A fetch that waits answers at the first job, at the end of its wait, when the server
// stops, and claims nothing for a caller that has gone (F064).
func TestLongPoll(t *testing.T) {
	enginetest.Test(t, func(t *testing.T, eng *enginetest.Engine[any]) {
		r := rigOf(t, eng, server.WithMaxRequests(1)) // beside each long poll
		poll := func(ctx context.Context, ms string) chan *httptest.ResponseRecorder {
			answered := make(chan *httptest.ResponseRecorder, 1)
			go func() {
				body := strings.NewReader(`{"queues":["default"],"worker_id":"w","wait_ms":` + ms + `}`)
				req := httptest.NewRequest("POST", "http://localhost/ojs/v1/workers/fetch", body)
				req = req.WithContext(ctx)
				req.Header.Set("Content-Type", "application/json")
				w := httptest.NewRecorder()
				r.srv.ServeHTTP(w, req)
				answered <- w
			}()
			synctest.Wait()
			return answered
		}
		answered := poll(t.Context(), "20000")
		r.enqueue("A", job)
		r.want("F064", <-answered, 200, "jobs.0.id", r.vars["A"])

		for _, ms := range []string{"30001", "99000", "9223372036855", "9007199254740993", "1e400"} {
			begun := time.Now()
			r.want("F064", <-poll(t.Context(), ms), 200, "jobs", []any{})
			if d := time.Since(begun); d != 30*time.Second {
				t.Errorf("F064: %s ms are a wait of %v", ms, d)
			}
		}
		ctx, hangUp := context.WithCancel(t.Context())
		answered = poll(ctx, "20000")
		hangUp()
		<-answered
		r.enqueue("B", job)
		r.want("F064: the caller has gone", r.do("GET /jobs/$B"), 200, "job.state", "available")
		r.fetch("w")

		answered = poll(t.Context(), "20000")
		closed(t, r.srv)
		r.want("F064, F199", <-answered, 200, "jobs", []any{})
		w := r.fetch("w")
		r.want("F199", w, http.StatusServiceUnavailable, "error.code", "backend_error", "error.retryable",
			true)
		if w.Header().Get("Retry-After") != "1" {
			t.Error("F032: no Retry-After")
		}
		r.want("F199", r.do("GET /health"), 503, "status", "degraded")
	}, engineOptions()...)
}

// deadWriter is the writer of a caller who has gone.
type deadWriter struct{ *httptest.ResponseRecorder }

func (deadWriter) Write([]byte) (int, error) { return 0, io.ErrClosedPipe }

// A job that was claimed for a caller who has gone is given back (F064).
func TestFetchForNobody(t *testing.T) {
	r := newRig(t)
	r.enqueue("A", job)
	req := bindingtest.Request("POST /workers/fetch\n\n" + `{"queues":["default"],"worker_id":"w"}`)
	r.srv.ServeHTTP(deadWriter{httptest.NewRecorder()}, req)
	r.advance(time.Nanosecond)
	r.want("F064", r.do("GET /jobs/$A"), 200, "job.state", "available", "job.attempt", 0)
	r.fetch("w")
	r.do("POST /workers/deregister\n\n" + `{"worker_id":"w"}`)
	r.advance(time.Nanosecond)
	r.want("F078: deregistered", r.do("GET /jobs/$A"), 200, "job.state", "available", "job.attempt", 0)
}

// A worker that beats at another server is not deleted, however long this one has not
// heard of it (F147).
func TestDeleteWorkerOfAnotherServer(t *testing.T) {
	st := bindingtest.Fresh(t)
	r := rigOf(t, enginetest.NewOn[any](t, st, engineOptions()...))
	r.enqueue("A", job)
	r.fetch("w")
	r.advance(31 * time.Second)
	rec, err := st.Get(t.Context(), r.vars["A"])
	if err != nil {
		t.Fatal(err)
	}
	for _, lease := range []time.Duration{0, -time.Minute} {
		lost, err := st.Extend(t.Context(), rec.StartedAt.Add(31*time.Second), []storage.Extension{
			{Held: storage.Held{ID: rec.ID, Version: rec.Version}, Lease: lease}})
		if err != nil || len(lost) > 0 {
			t.Fatal(lost, err)
		}
		r.want("F147", r.do("DELETE /admin/workers/w"), 409, "error.code", "conflict")
	}
	r.want("F147", r.do("GET /jobs/$A"), 200, "job.state", "active")
}

// A call about an attempt that is over its time has lost the job, though no engine has
// noticed the timeout before (F069, F081).
func TestProgressAfterTheTimeout(t *testing.T) {
	for _, call := range []string{"PUT /jobs/$A/progress\n\n" + `{"progress":0.5}`,
		"POST /workers/progress\n\n" + `{"job_id":"$A","percentage":50}`,
		"POST /jobs/$A/checkpoint\n\n" + `{"k":1}`} {
		mock, st := clock.NewMock(), bindingtest.Fresh(t)
		eng, err := engine.New[any](st, append(engineOptions(), engine.WithClock(mock))...) // and no Run
		if err != nil {
			t.Fatal(err)
		}
		srv, err := server.New(eng)
		if err != nil {
			t.Fatal(err)
		}
		r := &rig{t: t, srv: srv, vars: map[string]string{}}
		r.enqueue("A", `{"type":"a","args":[],"options":{"timeout_ms":1000}}`)
		r.fetch("w")
		mock.Add(2 * time.Second)
		r.want("F069", r.do(call), 409, "error.code", "conflict")
		closed(t, srv)
		st.Close()
	}
}

// The names that a worker reports are cut, and its handlers are bounded.
func TestReportsAreShort(t *testing.T) {
	r := newRig(t)
	queues := `"` + strings.Repeat("q", 300) + `"` + strings.Repeat(`,"q"`, 200)
	r.do("POST /workers/register\n\n" + `{"worker_id":"w","hostname":"` + strings.Repeat("h", 9999) +
		`","version":"` + strings.Repeat("v", 9999) + `","queues":[` + queues + `]}`)
	r.want("F078", r.do("GET /admin/workers/w"), 200, "hostname", strings.Repeat("h", 255), "version",
		strings.Repeat("v", 255), "queues.0", strings.Repeat("q", 255), "queues.99", "q",
		"queues.100", "absent")
	handlers := strings.Repeat(`{"type":"a"},`, 1000) + `{"type":"a"}`
	r.want("F078", r.do("POST /workers/register\n\n"+`{"worker_id":"w","handlers":[`+handlers+`]}`), 400,
		"error.details.field", "handlers")
}
