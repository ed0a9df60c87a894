package server_test

import (
	"bytes"
	"compress/gzip"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	"github.com/ojsengine/ojs/server"
)

const job = `{"type":"a","args":[]}`

func TestGround(t *testing.T) {
	r := newRig(t)
	for _, v := range []string{"1", "1.0", "1.0.0", "1-rc.2", "1.0.0-rc.1"} {
		r.want("F008 "+v, r.do("POST /jobs\nOJS-Version: "+v+"\n\n"+job), 201)
	}
	for _, v := range []string{"2", "1.1", "1.0.1", "x", "1.0.0-beta"} {
		r.want("F008 "+v, r.do("POST /jobs\nOJS-Version: "+v+"\n\n"+job), 422, "error.code", "unsupported")
	}
	r.want("F004", r.do("POST /jobs\nContent-Type: application/json; charset=latin1\n\n"+job), 201)
	r.want("F004", r.do("POST /jobs\nContent-Type: text/plain\n\n"+job), 400, "error.code", "invalid_request",
		"error.details.field", "Content-Type")
	for _, bad := range [][2]string{{"F022 empty", " "}, {"F022 list", `[1]`}, {"F022 text", `"x"`},
		{"F006 trailing", job + "{}"}, {"F022 syntax", `{"type":`},
		{"F004 UTF-8", "{\"type\":\"\xff\",\"args\":[]}"}} {
		w := r.do("POST /jobs\n\n" + bad[1])
		r.want(bad[0], w, 400, "error.code", "invalid_payload", "error.retryable", false)
	}
	r.want("F006", r.do("POST /jobs/0190a8d4-0000-7000-8000-000000000000/activate"), 404)
	r.want("F010", r.do("GET /jobs/17"), 404, "error.code", "not_found", "error.details.resource_type", "job",
		"error.details.resource_id", "17")
	r.want("F013", r.do("GET /nothing"), 404, "error.code", "not_found")
	r.want("F013", r.do("GET /jobs/"), 404)
	w := r.do("PUT /jobs")
	r.want("F013", w, 405, "error.code", "invalid_request")
	if got := w.Header().Get("Allow"); got != "OPTIONS, POST" {
		t.Errorf("F013: Allow %q", got)
	}
	r.want("F014", r.do("POST /jobs\nContent-Encoding: br\n\n"+job), 415)
	r.want("F015", r.do("GET /jobs/batch"), 405)
	r.golden("ground")
}

func TestGzip(t *testing.T) {
	r := newRig(t, server.WithLimits(server.Limits{Body: 1000}))
	send := func(body string) *httptest.ResponseRecorder {
		var b bytes.Buffer
		z := gzip.NewWriter(&b)
		z.Write([]byte(body))
		z.Close()
		req := httptest.NewRequest("POST", "http://localhost/ojs/v1/jobs", &b)
		req.Header.Set("Content-Type", "application/json")
		req.Header.Set("Content-Encoding", "gzip")
		w := httptest.NewRecorder()
		r.srv.ServeHTTP(w, req)
		return w
	}
	r.want("F014", send(job), 201)
	bomb := `{"type":"a","args":["` + strings.Repeat("x", 100_000) + `"]}`
	r.want("F014, F028", send(bomb), 413, "error.code", "payload_too_large", "error.details.field", "body",
		"error.details.max_bytes", 1000)
}

func TestRequestIDs(t *testing.T) {
	r := newRig(t)
	for given, kept := range map[string]bool{"abc-1": true, strings.Repeat("x", 128): true,
		strings.Repeat("x", 129): false, "a b": false, "\u00e9": false} {
		req := httptest.NewRequest("GET", "http://localhost/ojs/v1/nothing", nil)
		req.Header.Set("X-Request-Id", given)
		w := httptest.NewRecorder()
		r.srv.ServeHTTP(w, req)
		got := w.Header().Get("X-Request-Id")
		if kept != (got == given) || !kept && !strings.HasPrefix(got, "req_") {
			t.Errorf("F011: %q is answered %q", given, got)
		}
		r.check("GET", "/nothing", w)
	}
}

