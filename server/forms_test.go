package server_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/ojsengine/ojs/enginetest"
	"github.com/ojsengine/ojs/internal/test/bindingtest"
	"github.com/ojsengine/ojs/server"
	"github.com/ojsengine/ojs/storage/storagetest"
)

func TestForms(t *testing.T) {
	r := newRig(t)
	ok := func(rule, body string, values ...any) {
		t.Helper()
		r.want(rule, r.do("POST /jobs\n\n"+body), 201, values...)
	}
	with := func(options string) string {
		return `{"type":"a","args":[{"user":1,"n":2}],"options":` +
			options + `}`
	}
	bad := func(rule string, status int, body string, values ...any) {
		t.Helper()
		r.want(rule, r.do("POST /jobs\n\n"+body), status, values...)
	}

	ok("F162", with(`{}`), "job.timeout_ms", 1800000, "job.visibility_timeout_ms", 1800000)
	ok("F164", with(`{"retry":{"initial_delay_ms":250,"max_interval_ms":4000,"strategy":"constant"}}`),
		"job.retry.initial_interval", "PT0.25S", "job.retry.max_interval", "PT4S",
		"job.retry.backoff_strategy", "none")
	ok("F164", with(`{"retry_policy":{"max_attempts":4,"base_delay_ms":1500,"backoff":"polynomial"}}`),
		"job.max_attempts", 4, "job.retry.initial_interval", "PT1.5S", "job.retry.backoff_strategy",
		"polynomial")
	bad("F164", 422, with(`{"retry":{"initial_interval":"PT1S","initial_interval_ms":5}}`), "error.code",
		"validation_error")
	bad("F164", 422, with(`{"retry":{"color":1}}`), "error.details.field", "retry.color")
	bad("F164", 422, with(`{"retry":{},"retry_policy":{}}`), "error.details.field", "options.retry_policy")

	ok("F165", with(`{"unique":{"key":["user"],"period_ms":60000,"on_conflict":"use_existing"}}`),
		"job.unique.keys", []any{"type", "args"}, "job.unique.args_keys", []any{"user"}, "job.unique.period",
		"PT1M",
		"job.unique.on_conflict", "ignore")
	ok("F165", `{"type":"u","args":[],"unique":{"key":["type","queue"]}}`, "job.unique.keys", []any{"type",
		"queue"})
	bad("F165", 400, with(`{"unique":{"key":["color"]}}`), "error.details.field", "options.unique.key")
	bad("F165", 400, with(`{"unique":{"period":"PT1S","period_ms":1000}}`), "error.code", "invalid_request")

	ok("F166", with(`{"delay_until":"2000-01-01T00:00:10+00:00"}`), "job.scheduled_at",
		"2000-01-01T00:00:10+00:00",
		"job.state", "scheduled")
	ok("F166", with(`{"scheduled_at":"+PT2S"}`), "job.scheduled_at", "2000-01-01T00:00:02.000Z")
	ok("F166", with(`{"scheduled_at":"2000-01-02T00:00:00Z","delay_until":"2000-01-02T00:00:00Z"}`),
		"job.state", "scheduled")
	bad("F166", 400, with(`{"scheduled_at":"2000-01-02T00:00:00Z","delay_until":"2000-01-03T00:00:00Z"}`),
		"error.details.field", "options.delay_until")
	ok("F044", with(`{"scheduled_at":"1999-01-01T00:00:00Z"}`), "job.state", "available")

	ok("F167",
		`{"type":"a","args":[],"queue":"q","priority":3,"scheduled_at":"2000-01-02T00:00:00Z","tags":["x"],"timeout":2.5,
		"visibility_timeout":"PT1M","retry":{"max_attempts":2}}`, "job.queue", "q", "job.priority", 3, "job.timeout_ms", 2500,
		"job.visibility_timeout_ms", 60000, "job.tags", []any{"x"}, "job.max_attempts", 2)
	bad("F167", 400, `{"type":"a","args":[],"timeout":2,"options":{"timeout_ms":2000}}`, "error.code",
		"invalid_request")
	ok("F167", `{"type":"a","args":[],"meta":{"a":1},"options":{"metadata":{"a":0,"b":2}}}`, "job.meta.a", 1,
		"job.meta.b", 2)
	ok("F040", `{"type":"a","args":[],"meta":{"tags":["m"]}}`, "job.meta.tags", []any{"m"}, "job.tags",
		[]any{"m"})
	ok("F045",
		`{"type":"a","args":[],"attempt":9,"error":{"message":"x"},"result":1,"completed_at":"x","created_at":"y",
		"worker_id":7,"specversion":"1.0"}`, "job.attempt", 0, "job.error", "absent", "job.result", "absent")
	ok("F008", `{"type":"a","args":[],"specversion":"1.0.0-rc.1"}`, "job.specversion", "1.0")
	ok("F008", `{"type":"a","args":[],"specversion":null}`, "job.specversion", "1.0")
	bad("F008, F029", 422, `{"type":"a","args":[],"specversion":"2.0"}`, "error.code", "unsupported",
		"error.details.field", "specversion")
	bad("F008, F022", 400, `{"type":"a","args":[],"specversion":1}`, "error.code", "invalid_request",
		"error.details.field", "specversion")
	ok("F174", with(`{"specversion":"2.0"}`), "job.specversion", "1.0")
	ok("F174", `{"type":"a","args":[],"x_trace":{"deep":[1]},"schema":"urn:s","nothing":null}`,
		"job.x_trace.deep", []any{1.0},
		"job.schema", "urn:s", "job.nothing", "absent")
	ok("V001, V002", `{"type":"a@2.0","args":[]}`, "job.type", "a", "job.version", "2.0")
	ok("V001", `{"type":"a@2.0","args":[],"version":3}`, "job.version", 3)
	bad("V001", 400, `{"type":"a","args":[],"version":"x"}`, "error.code", "invalid_request")
	ok("F042", with(`{"expires_at":"2000-01-01T00:01:00Z"}`), "job.expires_at", "2000-01-01T00:01:00Z")
	ok("L012", with(`{"rate_limit":{"max_per_second":5}}`), "job.rate_limit.key", "queue:default")
	bad("L011", 400, with(`{"rate_limit":{"key":"k"}}`), "error.code", "invalid_request")
	ok("K013", `{"type":"k","args":[],"unique":{"keys":["type"]},"unique_key":"`+key64+`"}`, "job.unique_key",
		key64)
	bad("K013", 409, `{"type":"k","args":[],"unique":{"keys":["type"]},"unique_key":"`+key64+`"}`,
		"error.code", "duplicate")
	r.golden("forms")
}

