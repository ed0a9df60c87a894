package server_test

import (
	"strings"
	"testing"
	"time"

	"github.com/ojsengine/ojs"
	"github.com/ojsengine/ojs/enginetest"
	"github.com/ojsengine/ojs/internal/test/bindingtest"
	"github.com/ojsengine/ojs/server"
	"github.com/ojsengine/ojs/storage/storagetest"
)

// dead makes a dead letter, and keeps its id.
func (r *rig) dead(name, jobType string) {
	r.t.Helper()
	queue := "dead-" + strings.ToLower(name)
	r.enqueue(name, `{"type":"`+jobType+`","args":[1],"options":{"queue":"`+queue+`",
		"retry":{"max_attempts":1,"on_exhaustion":"dead_letter"}}}`)
	r.do("POST /workers/fetch\n\n" + `{"queues":["` + queue + `"],"worker_id":"w"}`)
	r.want("F067", r.do("POST /workers/nack\n\n"+`{"job_id":"$`+name+`","error":{"message":"m","code":"E"}}`),
		200,
		"state", "discarded")
}

func TestDeadLetters(t *testing.T) {
	r := newRig(t)
	r.want("F085", r.do("GET /dead-letter"), 200, "jobs", []any{}, "pagination.total", 0,
		"pagination.has_more", false,
		"pagination.next_cursor", "absent")
	for _, name := range []string{"A", "B", "C", "D", "E"} {
		r.dead(name, "t."+map[bool]string{true: "x", false: "y"}[name < "C"])
	}
	w := r.do("GET /dead-letter?limit=2")
	r.want("F085, F104", w, 200, "jobs.0.id", r.vars["E"], "jobs.1.id", r.vars["D"], "pagination.total", 5,
		"pagination.limit", 2,
		"pagination.offset", 0, "pagination.has_more", true)
	r.keep("CURSOR", w, "pagination.next_cursor")
	r.dead("F", "t.x")
	w = r.do("GET /dead-letter?limit=2&cursor=$CURSOR")
	r.want("F104: an insert", w, 200, "jobs.0.id", r.vars["C"], "jobs.1.id", r.vars["B"],
		"pagination.has_more", true)
	r.keep("CURSOR", w, "pagination.next_cursor")
	r.want("F104", r.do("GET /dead-letter?limit=2&cursor=$CURSOR"), 200, "jobs.0.id", r.vars["A"], "jobs.1",
		"absent",
		"pagination.has_more", false, "pagination.next_cursor", "absent")
	r.want("F104", r.do("GET /dead-letter?offset=4&limit=2"), 200, "jobs.0.id", r.vars["B"], "jobs.1.id",
		r.vars["A"],
		"pagination.has_more", false)
	r.want("F175", r.do("GET /dead-letter?page=2&per_page=2"), 200, "jobs.0.id", r.vars["D"], "items.0.id",
		r.vars["D"],
		"pagination.page", 2, "pagination.per_page", 2)
	r.want("F104", r.do("GET /dead-letter?cursor=!"), 400, "error.details.field", "cursor")
	r.want("F104", r.do("GET /dead-letter?limit=201"), 400, "error.details.field", "limit")
	r.want("F104", r.do("GET /dead-letter?limit=0"), 400, "error.details.field", "limit")
	r.want("F085", r.do("GET /dead-letter?type=t.x"), 200, "pagination.total", 3)
	r.want("F087", r.do("GET /dead-letter/stats"), 200, "total", 6, "by_queue.dead-a", 1, "by_error_type.E",
		6)

	r.want("F085", r.do("GET /dead-letter/$A"), 200, "job.id", r.vars["A"], "job.state", "discarded")
	r.want("F086", r.do("POST /dead-letter/$A/retry"), 200, "job.state", "available", "job.attempt", 0,
		"job.re_enqueued_at", "2000-01-01T00:00:00.000Z", "job.errors.0.code", "E")
	r.want("F087", r.do("POST /dead-letter/$A/retry"), 404, "error.details.resource_type", "dead_letter_job")
	r.want("F086", r.do("POST /dead-letter/$B/retry\n\n"+
		`{"override":{"queue":"q2","meta":{"k":"v"},"retry":{"max_attempts":9},"args":[{"n":2}]}}`), 200,
		"job.queue", "q2", "job.meta.k", "v", "job.max_attempts", 9, "job.args.0.n", 2)
	r.want("F145", r.do("POST /dead-letter/retry\n\n"+`{"filter":{"type":"t.y"}}`), 400,
		"error.details.field", "confirm")
	r.want("F086", r.do("POST /dead-letter/retry\n\n"+`{"filter":{"type":"t.y"},"confirm":true}`), 200,
		"matched", 3,
		"retried", 3, "failed", 0)
	r.want("F087", r.do("DELETE /dead-letter/$F"), 200, "deleted", true, "job_id", r.vars["F"])
	r.want("F087", r.do("DELETE /dead-letter/$F"), 404, "error.details.resource_type", "dead_letter_job")
	r.dead("G", "z")
	r.want("F145", r.do("DELETE /dead-letter"), 400)
	r.want("F087, F178", r.do("DELETE /dead-letter?confirm=true"), 200, "deleted", 1)
	r.golden("deadletters")
}

