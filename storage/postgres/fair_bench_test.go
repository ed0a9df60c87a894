package postgres_test

import (
	"fmt"
	"os"
	"testing"
	"time"

	"github.com/ojsengine/ojs"
	"github.com/ojsengine/ojs/internal/test/pgtest"
	"github.com/ojsengine/ojs/storage"
)

// storeFair stores jobs from number n on, of so many keys in turn; 0: without keys.
func storeFair(b *testing.B, s storage.Storage, n, jobs, keys int) {
	b.Helper()
	for end := n + jobs; n < end; {
		batch := make([]storage.Insert, min(1000, end-n))
		for i := range batch {
			r := record(n)
			if keys > 0 {
				r.Fairness = ojs.Fairness{Key: fmt.Sprint("key", n%keys), Weight: 1}
			}
			batch[i] = storage.Insert{Record: r, IDIsNew: true}
			n++
		}
		if _, err := s.Insert(b.Context(), record(0).CreatedAt, batch, nil); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkFairness stores jobs, claims as many and then completes them, with as many
// keys as its name says, each with a job that waits. The processor time is that of this
// process and the server, for one job.
func BenchmarkFairness(b *testing.B) {
	for _, size := range []int{1, 20} {
		for _, keys := range []int{0, 1, 1000, 100_000} {
			b.Run(fmt.Sprintf("%d in a call, keys=%d", size, keys), func(b *testing.B) {
				s, _ := open(b, "")
				storeFair(b, s, 0, keys, keys)
				now, host := record(0).CreatedAt, serverPID(b)
				part := func(what string, do func(i int)) {
					before := pgtest.ProcessorTime(os.Getpid()) + pgtest.ProcessorTime(host)
					for i := range b.N {
						do(i)
					}
					used := pgtest.ProcessorTime(os.Getpid()) + pgtest.ProcessorTime(host) - before
					b.ReportMetric(used*1e6/float64(b.N*size), "cpu-µs/"+what)
				}
				claimed := make([][]storage.Record, b.N)
				b.ResetTimer()
				part("insert", func(i int) { storeFair(b, s, keys+i*size, size, keys) })
				part("claim", func(i int) {
					var err error
					claimed[i], err = s.Claim(b.Context(), now, storage.Claim{Max: size, Worker: "w"}, nil)
					if err != nil || len(claimed[i]) != size {
						b.Fatal(len(claimed[i]), err)
					}
				})
				part("complete", func(i int) {
					changes := make([]storage.Change, size)
					for k, r := range claimed[i] {
						r.State, r.FinishedAt, r.LeaseUntil = ojs.StateCompleted, now, time.Time{}
						changes[k] = storage.Change{Record: r, AttemptFieldsOnly: true}
					}
					settled, err := s.Settle(b.Context(), now, changes, nil)
					if err != nil || settled[0].Err != nil {
						b.Fatal(settled, err)
					}
				})
			})
		}
	}
}

// BenchmarkFairnessBehind counts the jobs that start before the single job of another
// key, which becomes available behind a backlog of one key.
func BenchmarkFairnessBehind(b *testing.B) {
	for _, backlog := range []int{1000, 100_000} {
		b.Run(fmt.Sprint(backlog), func(b *testing.B) {
			s, _ := open(b, "")
			now := record(0).CreatedAt
			storeFair(b, s, 0, backlog, 1)
			n, before := backlog, 0
			for b.Loop() {
				r := record(n)
				n++
				r.Fairness = ojs.Fairness{Key: "another", Weight: 1}
				if _, err := s.Insert(b.Context(), now, []storage.Insert{{Record: r}}, nil); err != nil {
					b.Fatal(err)
				}
				for id := ""; id != r.ID; before++ {
					recs, err := s.Claim(b.Context(), now, storage.Claim{Max: 1, Worker: "w"}, nil)
					if err != nil || len(recs) != 1 {
						b.Fatal(len(recs), err)
					}
					id = recs[0].ID
				}
				before--
			}
			b.ReportMetric(float64(before)/float64(b.N), "jobs-before")
		})
	}
}
