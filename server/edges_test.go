package server_test

import (
	"bytes"
	"compress/gzip"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/benbjohnson/clock"

	"github.com/ojsengine/ojs"
	"github.com/ojsengine/ojs/enginetest"
	"github.com/ojsengine/ojs/internal/test/bindingtest"
	"github.com/ojsengine/ojs/server"
	"github.com/ojsengine/ojs/storage"
	"github.com/ojsengine/ojs/storage/storagetest"
	"github.com/ojsengine/ojs/workflow"
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
	refused("W006 W009", `{"id":7,"type":"chain","steps":[{"type":"A","args":[]}]}`, "$.id",
		"$.steps[0].type")
	refused("W006 W009", `{"id":"0197f000-0000-4000-8000-0000000000aa","type":"chain",
		"steps":[{"type":"a","args":[]}]}`, "$.id")
	refused("W009 W061: jobs of a graph", `{"steps":[{"id":"a","type":"A","args":[],"depends_on":["z"]},
		{"id":"b","type":"b"}]}`, "$.steps[0].depends_on", "$.steps[0].type", "$.steps[1].args")
	refused("W009 W061: a bad id comes once, and hides no fault", `{"steps":[{"id":7,"type":"A","args":[]},
		{"id":"b","type":"b","args":[],"depends_on":["a"]}]}`, "$.steps[0].id", "$.steps[0].type")
	refused("W009: the id of a member", `{"type":"group","jobs":[{"id":7,"name":8,"type":"A","args":[]}]}`,
		"$.jobs[0].id", "$.jobs[0].name", "$.jobs[0].type")
	refused("W009 W080: the name of a member", `{"type":"saga","steps":[{"name":8,"type":"A","args":[]}]}`,
		"$.steps[0].name", "$.steps[0].type")
	refused("W009 W061: what is no step has no attributes", `{"steps":[5,{"id":"b","type":"b","args":[],
		"depends_on":["c",6]}]}`, "$.steps[0]", "$.steps[1].depends_on")
	refused("W009: what is no member has no attributes", `{"type":"chain","steps":[5,
		{"type":"saga","steps":[[]]}]}`, "$.steps[0]", "$.steps[1].steps[0]")
	refused("W006 W009: a bad id hides no fault", `{"id":7,"steps":[{"id":"a","steps":[]},
		{"id":"b","type":"b","args":[],"depends_on":["a"],"options":{"callback_type":"never"}}]}`, "$.id",
		"$.steps[1].options.callback_type", "$.steps[0]")
	refused("W061 W009: a bad step hides no workflow", `{"steps":[{"type":"a","args":[]},
		{"id":"b","jobs":[]}]}`, "$.steps[0].id", "$.steps[1]")
	refused("W009 W065: options that are none come once", `{"steps":[{"id":"a","type":"a","args":[],
		"options":5}]}`, "$.steps[0].options")
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
	for _, conflict := range []string{"replace_except_schedule", "ojs:debounce"} {
		job := func(args string) string {
			return `{"type":"` + strings.TrimPrefix(conflict, "ojs:") + `","args":[` + args + `],"scheduled_at":"2000-01-01T01:00:00Z",
				"unique":{"keys":["type"],"on_conflict":"` + conflict + `"}}`
		}
		r.want("C050 F048 "+conflict, r.do("POST /jobs/batch\n\n"+`{"jobs":[`+job("1")+`,`+job("2")+`,`+
			job("3")+`]}`), 201, "jobs.0.args.0", 3, "jobs.1.args.0", 3, "jobs.2.args.0", 3)
	}
	r.do("PUT /queues/small/config\n\n" + `{"max_depth":1,"overflow":"drop_oldest"}`)
	known := `{"type":"k","args":[],"queue":"small","unique":{"on_conflict":"ignore"}}`
	r.enqueue("K", known)
	r.want("F048", r.do("POST /jobs/batch\n\n"+`{"jobs":[`+known+`,{"type":"l","args":[],"queue":"small"}]}`),
		201, "jobs.0.id", r.vars["K"], "jobs.0.state", "discarded", "jobs.1.state", "available")
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
	r.want("F028", r.do("POST /jobs/$A/checkpoint\n\n"+`{"state":`+text+`,"worker_id":"w"}`), 413,
		"error.details.actual_bytes", most+1)
}

