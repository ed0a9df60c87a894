package server_test

import (
	"fmt"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/ojsengine/ojs/enginetest"
	"github.com/ojsengine/ojs/internal/test/bindingtest"
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
	left("F178: beside a filter", "DELETE /dead-letter?type=c*\n\n"+
		`{"filter":{"queue":"dead-a"},"confirm":true}`, 0, 2)
	left("F178: a parameter", "DELETE /dead-letter?confirm=true&until=2000-01-01T00:00:00Z", 0, 2)
	left("F149: beside a filter", "DELETE /dead-letter\n\n"+
		`{"filter":{"queue":"dead-a"},"older_than":"PT1H","confirm":true}`, 0, 2)
	left("reading 17", "DELETE /dead-letter\n\n"+`{"filter":null,"queue":"none","confirm":true}`, 0, 2)
	r.want("F178", r.do("DELETE /dead-letter?confirm=true&since=now"), 400, "error.details.field", "since")
	left("F178: a parameter", "DELETE /dead-letter?confirm=true&queue=dead-a", 1, 1)
	left("F087", "DELETE /dead-letter\n\n"+`{"filter":{"type":"b"},"confirm":true}`, 1, 0)
	r.enqueue("C", job)
	r.want("F142", r.do("DELETE /jobs/$C"), 200)
	r.want("F142, F178: a list",
		r.do("DELETE /admin/queues/default/jobs?confirm=true&states=completed,cancelled"), 200,
		"purged_count", 1, "states", []any{"completed", "cancelled"})
}

