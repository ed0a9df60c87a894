package server_test

import (
	"context"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/ojsengine/ojs/enginetest"
	"github.com/ojsengine/ojs/internal/test/bindingtest"
	"github.com/ojsengine/ojs/storage/storagetest"
)

// A worker may tell of data alone. A retry begins without what the attempt before has
// told, and with its checkpoint (F153, P1.3).
func TestProgressNotes(t *testing.T) {
	r := newRig(t)
	r.enqueue("A", `{"type":"a","args":[],"options":{"retry":{"initial_interval":"PT1S","jitter":false}}}`)
	r.fetch("w")
	for _, body := range []string{`{}`, `{"message":"m"}`, `{"checkpoint":{}}`,
		`{"data":{},"progress":"x"}`} {
		r.want("F153 "+body, r.do("PUT /jobs/$A/progress\n\n"+body), 400, "error.details.field", "progress")
	}
	r.want("F153: data alone", r.do("PUT /jobs/$A/progress\n\n"+`{"data":{"rows":14000}}`), 200,
		"progress", 0, "data.rows", 14000)
	r.want("F153", r.do("PUT /jobs/$A/progress\n\n"+
		`{"progress":0.73,"data":{"files":73},"checkpoint":{"last":72}}`), 200, "progress", 0.73)
	r.want("F153: data alone", r.do("PUT /jobs/$A/progress\n\n"+`{"data":{"files":74}}`), 200,
		"progress", 0.73, "data.files", 74)
	r.do("POST /workers/nack\n\n" + `{"job_id":"$A","error":{"message":"m"}}`)
	r.want("P1.3: kept on failure", r.do("GET /jobs/$A/progress"), 200, "state", "retryable", "progress",
		0.73, "data.files", 74)
	r.advance(2 * time.Second)
	r.want("F153", r.fetch("w"), 200, "jobs.0.attempt", 2, "jobs.0.checkpoint.last", 72,
		"jobs.0.last_checkpoint.last", 72)
	r.want("P1.3: cleared on retry", r.do("GET /jobs/$A/progress"), 200, "state", "active", "progress", nil,
		"data", nil, "updated_at", nil)
	r.do("PUT /jobs/$A/progress\n\n" + `{"data":{"files":90}}`)
	r.advance(time.Second)
	r.do("POST /workers/nack\n\n" + `{"job_id":"$A","requeue":true,"error":{"message":"m"}}`)
	r.advance(2 * time.Second)
	r.want("F153: the attempt is given back", r.fetch("w"), 200, "jobs.0.attempt", 2)
	r.want("F153: its number comes again", r.do("GET /jobs/$A/progress"), 200, "progress", nil, "data", nil)
	r.want("F153", r.do("PUT /jobs/$A/checkpoint\n\n"+`{"state":{"last":80}}`), 200)
	r.want("F153", r.do("GET /jobs/$A/checkpoint"), 200, "state.last", 80)
	r.want("F153", r.do("GET /jobs/$A/progress"), 200, "progress", nil)
}

// A stream of progress has events of its own (F153).
func TestStreamOfProgress(t *testing.T) {
	r := newRig(t)
	ts := httptest.NewServer(r.srv)
	t.Cleanup(ts.Close)
	r.enqueue("A", job)
	s := r.stream(ts.URL, "/jobs/$A/progress/stream", "")
	r.fetch("w")
	r.do("PUT /jobs/$A/progress\n\n" + `{"progress":0.5,"data":{"rows":1}}`)
	r.do("POST /workers/ack\n\n" + `{"job_id":"$A"}`)
	list := s.want("F153", "progress", "completed")
	if d := list[0].data; d["progress"] != 0.5 || d["updated_at"] == nil || d["job_id"] != r.vars["A"] {
		t.Errorf("F153: %v", d)
	} else if rows, _ := d["data"].(map[string]any); rows["rows"] != 1.0 {
		t.Errorf("F153: %v", d)
	}
	if d := list[1].data; d["progress"] != 1.0 || d["state"] != "completed" || d["updated_at"] == nil {
		t.Errorf("F153: %v", d)
	}
	s.end("F124")
	r.enqueue("L", job)
	s = r.stream(ts.URL, "/jobs/$L/progress/stream", "")
	r.fetch("w")
	r.do("PUT /jobs/$L/progress\n\n" + `{"progress":0.1}`)
	first := s.want("F153", "progress")[0]
	s.stop()
	for _, body := range []string{`{"progress":0.2,"data":{"n":2}}`, `{"progress":0.3}`,
		`{"progress":0.1,"data":{"n":3}}`} {
		r.do("PUT /jobs/$L/progress\n\n" + body)
	}
	r.want("F181: progress never falls", r.do("POST /workers/progress\n\n"+
		`{"job_id":"$L","percentage":20}`), 200, "progress", 0.3)
	r.do("PUT /jobs/$L/progress\n\n" + `{"data":{"n":3}}`)
	s = r.stream(ts.URL, "/jobs/$L/progress/stream", first.id)
	late := s.want("F153", "progress", "progress")
	if _, there := late[0].data["data"]; there || late[1].data["data"] == nil {
		t.Errorf("F153: data of other progress: %v", late)
	}
	s.stop()
	s = r.stream(ts.URL, "/jobs/$A/progress/stream", "")
	s.want("F153: it has ended", "completed")
	s.end("F124")
	r.enqueue("B", job)
	s = r.stream(ts.URL, "/jobs/$B/progress/stream", "")
	r.do("DELETE /jobs/$B")
	s.want("F153", "cancelled")
	s.end("F124")
	r.dead("C", "c")
	s = r.stream(ts.URL, "/jobs/$C/progress/stream", "")
	s.want("F153", "failed")
	s.end("F124")
}

