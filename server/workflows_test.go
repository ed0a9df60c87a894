package server_test

import (
	"fmt"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/ojsengine/ojs/workflow"
)

// next fetches a job and keeps its id as $JOB.
func (r *rig) next() *httptest.ResponseRecorder {
	r.t.Helper()
	w := r.do("POST /workers/fetch\n\n" + `{"queues":["default"],"worker_id":"w1"}`)
	if member(r.t, w, "jobs.0.id") == nil {
		r.t.Fatalf("there is no job: %s", w.Body)
	}
	r.keep("JOB", w, "jobs.0.id")
	return w
}

func (r *rig) ack(result string) {
	r.t.Helper()
	r.want("ack", r.do("POST /workers/ack\n\n"+fmt.Sprintf(`{"job_id":"$JOB","result":%s}`, result)), 200)
}

func (r *rig) fails() {
	r.t.Helper()
	r.want("nack", r.do("POST /workers/nack\n\n"+
		`{"job_id":"$JOB","error":{"code":"no_way","message":"it broke","retryable":false}}`), 200)
}

func TestWorkflowChain(t *testing.T) {
	r := newRig(t)
	w := r.do(`POST /workflows

{"type":"chain","name":"order","id":"0197f000-0000-7000-8000-0000000000aa","steps":[
 {"type":"a","args":[1],"name":"first"},{"type":"b","args":[]},{"type":"c","args":[],"options":{"priority":5}}],
 "options":{"tags":["x"]}}`)
	r.want("W070 W037 W071 W073 W074", w, 201, "workflow.state", "running", "workflow.type", "chain",
		"workflow.name", "order",
		"workflow.steps_total", 3, "workflow.steps_completed", 0, "workflow.jobs_total", 3,
		"workflow.steps.0.id", "step-0", "workflow.steps.0.name", "first", "workflow.steps.0.state",
		"pending",
		"workflow.steps.0.job_state", "available", "workflow.steps.1.state", "waiting",
		"workflow.steps.1.job_state", nil,
		"workflow.steps.1.job_id", nil, "workflow.metadata.job_count", 3, "workflow.jobs", "absent")
	if got := w.Header().Get("Location"); got != "/ojs/v1/workflows/0197f000-0000-7000-8000-0000000000aa" {
		t.Errorf("W070: Location %q", got)
	}
	r.keep("WF", w, "workflow.id")
	again := r.do("POST /workflows\n\n" + `{"type":"chain","id":"$WF","steps":[{"type":"a","args":[]}]}`)
	r.want("W006", again, 409, "error.code", "duplicate", "error.details.existing_job_id", r.vars["WF"])
	r.want("W045 W002", r.next(), 200, "jobs.0.type", "a", "jobs.0.parent_results", []any{},
		"jobs.0.parent_results_by_id", map[string]any{}, "jobs.0.workflow_id", r.vars["WF"], "jobs.0.tags",
		[]any{"x"})
	r.want("W038", r.do("GET /workflows/$WF"), 200, "steps.0.state", "active", "workflow.steps.0.job_state",
		"active")
	r.ack(`{"n":1}`)
	r.want("W021 W041", r.next(), 200, "jobs.0.type", "b", "jobs.0.parent_results",
		[]any{map[string]any{"n": 1}},
		"jobs.0.parent_results_by_id", map[string]any{"0": map[string]any{"n": 1}})
	r.want("W045: a lookup has them, too", r.do("GET /jobs/$JOB"), 200, "job.parent_results.0.n", 1)
	r.want("W077", r.do("GET /workflows/$WF/progress"), 200, "type", "chain", "progress", 1.0/3,
		"steps.0.progress", 1)
	r.ack(`null`)
	r.want("W041", r.next(), 200, "jobs.0.parent_results", []any{map[string]any{"n": 1}, nil},
		"jobs.0.priority", 5)
	r.ack(`"end"`)
	r.want("W071", r.do("GET /workflows/$WF"), 200, "state", "completed", "steps_completed", 3,
		"metadata.completed_count", 3,
		"steps.2.result", "end", "workflow.metadata.failed_count", 0)
	r.want("W053", r.do("DELETE /workflows/$WF"), 409, "error.code", "conflict",
		"error.details.current_state", "completed")
	r.want("W053", r.do("POST /workflows/0197f000-0000-7000-8000-0000000000bb/cancel"), 404, "error.code",
		"not_found",
		"error.details.resource_type", "workflow")
	r.golden("workflow_chain")
}

