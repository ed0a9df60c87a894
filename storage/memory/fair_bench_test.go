package memory

import (
	"fmt"
	"testing"
	"time"

	"github.com/ojsengine/ojs"
	"github.com/ojsengine/ojs/storage"
)

// keyedJob is a job with a fairness key, or with none if that is "".
func keyedJob(id, key string) storage.Insert {
	in := storage.Insert{IDIsNew: true}
	r := &in.Record
	r.ID, r.Type, r.Queue, r.State, r.Lease = id, "x", "q", ojs.StateAvailable, time.Minute
	r.Fairness.Key = key
	return in
}

// BenchmarkFairness stores a job, claims one and completes it, with as many keys as its
// name says, each with a job that waits.
func BenchmarkFairness(b *testing.B) {
	now := time.Unix(1, 0)
	for _, keys := range []int{0, 1, 1000, 100_000} {
		b.Run(fmt.Sprint("keys=", keys), func(b *testing.B) {
			s := New()
			n := 0
			add := func() {
				key := ""
				if keys > 0 {
					key = fmt.Sprint("key", n%keys)
				}
				n++
				in := keyedJob(fmt.Sprint(n), key)
				if _, err := s.Insert(b.Context(), now, []storage.Insert{in}, nil); err != nil {
					b.Fatal(err)
				}
			}
			for range max(keys, 1) {
				add()
			}
			var recs []storage.Record
			var settled []storage.Settled
			changes := make([]storage.Change, 1)
			for b.Loop() {
				add()
				var err error
				recs, err = s.Claim(b.Context(), now, storage.Claim{Max: 1, Worker: "w"}, recs[:0])
				if err != nil || len(recs) != 1 {
					b.Fatal(recs, err)
				}
				changes[0] = storage.Change{Record: recs[0], AttemptFieldsOnly: true}
				r := &changes[0].Record
				r.State, r.FinishedAt, r.LeaseUntil = ojs.StateCompleted, now, time.Time{}
				settled, err = s.Settle(b.Context(), now, changes, settled[:0])
				if err != nil || settled[0].Err != nil {
					b.Fatal(settled, err)
				}
				if _, err := s.Delete(b.Context(), []string{recs[0].ID}); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// BenchmarkFairnessBehind reports how many jobs start before the single job of a key that
// comes behind a million jobs of another one.
func BenchmarkFairnessBehind(b *testing.B) {
	now := time.Unix(1, 0)
	s := New()
	for i := range 1_000_000 {
		in := []storage.Insert{keyedJob(fmt.Sprint(i), "large")}
		if _, err := s.Insert(b.Context(), now, in, nil); err != nil {
			b.Fatal(err)
		}
	}
	if _, err := s.Claim(b.Context(), now, storage.Claim{Max: 1000}, nil); err != nil {
		b.Fatal(err)
	}
	n := 0
	for b.Loop() {
		n++
		one := []storage.Insert{keyedJob(fmt.Sprint("one", n), "small")}
		if _, err := s.Insert(b.Context(), now, one, nil); err != nil {
			b.Fatal(err)
		}
		for before := 0; ; before++ {
			recs, err := s.Claim(b.Context(), now, storage.Claim{Max: 1}, nil)
			if err != nil || len(recs) != 1 {
				b.Fatal(recs, err)
			}
			if recs[0].Fairness.Key == "small" {
				b.ReportMetric(float64(before), "jobs-before")
				break
			}
		}
	}
}
