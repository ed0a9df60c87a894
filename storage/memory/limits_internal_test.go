package memory

import (
	"fmt"
	"testing"
	"time"

	"github.com/ojsengine/ojs"
	"github.com/ojsengine/ojs/storage"
)

// Keys without jobs, settings and blocks leave no counter once their windows have passed.
func TestLimitsAreForgotten(t *testing.T) {
	s, now := New(), time.Date(2026, 3, 1, 0, 0, 0, 0, time.UTC)
	for i := range 20 * firstSweep {
		key := fmt.Sprintf("k%d", i)
		var r storage.Record
		r.ID, r.Type, r.Queue = fmt.Sprintf("01890a5d-ac96-774b-bcce-%012x", i), "x", "q"
		r.State, r.CreatedAt = ojs.StateAvailable, now
		r.RateLimit = &ojs.RateLimit{Key: key, Rate: ojs.Rate{Limit: 1, Per: time.Minute}}
		if _, err := s.Insert(t.Context(), now, []storage.Insert{{Record: r}}, nil); err != nil {
			t.Fatal(err)
		}
		name := storage.LimitName{Kind: storage.LimitKey, Name: key}
		bounds := ojs.RateLimit{Concurrency: 2}
		if err := s.SetLimit(t.Context(), now, name, bounds, now.Add(time.Minute)); err != nil {
			t.Fatal(err)
		}
		if err := s.BlockLimit(t.Context(), now.Add(-time.Hour), name, now); err != nil {
			t.Fatal(err)
		}
		q := storage.Claim{Max: 1, Limits: new(storage.Limited)}
		recs, err := s.Claim(t.Context(), now, q, nil)
		if err != nil || len(recs) != 1 {
			t.Fatalf("%d jobs are claimed, %v", len(recs), err)
		}
		recs[0].State, recs[0].FinishedAt = ojs.StateCompleted, now
		out, err := s.Settle(t.Context(), now, []storage.Change{{Record: recs[0]}}, nil)
		if err != nil || out[0].Err != nil {
			t.Fatal(out, err)
		}
		now = now.Add(2 * time.Minute)
	}
	if n := len(s.ready.limits.byName); n > firstSweep {
		t.Errorf("%d counters are left", n)
	}
}

// A limit that has lost its last job does not count as closed. Claims would say for ever
// that limits hold jobs back, and each end would wake one.
func TestClosedLimitWithoutJobs(t *testing.T) {
	for _, kind := range []storage.LimitKind{storage.LimitKey, storage.LimitQueue, storage.LimitType} {
		s, now := New(), time.Date(2026, 3, 1, 0, 0, 0, 0, time.UTC)
		name := storage.LimitName{Kind: kind, Name: "x"}
		bounds := ojs.RateLimit{Concurrency: ojs.NoneAtOnce}
		if err := s.SetLimit(t.Context(), now, name, bounds, time.Time{}); err != nil {
			t.Fatal(err)
		}
		var r storage.Record
		r.ID, r.Type, r.Queue = "01890a5d-ac96-774b-bcce-000000000001", "x", "x"
		r.State, r.CreatedAt, r.RateLimit = ojs.StateAvailable, now, &ojs.RateLimit{Key: "x"}
		if _, err := s.Insert(t.Context(), now, []storage.Insert{{Record: r}}, nil); err != nil {
			t.Fatal(err)
		}
		held := func() bool {
			q := storage.Claim{Max: 1, Limits: new(storage.Limited)}
			if recs, err := s.Claim(t.Context(), now, q, nil); err != nil || len(recs) > 0 {
				t.Fatalf("%s: %d jobs are claimed, %v", kind, len(recs), err)
			}
			return q.Limits.Held
		}
		if !held() {
			t.Errorf("%s: the limit holds no job back", kind)
		}
		if _, _, err := s.CancelAll(t.Context(), now, []string{r.ID}); err != nil {
			t.Fatal(err)
		}
		if _, err := s.Delete(t.Context(), []string{r.ID}); err != nil {
			t.Fatal(err)
		}
		if held() {
			t.Errorf("%s: the limit of no job holds one back", kind)
		}
	}
}