func TestWorkflowFails(t *testing.T) {
	r := newRig(t)
	w := r.do("POST /workflows\n\n" +
		`{"id":"0197f001-0000-7000-8000-000000000000","type":"chain","steps":[{"type":"a","args":[]},{"type":"b","args":[]},{"type":"c","args":[]}]}`)
	r.keep("WF", w, "workflow.id")
	r.next()
	r.ack("1")
	r.next()
	r.fails()
	r.want("W030 W039", r.do("GET /workflows/$WF"), 200, "state", "failed", "failed_step_index", 1,
		"failed_job_ids.0", r.vars["JOB"],
		"errors.0.code", "no_way", "errors.0.message", "it broke", "errors.0.attempt", 1, "steps.1.state",
		"failed",
		"steps.2.state", "cancelled", "metadata.failed_count", 1, "metadata.completed_count", 1,
		"steps_completed", 1)
	r.golden("workflow_fails")
}

func TestWorkflowBatch(t *testing.T) {
	r := newRig(t)
	w := r.do(`POST /workflows

{"id":"0197f002-0000-7000-8000-000000000000","type":"batch","jobs":[{"type":"a","args":[]},{"type":"b","args":[]}],"callbacks":{
 "on_complete":{"type":"done","args":[]},"on_success":{"type":"good","args":[]},"on_failure":{"type":"bad","args":[]}}}`)
	r.want("W073", w, 201, "workflow.type", "batch", "workflow.jobs_total", 2, "workflow.jobs.1.id", "job-1",
		"workflow.steps.1.type", "b", "workflow.callbacks.on_failure.type", "bad",
		"workflow.callbacks.on_failure.state", "waiting",
		"workflow.metadata.job_count", 2)
	r.keep("WF", w, "workflow.id")
	r.next()
	r.ack(`"one"`)
	r.next()
	r.vars["FAILED"] = r.vars["JOB"]
	r.fails()
	seen := map[any]bool{}
	for range 2 {
		w := r.next()
		seen[member(t, w, "jobs.0.type")] = true
		r.want("W043", w, 200, "jobs.0.parent_results.0", "one", "jobs.0.parent_results.1.error.code",
			"no_way",
			"jobs.0.parent_results.1.error.job_id", r.vars["FAILED"], "jobs.0.parent_results.1.error.attempt",
			1)
		r.want("W033", r.do("GET /workflows/$WF"), 200, "state", "running")
		r.ack("null")
	}
	if !seen["done"] || !seen["bad"] {
		t.Errorf("W032: %v", seen)
	}
	r.want("W034 W072", r.do("GET /workflows/$WF"), 200, "state", "completed", "metadata.failed_count", 1,
		"jobs_completed", 1,
		"callbacks.on_success.state", "cancelled", "callbacks.on_failure.state", "completed")
	r.golden("workflow_batch")
}

func TestWorkflowGraph(t *testing.T) {
	r := newRig(t)
	w := r.do(`POST /workflows

{"id":"0197f003-0000-7000-8000-000000000000","name":"etl","steps":[
 {"id":"load","type":"load","args":[],"depends_on":["left","right"]},
 {"id":"left","type":"left","args":[],"depends_on":["extract"]},
 {"id":"right","type":"right","args":[],"depends_on":["extract"]},
 {"id":"extract","type":"extract","args":[]},
 {"id":"on-failure","type":"alarm","args":[],"depends_on":["load","left","right","extract"]}]}`)
	r.want("W060 W065 W066 W074", w, 201, "workflow.type", "batch", "workflow.steps.0.id", "load",
		"workflow.steps.0.state", "pending",
		"workflow.steps.0.depends_on", []any{"left", "right"}, "workflow.steps.3.state", "available",
		"workflow.steps_total", 4, "workflow.callbacks.on_failure.type", "alarm")
	r.keep("WF", w, "workflow.id")
	r.want("W045", r.next(), 200, "jobs.0.type", "extract", "jobs.0.parent_results", []any{})
	r.ack("0")
	for i, name := range []string{"left", "right"} {
		r.want("W062", r.next(), 200, "jobs.0.type", name, "jobs.0.parent_results", []any{0},
			"jobs.0.parent_results_by_id", map[string]any{"extract": 0})
		r.ack(fmt.Sprint(i + 1))
	}
	r.want("W064", r.next(), 200, "jobs.0.type", "load", "jobs.0.parent_results", []any{1, 2},
		"jobs.0.parent_results_by_id", map[string]any{"extract": 0, "left": 1, "right": 2})
	r.ack("3")
	r.want("W065", r.do("GET /workflows/$WF"), 200, "state", "completed", "callbacks.on_failure.state",
		"cancelled")
	line := r.do("POST /workflows\n\n" +
		`{"id":"0197f004-0000-7000-8000-000000000000","steps":[{"id":"a","type":"a","args":[]},{"id":"b","type":"b","args":[],"depends_on":["a"]}]}`)
	r.want("W066", line, 201, "workflow.type", "chain")
	fan := r.do("POST /workflows\n\n" +
		`{"id":"0197f005-0000-7000-8000-000000000000","steps":[{"id":"a","type":"a","args":[]},{"id":"b","type":"b","args":[],"depends_on":["a"]},{"id":"c","type":"c","args":[],"depends_on":["a"]}]}`)
	r.want("W066", fan, 201, "workflow.type", "absent", "workflow.name", "")
	r.golden("workflow_graph")
}

