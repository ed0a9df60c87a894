package server_test

import "testing"

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
