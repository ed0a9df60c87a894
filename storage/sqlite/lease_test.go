package sqlite_test

import (
	"math"
	"testing"
	"time"

	"github.com/ojsengine/ojs"
	"github.com/ojsengine/ojs/storage"
)

// The longest lease neither is over at once nor keeps others from being claimed.
func TestLongestLease(t *testing.T) {
	s := fresh(t)
	long := record(1)
	long.Lease = math.MaxInt64
	must(t, insert(s, long, record(2)))
	now := time.Now()
	claimed, err := s.Claim(t.Context(), now, storage.Claim{Max: 10}, nil)
	must(t, err)
	if len(claimed) != 2 {
		t.Fatalf("%d of 2 jobs were claimed", len(claimed))
	}
	if until := claimed[0].LeaseUntil; until.Before(now) {
		t.Errorf("claimed until %v", until)
	}
	held := storage.Held{ID: claimed[0].ID, Version: claimed[0].Version}
	lost, err := s.Extend(t.Context(), now, []storage.Extension{{Held: held}})
	if err != nil || len(lost) > 0 {
		t.Errorf("extended: %v, %v", lost, err)
	}
	due, err := s.Due(t.Context(), now.Add(30*time.Second), 10, nil)
	must(t, err)
	if len(due.Stalled) > 0 {
		t.Errorf("over after 30 s: %s", due.Stalled[0].ID)
	}
	stored, err := s.Get(t.Context(), long.ID)
	if err != nil || stored.State != ojs.StateActive || !stored.LeaseUntil.Equal(now.Add(math.MaxInt64)) {
		t.Errorf("%s until %v, %v", stored.State, stored.LeaseUntil, err)
	}
}