func TestQueues(t *testing.T) {
	r := newRig(t)
	r.want("F088", r.do("GET /queues"), 200, "queues", []any{}, "pagination.total", 0)
	r.want("F089", r.do("GET /queues/none/stats"), 404, "error.details.resource_type", "queue")
	r.enqueue("A", `{"type":"a","args":[],"options":{"queue":"mail"}}`)
	r.advance(time.Second)
	r.want("F088", r.do("GET /queues"), 200, "queues.0.name", "mail", "queues.0.status", "active",
		"queues.0.paused", false,
		"queues.0.created_at", "2000-01-01T00:00:00.000Z")
	r.want("F155", r.do("GET /queues/mail/stats"), 200, "queue.name", "mail", "queue.available", 1,
		"queue.paused", false,
		"name", "mail", "status", "active", "available", 1, "stats.depth", 1, "stats.queue", "mail",
		"computed_at", "2000-01-01T00:00:01.000Z")
	r.want("F155", r.do("GET /queues/mail/stats\nOJS-Version: 1.0.0-rc.1"), 200, "queue", "mail")
	at := "2000-01-01T00:00:01.000Z"
	r.want("F090", r.do("POST /queues/mail/pause"), 200, "paused", true, "status", "paused", "paused_at", at)
	r.advance(time.Second)
	r.want("F090: again", r.do("POST /queues/mail/pause"), 200, "paused", true, "paused_at", at)
	r.want("F172", r.do("POST /jobs\n\n"+`{"type":"a","args":[],"options":{"queue":"mail"}}`), 201)
	r.want("F090", r.do("POST /queues/mail/resume"), 200, "paused", false, "resumed_at",
		"2000-01-01T00:00:02.000Z")
	r.want("F090", r.do("POST /queues/new/pause"), 200, "name", "new", "paused", true)
	r.want("F090", r.do("POST /queues/Bad/pause"), 400)
	r.want("F088", r.do("GET /queues?limit=1"), 200, "pagination.total", 2, "pagination.has_more", true)

	r.want("F091",
		r.do("POST /queues\n\n"+`{"name":"small","config":{"max_depth":1,"visibility_timeout_ms":9000,
		"retry":{"max_attempts":7}}}`), 201, "name", "small", "config.max_depth", 1)
	w := r.do("POST /jobs\n\n" + `{"type":"a","args":[],"options":{"queue":"small"}}`)
	r.want("F065, F091", w, 201, "job.visibility_timeout_ms", 9000, "job.max_attempts", 7)
	if h := w.Header(); h.Get("X-OJS-Queue-Depth") != "1" || h.Get("X-OJS-Queue-Pressure") != "1" {
		t.Errorf("F030: headers %v", h)
	}
	w = r.do("POST /jobs\n\n" + `{"type":"a","args":[],"options":{"queue":"small"}}`)
	r.want("F030", w, 429, "error.code", "QUEUE_FULL", "error.retryable", true, "error.queue", "small",
		"error.bound", 1,
		"error.strategy", "reject")
	if w.Header().Get("X-OJS-Queue-Bound") != "1" || w.Header().Get("Retry-After") != "1" {
		t.Errorf("F030, F032: headers %v", w.Header())
	}
	w = r.do("POST /jobs/batch\n\n" +
		`{"jobs":[{"type":"a","args":[]},{"type":"b","args":[],"options":{"queue":"small"}}]}`)
	r.want("F049", w, 429, "error.code", "QUEUE_FULL", "error.details.index", 1)
	r.want("F141", r.do("PUT /queues/small/config\n\n"+`{"max_depth":2,"color":"red"}`), 400,
		"error.details.field", "color")
	for body, field := range map[string]string{
		`{"visibility_timeout_ms":5}`:             "visibility_timeout_ms", // which no job may have
		`{"rate_limit":{"color":1}}`:              "rate_limit.color",
		`{"rate_limit":{"limit":1}}`:              "rate_limit.limit",
		`{"timeout_ms":5,"rate_limit":{"key":1}}`: "rate_limit.key",
	} {
		r.want("F141", newRig(t).do("PUT /queues/small/config\n\n"+body), 400, "error.details.field", field)
	}
	r.want("F141", r.do("PUT /queues/small/config\n\n"+`{"max_depth":2,"concurrency":1}`), 200,
		"config.concurrency", 1)
	r.want("F141", r.do("POST /jobs\n\n"+`{"type":"a","args":[],"options":{"queue":"small"}}`), 201)
	r.want("L035", r.do("POST /workers/fetch\n\n"+`{"queues":["small"],"count":5}`), 200, "jobs.0.state",
		"active", "jobs.1",
		"absent")
	r.want("F091", r.do("DELETE /queues/mail"), 409, "error.code", "conflict")
	r.want("F091", r.do("DELETE /queues/mail?strategy=move&target_queue=other"), 200, "jobs_moved", 2)
	r.want("F091", r.do("GET /queues/mail/stats"), 404)
	r.want("F091", r.do("DELETE /queues/other\n\n"+`{"strategy":"discard"}`), 200, "jobs_discarded", 2)
	r.want("F153", r.do("GET /queues/small/priority-stats"), 200, "priorities.0.priority", 0,
		"priorities.0.count", 1)
	r.golden("queues")
}

