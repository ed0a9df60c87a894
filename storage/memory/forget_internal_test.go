package memory

import (
	"fmt"
	"testing"
	"time"

	"github.com/ojsengine/ojs"
	"github.com/ojsengine/ojs/storage"
)

// The indexes know no type of which no job is left, though the queue has jobs of others.
func TestTypesAreForgotten(t *testing.T) {
	s, now := New(), time.Date(2026, 3, 1, 0, 0, 0, 0, time.UTC)
	job := func(n int, jobType string) storage.Record {
		var r storage.Record
		r.ID, r.Type, r.Queue = fmt.Sprintf("01890a5d-ac96-774b-bcce-%012x", n), jobType, "q"
		r.State = ojs.StateAvailable
		r.CreatedAt, r.Lease, r.Timeout = now, time.Hour, time.Hour
		out, err := s.Insert(t.Context(), now, []storage.Insert{{Record: r}}, nil)
		if err != nil {
			t.Fatal(err)
		}
		r.Version = out[0].Version
		return r
	}
	settle := func(r storage.Record) {
		t.Helper()
		out, err := s.Settle(t.Context(), now, []storage.Change{{Record: r}}, nil)
		if err != nil || out[0].Err != nil {
			t.Fatal(out, err)
		}
	}
	known := func(when string, want int) {
		t.Helper()
		types, sections := len(s.ready.types), len(s.ready.queues["q"].sections)
		if types != want || sections != want {
			t.Errorf("%s the index has %d types, and %d of the queue, want %d", when, types, sections, want)
		}
	}
	const jobs = 100
	job(jobs, "stays")
	var ids []string
	for i := range jobs {
		r := job(i, fmt.Sprintf("t%d", i))
		switch i % 4 {
		case 0: // it ends where it waits
			r.State, r.FinishedAt = ojs.StateCancelled, now
		case 1: // it takes another type in its place, and is claimed below
			r.Type = fmt.Sprintf("u%d", i)
		case 2: // it takes on a limit
			r.RateLimit = &ojs.RateLimit{Key: fmt.Sprintf("k%d", i), Concurrency: 1}
		default: // its kind changes, its place does not
			r.Timeout = time.Minute
		}
		settle(r)
		ids = append(ids, r.ID)
	}
	known("with them", jobs+1)
	recs, err := s.Claim(t.Context(), now, storage.Claim{Max: jobs + 1}, nil)
	if err != nil || len(recs) != 1+jobs-jobs/4 {
		t.Fatal(len(recs), err)
	}
	for _, r := range recs {
		if r.Type != "stays" {
			r.State, r.FinishedAt, r.LeaseUntil = ojs.StateCompleted, now, time.Time{}
			settle(r)
		}
	}
	if n, err := s.Delete(t.Context(), ids); n != jobs || err != nil {
		t.Fatal(n, err)
	}
	known("without them", 1)
	again := job(jobs+1, "t1")
	recs, err = s.Claim(t.Context(), now, storage.Claim{Types: []string{"t1"}, Max: 2}, nil)
	if err != nil || len(recs) != 1 || recs[0].ID != again.ID {
		t.Errorf("claimed %d jobs, %v", len(recs), err)
	}
}
