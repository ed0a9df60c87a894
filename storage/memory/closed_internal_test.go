package memory

import (
	"fmt"
	"testing"
	"time"

	"github.com/ojsengine/ojs"
	"github.com/ojsengine/ojs/storage"
)

// closedStore has jobs of n closed keys, in front of which no claim finds anything, and returns their set.
func closedStore(tb testing.TB, n int) (*Storage, *storage.KeySet) {
	tb.Helper()
	s, shut := New(), storage.Keys()
	for i := range n {
		key := fmt.Sprint("key ", i)
		shut.Add(key)
		for k := range 2 {
			addLimited(tb, s, fmt.Sprint(i, " ", k), fmt.Sprint("q", i%3), key)
		}
	}
	return s, shut
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

// The work of a claim does not grow with the number of closed keys, nor with that of their jobs.
func TestClaimsDoNotWalkPastClosedKeys(t *testing.T) {
	work := func(n int) int {
		s, shut := closedStore(t, n)
		one := func(queues []string, want string) {
			t.Helper()
			recs, err := s.Claim(t.Context(), time.Unix(1, 0), storage.Claim{Max: 1, Queues: queues, SkipKeys: shut, Worker: "w"}, nil)
			if err != nil || len(recs) > 1 || len(recs) == 1 && recs[0].ID != want || len(recs) == 0 && want != "" {
				t.Fatalf("claimed %v, %v, and not %q", recs, err, want)
			}
		}
		one(nil, "") // closes the keys
		before := s.ready.looked
		for i := range 50 {
			addLimited(t, s, fmt.Sprint("plain ", i), "q1", "")
			one([][]string{nil, {"q0", "q1"}}[i%2], fmt.Sprint("plain ", i))
			one([][]string{nil, {"q0", "q1"}}[i%2], "")
			key := fmt.Sprint("key ", i) // one opens, its job is claimed, and it closes
			shut.Remove(key)
			one(nil, fmt.Sprint(i, " 0"))
			shut.Add(key)
		}
		return s.ready.looked - before
	}
	if few, many := work(50), work(5000); many > few {
		t.Errorf("claims look at %d buckets with 5000 closed keys, and at %d with 50", many, few)
	}
}

// BenchmarkClaimBehindClosedKeys claims a job behind those of closed keys.
func BenchmarkClaimBehindClosedKeys(b *testing.B) {
	for _, n := range []int{0, 100, 10_000, 100_000} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			s, shut := closedStore(b, n)
			recs, err := s.Claim(b.Context(), time.Unix(1, 0), storage.Claim{Max: 1, SkipKeys: shut, Worker: "w"}, nil) // closes the keys
			if err != nil || len(recs) != 0 {
				b.Fatal(recs, err)
			}
			for i := 0; b.Loop(); i++ {
				addLimited(b, s, fmt.Sprint("plain ", i), "q1", "")
				recs, err = s.Claim(b.Context(), time.Unix(1, 0), storage.Claim{Max: 1, SkipKeys: shut, Worker: "w"}, recs[:0])
				if err != nil || len(recs) != 1 {
					b.Fatal(recs, err)
				}
			}
		})
	}
}