// A queue takes the words of the texts on queues and on backpressure, and is shown with
// its configuration (F091, F141).
func TestConfigOfTheTexts(t *testing.T) {
	r := newRig(t)
	r.want("F091", r.do("POST /queues\n\n"+`{"name":"payments","config":{"max_size":2,"concurrency":20,
		"visibility_timeout":300,"default_timeout":60,"overflow_policy":"drop_oldest",
		"default_retry":{"max_attempts":5,"initial_interval":"PT5S","backoff_coefficient":3.0}}}`), 201,
		"name", "payments", "state", "active", "config.default_timeout", 60)
	r.want("F091", r.do("POST /jobs\n\n"+`{"type":"a","args":[],"queue":"payments"}`), 201,
		"job.timeout_ms", 60000, "job.visibility_timeout_ms", 300000, "job.max_attempts", 5,
		"job.retry.initial_interval", "PT5S")
	r.want("F091", r.do("GET /queues/payments"), 200, "name", "payments", "state", "active",
		"config.concurrency", 20, "stats.depth", 1, "stats.available", 1, "created_at",
		"2000-01-01T00:00:00.000Z")
	r.want("F091", r.do("GET /queues/unknown"), 404)
	r.want("F141", r.do("PUT /admin/queues/q/config\n\n"+
		`{"backpressure":{"max_depth":1,"strategy":"reject"}}`), 200)
	r.want("F030", r.do("POST /jobs\n\n"+`{"type":"a","args":[],"queue":"q"}`), 201)
	r.want("F030", r.do("POST /jobs\n\n"+`{"type":"a","args":[],"queue":"q"}`), 429, "error.strategy",
		"reject", "error.bound", 1)
	r.want("F141: null is absent", r.do("PUT /queues/n/config\n\n"+`{"max_depth":null,"max_size":5}`), 200)
	r.want("F141", r.do("POST /queues\n\n"+
		`{"name":"n","config":{"default_retry":{"max_attempts":-1}}}`), 422, "error.details.field",
		"config.default_retry.max_attempts")
	r.want("F141", r.do("PUT /queues/n/config\n\n"+`{"throttle":{"limit":1,"period":"PT1S"},
		"rate_limit":{"throttle":{"limit":2,"period":"PT1S"}}}`), 400, "error.details.field", "throttle")
	for body, field := range map[string]string{
		`{"concurrency":5,"rate_limit":{"concurrency":3}}`:         "rate_limit.concurrency",
		`{"backpressure":{"max_size_bytes":5}}`:                    "backpressure.max_size_bytes",
		`{"backpressure":{"max_depth":"x"}}`:                       "backpressure.max_depth",
		`{"backpressure":{"strategy":"vanish"}}`:                   "backpressure.strategy",
		`{"backpressure":{"priority":5}}`:                          "backpressure.priority",
		`{"strategy":"block"}`:                                     "strategy",
		`{"backpressure.strategy":"block"}`:                        "backpressure.strategy",
		`{"max_depth":1,"max_size":1}`:                             "max_size",
		`{"default_timeout":1,"timeout_ms":1000}`:                  "timeout_ms",
		`{"backpressure":5}`:                                       "backpressure",
		`{"default_timeout":0}`:                                    "default_timeout",
		`{"visibility_timeout":"PT5S"}`:                            "visibility_timeout",
		`{"default_retry":{"max_attempts":-1}}`:                    "default_retry.max_attempts",
		`{"retention":{"completed":"P7D"}}`:                        "retention",
		`{"overflow_policy":"block","max_depth":-1}`:               "max_depth",
		`{"overflow":"block","backpressure":{"strategy":"block"}}`: "backpressure.strategy",
	} {
		w := r.do("PUT /queues/q/config\n\n" + body)
		if member(t, w, "error.details.field") != field {
			t.Errorf("F141: %s: %s", body, w.Body)
		}
	}
	r.want("F153", r.do("GET /queues/q/priority-stats"), 200, "counts_by_priority.0", 1, "total", 1)
}