func TestCron(t *testing.T) {
	r := newRig(t)
	r.want("F092", r.do("GET /cron"), 200, "crons", []any{}, "cron_jobs", []any{}, "count", 0)
	flat := `{"name":"nightly","cron":"0 3 * * *","timezone":"Europe/Berlin","type":"report","args":[7],
		"options":{"queue":"reports"}}`
	r.want("F092, F169", r.do("POST /cron\n\n"+flat), 201, "cron.name", "nightly", "cron.expression",
		"0 3 * * *",
		"cron.cron", "0 3 * * *", "cron.schedule", "0 3 * * *", "cron.overlap_policy", "skip", "cron.enabled",
		true,
		"cron.status", "active", "cron.last_run_at", nil, "cron.run_count", 0, "cron.type", "report",
		"cron.job_template.type", "report", "cron.job_template.options.queue", "reports", "cron.queue",
		"reports",
		"cron_job.name", "nightly", "cron.next_run_at", "2000-01-01T02:00:00.000Z")
	r.want("F092", r.do("POST /cron\n\n"+flat), 200)
	r.want("F169", r.do("POST /cron\n\n"+`{"name":"often","expression":"@every 1m","overlap_policy":"cancel",
		"job_template":{"type":"a","args":[]}}`), 201, "cron.overlap_policy", "cancel_previous")
	w := r.do("POST /cron\n\n" + `{"name":"bad","expression":"61 * * * *","type":"a","args":[]}`)
	r.want("F092", w, 400, "error.code", "invalid_request", "error.details.field", "expression")
	if m, _ := member(t, w, "error.message").(string); m == "" {
		t.Error("F092: an empty message")
	}
	r.want("F092",
		r.do("POST /cron\n\n"+`{"name":"bad","cron":"* * * * *","timezone":"Mars/X","type":"a","args":[]}`),
		400,
		"error.details.field", "timezone")
	r.want("F092", r.do("POST /cron\n\n"+`{"cron":"* * * * *","type":"a","args":[]}`), 400,
		"error.details.field", "name")
	r.want("F092", r.do("PATCH /cron/nightly\n\n"+`{"enabled":false}`), 200, "cron.enabled", false,
		"cron.status", "paused",
		"cron.next_run_at", nil)
	r.want("F092", r.do("GET /cron?enabled=true"), 200, "count", 1, "crons.0.name", "often")
	r.want("F092", r.do("GET /cron/none"), 404, "error.details.resource_type", "cron")
	r.want("F184", r.do("GET /crons/often"), 200, "name", "often")
	r.advance(time.Minute)
	r.want("F169", r.do("GET /cron/often"), 200, "cron.run_count", 1, "cron.last_run_at",
		"2000-01-01T00:01:00.000Z")
	r.want("F169", r.do("DELETE /cron/often"), 200, "deleted", true, "name", "often", "cron.name", "often")
	r.want("F092", r.do("DELETE /cron/often"), 404)
	r.golden("cron")
}