// A time that the client has sent is echoed as sent, in the short form too (F009, F157).
func TestTimeOfAShortJob(t *testing.T) {
	r := newRig(t)
	const sent = "1999-12-31T23:59:59+00:00"
	r.enqueue("A", `{"type":"a","args":[],"scheduled_at":"`+sent+`"}`)
	r.fetch("w")
	r.want("F009 F157", r.do("POST /workers/ack\n\n"+`{"job_id":"$A"}`), 200, "job.scheduled_at", sent)
}

// Two names of a retry policy are one thing twice (F164).
func TestRetryTwice(t *testing.T) {
	r := newRig(t)
	for _, members := range []string{`"retry":{},"retry_policy":{}`,
		`"options":{"retry":{},"retry_policy":{}}`, `"retry":{},"options":{"retry_policy":{}}`} {
		r.want("F164 "+members, r.do("POST /jobs\n\n"+`{"type":"a","args":[],`+members+`}`), 422,
			"error.code", "validation_error", "error.details.type", "validation.retry_policy_invalid")
	}
	r.want("F167", r.do("POST /jobs\n\n"+`{"type":"a","args":[],"retry":{},"options":{"retry":{}}}`), 400)
}

// The health counts the queues that are listed, and a queue that exists keeps its state.
func TestQueuesThatExist(t *testing.T) {
	r := newRig(t)
	r.want("F091", r.do("POST /queues\n\n"+`{"name":"made"}`), 201, "queue.status", "active")
	r.want("F101", r.do("GET /health"), 200, "queues.total", len(names(t, r.do("GET /queues"), "queues")))
	r.do("POST /queues/made/pause")
	r.want("F091", r.do("POST /queues\n\n"+`{"name":"made"}`), 201, "queue.status", "paused", "queue.paused",
		true)
}

// names are the names of a list of an answer.
func names(t *testing.T, w *httptest.ResponseRecorder, list string) (out []string) {
	t.Helper()
	all, _ := member(t, w, list).([]any)
	for _, one := range all {
		out = append(out, fmt.Sprint(one.(map[string]any)["name"]))
	}
	return out
}

// A pause that another program has ended begins anew (F090).
func TestPauseAnew(t *testing.T) {
	r := newRig(t)
	r.want("F090", r.do("POST /queues/q/pause"), 200, "paused_at", "2000-01-01T00:00:00.000Z")
	r.advance(time.Second)
	r.want("F090: idempotent", r.do("POST /queues/q/pause"), 200, "paused_at", "2000-01-01T00:00:00.000Z")
	if _, err := r.eng.Queues().Resume(t.Context(), "q"); err != nil {
		t.Fatal(err)
	}
	r.want("F090", r.do("POST /queues/q/pause"), 200, "paused_at", "2000-01-01T00:00:01.000Z")
}

// oldest_available_at is when the job became available that has been for longest (F140).
func TestOldestAvailable(t *testing.T) {
	r := newRig(t)
	r.enqueue("A", `{"type":"a","args":[],"scheduled_at":"+PT10S"}`)
	r.advance(5 * time.Second)
	r.enqueue("B", job)
	r.advance(10 * time.Second)
	r.want("F140", r.do("GET /admin/queues/default"), 200, "oldest_available_at", "2000-01-01T00:00:05.000Z")
}

