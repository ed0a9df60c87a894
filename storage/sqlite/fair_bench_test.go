package sqlite_test

import (
	"fmt"
	"path/filepath"
	"testing"

	"github.com/ojsengine/ojs"
	"github.com/ojsengine/ojs/storage"
	"github.com/ojsengine/ojs/storage/sqlite"
)

// BenchmarkFairness stores a job, claims one and completes it, with as many keys as its
// name says, each with a job that waits.
func BenchmarkFairness(b *testing.B) {
	for _, keys := range []int{0, 1, 1000, 100_000} {
		b.Run(fmt.Sprint("keys=", keys), func(b *testing.B) {
			s, err := sqlite.Open(b.Context(), filepath.Join(b.TempDir(), "jobs.db"),
				sqlite.WithSynchronous(sqlite.Normal))
			if err != nil {
				b.Fatal(err)
			}
			defer s.Close()
			n := 0
			add := func(most int) {
				batch := make([]storage.Insert, most)
				for i := range batch {
					batch[i] = storage.Insert{Record: limited(n, ojs.RateLimit{}), IDIsNew: true}
					if keys > 0 {
						batch[i].Record.Fairness = ojs.Fairness{Key: fmt.Sprint("key", n%keys), Weight: 1}
					}
					n++
				}
				if _, err := s.Insert(b.Context(), limitsBegin, batch, nil); err != nil {
					b.Fatal(err)
				}
			}
			for n < keys {
				add(min(1000, keys))
			}
			for b.Loop() {
				add(1)
				ask := storage.Claim{Max: 1, Worker: "w"}
				recs, err := s.Claim(b.Context(), limitsBegin, ask, nil)
				if err != nil || len(recs) != 1 {
					b.Fatal(len(recs), err)
				}
				if err := ends(b.Context(), s, limitsBegin, recs[0]); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
