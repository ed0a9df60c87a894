package server_test

import (
	"encoding/json"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/benbjohnson/clock"

	"github.com/ojsengine/ojs/server"
)

// The public clients send these requests, and decode the answers so. None of the three
// can be installed here: their requests are written out. internal/test/snippets runs
// programs in their languages.

// JavaScript sends its own version, names its queue stats by it, and settles without a
// worker or an attempt.
func TestClientInJavaScript(t *testing.T) {
	r := newRig(t)
	head := "\nContent-Type: application/openjobspec+json\nAccept: application/openjobspec+json\n" +
		"OJS-Version: 1.0.0-rc.1"
	do := func(request, body string) *httptest.ResponseRecorder {
		if body != "" {
			body = "\n\n" + body
		}
		return r.do(request + head + body)
	}
	w := do("POST /jobs", `{"type":"email.send","args":[{"to":"a@b.c"}],"options":{"queue":"mail",
		"priority":1,"timeout_ms":5000,"delay_until":"2000-01-01T00:00:01.000Z","tags":["x"],"visibility_timeout_ms":30000,
		"retry":{"max_attempts":5,"backoff_coefficient":2,"initial_interval":"PT1S"},
		"unique":{"key":["to"],"period":"PT1H","on_conflict":"reject"}}}`)
	r.want("F041, F165, F166", w, 201, "job.state", "scheduled", "job.args.0.to", "a@b.c")
	r.keep("ID", w, "job.id")
	w = do("POST /jobs/batch", `{"jobs":[{"type":"a","args":[],"options":{"queue":"mail"}}]}`)
	r.want("F048", w, 201, "jobs.0.type", "a", "count", 1)
	fetch := `{"queues":["mail"],"count":10,"worker_id":"worker_1","visibility_timeout_ms":30000}`
	w = do("POST /workers/fetch", fetch)
	r.want("F060", w, 200, "jobs.0.type", "a", "jobs.0.attempt", 1)
	r.keep("A", w, "jobs.0.id")
	r.want("F067, F073", do("POST /workers/nack", `{"job_id":"`+r.vars["A"]+`","error":{
		"code":"handler_not_found","message":"No handler","retryable":false}}`), 200, "state", "discarded")
	r.advance(time.Second)
	r.want("F060", do("POST /workers/fetch", fetch), 200, "jobs.0.id", r.vars["ID"])
	r.want("F068", do("POST /workers/heartbeat", `{"worker_id":"worker_1","state":"running","active_jobs":1,
		"active_job_ids":["`+r.vars["ID"]+`"],"hostname":"unknown","pid":7,"queues":["mail"],"concurrency":10,
		"labels":[]}`), 200, "state", "running", "jobs_extended.0", r.vars["ID"])
	r.want("F066, F070", do("POST /workers/ack", `{"job_id":"`+r.vars["ID"]+`","result":{"sent":true}}`), 200,
		"acknowledged", true)
	r.want("F155", do("GET /queues/mail/stats", ""), 200, "queue", "mail", "stats.available", 0)
	r.want("F006, F090", do("POST /queues/mail/pause", ""), 200, "status", "paused")
	w = do("GET /jobs/0190a8d4-1111-7000-8000-000000000002", "")
	r.want("F026", w, 404, "error.code", "not_found", "error.details.resource_type", "job")
	w = do("POST /workflows", `{"type":"chain","steps":[{"type":"a","args":[1]},{"type":"b","args":[2]}]}`)
	r.want("W070, W071", w, 201, "workflow.state", "running", "workflow.metadata.job_count", 2)
}

// Python lists its jobs in a heartbeat, which has the reservation, too, and sends no
// version.
func TestClientInPython(t *testing.T) {
	r := newRig(t)
	const head = "\nContent-Type: application/openjobspec+json\nAccept: application/openjobspec+json\n\n"
	w := r.do("POST /jobs" + head + `{"type": "email.send", "args": ["a@b.c"], "options": {"queue": "py",
		"retry": {"max_attempts": 3, "initial_interval": "PT1S", "backoff_coefficient": 2.0,
		"max_interval": "PT5M", "jitter": true}, "unique": {"key": ["type", "args"], "period": "PT5M"}}}`)
	r.want("F041, F165", w, 201, "job.queue", "py")
	r.keep("ID", w, "job.id")
	r.want("F060", r.do("POST /workers/fetch"+head+`{"queues": ["py"], "count": 1,
		"visibility_timeout_ms": 30000, "worker_id": "worker_1f"}`), 200, "jobs.0.id", r.vars["ID"])
	r.want("F068, F168", r.do("POST /workers/heartbeat"+head+`{"worker_id": "worker_1f",
		"active_jobs": ["$ID"], "visibility_timeout_ms": 30000}`), 200, "state", "running",
		"jobs_extended.0", r.vars["ID"])
	r.want("F067", r.do("POST /workers/nack"+head+`{"job_id": "$ID", "error": {"code": "handler_error",
		"message": "boom", "retryable": true, "details": {"traceback": "..."}}}`), 200, "state", "retryable")
	r.want("F155: an object without its version", r.do("GET /queues/py/stats"+head), 200, "queue.name", "py")
	w = r.do("POST /workflows" + head + `{"type": "group", "name": "g", "jobs": [{"type": "a", "args": []}]}`)
	r.want("W071, W073", w, 201, "workflow.name", "g", "workflow.steps.0.type", "a")
}