func TestErrors(t *testing.T) {
	r := newRig(t, server.WithLimits(server.Limits{Args: 64, Meta: 32}))
	bad := func(rule, body, field string) {
		t.Helper()
		r.want(rule, r.do("POST /jobs\n\n"+body), 400, "error.code", "invalid_request", "error.details.field",
			field)
	}
	bad("F022", `{"args":[]}`, "type")
	bad("F022", `{"type":"a"}`, "args")
	bad("F022", `{"type":"a","args":{}}`, "args")
	bad("F022", `{"type":7,"args":[]}`, "type")
	bad("F173", `{"type":"Email","args":[]}`, "type")
	bad("F022", `{"type":"a","args":[],"options":{"queue":"Bad Queue"}}`, "options.queue")
	bad("F042", `{"type":"a","args":[],"options":{"priority":101}}`, "options.priority")
	bad("F042", `{"type":"a","args":[],"options":{"priority":1.5}}`, "options.priority")
	bad("F043", `{"type":"a","args":[],"options":{"timeout_ms":0}}`, "options.timeout_ms")
	bad("F043", `{"type":"a","args":[],"options":{"visibility_timeout_ms":"5"}}`,
		"options.visibility_timeout_ms")
	bad("F021, F043", `{"type":"a","args":[],"options":{"visibility_timeout_ms":5}}`,
		"options.visibility_timeout_ms")
	bad("F021, F167", `{"type":"a","args":[],"visibility_timeout":"PT0.05S"}`, "visibility_timeout")
	bad("F043", `{"type":"a","args":[],"meta":[]}`, "meta")
	bad("F009", `{"type":"a","args":[],"options":{"scheduled_at":"2030-01-01T00:00:00"}}`,
		"options.scheduled_at")
	bad("F010", `{"type":"a","args":[],"id":"x"}`, "id")
	bad("F023", `{"type":"a","args":[],"options":{"unique":{"on_conflict":"maybe"}}}`, "unique.on_conflict")
	bad("F167", `{"type":"a","args":[],"queue":"a","options":{"queue":"b"}}`, "options.queue")
	w := r.do("POST /jobs\n\n" + `{"type":"a","args":[],"options":{"retry":{"max_attempts":-1}}}`)
	r.want("F023", w, 422, "error.code", "validation_error", "error.type", "validation_error",
		"error.details.type", "validation.retry_policy_invalid", "error.details.field", "retry.max_attempts")
	r.want("F028", r.do("POST /jobs\n\n"+`{"type":"a","args":["`+strings.Repeat("x", 70)+`"]}`), 413,
		"error.code", "payload_too_large", "error.details.field", "args", "error.details.max_bytes", 64)
	r.want("F028", r.do("POST /jobs\n\n"+`{"type":"a","args":[],"meta":{"k":"`+strings.Repeat("x", 40)+`"}}`),
		413,
		"error.code", "metadata_too_large", "error.details.field", "meta")
	r.want("F034", r.do("GET /admin/jobs"), 200, "pagination.total", 0)

	const id = "0190a8d4-1111-7000-8000-000000000001"
	r.want("F041", r.do("POST /jobs\n\n"+`{"type":"a","args":[],"id":"`+strings.ToUpper(id)+`"}`), 201,
		"job.id", id)
	r.want("F027", r.do("POST /jobs\n\n"+`{"type":"a","args":[],"id":"`+id+`"}`), 409, "error.code",
		"duplicate",
		"error.details.existing_job_id", id, "error.details.existing_state", "available")
	r.want("F026", r.do("GET /jobs/0190a8d4-1111-7000-8000-000000000002"), 404, "error.code", "not_found")
	unique := `{"type":"u","args":[1],"options":{"unique":{"keys":["type","args"],"on_conflict":"%s"}}}`
	r.keep("U", r.do("POST /jobs\n\n"+strings.Replace(unique, "%s", "reject", 1)), "job.id")
	w = r.do("POST /jobs\n\n" + strings.Replace(unique, "%s", "reject", 1))
	r.want("F027", w, 409, "error.code", "duplicate", "error.details.existing_job_id", r.vars["U"])
	if key := member(t, w, "error.details.unique_key"); key == nil {
		t.Error("F027: no unique_key")
	} else {
		r.want("C043", w, 409, "error.details.existing_job_state", "available",
			"error.details.uniqueness_key", key)
	}
	w = r.do("POST /jobs\n\n" + strings.Replace(unique, "%s", "ignore", 1))
	r.want("F046", w, 200, "deduplicated", true, "job.id", r.vars["U"])
	w = r.do("POST /jobs\n\n" + strings.Replace(unique, "%s", "replace", 1))
	r.want("F046", w, 201, "deduplicated", "absent", "job.state", "available")
	r.want("F046", r.do("GET /jobs/$U"), 200, "job.state", "cancelled")
	w = r.do("POST /jobs/batch\n\n" + `{"jobs":[{"type":"b","args":[]},` + strings.Replace(unique, "%s",
		"reject", 1) + `]}`)
	r.want("F049", w, 409, "error.code", "duplicate", "error.details.index", 1, "error.details.field",
		"jobs[1]")
	r.want("F034", r.do("GET /admin/jobs?type=b"), 200, "pagination.total", 0)
	r.golden("errors")
}

// Requests that come while the server closes are answered, and Close waits for those that
// were let in (F199). The race detector checks it.
func TestCloseUnderRequests(t *testing.T) {
	r := newRig(t)
	var clients sync.WaitGroup
	for range 4 {
		clients.Go(func() {
			for range 100 {
				w := httptest.NewRecorder()
				r.srv.ServeHTTP(w, httptest.NewRequest("GET", "http://localhost/ojs/v1/queues", nil))
				if w.Code != 200 && w.Code != 503 {
					t.Errorf("F199: %d %s", w.Code, w.Body)
				}
			}
		})
	}
	for range 20 {
		closed(t, r.srv)
	}
	clients.Wait()
}