// Workers are listed outside of /admin, too (F147).
func TestWorkersOfTheBinding(t *testing.T) {
	st := bindingtest.Fresh(t)
	r := rigOf(t, enginetest.NewOn[any](t, st, engineOptions()...))
	other := rigOf(t, enginetest.NewOn[any](t, st, engineOptions()...))
	r.do("POST /workers/register\n\n" + `{"worker_id":"w","queues":["q"],"concurrency":3}`)
	r.do("POST /workers/register\n\n" + `{"worker_id":"x"}`)
	r.want("F147", r.do("POST /admin/workers/x/quiet"), 200)
	r.do("POST /workers/heartbeat\n\n" + `{"worker_id":"x","state":"running"}`)
	other.want("F147: an operator's quiet stays", other.do("GET /workers"), 200, "workers.1.state", "quiet",
		"workers.1.directive", "quiet", "summary.running", 1)
	r.want("F147", r.do("GET /workers"), 200, "workers.0.id", "w", "workers.0.queues.0", "q",
		"workers.0.state", "running", "workers.0.started_at", "2000-01-01T00:00:00.000Z",
		"pagination.total", 2)
}

// Answers of operators have the members of the texts' examples (F143).
func TestAnswersOfTheAdminText(t *testing.T) {
	r := newRig(t)
	r.enqueue("A", `{"type":"a","args":[],"options":{"scheduled_at":"+PT1S"}}`)
	r.want("F143", r.do("GET /admin/jobs/$A"), 200, "metadata.scheduled_at", "2000-01-01T00:00:01.000Z")
	r.advance(time.Second)
	r.fetch("w")
	w := r.do("GET /admin/jobs/$A")
	r.want("F143", w, 200, "metadata.started_at", "2000-01-01T00:00:01.000Z")
	for _, name := range []string{"completed_at", "cancelled_at", "discarded_at"} {
		times := member(t, w, "metadata").(map[string]any)
		if at, there := times[name]; !there || at != nil {
			t.Errorf("F143: %s is %v, %v", name, at, there)
		}
	}
	r.do("POST /workers/ack\n\n" + `{"job_id":"$A"}`)
	at := "2000-01-01T00:00:01.000Z"
	r.want("F143", r.do("GET /admin/jobs/$A"), 200, "metadata.completed_at", at, "metadata.discarded_at", nil)
	r.dead("D", "d")
	r.want("F143", r.do("GET /admin/jobs/$D"), 200, "metadata.completed_at", at, "metadata.discarded_at", at)
	r.enqueue("C", job)
	r.do("DELETE /jobs/$C")
	r.want("F143", r.do("GET /admin/jobs/$C"), 200, "metadata.completed_at", nil, "metadata.cancelled_at", at)
}

// The text on errors has a word for a storage that is away, and for what is not offered
// (F159).
func TestWordsOfTheErrorsText(t *testing.T) {
	st := &storagetest.Faulty{Storage: bindingtest.Fresh(t)}
	r := rigOf(t, enginetest.NewOn[any](t, st, engineOptions()...))
	r.want("F159", r.do("GET /health\nOJS-Version: 9.0"), 422, "error.canonical_code", "UNSUPPORTED_FEATURE")
	st.OnCall(func(c *storagetest.Call) { c.Err = storagetest.ErrFault })
	r.want("F159", r.do("GET /jobs/0197f000-0000-7000-8000-000000000001"), 503, "error.canonical_code",
		"BACKEND_UNAVAILABLE")
	st.OnCall(func(c *storagetest.Call) { c.Err = context.DeadlineExceeded })
	r.want("F159", r.do("GET /jobs/0197f000-0000-7000-8000-000000000001"), 504, "error.canonical_code",
		"BACKEND_TIMEOUT")
}

// Each result that is asked for is in the answer (F152).
func TestAllResults(t *testing.T) {
	r := newRig(t)
	r.enqueue("A", job)
	w := r.do("POST /jobs/results\n\n" + `{"ids":["$A","0197f000-0000-7000-8000-000000000001","x","x"]}`)
	r.want("F152", w, 200, "results."+r.vars["A"]+".state", "available")
	results := member(t, w, "results").(map[string]any)
	for _, name := range []string{"0197f000-0000-7000-8000-000000000001", "x"} {
		if v, there := results[name]; !there || v != nil {
			t.Errorf("F152: %s: %v, %v", name, v, there)
		}
	}
	if v, there := results[r.vars["A"]].(map[string]any)["result"]; !there || v != nil {
		t.Errorf("F152: of a job that has not ended: %v, %v", v, there)
	}
}