// A queue is deleted or not: a refused call changes nothing, and discard is not refused
// since a workflow of the queue has jobs elsewhere.
func TestDeleteQueue(t *testing.T) {
	r := newRig(t)
	for _, queue := range []string{"q", "default"} {
		r.keep("W", r.do("POST /workflows\n\n"+`{"type":"group","jobs":[
			{"type":"a","args":[],"options":{"queue":"`+queue+`"}},
			{"type":"b","args":[],"options":{"queue":"other"}}]}`), "workflow.id")
		r.want("F091 "+queue, r.do("DELETE /queues/"+queue+"?strategy=discard"), 200, "jobs_discarded", 1)
		r.want("W031", r.do("GET /workflows/$W"), 200, "workflow.state", "running")
		r.keep("JOB", r.do("POST /workers/fetch\n\n"+`{"queues":["other"]}`), "jobs.0.id")
		r.ack("1")
		r.want("W031", r.do("GET /workflows/$W"), 200, "workflow.state", "failed")
	}
	r.want("F089", r.do("GET /queues/q/stats"), 404)

	r.keep("W", r.do("POST /workflows\n\n"+`{"type":"group","options":{"queue":"w"},"jobs":[
		{"type":"a","args":[]},{"type":"b","args":[]}]}`), "workflow.id")
	r.want("F091: a whole workflow", r.do("DELETE /queues/w?strategy=discard"), 200, "jobs_discarded", 2)
	r.want("F091: a whole workflow", r.do("GET /workflows/$W"), 404)

	r.enqueue("A", `{"type":"a","args":[],"queue":"d"}`)
	must(r.eng.Queues().Drain(t.Context(), "full"))
	r.want("F034 F091", r.do("DELETE /queues/d?strategy=move&target_queue=full"), 409, "error.code",
		"conflict")
	r.want("F034", r.do("GET /queues/d/stats"), 200, "status", "active", "available", 1)

	r.enqueue("A", `{"type":"a","args":[],"queue":"m"}`)
	r.want("", r.do("POST /workers/fetch\n\n"+`{"queues":["m"]}`), 200, "jobs.0.id", r.vars["A"])
	r.enqueue("B", `{"type":"a","args":[],"queue":"m"}`)
	r.want("F034 F091", r.do("DELETE /queues/m?strategy=move&target_queue=n"), 409, "error.code", "conflict")
	r.want("F034", r.do("GET /jobs/$B"), 200, "job.queue", "m")
}

// A queue from which workers claim, and to which clients enqueue, while it is deleted is
// deleted whole, or stays as it was.
func TestDeleteQueueInUse(t *testing.T) {
	for _, c := range []struct {
		strategy, before string // the state before
		at               string // the method whose call lets the others in
		nth              int    // of its calls, from the first Counts on
		do               string
		status           int
		moved, discarded int
	}{
		{"move&target_queue=n", "resume", "Counts", 1, "fetch", 409, 0, 0},
		{"move&target_queue=n", "resume", "Settle", 1, "fetch", 200, 2, 0},
		{"move&target_queue=n", "resume", "Settle", 1, "enqueue", 200, 3, 0},
		{"move&target_queue=n", "pause", "SetQueueState", 1, "enqueue", 200, 3, 0},
		{"discard", "resume", "Counts", 1, "fetch", 200, 0, 2},
		{"discard", "resume", "Settle", 1, "fetch", 200, 0, 2},
		{"discard", "resume", "Settle", 1, "enqueue", 200, 0, 3},
		{"discard", "pause", "Counts", 2, "enqueue", 200, 0, 3},
		{"discard", "resume", "SetQueueState", 2, "enqueue", 200, 0, 2}, // the queue refuses the job
		{"reject", "resume", "Counts", 1, "enqueue", 409, 0, 0},
		{"reject", "pause", "Counts", 1, "enqueue", 409, 0, 0},
		{"reject", "pause", "Counts", 2, "enqueue", 409, 0, 0},
		{"reject", "resume", "SetQueueState", 2, "enqueue", 200, 0, 0}, // the queue refuses the job
	} {
		name := fmt.Sprintf("F034 F091 %+v", c)
		st := &storagetest.Faulty{Storage: bindingtest.Fresh(t)}
		r := rigOf(t, enginetest.NewOn[any](t, st, engineOptions()...))
		jobs := 0
		enqueue := func() {
			if r.do("POST /jobs\n\n"+`{"type":"a","args":[],"queue":"m"}`).Code == 201 {
				jobs++
			}
		}
		r.want(name, r.do("POST /queues\n\n"+`{"name":"m","config":{"max_depth":9}}`), 201)
		if c.strategy != "reject" {
			enqueue()
			enqueue()
		}
		r.want(name, r.do("POST /queues/m/"+c.before), 200)
		calls := 0
		st.OnCall(func(call *storagetest.Call) {
			if call.Method != c.at {
				return
			}
			if calls++; calls != c.nth {
				return
			}
			call.Do()
			if c.do == "enqueue" {
				enqueue()
			} else {
				r.do("POST /workers/fetch\n\n" + `{"queues":["m"]}`)
			}
		})
		w := r.do("DELETE /queues/m?strategy=" + c.strategy)
		st.OnCall(nil)
		if calls < c.nth {
			t.Errorf("%s: nothing came in between", name)
		}
		if c.status == 200 {
			r.want(name, w, 200, "jobs_moved", c.moved, "jobs_discarded", c.discarded)
			r.want(name, r.do("GET /queues/m/stats"), 404)
			if jobs != c.moved+c.discarded {
				t.Errorf("%s: %d jobs were taken", name, jobs)
			}
			continue
		}
		r.want(name, w, c.status, "error.code", "conflict")
		state := map[string]string{"resume": "active", "pause": "paused"}[c.before]
		r.want(name, r.do("GET /queues/m/stats"), 200, "status", state, "depth", jobs)
		r.want(name, r.do("GET /queues/m/config"), 200, "config.max_depth", 9)
	}
}

