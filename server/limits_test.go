package server_test

import (
	"encoding/json"
	"net/http/httptest"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/ojsengine/ojs/server"
)

func TestRateLimits(t *testing.T) {
	r := newRig(t)
	r.want("L042: never used", r.do("GET /rate-limits/api"), 404, "error.code", "not_found",
		"error.details.resource_type", "rate_limit")
	for range 3 {
		r.want("L010",
			r.do("POST /jobs\n\n"+
				`{"type":"a","args":[],"options":{"rate_limit":{"key":"api","concurrency":1}}}`), 201,
			"job.rate_limit.key", "api", "job.rate_limit.concurrency", 1)
	}
	r.want("L001 L004", r.do("POST /workers/fetch\n\n"+`{"queues":["default"],"count":3,"worker_id":"w"}`),
		200, "jobs.1", "absent")
	r.want("L042", r.do("GET /rate-limits/api"), 200, "key", "api", "concurrency.limit", 1,
		"concurrency.active", 1,
		"concurrency.available", 0, "rate", nil, "throttle", nil, "waiting_count", 2, "active", 1, "waiting",
		2, "override", "absent")
	r.want("L043", r.do("PUT /rate-limits/api\n\n"+`{"concurrency":2,"expires_at":"2000-01-01T01:00:00Z"}`),
		200,
		"concurrency.limit", 2, "override.concurrency", 2, "override.expires_at", "2000-01-01T01:00:00.000Z")
	r.want("L043: at once",
		r.do("POST /workers/fetch\n\n"+`{"queues":["default"],"count":3,"worker_id":"w"}`), 200,
		"jobs.0.type", "a", "jobs.1", "absent")
	r.want("L043: UI", r.do("PUT /rate-limits/other\n\n"+`{"limit":5,"period":"PT1M"}`), 200, "rate.limit", 5,
		"rate.period", "PT1M",
		"rate.current_count", 0, "limit", 5, "period", "PT1M")
	r.want("L044", r.do("GET /rate-limits"), 200, "items.0.key", "api", "items.1.key", "other",
		"pagination.total", 2)
	r.want("L044", r.do("GET /rate-limits?limit=1"), 200, "items.1", "absent", "pagination.has_more", true)
	r.want("L043", r.do("DELETE /rate-limits/api/override"), 200, "concurrency.limit", 1, "override",
		"absent")
	r.want("L043", r.do("DELETE /rate-limits/api/override"), 404)
	r.want("L043", r.do("DELETE /rate-limits/other/override"), 200, "key", "other", "rate", nil)
	r.want("L052", r.do("GET /rate-limits/other"), 404)
	for _, body := range []string{`{}`, `{"concurrency":-1}`, `{"rate":{"limit":0,"period":"PT1S"}}`,
		`{"rate":{"limit":1}}`,
		`{"color":1}`, `{"throttle":{"limit":1,"period":"x"}}`, `{"key":"k","concurrency":1}`,
		`{"concurrency":1,"expires_at":"now"}`} {
		r.want("L011 "+body, r.do("PUT /rate-limits/api\n\n"+body), 400, "error.code", "invalid_request")
	}
	r.want("L011", r.do("PUT /rate-limits/-x\n\n"+`{"concurrency":1}`), 400, "error.code", "invalid_request")
	r.golden("rate_limits")
}