func TestSystem(t *testing.T) {
	r := newRig(t)
	r.want("F100, F170", r.do("GET /ojs/manifest"), 200, "ojs_version", "1.0", "specversion", "1.0",
		"implementation.language",
		"go", "conformance_tier", "runtime", "protocols.0", "http", "backend", bindingtest.Storage,
		"capabilities.batch_enqueue", true,
		"capabilities.unique_jobs", true, "unique_job_strength", "strong", "unique_jobs.strength", "strong",
		"endpoints.base_url", "/ojs/v1", "endpoints.health", "/ojs/v1/health")
	r.want("F001", r.do("GET /ojs/v1/manifest"), 404)
	r.want("F101, F171", r.do("GET /health"), 200, "status", "ok", "backend.type",
		bindingtest.Storage, "backend.status", "connected",
		"queues.total", 0, "workers.total", 0, "uptime_seconds", 0)
	r.enqueue("A", job)
	r.want("F152", r.do("GET /jobs/$A/result"), 408, "error.code", "timeout", "error.details.current_state",
		"available")
	r.fetch("w")
	r.want("F153", r.do("GET /jobs/$A/progress"), 200, "progress", nil, "message", nil)
	r.want("F153", r.do("PUT /jobs/$A/progress\n\n"+`{"progress":0.5,"message":"half"}`), 200, "progress",
		0.5, "message", "half")
	r.want("F153", r.do("GET /jobs/$A/checkpoint"), 404)
	r.want("F153", r.do("POST /jobs/$A/checkpoint\n\n"+`{"state":{"page":3}}`), 200,
		"checkpoint.state.page", 3)
	r.want("F153", r.do("GET /jobs/$A/checkpoint"), 200, "state.page", 3)
	r.want("F153", r.do("DELETE /jobs/$A/checkpoint"), 200, "deleted", true)
	r.want("F153", r.do("GET /jobs/$A/checkpoint"), 404)
	r.do("POST /workers/ack\n\n" + `{"job_id":"$A","result":[1]}`)
	r.want("F152", r.do("GET /jobs/$A/result?wait=true"), 200, "job_id", r.vars["A"], "state", "completed",
		"result.0", 1)
	r.want("F153", r.do("PUT /jobs/$A/progress\n\n"+`{"progress":0.1}`), 200, "progress", 1)
	r.want("F152", r.do("POST /jobs/results\n\n"+`{"ids":["$A","x"]}`), 200,
		"results."+r.vars["A"]+".result.0", 1,
		"results.x", "absent")
	r.enqueue("B", `{"type":"a","args":[],"options":{"pending":true}}`)
	r.want("F053", r.do("GET /jobs/$B"), 200, "job.state", "pending", "job.enqueued_at", "absent")
	r.want("F053", r.do("POST /jobs/$B/activate"), 200, "job.state", "available", "job.previous_state",
		"pending",
		"job.activated_at", "2000-01-01T00:00:00.000Z")
	r.want("F053", r.do("POST /jobs/$B/activate"), 409, "error.code", "conflict")
	r.enqueue("C", `{"type":"a","args":[],"options":{"pending":true,"scheduled_at":"2000-01-02T00:00:00Z"}}`)
	r.want("F044", r.do("POST /jobs/$C/activate"), 200, "job.state", "scheduled", "job.scheduled_at",
		"2000-01-02T00:00:00Z")
	r.advance(24 * time.Hour)
	r.want("F044", r.do("GET /jobs/$C"), 200, "job.state", "available")
	r.want("F153", r.do("PATCH /jobs/$C\n\n"+`{"priority":50}`), 200, "priority", 50, "previous_priority", 0)
	r.golden("system")
}