// A parameter without a value asks to wait (F152).
func TestWaitForAResult(t *testing.T) {
	if bindingtest.Storage != "memory" {
		t.Skip("storages but memory have goroutines outside of the bubble")
	}
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, server.WithClock(clock.New()))
		r.enqueue("A", job)
		begun := time.Now()
		r.want("F152", r.do("GET /jobs/$A/result?wait&timeout=7"), 408)
		if d := time.Since(begun); d != 7*time.Second {
			t.Errorf("F152: a wait of %v", d)
		}
		r.do("DELETE /jobs/$A")
		r.want("F152", r.do("GET /jobs/$A/result?wait&timeout=7"), 200, "state", "cancelled")
	})
}

// The body is bounded by its bytes after decompression: gzip makes some longer (F014).
func TestBodyThatGzipMakesLonger(t *testing.T) {
	const most = 4 << 10
	r := newRig(t, server.WithLimits(server.Limits{Body: most}))
	gzipped := func(body string, times int) *httptest.ResponseRecorder {
		var packed bytes.Buffer
		for range times {
			z, _ := gzip.NewWriterLevel(&packed, gzip.NoCompression)
			_, _ = z.Write([]byte(body))
			_ = z.Close()
			body = ""
		}
		req := bindingtest.Request("POST /jobs")
		req.Body, req.ContentLength = io.NopCloser(&packed), -1
		req.Header.Set("Content-Type", "application/json")
		req.Header.Set("Content-Encoding", "gzip")
		w := httptest.NewRecorder()
		r.srv.ServeHTTP(w, req)
		return w
	}
	body := `{"type":"a","args":[""]}`
	body = strings.Replace(body, `""`, `"`+strings.Repeat("x", most-len(body))+`"`, 1)
	r.want("F014", gzipped(body, 1), 201)
	r.want("F028", gzipped(body+" ", 1), 413, "error.details.max_bytes", most)
	r.want("F028: endless, and empty", gzipped(body, 1000), 413, "error.details.max_bytes", most)
}

// A 201 of a workflow tells of a queue that is nearly full, too (F030).
func TestPressureOfAWorkflow(t *testing.T) {
	r := newRig(t)
	r.want("F091", r.do("POST /queues\n\n"+`{"name":"small","config":{"max_depth":6}}`), 201)
	w := r.do("POST /workflows\n\n" + `{"type":"group","options":{"queue":"small"},"jobs":[
		{"type":"a","args":[]},{"type":"a","args":[]},{"type":"a","args":[]}]}`)
	if r.want("W070", w, 201); w.Header().Get("X-OJS-Queue-Bound") != "6" ||
		w.Header().Get("X-OJS-Queue-Pressure") == "" {
		t.Errorf("F030: headers %v", w.Header())
	}
}

