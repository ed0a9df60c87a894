package server_test

import (
	"fmt"
	"testing"
)

// An empty list is given, and is no absent one.
func TestEmptyLists(t *testing.T) {
	r := newRig(t)
	r.enqueue("A", `{"type":"a","args":[],"version":"1.0"}`)
	r.want("F114: both", r.do("POST /jobs/bulk/cancel\n\n"+`{"job_ids":[],"filter":{}}`), 400, "error.code",
		"invalid_request", "error.details.field", "job_ids")
	r.want("F114", r.do("GET /jobs/$A"), 200, "job.state", "available")
	r.want("V004", r.do("POST /workers/register\n\n"+
		`{"worker_id":"w","queues":["q"],"handlers":[{"type":"a","versions":"2.0"}]}`), 200)
	r.want("V004", r.fetch("w"), 200, "jobs", []any{})
	r.want("F078", r.do("POST /workers/heartbeat\n\n"+`{"worker_id":"w","queues":[],"handlers":[]}`), 200)
	r.want("F078: the latest replaces", r.do("GET /admin/workers/w"), 200, "queues", []any{})
	r.want("V004: the latest replaces", r.fetch("w"), 200, "jobs.0.id", r.vars["A"])
}

// A purge of dead letters keeps to each member that narrows it, wherever it stands.
func TestPurgeOfSome(t *testing.T) {
	r := newRig(t)
	r.dead("A", "a")
	r.dead("B", "b")
	left := func(rule, request string, purged, total int) {
		t.Helper()
		r.want(rule, r.do(request), 200, "purged_count", purged)
		r.want(rule, r.do("GET /dead-letter"), 200, "pagination.total", total)
	}
	left("F178: a parameter", "DELETE /dead-letter?confirm=true&queue=none", 0, 2)
	left("F178: a parameter", "DELETE /dead-letter?confirm=true&type=c*", 0, 2)
	left("F178: beside a filter", "DELETE /dead-letter?type=c*\n\n"+`{"filter":{"queue":"dead-a"},"confirm":true}`,
		0, 2)
	left("F178: a parameter", "DELETE /dead-letter?confirm=true&until=2000-01-01T00:00:00Z", 0, 2)
	left("F149: beside a filter", "DELETE /dead-letter\n\n"+
		`{"filter":{"queue":"dead-a"},"older_than":"PT1H","confirm":true}`, 0, 2)
	left("reading 17", "DELETE /dead-letter\n\n"+`{"filter":null,"queue":"none","confirm":true}`, 0, 2)
	r.want("F178", r.do("DELETE /dead-letter?confirm=true&since=now"), 400, "error.details.field", "since")
	left("F178: a parameter", "DELETE /dead-letter?confirm=true&queue=dead-a", 1, 1)
	left("F087", "DELETE /dead-letter\n\n"+`{"filter":{"type":"b"},"confirm":true}`, 1, 0)
	r.enqueue("C", job)
	r.want("F142", r.do("DELETE /jobs/$C"), 200)
	r.want("F142, F178: a list", r.do("DELETE /admin/queues/default/jobs?confirm=true&states=completed,cancelled"),
		200, "purged_count", 1, "states", []any{"completed", "cancelled"})
}

// null is the same as absent (reading 17).
func TestNullIsAbsent(t *testing.T) {
	r := newRig(t)
	r.enqueue("A", job)
	r.want("F145", r.do("POST /admin/jobs/bulk/cancel\n\n"+`{"filter":null,"type":"b","confirm":true}`), 200,
		"matched", 0)
	r.want("F157", r.do("POST /workers/fetch\n\n"+`{"queues":["default"],"count":null}`), 200, "job.id",
		r.vars["A"])
	r.want("F169", r.do("POST /cron\n\n"+`{"name":"c","cron":"@daily","job_template":null,"type":"a"}`), 201,
		"cron.type", "a")
	r.want("F091", r.do("PUT /queues/q/config\n\n"+`{"config":null,"max_depth":3}`), 200, "config.max_depth", 3)
	r.want("F164", r.do("POST /jobs\n\n"+`{"type":"a","args":[],"retry":{"initial_interval":null,
		"initial_interval_ms":5,"backoff_strategy":null,"strategy":"linear"}}`), 201,
		"job.retry.initial_interval", "PT0.005S", "job.retry.backoff_strategy", "linear")
	r.want("F164", r.do("POST /jobs\n\n"+`{"type":"a","args":[],"retry":{"color":null}}`), 422)
	r.want("W007", r.do("POST /workflows\n\n"+`{"type":"batch","jobs":[{"type":"a","args":[]}],
		"callbacks":{"on_success":null,"on_complete":{"type":"b","args":[]}}}`), 201,
		"workflow.callbacks.on_complete.type", "b", "workflow.callbacks.on_success", "absent")
	r.want("W007", r.do("POST /workflows\n\n"+`{"type":"batch","jobs":[{"type":"a","args":[]}],
		"callbacks":{"on_success":null}}`), 400, "error.details.validation_errors.0.path", "$.callbacks")
}

// A number counts by its value, however it is written.
func TestNumbersOfAnyForm(t *testing.T) {
	r := newRig(t)
	ok := func(rule, members string, values ...any) {
		t.Helper()
		r.want(rule, r.do("POST /jobs\n\n"+`{"type":"a","args":[],`+members+`}`), 201, values...)
	}
	ok("F167", `"timeout":1e3,"visibility_timeout":1.0E2`, "job.timeout_ms", 1_000_000,
		"job.visibility_timeout_ms", 100_000)
	ok("F167", `"result_ttl":-1.0`, "job.result_ttl", -1)
	ok("F164", `"retry":{"initial_interval_ms":1e3,"max_interval_ms":2000.0}`, "job.retry.initial_interval",
		"PT1S", "job.retry.max_interval", "PT2S")
	ok("F165", `"unique":{"period_ms":1.5e3}`, "job.unique.period", "PT1.5S")
	const longest = 9223372036854
	ok("F040", fmt.Sprintf(`"options":{"timeout_ms":%d,"visibility_timeout_ms":%d}`, longest, longest),
		"job.timeout_ms", longest, "job.visibility_timeout_ms", longest)
	for _, bad := range []string{`"timeout":-1e3`, `"timeout":1e30`, `"timeout":true`,
		`"options":{"timeout_ms":1e30}`, `"options":{"priority":1e400}`, `"options":{"priority":0.5}`,
		`"unique":{"period_ms":0.5}`} {
		r.want("F022 "+bad, r.do("POST /jobs\n\n"+`{"type":"a","args":[],`+bad+`}`), 400, "error.code",
			"invalid_request")
	}
	r.want("F023", r.do("POST /jobs\n\n"+`{"type":"a","args":[],"retry":{"initial_interval_ms":1.5}}`), 422)
	for _, most := range []string{"9007199254740993", "1e18", "99999999999999999999", "1e400"} {
		w := r.do("POST /workers/fetch\n\n" + `{"queues":["default"],"worker_id":"w","count":` + most + `}`)
		r.want("F061 "+most, w, 200)
		r.keep("A", w, "jobs.0.id")
		r.want("F069 "+most, r.do("POST /workers/nack\n\n"+`{"job_id":"$A","attempt":`+most+`}`), 409)
		ok("", `"options":{}`)
	}
}
