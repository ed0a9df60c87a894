package server_test

import (
	"encoding/json"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/benbjohnson/clock"

	"github.com/ojsengine/ojs/server"
)

// The public clients send these requests, and decode the answers so. They cannot be
// installed here: their requests are written out. internal/test/snippets runs
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

// The public command reads jobs, workflows and recurring jobs without their wrapper, and
// the number of a list beside the list.
func TestClientOfTheCommandLine(t *testing.T) {
	r := newRig(t)
	const head = "\nContent-Type: application/openjobspec+json\nAccept: application/openjobspec+json\n\n"
	w := r.do("POST /jobs" + head + `{"type":"a","args":[1],"options":{"queue":"q","max_attempts":1}}`)
	r.want("F185, F186: enqueue", w, 201, "id", member(t, w, "job.id"), "type", "a", "queue", "q",
		"state", "available", "job.max_attempts", 1)
	r.keep("ID", w, "id")
	r.want("F185: status", r.do("GET /jobs/$ID"+head), 200, "id", r.vars["ID"], "attempt", 0)
	w = r.do("POST /jobs/bulk/cancel" + head + `{"job_ids":["$ID","0190a8d4-1111-7000-8000-000000000002"]}`)
	r.want("F114: bulk", w, 207, "cancelled", 1, "failed", 1)
	r.want("F185: dead letters", r.do("GET /dead-letter?limit=25"+head), 200, "jobs", []any{}, "total", 0)
	w = r.do("POST /workflows" + head + `{"name":"w","steps":[{"id":"x","type":"a","args":[]},
		{"id":"y","type":"b","args":[],"depends_on":["x"]}]}`)
	r.want("W076: create", w, 201, "id", member(t, w, "workflow.id"), "state", "running")
	r.keep("W", w, "id")
	r.want("W076: list", r.do("GET /workflows"+head), 200, "workflows.0.step_count", 2, "total", 1)
	r.want("W075: cancel", r.do("DELETE /workflows/$W"+head), 200, "cancelled_steps", 2)
	r.want("F169: register", r.do("POST /cron"+head+`{"name":"c","expression":"@daily",
		"job_template":{"type":"a","options":{"queue":"q"}}}`), 201, "name", "c", "cron.name", "c")
	r.want("F185: detail", r.do("GET /cron/c"+head), 200, "expression", "@daily", "enabled", true)
	r.want("F186", r.do("POST /jobs"+head+`{"type":"a","args":[],"options":{"max_attempts":2,
		"retry":{"max_attempts":3}}}`), 400, "error.details.field", "options.retry")
	r.want("F186", r.do("POST /jobs"+head+`{"type":"a","args":[],"options":{"max_attempts":"x"}}`), 400,
		"error.details.field", "options.max_attempts")
	r.want("L043, F186: override", r.do("PUT /rate-limits/k/override"+head+`{"concurrency":2}`), 200,
		"key", "k")
	r.want("F040, F185: an attribute named job", r.do("POST /jobs"+head+`{"type":"a","args":[],"job":1}`),
		201, "job.job", 1, "id", nil)
}

