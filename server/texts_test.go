package server_test

import (
	"testing"
	"time"
)

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
