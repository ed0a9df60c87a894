package memory

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/ojsengine/ojs"
	"github.com/ojsengine/ojs/storage"
)

// closedStore has n keys, each with one active job, which closes it, and one that waits.
func closedStore(tb testing.TB, n int) (s *Storage, active []storage.Record) {
	tb.Helper()
	s = New()
	for i := range n {
		for k := range 2 {
			addLimited(tb, s, fmt.Sprint(i, " ", k), fmt.Sprint("q", i%3), fmt.Sprint("key ", i))
		}
	}
	active, err := s.Claim(tb.Context(), time.Unix(1, 0), storage.Claim{Max: 2 * n, Worker: "w"}, nil)
	if err != nil || len(active) != n {
		tb.Fatalf("%d jobs of %d keys are claimed, %v", len(active), n, err)
	}
	return s, active
}

func addLimited(tb testing.TB, s *Storage, id, queue, key string) {
	tb.Helper()
	r := storage.Record{}
	r.ID, r.Type, r.Queue, r.State, r.Lease = id, "x", queue, ojs.StateAvailable, time.Minute
	if key != "" {
		r.RateLimit = &ojs.RateLimit{Key: key, Concurrency: 1}
	}
	if _, err := s.Insert(tb.Context(), time.Unix(0, 0), []storage.Insert{{Record: r}}, nil); err != nil {
		tb.Fatal(err)
	}
}

// The work of a claim does not grow with the number of closed keys, nor with that of
// their jobs: it opens and closes buckets of the keys whose jobs have ended.
func TestClaimsDoNotWalkPastClosedKeys(t *testing.T) {
	for _, n := range []int{50, 5000} {
		s, active := closedStore(t, n)
		for i := range 50 {
			claim := func(work int, queues []string, want ...string) {
				t.Helper()
				before := s.ready.looked
				c := storage.Claim{Max: len(want) + 1, Queues: queues, Worker: "w"}
				recs, err := s.Claim(t.Context(), time.Unix(1, 0), c, nil)
				var got []string
				for _, r := range recs {
					got = append(got, r.ID)
				}
				if err != nil || !slices.Equal(got, want) {
					t.Fatalf("claimed %v, %v, and not %q", got, err, want)
				}
				if did := s.ready.looked - before; did != work {
					t.Fatalf("with %d closed keys a claim opens and closes %d buckets, not %d", n, did, work)
				}
			}
			queues := [][]string{nil, {"q0", "q1"}}[i%2]
			addLimited(t, s, fmt.Sprint("plain ", i), "q1", "")
			claim(0, queues, fmt.Sprint("plain ", i))
			claim(0, queues)
			done := &active[i]
			done.State, done.FinishedAt, done.LeaseUntil = ojs.StateCompleted, time.Unix(1, 0), time.Time{}
			_, err := s.Settle(t.Context(), time.Unix(1, 0), []storage.Change{{Record: *done}}, nil)
			if err != nil {
				t.Fatal(err)
			}
			claim(1, nil, done.ID[:len(done.ID)-1]+"1") // the last job of the key leaves no bucket to close
		}
	}
}