// A graph that has no type in answers has none in its progress (W066, W077).
func TestProgressWithoutAType(t *testing.T) {
	r := newRig(t)
	r.keep("W", r.do("POST /workflows\n\n"+`{"steps":[{"id":"a","type":"a","args":[]},
		{"id":"b","type":"b","args":[],"depends_on":["a"]},{"id":"c","type":"c","args":[],"depends_on":["a"]}]}`),
		"workflow.id")
	r.want("W066 W077", r.do("GET /workflows/$W/progress"), 200, "progress", 0, "type", "absent")
	if w := r.do("GET /workflows/$W/progress"); strings.Contains(w.Body.String(), `"type":""`) {
		t.Errorf("W066: %s", w.Body)
	}
}

// The heartbeat of a job that no worker has is no error (F077, F181).
func TestHeartbeatOfAWaitingJob(t *testing.T) {
	r := newRig(t)
	r.enqueue("A", job)
	r.want("F077 F181", r.do("POST /jobs/$A/heartbeat"), 200, "jobs_lost.0", r.vars["A"], "jobs_extended",
		[]any{})
}

// The times of meta that the server has set have milliseconds (F009).
func TestTimesOfMeta(t *testing.T) {
	r := newRig(t)
	r.want("F092", r.do("POST /cron\n\n"+`{"name":"c","cron":"@every 1s","type":"a"}`), 201)
	r.advance(time.Second)
	r.want("F009", r.fetch("w"), 200, "jobs.0.meta.cron_triggered_at", "2000-01-01T00:00:01.000Z")
}

// Meta that a client sends is given back as it is (F009, P0.1), times of the names that
// the server sets among it.
func TestTimesOfMetaAsSent(t *testing.T) {
	r := newRig(t)
	meta := json.RawMessage(`{"cron_triggered_at":"2026-01-02T03:04:05Z",` +
		`"ojs.last_replayed_at":"2026-01-02T05:04:05.5+02:00"}`)
	r.enqueue("A", `{"type":"a","args":[],"meta":`+string(meta)+`}`)
	r.want("F009 P0.1", r.do("GET /jobs/$A"), 200, "job.meta", meta)
	r.want("F009 P0.1", r.fetch("w"), 200, "jobs.0.meta", meta)
}

// startChain starts a workflow of one step, and keeps its id by a name.
func startChain(r *rig, name string) {
	w := r.do("POST /workflows\n\n" + `{"type":"chain","steps":[{"type":"a","args":[]}]}`)
	r.keep(name, w, "workflow.id")
}

// A list of workflows in some state has all of them, and counts no other (F104, W076).
func TestWorkflowsInAState(t *testing.T) {
	r := newRig(t)
	for _, name := range []string{"A", "B", "C", "D", "E"} {
		startChain(r, name)
		switch r.next(); name {
		case "B", "D":
			r.ack("1")
		default:
			r.fails()
		}
	}
	startChain(r, "F")
	r.do("POST /workflows\n\n" + `{"type":"chain","steps":[{"type":"a","args":[],"scheduled_at":"+PT1H"}]}`)
	r.want("W076", r.do("GET /workflows?state=completed&page=1&per_page=1"), 200, "items.0.id", r.vars["D"],
		"pagination.total", 2, "pagination.has_more", true)
	r.want("W076", r.do("GET /workflows?state=completed&page=2&per_page=1"), 200, "items.0.id", r.vars["B"],
		"pagination.has_more", false)
	r.want("W076", r.do("GET /workflows?state=running"), 200, "items.0.id", r.vars["F"], "items.1", "absent",
		"pagination.total", 1)
	r.want("W076", r.do("GET /workflows?state=failed,pending&page=2&per_page=3"), 200, "items.0.id",
		r.vars["A"], "pagination.total", 4)
	w := r.do("GET /workflows?state=failed&limit=2")
	r.want("F104", w, 200, "items.0.id", r.vars["E"], "items.1.id", r.vars["C"], "pagination.total", 3)
	r.keep("NEXT", w, "pagination.next_cursor")
	r.next() // of F
	r.fails()
	r.want("F104", r.do("GET /workflows?state=failed&limit=2&cursor=$NEXT"), 200, "items.0.id", r.vars["A"],
		"items.1", "absent", "pagination.total", 4, "pagination.has_more", false)
	r.want("W076", r.do("GET /workflows?state=compensated"), 200, "items", []any{}, "pagination.total", 0)
}

