package server_test

import (
	"strings"
	"testing"

	"github.com/ojsengine/ojs/enginetest"
	"github.com/ojsengine/ojs/internal/test/bindingtest"
	"github.com/ojsengine/ojs/server"
	"github.com/ojsengine/ojs/storage/storagetest"
)

// A request that changes many jobs takes none that it does not name.

// A member that is misspelt, empty or of another call is refused, in the body and in the
// query of a DELETE.
func TestMisspeltFilters(t *testing.T) {
	r := newRig(t)
	r.enqueue("A", job)
	r.dead("D", "d")
	for _, body := range []string{`{"queu":"none"}`, `{"job_ids":["x"]}`, `{"filter":null,"typ":"a"}`,
		`{"filter":{"queue":""}}`, `{"queue":""}`, `{"type":""}`, `{"filter":{"error_type":""}}`} {
		body = body[:len(body)-1] + `,"confirm":true}`
		for _, request := range []string{"POST /admin/jobs/bulk/cancel", "POST /admin/jobs/bulk/delete",
			"POST /admin/jobs/bulk/retry", "DELETE /dead-letter", "POST /dead-letter/retry"} {
			r.want("F145 F149 F179 "+body, r.do(request+"\n\n"+body), 400, "error.code", "invalid_request")
		}
	}
	for _, body := range []string{`{"filter":{"queue":""}}`, `{"filter":{"type":""}}`,
		`{"filter":{},"queue":"none"}`} {
		r.want("F022 F115 "+body, r.do("POST /jobs/bulk/cancel\n\n"+body), 400, "error.code",
			"invalid_request")
	}
	r.want("F022 F086", r.do("POST /dead-letter/$D/retry\n\n"+`{"override":{"queue":""}}`), 400,
		"error.details.field", "override.queue")
	r.want("F142", r.do("DELETE /admin/queues/default/jobs\n\n"+
		`{"states":["available"],"older_then":"P1D","confirm":true}`), 400, "error.details.field",
		"older_then")
	for _, query := range []string{"queu=none", "queue=a;b", "queue=%zz", "queue=", "queue", "states=",
		"states=,", "older_than=", "queue=none&queue="} {
		r.want("F022 F178 "+query, r.do("DELETE /dead-letter?confirm=true&"+query), 400, "error.code",
			"invalid_request")
	}
	for _, query := range []string{"older_then=P1D", "older_than="} {
		r.want("F022 F142 "+query, r.do("DELETE /admin/queues/default/jobs?confirm=true"+
			"&states=available&"+query), 400, "error.code", "invalid_request")
	}
	for _, request := range []string{"POST /dead-letter/retry?confirm=true&queue=mail",
		"POST /admin/jobs/bulk/cancel?confirm=true&queue=none\n\n{}",
		"POST /admin/jobs/bulk/cancel?queue=none\n\n" + `{"filter":{},"confirm":true}`} {
		r.want("F145 F178 "+request, r.do(request), 400, "error.details.field", "queue")
	}
	r.want("F022", r.do("GET /admin/jobs?limit=%zz"), 400, "error.details.field", "query")
	r.want("F145", r.do("GET /jobs/$A"), 200, "job.state", "available")
	r.want("F149", r.do("GET /dead-letter/$D"), 200)
	for body, field := range map[string]string{`"note":"why"`: "note", `"queu":"none"`: "queu"} {
		r.want("F145 F179: beside a filter", r.do("POST /admin/jobs/bulk/cancel\n\n"+
			`{"filter":{"type":"a"},`+body+`,"confirm":true}`), 400, "error.details.field", field)
	}
	r.want("F178: beside a filter", r.do("DELETE /dead-letter?queu=none\n\n"+
		`{"filter":{"type":"d"},"confirm":true}`), 400, "error.details.field", "queu")
	r.want("F145", r.do("GET /jobs/$A"), 200, "job.state", "available")
	r.want("F149", r.do("GET /dead-letter/$D"), 200)
	r.want("F178", r.do("POST /admin/jobs/bulk/cancel?confirm=true\n\n"+`{"filter":{"type":"none"}}`), 200,
		"matched", 0)
}