// Go decodes into typed fields: none of them has another kind of value.
func TestClientInGo(t *testing.T) {
	r := newRig(t, server.WithClock(clock.New())) // health has a latency
	const head = "\nContent-Type: application/openjobspec+json\nOJS-Version: 1.0.0-rc.1"
	decode := func(rule string, w *httptest.ResponseRecorder, into any) {
		t.Helper()
		if w.Code >= 300 {
			t.Fatalf("%s: %d %s", rule, w.Code, w.Body)
		}
		if err := json.Unmarshal(w.Body.Bytes(), into); err != nil {
			t.Errorf("%s: %v: %s", rule, err, w.Body)
		}
	}
	type goJob struct {
		ID, Type, State, Queue           string
		Priority, Attempt                int
		MaxAttempts                      int            `json:"max_attempts"`
		TimeoutMS                        int            `json:"timeout_ms"`
		Meta                             map[string]any `json:"meta"`
		Tags                             []string
		CreatedAt, EnqueuedAt, StartedAt *time.Time
	}
	var enqueued struct{ Job goJob }
	decode("F041", r.do("POST /jobs"+head+"\n\n"+`{"type":"email.send","args":[{"to":"a"}],"options":{
		"queue":"go","retry":{"max_attempts":5,"initial_interval_ms":1000,"max_interval_ms":60000},
		"unique":{"key":["to"],"period_ms":60000},"priority":0}}`), &enqueued)
	var batch struct {
		Jobs  []goJob
		Count int
	}
	decode("F048", r.do("POST /jobs/batch"+head+"\n\n"+`{"jobs":[{"type":"a","args":[]}]}`), &batch)
	if enqueued.Job.MaxAttempts != 5 || batch.Count != len(batch.Jobs) {
		t.Errorf("F041, F048: %+v %+v", enqueued, batch)
	}
	var health struct {
		Status, Version string
		UptimeSeconds   int `json:"uptime_seconds"`
		Backend         struct {
			Type, Status string
			LatencyMS    int `json:"latency_ms"`
		}
	}
	decode("F101", r.do("GET /health"+head), &health)
	var manifest struct {
		Protocols, Extensions []string
		Capabilities          map[string]bool
		Endpoints             map[string]string
		ConformanceLevel      int `json:"conformance_level"`
	}
	decode("F100, F170", r.do("GET /ojs/manifest"+head), &manifest)
	type paging struct {
		Total, Limit, Offset int
		HasMore              bool `json:"has_more"`
	}
	var queues struct {
		Queues []struct {
			Name, Status string
			CreatedAt    time.Time `json:"created_at"`
		}
		Pagination paging
	}
	decode("F088", r.do("GET /queues"+head), &queues)
	if len(queues.Queues) != 2 || queues.Pagination.Total != 2 {
		t.Errorf("F088: %+v", queues)
	}
	var stats struct {
		Queue string
		Stats struct {
			Available, Active, Scheduled, Retryable, Discarded int
			CompletedLastHour                                  int     `json:"completed_last_hour"`
			AvgDurationMS                                      float64 `json:"avg_duration_ms"`
		}
		ComputedAt string `json:"computed_at"`
	}
	decode("F155", r.do("GET /queues/go/stats"+head), &stats)
	if stats.Queue != "go" || stats.Stats.Available != 1 {
		t.Errorf("F155: %+v", stats)
	}
	var dead struct {
		Jobs       []goJob
		Pagination paging
	}
	decode("F085", r.do("GET /dead-letter?limit=10&offset=0&queue=go"+head), &dead)
	var cron struct {
		CronJob struct {
			Name, Cron, Timezone, Type, Status string
			Args                               []any
			NextRunAt                          *time.Time `json:"next_run_at"`
		} `json:"cron_job"`
	}
	decode("F169", r.do("POST /cron"+head+"\n\n"+
		`{"name":"c","cron":"0 9 * * *","timezone":"UTC","type":"a","args":[],"options":{"queue":"go"}}`),
		&cron)
	if cron.CronJob.Cron != "0 9 * * *" || cron.CronJob.NextRunAt == nil {
		t.Errorf("F169: %+v", cron)
	}
	var fetched struct{ Jobs []goJob }
	decode("F060", r.do("POST /workers/fetch"+head+"\n\n"+
		`{"queues":["go"],"count":1,"worker_id":"w"}`), &fetched)
	if len(fetched.Jobs) != 1 || fetched.Jobs[0].Attempt != 1 {
		t.Errorf("F060: %+v", fetched)
	}
}