// A cursor among the workflows in a state neither skips nor repeats one, though the last
// of a page leaves the state and others are started (F104).
func TestCursorOfWorkflowsInAState(t *testing.T) {
	r := newRig(t)
	for _, name := range []string{"A", "B", "C", "D", "E"} {
		startChain(r, name)
	}
	w := r.do("GET /workflows?state=running&limit=2")
	r.want("F104", w, 200, "workflows.0.id", r.vars["E"], "workflows.1.id", r.vars["D"],
		"pagination.total", 5)
	r.keep("NEXT", w, "pagination.next_cursor")
	for _, name := range []string{"E", "D", "C"} {
		r.want("W075", r.do("DELETE /workflows/$"+name), 200)
	}
	startChain(r, "F")
	w = r.do("GET /workflows?state=running&limit=1&cursor=$NEXT")
	r.want("F104", w, 200, "workflows.0.id", r.vars["B"], "workflows.1", "absent", "pagination.total", 3,
		"pagination.has_more", true)
	r.keep("NEXT", w, "pagination.next_cursor")
	r.want("W075", r.do("DELETE /workflows/$B"), 200)
	r.want("F104", r.do("GET /workflows?state=running&limit=1&cursor=$NEXT"), 200, "workflows.0.id",
		r.vars["A"], "pagination.has_more", false, "pagination.next_cursor", "absent")
	for _, cursor := range []string{"x", "0~", "0~x", "0~" + r.vars["A"], "-1~1"} {
		token := base64.RawURLEncoding.EncodeToString([]byte(cursor))
		r.want("F104 "+cursor, r.do("GET /workflows?state=running&cursor="+token), 400,
			"error.details.field", "cursor")
	}
}

// A list of workflows leaves out one whose record is damaged. It looks up few jobs to
// find those in a state.
func TestListsWithADamagedWorkflow(t *testing.T) {
	st := &storagetest.Faulty{Storage: bindingtest.Fresh(t)}
	r := rigOf(t, enginetest.NewOn[any](t, st, engineOptions()...))
	for i, args := range []string{`[1]`, `[{}]`, `[{"nodes":[{"n":"a","a":[7]}],"saga":true}]`} {
		var rec storage.Record
		rec.ID = fmt.Sprintf("0197f000-0000-7000-8000-00000000000%d", i)
		rec.Type, rec.Queue, rec.State = workflow.Type, "default", ojs.StatePending
		rec.CreatedAt = time.Unix(0, 0).UTC()
		rec.Args, rec.Meta = must(ojs.NewArgs(json.RawMessage(args))), map[string]any{"workflow_id": rec.ID}
		must(st.Insert(t.Context(), rec.CreatedAt, []storage.Insert{{Record: rec}}, nil))
	}
	for _, name := range []string{"A", "B"} {
		r.keep(name, r.do("POST /workflows\n\n"+`{"type":"group","jobs":[{"type":"a","args":[]},
			{"type":"b","args":[]}]}`), "workflow.id")
	}
	for _, query := range []string{"", "?state=running", "?state=running,pending"} {
		r.want("W076 "+query, r.do("GET /workflows"+query), 200, "workflows.0.id", r.vars["B"],
			"workflows.1.id", r.vars["A"], "workflows.2", "absent")
	}
	for state, most := range map[string]int{"compensating": 0, "pending": 2} {
		before := st.Calls("Get")
		r.want("W076 "+state, r.do("GET /workflows?state="+state), 200, "pagination.total", 0)
		if n := st.Calls("Get") - before; n > most {
			t.Errorf("%d jobs were looked up for state %s, not %d", n, state, most)
		}
	}
}