// A job has the core's timeouts if they were sent in seconds (F040, F167).
func TestTimeoutsAsSent(t *testing.T) {
	r := newRig(t)
	r.enqueue("A", `{"specversion":"1.0.0-rc.1","type":"a","queue":"default","args":[],"timeout":300,
		"visibility_timeout":7200}`)
	r.want("F040", r.do("GET /jobs/$A"), 200, "job.timeout", 300, "job.timeout_ms", 300000,
		"job.visibility_timeout", 7200, "job.visibility_timeout_ms", 7200000)
	r.enqueue("B", `{"type":"a","args":[],"options":{"timeout":"PT5M","visibility_timeout_ms":60000}}`)
	r.want("F040", r.do("GET /jobs/$B"), 200, "job.timeout", "absent", "job.timeout_ms", 300000,
		"job.visibility_timeout", "absent")
}

// Dead letters are found by their error, and by when they died (F085, F086, F087).
func TestDeathsOfATime(t *testing.T) {
	r := newRig(t)
	r.enqueue("A", `{"type":"a","args":[1],"options":{"retry":{"max_attempts":1,
		"on_exhaustion":"dead_letter"}}}`)
	r.advance(time.Hour)
	r.fetch("w")
	r.do("POST /workers/nack\n\n" + `{"job_id":"$A","error":{"type":"db.down","message":"m"}}`)
	for query, n := range map[string]int{
		"since=2000-01-01T00:30:00Z": 1, "until=2000-01-01T00:30:00Z": 0, "since=2000-01-01T01:30:00Z": 0,
		"until=2000-01-01T01:30:00Z": 1, "error_type=db.down": 1, "error_type=db.up": 0,
	} {
		r.want("F085 "+query, r.do("GET /dead-letter?"+query), 200, "pagination.total", n)
	}
	r.want("F143 F149", r.do("GET /admin/dead-letter?since=2000-01-01T00:30:00Z"), 200, "pagination.total", 0)
	r.want("F087", r.do("DELETE /dead-letter\n\n"+
		`{"filter":{"until":"2000-01-01T00:30:00Z"},"confirm":true}`), 200, "purged_count", 0)
	r.want("F087", r.do("DELETE /dead-letter\n\n"+
		`{"until":"2000-01-01T01:30:00Z","older_than":"2000-01-01T00:30:00Z","confirm":true}`), 200,
		"purged_count", 0)
	r.want("F087: the earlier of the two", r.do("DELETE /dead-letter\n\n"+
		`{"until":"2000-01-01T00:30:00Z","older_than":"2000-01-01T01:30:00Z","confirm":true}`), 200,
		"purged_count", 0)
	r.want("F086", r.do("POST /dead-letter/retry\n\n"+
		`{"filter":{"since":"2000-01-01T00:30:00Z","error_type":"db.down"},"confirm":true}`), 200, "retried", 1)
}

// Events of recurring jobs and of progress have the data that their texts require (P0.8).
func TestDataOfTheEventsText(t *testing.T) {
	r := newRig(t)
	r.want("F092", r.do("POST /cron\n\n"+`{"name":"daily","cron":"* * * * *","type":"report","args":[],
		"options":{"meta":{"traceparent":"00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"}}}`), 201)
	r.advance(61 * time.Second)
	w := r.fetch("w")
	r.keep("A", w, "jobs.0.id")
	r.want("P0.8", r.do("GET /events?types=cron.triggered"), 200, "events.0.subject", "daily",
		"events.0.data.cron_name", "daily", "events.0.data.cron_expr", "* * * * *",
		"events.0.data.cron_expression", "* * * * *", "events.0.data.timezone", "UTC",
		"events.0.data.job_type", "report", "events.0.data.job_id", r.vars["A"],
		"events.0.data.run_count", 1, "events.0.data.scheduled_at", "2000-01-01T00:01:00.000Z",
		"events.0.data.scheduled_time", "2000-01-01T00:01:00.000Z",
		"events.0.data.actual_time", "2000-01-01T00:01:00.000Z")
	r.advance(time.Minute)
	r.want("P0.8", r.do("GET /events?types=cron.skipped"), 200, "events.0.data.reason", "overlap_skip",
		"events.0.data.cron_expr", "* * * * *", "events.0.data.job_type", "report",
		"events.0.data.existing_job_id", r.vars["A"], "events.0.data.active_job_id", r.vars["A"],
		"events.0.data.job_id", "absent")
	r.do("PUT /jobs/$A/progress\n\n" + `{"progress":0.655}`)
	r.want("P0.8", r.do("GET /events?types=job.progress"), 200, "events.0.data.worker_id", "w",
		"events.0.data.progress_percent", 65.5, "events.0.data.progress", 66,
		"events.0.data.trace_id", "0af7651916cd43dd8448eb211c80319c")
}