func TestWorkflowNested(t *testing.T) {
	r := newRig(t)
	w := r.do(`POST /workflows

{"id":"0197f006-0000-7000-8000-000000000000","type":"chain","steps":[
 {"type":"a","args":[]},
 {"type":"group","jobs":[{"type":"b","args":[]},{"type":"chain","steps":[{"type":"c","args":[]},{"type":"d","args":[]}]}]},
 {"type":"e","args":[]}]}`)
	r.want("W004 W073", w, 201, "workflow.steps_total", 3, "workflow.metadata.job_count", 5,
		"workflow.steps.1.type", "group", "workflow.steps.1.state", "waiting",
		"workflow.steps.1.workflow.jobs.1.workflow.steps.1.type", "d")
	r.keep("WF", w, "workflow.id")
	r.next()
	r.ack("1")
	r.want("W042", r.next(), 200, "jobs.0.type", "b", "jobs.0.parent_results", []any{1})
	r.ack("2")
	r.want("W042", r.next(), 200, "jobs.0.type", "c", "jobs.0.parent_results", []any{1})
	r.want("W074", r.do("GET /workflows/$WF"), 200, "steps.1.state", "active")
	r.ack("3")
	r.want("W042", r.next(), 200, "jobs.0.type", "d", "jobs.0.parent_results", []any{3})
	r.ack("4")
	r.want("W041", r.next(), 200, "jobs.0.type", "e", "jobs.0.parent_results", []any{1, map[string]any{"0": 2,
		"1": 4}})
	r.ack("5")
	r.want("W071", r.do("GET /workflows/$WF"), 200, "state", "completed", "steps_completed", 3,
		"metadata.completed_count", 5,
		"steps.1.state", "completed")
	r.golden("workflow_nested")
}

// A batch within a chain whose failure a callback has dealt with is no failure (W034,
// W035).
func TestWorkflowNestedBatch(t *testing.T) {
	r := newRig(t)
	w := r.do("POST /workflows\n\n" + `{"type":"chain","steps":[
 {"type":"batch","jobs":[{"type":"a","args":[]},{"type":"b","args":[]}],"callbacks":{"on_failure":{"type":"mend","args":[]}}},
 {"type":"c","args":[]}]}`)
	r.keep("WF", w, "workflow.id")
	r.next()
	r.fails()
	r.next()
	r.ack("2")
	r.want("W032", r.next(), 200, "jobs.0.type", "mend", "jobs.0.parent_results.1", 2)
	r.want("W033", r.do("GET /workflows/$WF"), 200, "steps.0.state", "active", "steps.1.state", "waiting",
		"steps.0.workflow.callbacks.on_failure.state", "active")
	r.ack("null")
	r.want("W035", r.next(), 200, "jobs.0.type", "c", "jobs.0.parent_results.0.1", 2)
	r.want("W035", r.do("GET /workflows/$WF"), 200, "steps.0.state", "completed", "steps.1.state", "active")
	r.ack("null")
	r.want("W034", r.do("GET /workflows/$WF"), 200, "state", "completed", "steps_completed", 2)
}

func TestWorkflowCancel(t *testing.T) {
	r := newRig(t)
	w := r.do("POST /workflows\n\n" +
		`{"id":"0197f007-0000-7000-8000-000000000000","type":"group","jobs":[{"type":"a","args":[]},{"type":"b","args":[]},{"type":"c","args":[]}]}`)
	r.keep("WF", w, "workflow.id")
	r.next()
	r.ack("1")
	r.next()
	c := r.do("POST /workflows/$WF/cancel\n\n{}")
	r.want("W050 W075", c, 200, "workflow.state", "cancelled", "state", "cancelled", "steps_cancelled", 1,
		"steps_already_completed", 1)
	if member(t, c, "cancelled_at") == nil || member(t, c, "completed_at") != nil {
		t.Errorf("W075: %s", c.Body)
	}
	r.want("W053", r.do("DELETE /workflows/$WF"), 409, "error.code", "conflict")
	r.ack("2")
	r.want("W051", r.do("GET /workflows/$WF"), 200, "state", "cancelled", "jobs.1.state", "completed")
	r.want("W076", r.do("GET /workflows?state=cancelled"), 200, "workflows.0.id", r.vars["WF"],
		"items.0.state", "cancelled",
		"pagination.total", 1, "workflows.0.steps", "absent")
	r.want("W076", r.do("GET /workflows?state=running"), 200, "workflows", []any{}, "items", []any{})
	r.want("W076", r.do("GET /workflows?state=odd"), 400, "error.code", "invalid_request",
		"error.details.field", "state")
	r.golden("workflow_cancel")
}