// A page by another order than the storage has reads a bounded number of jobs, and none
// if the storage knows that there are more (F143).
func TestSortedPageIsBounded(t *testing.T) {
	st := &storagetest.Faulty{Storage: bindingtest.Fresh(t)}
	r := rigOf(t, enginetest.NewOn[any](t, st, engineOptions()...), server.WithoutEvents())
	drafts := make([]ojs.Draft, 10_001)
	for i := range drafts {
		drafts[i] = ojs.NewDraft("a", nil, ojs.WithPriority(i%100))
	}
	if _, err := r.eng.EnqueueMany(t.Context(), drafts[1:]...); err != nil {
		t.Fatal(err)
	}
	r.want("F143", r.do("GET /admin/jobs?sort=priority&per_page=1"), 200, "items.0.priority", 99,
		"pagination.total", 10_000)
	if _, err := r.eng.EnqueueMany(t.Context(), drafts[0]); err != nil {
		t.Fatal(err)
	}
	before := st.Calls("List")
	r.want("F143", r.do("GET /admin/jobs?sort=priority"), 400, "error.details.field", "sort",
		"error.details.expected", "at most 10000 jobs")
	if n := st.Calls("List") - before; n > 0 {
		t.Errorf("F143: a page that is refused reads %d pages of the storage", n)
	}
}

