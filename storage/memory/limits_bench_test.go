package memory

import (
	"fmt"
	"testing"
	"time"

	"github.com/ojsengine/ojs"
	"github.com/ojsengine/ojs/storage"
)

// BenchmarkLimits claims a job and completes it: without a limit, with one, and with
// closed keys in front of it.
func BenchmarkLimits(b *testing.B) {
	now := time.Unix(1, 0)
	for _, kind := range []struct {
		name    string
		limited bool
		closed  int
	}{{"unlimited", false, 0}, {"limited", true, 0}, {"limited behind 100,000 closed", true, 100_000}} {
		b.Run(kind.name, func(b *testing.B) {
			s := New()
			add := func(id, key string, limit ojs.RateLimit) {
				r := storage.Record{}
				r.ID, r.Type, r.Queue, r.State, r.Lease = id, "x", "q", ojs.StateAvailable, time.Minute
				if key != "" {
					limit.Key = key
					r.RateLimit = &limit
				}
				if _, err := s.Insert(b.Context(), now, []storage.Insert{{Record: r, IDIsNew: true}},
					nil); err != nil {
					b.Fatal(err)
				}
			}
			for i := range kind.closed {
				add(
					fmt.Sprint("closed ", i),
					fmt.Sprint("key", i),
					ojs.RateLimit{Concurrency: ojs.NoneAtOnce},
				)
			}
			var done storage.Limited
			ask := storage.Claim{Max: 1, Worker: "w", Limits: &done}
			if _, err := s.Claim(b.Context(), now, ask, nil); err != nil {
				b.Fatal(err)
			}
			var recs []storage.Record
			changes := make([]storage.Change, 1)
			var settled []storage.Settled
			for i := 0; b.Loop(); i++ {
				key := ""
				if kind.limited {
					key = "open"
				}
				add(fmt.Sprint(i), key, ojs.RateLimit{Concurrency: 5})
				var err error
				if recs, err = s.Claim(b.Context(), now, ask, recs[:0]); err != nil || len(recs) != 1 {
					b.Fatal(recs, err)
				}
				changes[0] = storage.Change{Record: recs[0], AttemptFieldsOnly: true}
				r := &changes[0].Record
				r.State, r.FinishedAt, r.LeaseUntil = ojs.StateCompleted, now, time.Time{}
				if settled, err = s.Settle(b.Context(), now, changes, settled[:0]); err != nil ||
					settled[0].Err != nil {
					b.Fatal(settled, err)
				}
			}
		})
	}
}