// A member or parameter that narrows a request is given once: a second value would be
// ignored.
func TestFilterGivenTwice(t *testing.T) {
	r := newRig(t)
	r.enqueue("A", job)
	r.dead("D", "d")
	for _, c := range []struct{ request, members, field string }{
		{"DELETE /dead-letter?queue=none", `"queue":"dead-d"`, "queue"},
		{"DELETE /dead-letter?type=d&type=none", `"queue":"dead-d"`, "type"},
		{"DELETE /dead-letter?type=none", `"filter":{"type":"d"}`, "type"},
		{"DELETE /dead-letter", `"filter":{"type":"d"},"type":"none"`, "type"},
		{"POST /admin/jobs/bulk/cancel", `"filter":{"type":"a"},"type":"none"`, "type"},
		{"DELETE /admin/queues/default/jobs?states=completed", `"states":["available"]`, "states"},
	} {
		r.want("F145 F178 F179", r.do(c.request+"\n\n{"+c.members+`,"confirm":true}`), 400,
			"error.details.field", c.field)
	}
	r.want("F145", r.do("GET /jobs/$A"), 200, "job.state", "available")
	r.want("F178", r.do("DELETE /dead-letter?confirm=true\n\n"+`{"type":"d","confirm":true}`), 200,
		"purged_count", 1)
}

// The state of a filter holds for dead letters, too (F143, F149).
func TestStatesOfDeadLetters(t *testing.T) {
	r := newRig(t)
	r.dead("A", "a")
	for _, list := range []string{"/dead-letter", "/admin/dead-letter"} {
		r.want("F149", r.do("GET "+list+"?state=completed"), 200, "pagination.total", 0)
		r.want("F149", r.do("GET "+list+"?state=discarded"), 200, "pagination.total", 1)
	}
	r.want("F149", r.do("DELETE /dead-letter\n\n"+`{"filter":{"state":"completed"},"confirm":true}`), 200,
		"purged_count", 0)
	r.want("F149", r.do("DELETE /dead-letter?confirm=true&states=cancelled"), 200, "purged_count", 0)
	r.want("F086", r.do("POST /dead-letter/retry\n\n"+`{"filter":{"state":"discarded"},"confirm":true}`), 200,
		"retried", 1)
}

// A pair of meta is equal if its JSON is: 42 is another value than "42" (F115).
func TestMetaOfAFilter(t *testing.T) {
	r := newRig(t)
	for name, value := range map[string]string{"N": `42`, "T": `"42"`, "B": `true`, "X": `"true"`,
		"O": `{"a":[1]}`, "Q": `"\"42\""`} {
		r.enqueue(name, `{"type":"a","args":[],"meta":{"k":`+value+`}}`)
	}
	for name, value := range map[string]string{"N": `42.0`, "T": `"42"`, "B": `true`, "X": `"true"`,
		"O": `{ "a" : [1] }`, "Q": `"\"42\""`} {
		r.want("F115 "+value, r.do("POST /jobs/bulk/cancel\n\n"+`{"filter":{"meta":{"k":`+value+`}}}`), 200,
			"total_matched", 1, "items.0.job_id", r.vars[name])
	}
}

// A name of a pair is no path, and a value is no text of JSON (F115).
func TestMetaOfAFilterIsNoPath(t *testing.T) {
	r := newRig(t)
	for name, meta := range map[string]string{"D": `{"a.b":1}`, "N": `{"a":{"b":1}}`, "L": `{"a":[1]}`,
		"I": `{"a.0":1}`, "T": `{"k":" 42"}`, "F": `{"k":42}`, "Z": `{"k":null}`} {
		r.enqueue(name, `{"type":"a","args":[],"meta":`+meta+`}`)
	}
	for _, c := range []struct{ meta, name string }{{`{"a.b":1}`, "D"}, {`{"a":{"b":1}}`, "N"},
		{`{"a.0":1}`, "I"}, {`{"k":42}`, "F"}, {`{"k":" 42"}`, "T"}, {`{"k":null}`, "Z"}} {
		r.want("F115 "+c.meta, r.do("POST /jobs/bulk/cancel\n\n"+`{"filter":{"meta":`+c.meta+`}}`), 200,
			"total_matched", 1, "items.0.job_id", r.vars[c.name])
	}
	r.want("F115", r.do("GET /jobs/$L"), 200, "job.state", "available")
}