func TestAdmin(t *testing.T) {
	r := newRig(t)
	for _, p := range []string{"3", "1", "2"} {
		r.enqueue("J"+p, `{"type":"mail.send","args":[],"options":{"priority":`+p+`}}`)
		r.advance(time.Second)
	}
	r.enqueue("K", `{"type":"other","args":[],"options":{"queue":"q","scheduled_at":"2000-06-01T00:00:00Z"}}`)
	w := r.do("GET /admin/queues")
	r.want("F140, F105", w, 200, "items.0.name", "default", "items.0.counts.available", 3, "items.0.state",
		"active",
		"items.0.throughput.processed_per_minute", 0, "items.0.latency_ms.p50", 0, "pagination.page", 1,
		"pagination.per_page", 20, "pagination.total", 2)
	r.want("F140", r.do("GET /admin/queues/default"), 200, "configuration", map[string]any{},
		"oldest_available_at", "2000-01-01T00:00:00.000Z")
	r.want("F141", r.do("POST /admin/queues/default/pause"), 200, "name", "default", "paused", true,
		"paused_at", "2000-01-01T00:00:03.000Z")
	r.want("F141", r.do("POST /admin/queues/default/resume"), 200, "paused", false)
	r.want("F143", r.do("GET /admin/jobs"), 200, "items.0.id", r.vars["K"], "pagination.total", 4)
	r.want("F143", r.do("GET /admin/jobs?type=mail.*&sort=priority&order=asc"), 200, "items.0.id",
		r.vars["J1"],
		"items.2.id", r.vars["J3"])
	r.want("F143", r.do("GET /admin/jobs?state=scheduled&queue=q"), 200, "items.0.id", r.vars["K"],
		"pagination.total", 1)
	r.want("F143", r.do("GET /admin/jobs?since=2000-01-01T00:00:01Z&until=2000-01-01T00:00:02Z"), 200,
		"pagination.total", 1)
	r.want("F143", r.do("GET /admin/jobs?sort=color"), 400, "error.details.field", "sort")
	r.want("F143", r.do("GET /admin/jobs/$K"), 200, "id", r.vars["K"], "retry_policy.max_attempts", 3,
		"metadata.created_at", "2000-01-01T00:00:03.000Z")
	r.want("F144", r.do("PATCH /admin/jobs/$K\n\n"+`{"priority":9}`), 200, "previous_priority", 0)
	r.want("F144", r.do("POST /admin/jobs/$K/cancel"), 200, "job.state", "cancelled")
	r.want("F144", r.do("POST /admin/jobs/$K/retry"), 409, "error.code", "conflict")
	r.want("F144", r.do("PATCH /admin/jobs/$K\n\n"+`{"priority":9}`), 409)
	r.dead("D", "dies")
	r.want("F144", r.do("POST /admin/jobs/$D/retry"), 200, "job.state", "available", "job.attempt", 0)
	r.want("F145", r.do("POST /admin/jobs/bulk/cancel\n\n"+`{"filter":{"type":"mail.*"}}`), 400,
		"error.details.field", "confirm")
	r.want("F145, F179",
		r.do("POST /admin/jobs/bulk/cancel\n\n"+
			`{"filter":{"type":"mail.*","state":"available"},"confirm":true}`),
		200, "action", "cancel", "matched", 3, "succeeded", 3, "failed", 0, "errors", []any{}, "cancelled", 3)
	r.want("F145", r.do("POST /admin/jobs/bulk/delete\n\n"+`{"state":"cancelled","confirm":true}`), 200,
		"succeeded", 4)
	r.enqueue("L", job)
	r.want("F142", r.do("DELETE /admin/queues/default/jobs\n\n"+`{"states":["active"],"confirm":true}`), 400)
	r.want("F142", r.do("DELETE /admin/queues/default/jobs\n\n"+`{"states":["available","completed"]}`), 400,
		"error.details.field", "confirm")
	r.want("F142",
		r.do("DELETE /admin/queues/default/jobs\n\n"+`{"states":["available","completed"],"confirm":true}`),
		200,
		"purged_count", 1, "states.0", "available")
	r.want("F148", r.do("GET /admin/stats"), 200, "jobs.available", 1, "jobs.counts.available", 1,
		"uptime_seconds", 3)
	r.want("F148", r.do("GET /admin/stats/history?period=5m"), 200, "period", "5m", "data", []any{})
	r.want("F148", r.do("GET /admin/stats/history?period=2m"), 400)
	r.dead("E", "dies")
	r.want("F149", r.do("GET /admin/dead-letter"), 200, "items.0.id", r.vars["E"], "pagination.page", 1)
	r.want("F149", r.do("DELETE /admin/dead-letter/$E"), 204)
	r.want("F150", r.do("GET /admin/system/maintenance"), 200, "enabled", false, "maintenance", false,
		"reason", nil,
		"enabled_at", nil)
	r.want("F150, F183",
		r.do("POST /admin/system/maintenance\n\n"+`{"enabled":true,"reason":"upgrade","duration":"PT1H"}`),
		200,
		"maintenance", true, "reason", "upgrade", "enabled_at", "2000-01-01T00:00:03.000Z",
		"ends_at", "2000-01-01T01:00:03.000Z")
	r.want("F150", r.do("POST /jobs\n\n"+job), 201)
	r.want("F150", r.do("GET /admin/system/config"), 200, "backend", bindingtest.Storage,
		"authentication", false)
	r.golden("admin")
}
