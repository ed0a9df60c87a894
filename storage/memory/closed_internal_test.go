package memory

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/ojsengine/ojs"
	"github.com/ojsengine/ojs/storage"
)

// closedStore has jobs of n closed keys, in front of which no claim finds anything, and
// returns their set.
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

// The work of a claim does not grow with the number of closed keys, nor with that of
// their jobs. The counts are exact, since a counter that stands still would prove
// nothing.
func TestClaimsDoNotWalkPastClosedKeys(t *testing.T) {
	const rounds = 50
	type work struct{ plain, none, turned, both int }
	of := func(n int) (w work) {
		s, shut := closedStore(t, n)
		claim := func(count *int, most int, queues []string, want ...string) {
			t.Helper()
			before := s.ready.looked
			recs, err := s.Claim(t.Context(), time.Unix(1, 0),
				storage.Claim{Max: most, Queues: queues, SkipKeys: shut, Worker: "w"}, nil)
			var got []string
			for _, r := range recs {
				got = append(got, r.ID)
			}
			if err != nil || !slices.Equal(got, want) {
				t.Fatalf("claimed %v, %v, and not %q", got, err, want)
			}
			*count += s.ready.looked - before
		}
		var first int
		claim(&first, 1, nil) // closes the keys
		if first != 2*n {     // each key, and its bucket
			t.Errorf("the claim that closes %d keys looks at %d keys and buckets", n, first)
		}
		for i := range rounds {
			queues := [][]string{nil, {"q0", "q1"}}[i%2]
			addLimited(t, s, fmt.Sprint("plain ", i), "q1", "")
			claim(&w.plain, 1, queues, fmt.Sprint("plain ", i))
			claim(&w.none, 1, queues)
			key := fmt.Sprint("key ", i) // one opens, its job is claimed, and it closes
			shut.Remove(key)
			if i%2 == 0 {
				claim(&w.turned, 1, nil, fmt.Sprint(i, " 0"))
			} else { // its second job is skipped, and the job behind that is claimed
				addLimited(t, s, fmt.Sprint("after ", i), fmt.Sprint("q", i%3), "")
				claim(&w.both, 2, nil, fmt.Sprint(i, " 0"), fmt.Sprint("after ", i))
			}
			shut.Add(key)
		}
		return w
	}
	want := work{plain: 148, turned: 75, both: 150}
	for _, n := range []int{rounds, 5000} {
		if got := of(n); got != want {
			t.Errorf("with %d closed keys, claims look at %+v keys and buckets, want %+v", n, got, want)
		}
	}
}

// BenchmarkClaimBehindClosedKeys claims a job behind those of closed keys.
func BenchmarkClaimBehindClosedKeys(b *testing.B) {
	for _, n := range []int{0, 100, 10_000, 100_000} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			s, shut := closedStore(b, n)
			// closes the keys
			recs, err := s.Claim(b.Context(), time.Unix(1, 0),
				storage.Claim{Max: 1, SkipKeys: shut, Worker: "w"}, nil)
			if err != nil || len(recs) != 0 {
				b.Fatal(recs, err)
			}
			for i := 0; b.Loop(); i++ {
				addLimited(b, s, fmt.Sprint("plain ", i), "q1", "")
				recs, err = s.Claim(b.Context(), time.Unix(1, 0),
					storage.Claim{Max: 1, SkipKeys: shut, Worker: "w"}, recs[:0])
				if err != nil || len(recs) != 1 {
					b.Fatal(recs, err)
				}
			}
		})
	}
}