// A misspelt member of a filter, or an empty list of states, takes no job.
func TestFilterThatSaysLess(t *testing.T) {
	r := newRig(t)
	r.keep("A", r.do("POST /jobs\n\n"+`{"type":"a","args":[]}`), "job.id")
	for _, filter := range []string{`{"typ":"b"}`, `{"meta":{"a":"b"}}`, `{"state":[]}`, `{"states":[]}`} {
		body := `{"filter":` + filter + `,"confirm":true}`
		r.want("F145 "+filter, r.do("POST /admin/jobs/bulk/cancel\n\n"+body), 400)
		r.want("F149 "+filter, r.do("DELETE /dead-letter\n\n"+body), 400)
	}
	r.want("F179: beside a filter", r.do("POST /admin/jobs/bulk/cancel\n\n"+
		`{"filter":{"type":"a"},"state":"scheduled","confirm":true}`), 200, "matched", 0)
	r.want("F178: a list", r.do("DELETE /dead-letter?confirm=true&states=discarded,cancelled"), 200)
	r.want("F178", r.do("DELETE /dead-letter?confirm=true&priority=null"), 400,
		"error.details.field", "priority")
	r.want("F145", r.do("GET /jobs/$A"), 200, "job.state", "available")
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
	r.want("F091", r.do("PUT /queues/q/config\n\n"+`{"config":null,"max_depth":3}`), 200, "config.max_depth",
		3)
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

// An unknown attribute with the name of a member of an answer is not in that answer. The
// rig checks that no answer has a member twice.
func TestAttributesLikeAnswers(t *testing.T) {
	r := newRig(t)
	r.enqueue("A", `{"type":"a","args":[],"pending":true,"activated_at":1,"previous_state":2,"metadata":{"x":3},
		"re_enqueued_at":4,"checkpoint":5,"active":6}`)
	r.want("F053", r.do("POST /jobs/$A/activate"), 200, "job.previous_state", "pending",
		"job.re_enqueued_at", 4)
	r.want("F143", r.do("GET /admin/jobs/$A"), 200, "metadata.created_at", "2000-01-01T00:00:00.000Z",
		"retry_policy.max_attempts", 3)
	r.fetch("w")
	r.want("F153", r.do("POST /jobs/$A/checkpoint\n\n"+`{"state":{"n":1}}`), 200)
	r.want("F071", r.do("POST /workers/nack\n\n"+`{"job_id":"$A","requeue":true}`), 200)
	r.want("F060", r.fetch("w"), 200, "jobs.0.checkpoint.n", 1, "jobs.0.previous_state", 2)
	r.want("F051", r.do("DELETE /jobs/$A"), 200, "job.previous_state", "active", "job.active", 6)
	r.want("F040", r.do("GET /jobs/$A"), 200, "job.metadata.x", 3, "job.checkpoint", 5, "job.previous_state",
		2)
	r.want("F152", r.do("POST /jobs/results\n\n"+`{"ids":["$A","$A"]}`), 200, "results."+r.vars["A"]+".state",
		"cancelled")
}

func TestMembersOfAJob(t *testing.T) {
	r := newRig(t)
	for _, kind := range []string{"application/json; a=1; a=2", "Application/JSON ;charset",
		"application/json;"} {
		r.want("F004 "+kind, r.do("POST /jobs\nContent-Type: "+kind+"\n\n"+job), 201)
	}
	r.want("F004", r.do("POST /jobs\nContent-Type: application/jsonp\n\n"+job), 400)
	bad := func(member, field string) {
		t.Helper()
		r.want("F021 F022", r.do("POST /jobs\n\n"+`{"type":"a","args":[],`+member+`}`), 400, "error.code",
			"invalid_request", "error.details.field", field)
	}
	bad(`"schema":5`, "schema")
	bad(`"expires_at":"+PT0S"`, "expires_at")
	r.want("F167", r.do("POST /jobs\n\n"+
		`{"type":"a","args":[],"options":{"tags":["a"],"metadata":{"tags":["b"]}}}`), 201,
		"job.meta.tags", []any{"b", "a"}, "job.tags", []any{"b", "a"})
}

// A worker may report anything. Answers have the states and the form of the binding.
func TestReportsOfWorkers(t *testing.T) {
	r := newRig(t)
	r.want("F068", r.do("POST /workers/heartbeat\n\n"+`{"worker_id":"w","state":"flying"}`), 200, "state",
		"running")
	r.want("F147", r.do("GET /admin/workers"), 200, "items.0.state", "running", "summary.running", 1)
	r.want("F022", r.do("POST /workers/heartbeat\n\n"+`{"worker_id":"w","metadata":[1]}`), 400,
		"error.details.field", "metadata")
	r.want("F147", r.do("GET /admin/workers/w"), 200, "metadata", map[string]any{})
	r.want("F181", r.do("POST /workers/beat\n\n"+`{"worker_id":"w","state":"drain"}`), 200, "state", "quiet")
}

func TestEndedOverride(t *testing.T) {
	r := newRig(t)
	r.want("L043", r.do("PUT /rate-limits/k\n\n"+`{"concurrency":1,"expires_at":"1999-01-01T00:00:00Z"}`),
		200, "key", "k", "concurrency", nil, "override", "absent")
	r.want("L042: never used", r.do("GET /rate-limits/k"), 404)
}

// A refused workflow has all its faults (W009).
func TestFaultsOfAWorkflow(t *testing.T) {
	r := newRig(t)
	refused := func(rule, body string, paths ...string) {
		t.Helper()
		w := r.do("POST /workflows\n\n" + body)
		var values []any
		for i, path := range paths {
			values = append(values, fmt.Sprintf("error.details.validation_errors.%d.path", i), path)
		}
		values = append(values, fmt.Sprintf("error.details.validation_errors.%d", len(paths)), "absent")
		r.want(rule, w, 400, append(values, "error.code", "invalid_workflow")...)
	}
	refused("W009: options of a member", `{"type":"chain","steps":[{"type":"a","args":[],
		"options":{"queue":"B B","priority":101,"timeout_ms":0,"tags":[]}}]}`, "$.steps[0].options.queue",
		"$.steps[0].options.priority", "$.steps[0].options.timeout_ms")
	refused("W002 W009: options of the workflow",
		`{"type":"chain","options":{"queue":5,"priority":"x"},"steps":[{"type":"A","args":[]}]}`,
		"$.options.queue", "$.options.priority", "$.steps[0].type")
	refused("W009: a policy in options", `{"type":"chain","steps":[{"type":"a","args":[],
		"options":{"retry":{"max_attempts":-1}}}]}`, "$.steps[0].options.retry.max_attempts")
	refused("W009: once", `{"type":"chain","steps":[{"type":"batch","jobs":[{"type":"a","args":[]}],
		"callbacks":5}]}`, "$.steps[0].callbacks")
	refused("W080", `{"type":"saga","steps":[{"name":"x","type":"a","args":[]},{"name":"y","type":"a","args":[]},
		{"name":"x","type":"a","args":[]}]}`, "$.steps[2].name")
	r.want("W080", r.do("POST /workflows\n\n"+
		`{"type":"saga","steps":[{"type":"a","args":[]},{"type":"a","args":[]}]}`), 201)

	start := func(id string) *httptest.ResponseRecorder {
		return r.do("POST /workflows\n\n" + `{"id":` + id + `,
			"type":"chain","steps":[{"type":"a","args":[]}]}`)
	}
	const id = `"0197f000-0000-7000-8000-0000000000aa"`
	r.want("W006", start(id), 201)
	r.want("F027 W006", start(id), 409, "error.code", "duplicate", "error.details.existing_state", "running")
	r.want("F021 W006", start("7"), 400, "error.details.field", "id")
}

// Pages of a sorted list neither skip nor repeat a job when others are inserted or
// deleted between them (F104).
func TestSortedPages(t *testing.T) {
	for _, order := range []string{"asc", "desc"} {
		r := newRig(t)
		enqueue := func(name string, priority int) {
			r.enqueue(name, fmt.Sprintf(`{"type":"a","args":[],"options":{"priority":%d}}`, priority))
		}
		for i, name := range []string{"A", "B", "C", "D", "E"} {
			enqueue(name, i/2)
		}
		list := "GET /admin/jobs?sort=priority&order=" + order + "&limit=2"
		var got []any
		next := list
		for i := 0; ; i++ {
			w := r.do(next)
			got = append(got, member(t, w, "items.0.id"), member(t, w, "items.1.id"))
			if member(t, w, "pagination.has_more") != true {
				break
			}
			r.keep("NEXT", w, "pagination.next_cursor")
			next = list + "&cursor=$NEXT"
			if i == 0 { // before the page that follows, in either order
				enqueue("F", -50)
				enqueue("G", 50)
				r.do("DELETE /jobs/$A")
				r.want("", r.do("POST /jobs/bulk/delete\n\n"+`{"job_ids":["$A"]}`), 200)
			}
		}
		want := []any{r.vars["A"], r.vars["B"], r.vars["C"], r.vars["D"], r.vars["E"], r.vars["G"]}
		if order == "desc" {
			want = []any{r.vars["E"], r.vars["D"], r.vars["C"], r.vars["B"], r.vars["F"], nil}
		}
		if !slices.Equal(got, want) {
			t.Errorf("F104: %s: %v\nnot %v", order, got, want)
		}
		r.want("F104", r.do(list+"&cursor=MX5h"), 400, "error.details.field", "cursor")
	}
}

// Every answer of a bulk has the header (F113).
func TestSizeOfABulk(t *testing.T) {
	r := newRig(t)
	for request, size := range map[string]string{"POST /jobs/bulk\n\n{}": "0",
		"POST /jobs/bulk\n\n" + `{"jobs":[1],"atomicity":"some"}`:      "1",
		"POST /jobs/bulk/delete\n\n" + `{"job_ids":["x"],"filter":{}}`: "1",
		"POST /jobs/bulk/delete\n\n" + `{"filter":5}`:                  "0"} {
		w := r.do(request)
		if r.want("F114", w, 400); w.Header().Get("X-OJS-Batch-Size") != size {
			t.Errorf("F113: %s: headers %v", request, w.Header())
		}
	}
}

// The refusal of a full queue has its depth, and each 201 tells of a queue that is nearly
// full (F030).
func TestDepthOfAQueue(t *testing.T) {
	r := newRig(t)
	r.want("F091", r.do("POST /queues\n\n"+`{"name":"small","config":{"max_depth":5}}`), 201)
	const small = `{"type":"a","args":[],"queue":"small"}`
	const three = `{"jobs":[` + small + `,` + small + `,` + small + `]}`
	r.want("F048", r.do("POST /jobs/batch\n\n"+three), 201)
	w := r.do("POST /jobs/batch\n\n" + three)
	r.want("F030", w, 429, "error.depth", 3, "error.bound", 5, "error.strategy", "reject")
	if h := w.Header(); h.Get("X-OJS-Queue-Depth") != "3" || h.Get("X-OJS-Queue-Bound") != "5" {
		t.Errorf("F030: headers %v", h)
	}
	pressed := func(request, pressure string) {
		t.Helper()
		w := r.do(request)
		if r.want("F030", w, 201); w.Header().Get("X-OJS-Queue-Pressure") != pressure {
			t.Errorf("F030: %s: headers %v", request, w.Header())
		}
	}
	pressed("POST /jobs/batch\n\n"+`{"jobs":[`+small+`,`+job+`]}`, "0.8")
	pressed("POST /jobs/bulk\n\n"+`{"jobs":[`+small+`]}`, "1")
	r.want("F030", r.do("POST /jobs\n\n"+small), 429, "error.depth", 5)
	r.want("F141", r.do("PUT /queues/small/config\n\n"+`{"max_depth":2,"overflow":"drop_oldest"}`), 200)
	r.do("POST /workers/fetch\n\n" + `{"queues":["small"],"count":9}`)
	r.want("F030", r.do("POST /jobs\n\n"+small), 429, "error.depth", 5, "error.bound", 2, "error.strategy",
		"drop_oldest")
}

// A batch of nothing but duplicates has created nothing (OJS unique jobs, section 5.4).
func TestBatchOfDuplicates(t *testing.T) {
	r := newRig(t)
	batch := func(jobs string, status int, all any) {
		t.Helper()
		r.want("C054 C055", r.do("POST /jobs/batch\n\n"+`{"jobs":[`+jobs+`]}`), status, "deduplicated", all)
	}
	a := `{"type":"a","args":[],"unique":{"on_conflict":"ignore"}}`
	b := strings.Replace(a, `"a"`, `"b"`, 1)
	batch(a+`,`+a, 201, "absent")
	batch(a+`,`+b, 201, "absent")
	batch(a+`,`+b, 200, true)
	batch(a, 200, true)
	batch(`{"type":"a","args":[]},`+a, 201, "absent")
}

// A member of a batch that a later one replaces is cancelled in the answer, too.
func TestReplacedInBatch(t *testing.T) {
	r := newRig(t)
	job := `{"type":"a","args":[],"unique":{"on_conflict":"replace"}}`
	r.want("C046 F048", r.do("POST /jobs/batch\n\n"+`{"jobs":[`+job+`,`+job+`]}`), 201, "jobs.0.state",
		"cancelled", "jobs.0.cancelled_at", "2000-01-01T00:00:00.000Z", "jobs.1.state", "available")
}

// Meta that takes part in a fingerprint has each name once, and texts that are Unicode
// (fingerprint, section 2).
func TestAmbiguousMeta(t *testing.T) {
	r := newRig(t)
	for _, meta := range []string{
		`"meta":{"k":{"a":1,"a":2}}`, `"meta":{"k":1,"k":2}`, `"meta":{"k":"\ud800"}`,
		`"options":{"metadata":{"k":"\ud800"}}`, `"tags":["\ud800"],"meta":{"k":1}`,
	} {
		job := `{"type":"m","args":[],` + meta + `,"unique":{"on_conflict":"ignore","meta_keys":["k"],"keys":`
		r.want("C026 "+meta, r.do("POST /jobs\n\n"+job+`["meta"]}}`), 400, "error.code", "invalid_request")
		r.want("C026 "+meta, r.do("POST /jobs\n\n"+job+`["type"],"period":"PT1H","states":["active"]}}`), 201)
	}
	r.enqueue("D", `{"type":"d","args":[],"meta":{"k":1},"unique":{"keys":["meta"],"meta_keys":["k"]},
		"queue":"d","retry":{"max_attempts":1,"on_exhaustion":"dead_letter"}}`)
	r.do("POST /workers/fetch\n\n" + `{"queues":["d"]}`)
	r.do("POST /workers/nack\n\n" + `{"job_id":"$D","error":{"message":"m"}}`)
	replay := "POST /dead-letter/$D/retry\n\n" + `{"override":{"meta":{"k":`
	r.want("C026", r.do(replay+`"\ud800"}}}`), 400, "error.details.field", "override.meta")
	r.want("C026", r.do(replay+`2}}}`), 200, "job.meta.k", 2)
}

// The key that a client makes of the plain args takes their place (K013).
func TestKeyOfPlainArgs(t *testing.T) {
	r := newRig(t)
	enqueue := func(data, more string, status int, values ...any) {
		t.Helper()
		r.want("K013 "+more, r.do("POST /jobs\n\n"+`{"type":"k","args":[{"ojs_encoded":true,
			"encoding":"binary/encrypted","data":"`+data+`"}],
			"unique":{"keys":["type","args"],"args_keys":["user"]}`+more+`}`), status, values...)
	}
	enqueue("AAAA", "", 400, "error.code", "invalid_request")
	enqueue("AAAA", `,"meta":{"unique_key":"no key"}`, 400, "error.code", "invalid_request")
	enqueue("AAAA", `,"unique_key":"`+key64+`"`, 201, "job.unique_key", key64)
	enqueue("BBBB", `,"meta":{"unique_key":"`+key64+`"}`, 409, "error.code", "duplicate")
	plain := `{"type":"k","args":[{"user":1}],"unique":{"keys":["type","args"],"args_keys":["user"]}}`
	r.want("K013", r.do("POST /jobs\n\n"+plain), 201)
	r.keep("F", r.do("POST /jobs\n\n"+plain), "error.details.unique_key")
	enqueue("DDDD", `,"unique_key":"$F"`, 409, "error.details.unique_key", r.vars["F"])
	r.want("K013", r.do(`POST /jobs/batch`+"\n\n"+`{"jobs":[{"type":"x","args":[]},{"type":"k","args":[],
		"unique_key":"$F"}]}`), 201, "jobs.1.args.0.user", 1)
	other := strings.Repeat("0", 64)
	enqueue("CCCC", `,"meta":{"unique_key":"`+other+`"}`, 201, "job.unique_key", other, "job.meta.unique_key",
		other)
	r.want("K008", r.do("POST /jobs\n\n"+`{"type":"k","args":[],"meta":{"unique_key":"`+other+`"}}`), 201,
		"job.unique_key", "absent")
}

// A heartbeat may shorten a reservation (F065).
func TestShorterReservation(t *testing.T) {
	r := newRig(t)
	r.enqueue("A", job)
	r.fetch("w")
	r.want("F065", r.do("POST /workers/heartbeat\n\n"+
		`{"worker_id":"w","active_jobs":["$A"],"visibility_timeout_ms":1000}`), 200, "jobs_extended.0",
		r.vars["A"])
	r.advance(time.Second + time.Nanosecond)
	r.want("F065", r.do("GET /jobs/$A"), 200, "job.state", "available", "job.error.type",
		"visibility_timeout")
}

// A worker that was removed and comes back is a new one, at each server (F078, F147).
func TestWorkerComesBack(t *testing.T) {
	st := bindingtest.Fresh(t)
	r := rigOf(t, enginetest.NewOn[any](t, st, engineOptions()...))
	other := rigOf(t, enginetest.NewOn[any](t, st, engineOptions()...))
	beat := func(rule, id, state, directive string) {
		t.Helper()
		for _, at := range []*rig{r, other} {
			w := at.do("POST /workers/heartbeat\n\n" + `{"worker_id":"` + id + `","state":"` + state + `"}`)
			at.want(rule, w, 200, "directive", directive)
		}
	}
	beat("F068", "w", "terminate", "terminate")
	r.want("F078", r.do("POST /workers/deregister\n\n"+`{"worker_id":"w"}`), 200)
	beat("F078: it is back", "w", "running", "")
	r.enqueue("A", job)
	r.want("F063", r.fetch("w"), 200, "jobs.0.id", r.vars["A"])
	beat("F063: it is quiet", "w", "quiet", "quiet")
	r.enqueue("B", job)
	r.want("F063", r.fetch("w"), 200, "jobs", []any{})

	beat("F068", "v", "quiet", "quiet")
	r.advance(31 * time.Second)
	r.want("F147", r.do("DELETE /admin/workers/v"), 200)
	beat("F147: it is back", "v", "running", "")
}

// A compensation gets the result of the step that it undoes (W082), and a saga that
// compensates cannot be cancelled (W084).
func TestCompensations(t *testing.T) {
	r := newRig(t)
	r.keep("W", r.do("POST /workflows\n\n"+`{"type":"chain","steps":[{"type":"first","args":[]},{"type":"saga","steps":[
		{"name":"x","type":"a","args":[],"compensate_type":"undo.a"},
		{"name":"y","type":"b","args":[],"compensate_type":"undo.b"},{"name":"z","type":"c","args":[]}]}]}`),
		"workflow.id")
	for _, result := range []string{`"before"`, `{"n":1}`, `{"n":2}`} {
		r.next()
		r.ack(result)
	}
	r.next()
	r.fails()
	r.want("W082", r.next(), 200, "jobs.0.type", "undo.b", "jobs.0.parent_results",
		[]any{map[string]any{"n": 2}}, "jobs.0.parent_results_by_id.1.n", 2)
	r.want("W082", r.do("GET /jobs/$JOB"), 200, "job.parent_results.0.n", 2)
	r.ack("null")
	r.want("W082", r.next(), 200, "jobs.0.type", "undo.a", "jobs.0.parent_results",
		[]any{map[string]any{"n": 1}})

	r.keep("V", r.do("POST /workflows\n\n"+`{"type":"saga","steps":[
		{"type":"a","args":[],"compensate_type":"undo.a","options":{"queue":"q"}},
		{"type":"b","args":[],"options":{"queue":"q"}}]}`), "workflow.id")
	for _, end := range []string{"ack", "nack"} {
		r.keep("JOB", r.do("POST /workers/fetch\n\n"+`{"queues":["q"]}`), "jobs.0.id")
		r.want("", r.do("POST /workers/"+end+"\n\n"+`{"job_id":"$JOB"}`), 200)
	}
	r.want("W084, F027", r.do("DELETE /workflows/$V"), 409, "error.code", "conflict",
		"error.details.current_state", "compensating")
}

// A member that is a workflow has its given id and name, or else the id of its place
// among the members of its parent (W073).
func TestIDsOfNestedMembers(t *testing.T) {
	r := newRig(t)
	const group = `"type":"group","jobs":[{"type":"a","args":[]}]`
	r.want("W073", r.do("POST /workflows\n\n"+`{"type":"chain","steps":[{`+group+`},
		{"id":"load","name":"Load all",`+group+`},{"type":"b","args":[]}]}`), 201, "workflow.steps.0.id", "step-0",
		"workflow.steps.0.workflow.steps.0.id", "job-0", "workflow.steps.0.name", "absent",
		"workflow.steps.1.id", "load", "workflow.steps.1.name", "Load all", "workflow.steps.2.id", "step-2")
	r.want("W073", r.do("POST /workflows\n\n"+
		`{"type":"group","jobs":[{"type":"chain","steps":[{"type":"a","args":[]}]}]}`), 201,
		"workflow.jobs.0.id", "job-0", "workflow.jobs.0.workflow.steps.0.id", "step-0")
	r.want("W009", r.do("POST /workflows\n\n"+`{"type":"chain","steps":[{"name":7,`+group+`}]}`), 400,
		"error.details.validation_errors.0.path", "$.steps[0].name")
}

// The refusal of a large value has its size (F028).
func TestSizeOfALargeValue(t *testing.T) {
	r := newRig(t)
	r.enqueue("A", job)
	r.fetch("w")
	const most = 1 << 20
	text := `"` + strings.Repeat("x", most-1) + `"`
	for request, field := range map[string]string{
		"POST /workers/ack\n\n" + `{"job_id":"$A","result":` + text + `}`:      "result",
		"POST /jobs/$A/checkpoint\n\n" + `{"checkpoint":` + text + `}`:         "checkpoint",
		"POST /workers/ack\n\n" + `{"job_id":"$A", "result": [` + text + `] }`: "result",
	} {
		w := r.do(request)
		r.want("F028", w, 413, "error.code", "payload_too_large", "error.details.field", field,
			"error.details.max_bytes", most)
		if n, _ := member(t, w, "error.details.actual_bytes").(float64); n <= most {
			t.Errorf("F028: actual_bytes %v", n)
		}
	}
}