// The limit of a queue is one setting, in its configuration and by itself (L035).
func TestLimitOfAQueueIsOneSetting(t *testing.T) {
	r := newRig(t)
	shown := func(values ...any) {
		t.Helper()
		r.want("L035", r.do("GET /queues/q/config"), 200, values...)
	}
	r.want("L035", r.do("PUT /queues/q/config\n\n"+
		`{"max_depth":9,"concurrency":5,"rate_limit":{"max_per_second":3}}`), 200)
	shown("config.concurrency", 5, "config.rate_limit.max_per_second", 3)
	r.want("L035", r.do("GET /admin/queues/q/rate-limit"), 200, "concurrency", 5, "rate.limit", 3)
	r.want("L035", r.do("PUT /admin/queues/q/rate-limit\n\n"+
		`{"concurrency":0,"throttle":{"limit":1,"period":"PT2S"}}`), 200)
	shown("config.max_depth", 9, "config.concurrency", 0, "config.rate_limit", "absent",
		"config.throttle.period", "PT2S")
	r.want("L035", r.do("PUT /admin/queues/q/rate-limit\n\n"+`{"rate":{"limit":7,"period":"PT1M"}}`), 200)
	r.want("F140 L035", r.do("GET /admin/queues/q"), 200, "configuration.rate_limit.limit", 7,
		"configuration.concurrency", "absent")
	r.want("L035", r.do("DELETE /admin/queues/q/rate-limit"), 200)
	shown("config.max_depth", 9, "config.rate_limit", "absent", "config.concurrency", "absent")
}

// A queue that is made again without a configuration keeps the limit that was set by
// itself (L035).
func TestLimitOfAQueueMadeAgain(t *testing.T) {
	r := newRig(t)
	for _, config := range []string{`{"max_depth":9,"concurrency":5}`, ``} {
		name := fmt.Sprintf("q%d", len(config))
		if config != "" {
			r.want("F091", r.do("POST /queues\n\n"+`{"name":"`+name+`","config":`+config+`}`), 201)
		}
		r.want("L035", r.do("PUT /admin/queues/"+name+"/rate-limit\n\n"+`{"concurrency":2}`), 200)
		for _, body := range []string{`{"name":"` + name + `"}`, `{"name":"` + name + `","config":{}}`} {
			r.want("F091 L035", r.do("POST /queues\n\n"+body), 201, "config.concurrency", 2)
			r.want("L035", r.do("GET /admin/queues/"+name+"/rate-limit"), 200, "concurrency", 2)
		}
		r.want("F091 L035", r.do("POST /queues\n\n"+`{"name":"`+name+`","config":{"max_depth":8}}`), 201,
			"config.concurrency", "absent")
		r.want("L035", r.do("GET /queues/"+name+"/config"), 200, "config.max_depth", 8,
			"config.concurrency", "absent")
	}
}

// The jobs of a workflow carry its id, that of their step, and that of the root (W026).
func TestIDsOfSteps(t *testing.T) {
	r := newRig(t)
	r.keep("W", r.do("POST /workflows\n\n"+`{"type":"group","jobs":[{"type":"chain","steps":[
		{"id":"first","type":"a","args":[]}]},{"type":"b","args":[],"root_id":"theirs"}]}`), "workflow.id")
	r.want("W026", r.next(), 200, "jobs.0.workflow_id", r.vars["W"], "jobs.0.root_id", r.vars["W"],
		"jobs.0.meta.step_id", "first")
	r.want("W026 F174", r.next(), 200, "jobs.0.workflow_id", r.vars["W"], "jobs.0.root_id", "theirs")
	r.enqueue("A", job)
	r.want("F040", r.do("GET /jobs/$A"), 200, "job.root_id", "absent")
}