func TestRateLimitForms(t *testing.T) {
	r := newRig(t)
	for _, form := range [][2]string{
		{`{"max_per_second":7}`,
			`{"key":"queue:default","rate":{"limit":7,"period":"PT1S"}}`},
		{`{"key":"k","rate":3,"period":"minute"}`,
			`{"key":"k","rate":{"limit":3,"period":"PT1M"}}`},
		{`{"key":"k","limit":3,"period":"PT2S"}`,
			`{"key":"k","rate":{"limit":3,"period":"PT2S"}}`},
		{`{"key":"k","concurrency":0}`,
			`{"key":"k","concurrency":0}`},
		{`{"key":"k","concurrency":1,"on_limit":"drop"}`,
			`{"key":"k","concurrency":1,"on_limit":"drop"}`},
		{`{"key":"k","throttle":{"limit":1,"period":"P1D"}}`,
			`{"key":"k","throttle":{"limit":1,"period":"P1D"}}`},
	} {
		body, want := form[0], form[1]
		w := r.do("POST /jobs\n\n" + `{"type":"a","args":[],"rate_limit":` + body + `}`)
		if w.Code != 201 {
			t.Errorf("L012 %s: %s", body, w.Body)
			continue
		}
		got, _ := json.Marshal(member(t, w, "job.rate_limit"))
		var a, b map[string]any
		_ = json.Unmarshal(got, &a)
		_ = json.Unmarshal([]byte(want), &b)
		for name := range b {
			if name == "throttle" {
				continue
			}
			x, _ := json.Marshal(a[name])
			y, _ := json.Marshal(b[name])
			if string(x) != string(y) {
				t.Errorf("L012 %s: %s, not %s", body, got, want)
			}
		}
	}
	for _, body := range []string{`{"concurrency":1}`, `{"key":"","concurrency":1}`,
		`{"key":"-a","concurrency":1}`, `{"key":"k"}`,
		`{"key":"k","concurrency":-1}`, `{"key":"k","rate":{"limit":1}}`,
		`{"key":"k","concurrency":1,"on_limit":"x"}`,
		`{"key":"k","concurrency":1,"odd":1}`, `7`} {
		w := r.do("POST /jobs\n\n" + `{"type":"a","args":[],"rate_limit":` + body + `}`)
		r.want("L011 "+body, w, 400, "error.code", "invalid_request")
		if field, _ := member(t, w, "error.details.field").(string); !strings.HasPrefix(field, "rate_limit") {
			t.Errorf("L011 %s: field %q", body, field)
		}
	}
}

func TestQueueLimits(t *testing.T) {
	r := newRig(t)
	r.want("L035", r.do("GET /admin/queues/mail/rate-limit"), 404, "error.code", "not_found")
	r.want("L035",
		r.do("PUT /admin/queues/mail/rate-limit\n\n"+`{"concurrency":1,"rate":{"limit":9,"period":"PT1H"}}`),
		200,
		"concurrency", 1, "rate.limit", 9, "rate.period", "PT1H", "throttle", nil)
	r.want("L035", r.do("GET /admin/queues/mail/rate-limit"), 200, "concurrency", 1)
	for range 2 {
		r.do("POST /jobs\n\n" + `{"type":"a","args":[],"options":{"queue":"mail"}}`)
	}
	r.want("L035: at once", r.do("POST /workers/fetch\n\n"+`{"queues":["mail"],"count":2,"worker_id":"w"}`),
		200, "jobs.1", "absent")
	r.want("L035", r.do("DELETE /admin/queues/mail/rate-limit"), 200, "concurrency", nil)
	r.want("L035", r.do("POST /workers/fetch\n\n"+`{"queues":["mail"],"count":2,"worker_id":"w"}`), 200,
		"jobs.0.type", "a")
	r.golden("queue_limits")
}

