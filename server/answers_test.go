package server_test

import (
	"testing"
)

// An answer tells what the storage has.
func TestAttemptNamed(t *testing.T) {
	r := newRig(t)
	r.enqueue("A", job)
	r.fetch("w")
	for _, path := range []string{"ack", "nack"} {
		r.want("F069", r.do("POST /workers/"+path+"\n\n"+`{"job_id":"$A","attempt":0}`), 409, "error.code",
			"conflict")
	}
	r.want("F070", r.do("POST /workers/ack\n\n"+`{"job_id":"$A","attempt":1}`), 200)
}

func TestNackOfCancelledWorkflow(t *testing.T) {
	r := newRig(t)
	r.keep("W", r.do("POST /workflows\n\n"+`{"type":"chain","name":"n","steps":[{"type":"a","args":[]},{"type":"b","args":[]}]}`),
		"workflow.id")
	r.keep("A", r.fetch("w"), "jobs.0.id")
	r.want("W051", r.do("DELETE /workflows/$W"), 200)
	w := r.do("POST /workers/nack\n\n" + `{"job_id":"$A","error":{"message":"m","code":"c"}}`)
	r.want("W051", w, 200, "state", "cancelled", "job.state", "cancelled", "next_attempt_at", "absent",
		"next_retry_at", "absent", "retry_delay_ms", "absent", "job.next_retry_at", "absent")
	r.want("W051", r.do("GET /jobs/$A"), 200, "job.state", "cancelled")
}

func TestUniqueJobsHavePolicies(t *testing.T) {
	r := newRig(t)
	r.enqueue("A", job)
	r.enqueue("B", `{"type":"u","args":[],"options":{"unique":{"keys":["type"]}}}`)
	r.want("F184", r.do("GET /unique-jobs"), 200, "pagination.total", 1)
	t.Log(r.do("GET /unique-jobs").Body)
}