func TestWorkflowInvalid(t *testing.T) {
	r := newRig(t)
	for rule, body := range map[string]string{
		"W007 no steps":       `{"type":"chain","steps":[]}|$.steps`,
		"W007 no callbacks":   `{"type":"batch","jobs":[{"type":"a","args":[]}]}|$.callbacks`,
		"W007 a callback":     `{"type":"batch","jobs":[{"type":"a","args":[]}],"callbacks":{"on_end":{"type":"a","args":[]}}}|$.callbacks.on_end`,
		"W008 W009 args":      `{"type":"chain","steps":[{"type":"a","args":[]},{"type":"b","args":{}}]}|$.steps[1].args`,
		"W009 no object":      `{"type":"group","jobs":[7]}|$.jobs[0]`,
		"W009 retry":          `{"type":"group","jobs":[{"type":"a","args":[],"retry":{"max_attempts":-1}}]}|$.jobs[0].`,
		"W004 unknown type":   `{"type":"circle","steps":[{"type":"a","args":[]}]}|$.type`,
		"W061 no id":          `{"steps":[{"type":"a","args":[]}]}|$.steps[0].id`,
		"W061 unknown":        `{"steps":[{"id":"a","type":"a","args":[],"depends_on":["b"]}]}|$.steps[0].depends_on`,
		"W061 itself":         `{"steps":[{"id":"a","type":"a","args":[],"depends_on":["a"]}]}|$.steps[0].depends_on`,
		"W061 twice":          `{"steps":[{"id":"a","type":"a","args":[]},{"id":"a","type":"a","args":[]}]}|$.steps[1].id`,
		"W061 a cycle":        `{"steps":[{"id":"a","type":"a","args":[],"depends_on":["b"]},{"id":"b","type":"a","args":[],"depends_on":["a"]}]}|$`,
		"W002 common options": `{"type":"chain","options":{"priority":1000},"steps":[{"type":"a","args":[]}]}|$.options.priority`,
	} {
		at := 0
		for i := range body {
			if body[i] == '|' {
				at = i
			}
		}
		w := r.do("POST /workflows\n\n" + body[:at])
		r.want(rule, w, 400, "error.code", "invalid_workflow")
		if path, _ := member(t, w,
			"error.details.validation_errors.0.path").(string); len(path) < len(body[at+1:]) ||
			path[:len(body[at+1:])] != body[at+1:] {
			t.Errorf("%s: path %q, not %q: %s", rule, path, body[at+1:], w.Body)
		}
	}
	both := r.do("POST /workflows\n\n" + `{"type":"chain","steps":[{"type":"A","args":[]},{"type":"b"}]}`)
	r.want("W009 all faults", both, 400, "error.details.validation_errors.1.path", "$.steps[1].args")
	r.want("W020 nothing is stored", r.do("GET /workflows"), 200, "workflows", []any{})
	r.want("W006 W009",
		r.do("POST /workflows\n\n"+`{"id":"wf_1","type":"chain","steps":[{"type":"a","args":[]}]}`), 400,
		"error.code", "invalid_workflow", "error.details.validation_errors.0.path", "$.id")
	r.want("W013", r.do("POST /workflows\n\n"+
		`{"type":"chain","steps":[{"type":"u","args":[],"unique":{"keys":["type"]}}]}`), 201)
	r.want("W013", r.do("POST /workflows\n\n"+
		`{"type":"chain","steps":[{"type":"u","args":[],"unique":{"keys":["type"],"on_conflict":"ignore"}}]}`), 409, "error.code", "duplicate")
}

// A workflow with too many steps is refused before its steps are compared.
func TestWorkflowOfTooManySteps(t *testing.T) {
	r := newRig(t)
	steps := make([]string, workflow.MaxSteps+1)
	for i := range steps {
		steps[i] = fmt.Sprintf(`{"id":"s%d","type":"a","depends_on":["s%d"]}`, i, (i+1)%len(steps))
	}
	w := r.do("POST /workflows\n\n" + `{"steps":[` + strings.Join(steps, ",") + `]}`)
	if w.Code != 400 || !strings.Contains(w.Body.String(), "has 10001 members") {
		t.Errorf("%d %.300s", w.Code, w.Body)
	}
}