// Jobs of one key have counts in common and bounds of their own, a pause comes before
// limits, and a failure may hold a key back.
func TestLimitedTogether(t *testing.T) {
	r := newRig(t, server.WithRequestRate(server.RequestRate{PerSecond: 1000, Burst: 1000}))
	limited := func(name string, concurrency int) {
		r.enqueue(name, `{"type":"a","args":[],"options":{"rate_limit":{"key":"api","concurrency":`+
			strconv.Itoa(concurrency)+`}}}`)
	}
	limited("A", 1)
	limited("B", 1)
	limited("C", 2)
	fetch := func(rule string, want ...any) *httptest.ResponseRecorder {
		t.Helper()
		w := r.do("POST /workers/fetch\n\n" + `{"queues":["default"],"worker_id":"w","count":3}`)
		r.want(rule, w, 200, want...)
		return w
	}
	r.do("POST /queues/default/pause")
	fetch("L037", "jobs", []any{})
	r.do("POST /queues/default/resume")
	fetch("L013: each to its own bound", "jobs.0.id", r.vars["A"], "jobs.1.id", r.vars["C"],
		"jobs.2", "absent")
	r.want("L045: requests are counted by themselves", r.do("GET /rate-limits"), 200, "items.0.key", "api",
		"pagination.total", 1)

	until := r.eng.Now().Add(time.Minute).UTC().Format(time.RFC3339)
	r.want("L041", r.do("POST /workers/nack\n\n"+
		`{"job_id":"$A","error":{"message":"slow down","rate_limit_until":"`+until+`"}}`), 200,
		"state", "retryable", "attempt", 1)
	r.do("POST /workers/ack\n\n" + `{"job_id":"$C"}`)
	r.advance(30 * time.Second)
	fetch("L040: not before its time", "jobs", []any{})
	r.want("L040", r.do("GET /rate-limits/api"), 200,
		"blocked_until", strings.Replace(until, "Z", ".000Z", 1))
	r.advance(31 * time.Second)
	fetch("L040", "jobs.1", "absent", "jobs.0.type", "a")
}

// oneOf is a compiler that knows the member "required" of a schema.
type oneOf struct{}

func (oneOf) Compile(_ string, schema json.RawMessage) (server.Schema, error) {
	var s required
	err := json.Unmarshal(schema, &s)
	return s, err
}

type required struct {
	Required []string `json:"required"`
}

func (s required) Check(value json.RawMessage) (list []server.SchemaFault) {
	var o map[string]any
	_ = json.Unmarshal(value, &o)
	for _, name := range s.Required {
		if _, has := o[name]; !has {
			list = append(list, server.SchemaFault{Path: "$." + name, Message: "is missing",
				SchemaPath: "/required"})
		}
	}
	return list
}