// Java sends its version, names itself in a fetch, and replaces a checkpoint by PUT.
func TestClientInJava(t *testing.T) {
	r := newRig(t)
	const head = "\nContent-Type: application/openjobspec+json\nAccept: application/openjobspec+json\n" +
		"OJS-Version: 1.0.0-rc.1\n\n"
	w := r.do("POST /jobs" + head + `{"type":"a","args":["x"],"options":{"queue":"jv","timeout_ms":60000,"retry":{
		"max_attempts":4,"initial_interval_ms":1000,"backoff_coefficient":2.0,"max_interval_ms":60000}}}`)
	r.want("F041, F164", w, 201, "job.queue", "jv", "job.max_attempts", 4)
	r.keep("ID", w, "job.id")
	r.want("F060", r.do("POST /workers/fetch"+head+`{"worker_id":"java-1","queues":["jv"],"count":5}`), 200,
		"jobs.0.id", r.vars["ID"])
	r.want("F068", r.do("POST /workers/heartbeat"+head+`{"worker_id":"java-1","state":"running",
		"active_jobs":1,"active_job_ids":["$ID"],"queues":["jv"],"concurrency":5,"labels":{"zone":"a"}}`), 200,
		"state", "running", "jobs_extended.0", r.vars["ID"])
	r.want("F153", r.do("PUT /jobs/$ID/checkpoint"+head+`{"state":{"page":7}}`), 200)
	r.want("F153", r.do("GET /jobs/$ID/checkpoint"+head), 200, "state.page", 7)
	r.want("F067", r.do("POST /workers/nack"+head+`{"job_id":"$ID","error":{"type":"IOException",
		"message":"m"}}`), 200, "state", "retryable")
	w = r.do("POST /workflows" + head + `{"name":null,"steps":[{"id":"step_0","type":"a","args":[]},
		{"id":"step_1","type":"b","args":[],"depends_on":["step_0"]}]}`)
	r.want("W070", w, 201, "workflow.state", "running", "workflow.steps.1.depends_on.0", "step_0")
	r.want("F169", r.do("GET /cron"+head), 200, "cron_jobs", []any{})
}

// Ruby enqueues the whole envelope with an id, and would invent another id if the answer
// had none beside the job. It asks for a batch of jobs under another name.
func TestClientInRuby(t *testing.T) {
	r := newRig(t)
	const head = "\nContent-Type: application/openjobspec+json\nOJS-Version: 1.0.0-rc.1\n\n"
	for _, id := range []string{"1", "2"} {
		id = "0190a8d4-1111-7000-8000-00000000000" + id
		r.want("F167, F185", r.do("POST /jobs"+head+`{"specversion":"1.0.0-rc.1","id":"`+id+`","type":"a",
			"queue":"rb","args":[{"x":1}],"timeout":30,"retry":{"max_attempts":3,"initial_interval":"PT1S"},
			"unique":{"keys":["type","args"],"period":"PT1S","on_conflict":"ignore","states":["active"]}}`), 201,
			"id", id, "args.0.x", 1, "timeout_ms", 30000)
	}
	w := r.do("POST /workers/fetch" + head + `{"queues":["rb"],"batch_size":5}`)
	r.want("F060, F186", w, 200, "jobs.0.queue", "rb", "jobs.1.queue", "rb")
	r.keep("ID", w, "jobs.0.id")
	r.want("F186", r.do("POST /workers/fetch"+head+`{"queues":["rb"],"batch_size":5,"count":5}`), 400,
		"error.details.field", "batch_size")
	r.want("F186", r.do("POST /workers/fetch"+head+`{"queues":["rb"],"batch_size":5,"count":null}`), 200)
	r.want("F068, F077: of no worker", r.do("POST /workers/heartbeat"+head+`{"worker_id":"rb-1",
		"active_jobs":["$ID"]}`), 200, "jobs_extended.0", r.vars["ID"])
	r.want("F066", r.do("POST /workers/ack"+head+`{"job_id":"$ID","result":null}`), 200, "state", "completed")
	r.want("F169", r.do("POST /cron"+head+`{"name":"c","cron":"0 9 * * *","type":"a","args":[]}`), 201)
	r.want("F185", r.do("GET /cron"+head), 200, "entries.0.name", "c", "entries.0.id", "c", "entries.0.cron",
		"0 9 * * *")
	w = r.do("POST /workflows" + head + `{"type":"chain","steps":[{"type":"a","args":[]}]}`)
	r.want("W076", w, 201, "id", member(t, w, "workflow.id"))
}