const key64 = "00112233445566778899aabbccddeeff00112233445566778899aabbccddeeff"

// Where the texts differ, the forms are those that clients read.
func TestSettledForms(t *testing.T) {
	r := newRig(t, server.WithSchemas(oneOf{}))
	r.enqueue("A", job)
	w := r.do("DELETE /jobs/$A")
	for name := range w.Header() {
		if strings.HasPrefix(name, "X-Ratelimit") {
			t.Errorf("F176: %s without a limiter", name)
		}
	}
	r.want("F158", r.do("DELETE /jobs/$A"), 409, "error.code", "conflict")
	r.want("F161", r.do("POST /schemas\n\n"+
		`{"uri":"urn:a","type":"checked","version":1,"schema":{"required":["to"]}}`), 201)
	r.want("F161", r.do("POST /jobs\n\n"+`{"type":"checked","args":[{}]}`), 400, "error.code",
		"schema_validation")
	for _, name := range []string{"B", "C"} {
		r.enqueue(name, job)
	}
	r.want("F177", r.do("POST /jobs/bulk/cancel\n\n"+`{"job_ids":["$B","$C"]}`), 200, "cancelled", 2)
	r.want("F177", r.do("POST /jobs/bulk/delete\n\n"+`{"job_ids":["$B","$C"]}`), 200, "deleted", 2)
	r.want("F177", r.do("POST /jobs/bulk\n\n"+`{"jobs":[`+job+`]}`), 201, "succeeded", 1)

	st := &storagetest.Faulty{Storage: bindingtest.Fresh(t)}
	gone := rigOf(t, enginetest.NewOn[any](t, st, engineOptions()...))
	st.OnCall(func(c *storagetest.Call) { c.Err = errors.New("gone") })
	gone.want("F158", gone.do("GET /jobs/0190a8d4-0000-7000-8000-000000000000"), 503, "error.code",
		"backend_error", "error.retryable", true)
	st.OnCall(nil)
}