func TestSchemas(t *testing.T) {
	r := newRig(t, server.WithSchemas(oneOf{}))
	const schema = `"schema":{"type":"object","required":["to"]}`
	w := r.do("POST /schemas\n\n" + `{"uri":"https://example.org/mail/1","type":"mail.send","version":1,` +
		schema + `}`)
	r.want("F093 F182", w, 201, "schema.uri", "https://example.org/mail/1", "schema.type", "mail.send",
		"schema.version", 1,
		"schema.schema", "absent")
	r.want("F024", r.do("POST /jobs\n\n"+`{"type":"mail.send","args":[{"cc":"secret"}]}`), 400, "error.code",
		"schema_validation",
		"error.details.validation_errors.0.path", "$[0].to", "error.details.validation_errors.0.message",
		"is missing",
		"error.details.validation_errors.0.schema_path", "/required")
	r.want("F024: in a batch",
		r.do("POST /jobs/batch\n\n"+`{"jobs":[{"type":"x","args":[]},{"type":"mail.send","args":[{}]}]}`),
		400,
		"error.code", "schema_validation", "error.details.index", 1)
	r.want("F024", r.do("POST /jobs\n\n"+`{"type":"mail.send","args":[{"to":"x"}]}`), 201)
	r.want("F024: named",
		r.do("POST /jobs\n\n"+`{"type":"other","args":[{}],"schema":"https://example.org/mail/1"}`), 400,
		"error.code", "schema_validation")
	r.want("K014", r.do("POST /jobs\n\n"+`{"type":"mail.send","args":[{"ojs_encoded":true,"encoding":"binary/encrypted","data":"AA=="}],
		"meta":{"ojs.codec.encodings":["binary/encrypted"],"ojs.codec.key_id":"k"}}`), 201)
	r.want("F015", r.do("GET /schemas/https%3A%2F%2Fexample.org%2Fmail%2F1"), 200, "schema.schema.type",
		"object")
	r.want("F093", r.do("POST /schemas\n\n"+`{"uri":"urn:x:2","type":"x","version":"2",`+schema+`}`), 201,
		"schema.version", "2")
	r.want("F093", r.do("GET /schemas"), 200, "schemas.0.uri", "https://example.org/mail/1",
		"schemas.1.version", "2", "pagination.total", 2)
	for _, bad := range [][2]string{
		{`{"type":"x","version":1,` + schema + `}`, "uri"},
		{`{"uri":"no uri","type":"x","version":1,` + schema + `}`, "uri"},
		{`{"uri":"urn:x","type":"X","version":1,` + schema + `}`, "type"},
		{`{"uri":"urn:x","type":"x",` + schema + `}`, "version"},
		{`{"uri":"urn:x","type":"x","version":1}`, "schema"},
		{`{"uri":"urn:x","type":"x","version":1,"schema":7}`, "schema"},
		{`{"uri":"urn:x","type":"x","version":1,"schema":{"required":{"no":"schema"}}}`, "schema"},
	} {
		r.want("F093 "+bad[0], r.do("POST /schemas\n\n"+bad[0]), 400, "error.details.field", bad[1])
	}
	r.want("F093", r.do("DELETE /schemas/https%3A%2F%2Fexample.org%2Fmail%2F1"), 200, "deleted", true, "uri",
		"https://example.org/mail/1")
	r.want("F093", r.do("DELETE /schemas/https%3A%2F%2Fexample.org%2Fmail%2F1"), 404,
		"error.details.resource_type", "schema")
	r.want("F093", r.do("POST /jobs\n\n"+`{"type":"mail.send","args":[{}]}`), 201)

	r.want("V010",
		r.do("PUT /admin/schemas/mail.send/2\n\n"+`{"args_schema":{"type":"object","required":["subject"]}}`),
		201,
		"type", "mail.send", "version", 2)
	r.want("V010", r.do("PUT /admin/schemas/mail.send/2\n\n"+`{`+schema+`,"compatible_with":["1"]}`), 200,
		"version", 2)
	r.want("V010", r.do("POST /jobs\n\n"+`{"type":"mail.send","version":2,"args":[{}]}`), 400, "error.code",
		"schema_validation")
	r.want("V010", r.do("POST /jobs\n\n"+`{"type":"mail.send@2.0","args":[{"to":1}]}`), 201, "job.type",
		"mail.send")
	r.want("V010", r.do("POST /jobs\n\n"+`{"type":"mail.send","version":"1.0","args":[{}]}`), 201)
	r.want("V010", r.do("GET /admin/schemas/mail.send"), 200, "schemas.0.version", 2,
		"items.0.args_schema.type", "object")
	r.want("V010", r.do("GET /admin/schemas/none"), 404)
	r.want("V010", r.do("PUT /admin/schemas/mail.send/x\n\n"+`{`+schema+`}`), 400, "error.details.field",
		"version")
	r.want("V011", r.do("PUT /admin/routing/mail.send\n\n"+`{"rules":[]}`), 422, "error.code", "unsupported")
	r.want("F100", r.do("GET /ojs/manifest"), 200, "capabilities.schema_validation", true)
	r.advance(time.Second)
	r.golden("schemas")
	for _, version := range []string{`{"x":1}`, `[]`, `1.5`, `"` + strings.Repeat("1", 300) + `"`} {
		r.want("F182", r.do("PUT /admin/schemas/mail.send/3\n\n"+`{`+schema+`,"version":`+version+`}`), 400,
			"error.details.field", "version")
	}
	r.want("F194", r.do("PUT /admin/schemas/mail.send/3\n\n"+`{`+schema+`,"compatible_with":"`+
		strings.Repeat("1", 5000)+`"}`), 413)
}

func TestWithoutSchemas(t *testing.T) {
	r := newRig(t)
	r.want("F029", r.do("GET /schemas"), 422, "error.code", "unsupported")
	r.want("F029", r.do("POST /schemas\n\n{}"), 422, "error.code", "unsupported")
	r.want("F100", r.do("GET /ojs/manifest"), 200, "capabilities.schema_validation", false)
}