// Rust decodes the job of an enqueue in its wrapper and that of all other answers without
// one. The state of a checkpoint is within the checkpoint, as in Go.
func TestClientInRust(t *testing.T) {
	r := newRig(t)
	const head = "\nContent-Type: application/openjobspec+json\nOJS-Version: 1.0.0-rc.1\n\n"
	for _, name := range []string{"A", "B"} {
		w := r.do("POST /jobs" + head + `{"type":"a","args":[{"x":1}],"options":{"queue":"rs","retry":{
			"max_attempts":3,"on_exhaustion":"dead_letter"}}}`)
		r.want("F041", w, 201, "job.type", "a")
		r.keep(name, w, "job.id")
	}
	r.want("F185", r.do("GET /jobs/$A"+head), 200, "id", r.vars["A"], "type", "a", "state", "available")
	r.want("F185", r.do("DELETE /jobs/$B"+head), 200, "id", r.vars["B"], "state", "cancelled")
	r.want("F060", r.do("POST /workers/fetch"+head+`{"queues":["rs"],"count":1,"worker_id":"rs-1"}`), 200,
		"jobs.0.id", r.vars["A"])
	r.want("F153", r.do("GET /jobs/$A/checkpoint"+head), 404)
	r.want("F153", r.do("POST /jobs/$A/checkpoint"+head+`{"state":{"step":2}}`), 200,
		"checkpoint.state.step", 2)
	r.want("F153", r.do("GET /jobs/$A/checkpoint"+head), 200, "checkpoint.state.step", 2)
	r.want("F067", r.do("POST /workers/nack"+head+`{"job_id":"$A","error":{"code":"handler_error","message":"m",
		"retryable":false}}`), 200, "state", "discarded")
	r.want("F086, F185", r.do("POST /dead-letter/$A/retry"+head), 200, "id", r.vars["A"], "attempt", 0)
	w := r.do("POST /workflows" + head + `{"type":"group","jobs":[{"type":"a","args":[]}]}`)
	r.want("W076", w, 201, "id", member(t, w, "workflow.id"), "state", "running")
	r.want("F155", r.do("GET /queues/rs/stats"+head), 200, "queue", "rs", "stats.active", 0)
}

// The command line and PHP follow events at addresses and by parameters of their own.
func TestClientsFollowEvents(t *testing.T) {
	r := newRig(t)
	ts := httptest.NewServer(r.srv)
	t.Cleanup(ts.Close)
	w := r.do("POST /jobs\nOJS-Version: 1.0\n\n" + `{"type":"a","args":[],"queue":"php","timeout":30}`)
	r.want("F167, F185: PHP", w, 201, "id", member(t, w, "job.id"), "queue", "php", "state", "available")
	r.keep("ID", w, "id")
	r.do("POST /jobs\n\n" + `{"type":"b","args":[],"options":{"queue":"other"}}`)
	one, all := r.stream(ts.URL, "/events/jobs/$ID", ""), r.stream(ts.URL, "/events/queues/php", "")
	some := r.stream(ts.URL, "/events/stream?types=job.started,job.completed&queue=php", "")
	for query, field := range map[string]string{
		"types=a&event_types=b": "types", "channel=all&queue=php": "queue",
	} {
		r.want("F180", r.do("GET /events/stream?"+query), 400, "error.details.field", field)
	}
	for _, s := range []*stream{one, all, some} {
		if s.resp.StatusCode != 200 {
			t.Fatalf("F180: %d", s.resp.StatusCode)
		}
	}
	for _, queue := range []string{"other", "php"} {
		w = r.do("POST /workers/fetch\nOJS-Version: 1.0\n\n" + `{"queues":["` + queue + `"],"count":1}`)
		r.want("F060", w, 200, "jobs.0.queue", queue)
		r.do("POST /workers/ack\n\n" + `{"job_id":"` + member(t, w, "jobs.0.id").(string) + `"}`)
	}
	one.want("F180", "available>active", "job.started", "active>completed", "job.completed")
	all.want("F180", "available>active", "job.started", "active>completed", "job.completed")
	for _, e := range some.want("F126", "job.started", "job.completed") {
		if e.data["job_id"] != r.vars["ID"] {
			t.Errorf("F126: %v", e.data)
		}
	}
}