// A job that is skipped since it is in another state, and then is in one that the
// operation is for, is listed once (F114, F116).
func TestJobOfAFilterListedOnce(t *testing.T) {
	st := &storagetest.Faulty{Storage: bindingtest.Fresh(t)}
	r := rigOf(t, enginetest.NewOn[any](t, st, engineOptions()...))
	r.enqueue("A", job)
	r.fetch("w")
	r.enqueue("B", job)
	lists := 0
	st.OnCall(func(call *storagetest.Call) {
		if call.Method != "List" {
			return
		}
		if lists++; lists == 1 {
			call.Do()
			r.want("F071", r.do("POST /workers/nack\n\n"+`{"job_id":"$A","requeue":true}`), 200)
		}
	})
	r.want("F114 F116", r.do("POST /jobs/bulk/cancel\n\n"+`{"filter":{"state":["active","available"]}}`), 207,
		"total_matched", 2, "cancelled", 1, "skipped", 1, "items.0.job_id", r.vars["A"], "items.0.status",
		"skipped", "items.1.job_id", r.vars["B"], "items.1.status", "cancelled")
	st.OnCall(nil)
	r.want("F116", r.do("GET /jobs/$A"), 200, "job.state", "available")
}

// A filter that selects more than the maximum is refused, and changes nothing (F113).
func TestFilterOfTooMany(t *testing.T) {
	r := newRig(t, server.WithLimits(server.Limits{Jobs: 2}))
	for range 3 {
		r.enqueue("A", job)
	}
	w := r.do("POST /jobs/bulk/cancel\n\n" + `{"filter":{"type":"*"}}`)
	r.want("F113", w, 413, "error.code", "BATCH_SIZE_EXCEEDED", "error.max_batch_size", 2)
	if w.Header().Get("X-OJS-Max-Batch-Size") != "2" {
		t.Errorf("F113: headers %v", w.Header())
	}
	r.want("F034", r.do("GET /queues/default/stats"), 200, "available", 3)
	r.do("DELETE /jobs/$A")
	r.want("F114", r.do("POST /jobs/bulk/cancel\n\n"+`{"filter":{"type":"*"}}`), 200, "cancelled", 2)
}

// The results of a bulk have ids in lower case (F010), and say which member is refused
// (F112).
func TestItemsOfABulk(t *testing.T) {
	r := newRig(t)
	const id = "0197f000-0000-7000-8000-0000000000ab"
	r.enqueue("A", `{"type":"a","args":[],"id":"`+strings.ToUpper(id)+`"}`)
	r.want("F010", r.do("POST /jobs/bulk/retry\n\n"+`{"job_ids":["`+strings.ToUpper(id)+`",
		"`+strings.ToUpper(id[:35])+`C","x"]}`), 422, "items.0.job_id", id, "items.1.job_id", id[:35]+"c",
		"items.2.job_id", "x")
	const once = `{"type":"u","args":[],"unique":{}}`
	r.enqueue("B", once)
	r.want("F111 F112", r.do("POST /jobs/bulk\n\n"+
		`{"atomicity":"atomic","jobs":[`+job+`,`+once+`,`+job+`]}`), 422, "succeeded", 0,
		"items.0.error.code", "VALIDATION_ERROR", "items.1.error.code", "DUPLICATE_JOB",
		"items.2.error.code", "VALIDATION_ERROR", "items.2.status", "failed")
	r.want("F111", r.do("POST /jobs/bulk\n\n"+`{"atomicity":"atomic","jobs":[`+once+`]}`), 422,
		"items.0.error.code", "DUPLICATE_JOB")
}

// Jobs of a filter in a state that the operation is not for are skipped, with the reason
// (F116).
func TestOtherStatesOfAFilter(t *testing.T) {
	r := newRig(t)
	r.enqueue("A", job)
	r.fetch("w")
	r.enqueue("B", job)
	r.want("F116", r.do("POST /jobs/bulk/cancel\n\n"+`{"filter":{"state":"active"}}`), 422,
		"total_matched", 1, "items.0.job_id", r.vars["A"], "items.0.status", "skipped", "items.0.reason",
		"the job is active")
	r.want("F116", r.do("POST /jobs/bulk/cancel\n\n"+`{"filter":{"state":["available","active"]}}`), 207,
		"total_matched", 2, "cancelled", 1, "skipped", 1)
	r.want("F116", r.do("GET /jobs/$A"), 200, "job.state", "active")
	r.want("F116", r.do("POST /jobs/bulk/delete\n\n"+`{"filter":{"state":"scheduled"}}`), 200,
		"total_matched", 0)
}
