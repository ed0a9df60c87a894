package postgres_test

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/ojsengine/ojs"
	"github.com/ojsengine/ojs/internal/pgtest"
	"github.com/ojsengine/ojs/storage"
)

// BenchmarkLimits stores, claims and completes jobs. The processor time is that of this
// process and the server, for one job.
func BenchmarkLimits(b *testing.B) {
	for _, kind := range []struct {
		name    string
		limited bool
		jobs    int // in each call
	}{
		{"unlimited", false, 1}, {"limited", true, 1},
		{"unlimited, 20 in a call", false, 20}, {"limited, 20 in a call", true, 20},
	} {
		b.Run(kind.name, func(b *testing.B) {
			s, _ := open(b, "")
			n, now := 0, record(0).CreatedAt
			ask := storage.Claim{Max: kind.jobs, Worker: "w", Limits: new(storage.Limited)}
			host := serverPID(b)
			before := pgtest.ProcessorTime(os.Getpid()) + pgtest.ProcessorTime(host)
			for b.Loop() {
				batch := make([]storage.Insert, kind.jobs)
				for i := range batch {
					batch[i] = storage.Insert{Record: record(n), IDIsNew: true}
					if kind.limited {
						batch[i].Record.RateLimit = &ojs.RateLimit{Key: "open", Concurrency: 20}
					}
					n++
				}
				if _, err := s.Insert(b.Context(), now, batch, nil); err != nil {
					b.Fatal(err)
				}
				recs, err := s.Claim(b.Context(), now, ask, nil)
				if err != nil || len(recs) != kind.jobs {
					b.Fatal(len(recs), err)
				}
				changes := make([]storage.Change, len(recs))
				for i, r := range recs {
					r.State, r.FinishedAt, r.LeaseUntil = ojs.StateCompleted, now, time.Time{}
					changes[i] = storage.Change{Record: r, AttemptFieldsOnly: true}
				}
				settled, err := s.Settle(b.Context(), now, changes, nil)
				if err != nil || settled[0].Err != nil {
					b.Fatal(settled, err)
				}
			}
			used := pgtest.ProcessorTime(os.Getpid()) + pgtest.ProcessorTime(host) - before
			b.ReportMetric(used*1e6/float64(b.N*kind.jobs), "cpu-µs/job")
		})
	}
}

// serverPID is the process of the server, 0 if it does not run on this machine.
func serverPID(b *testing.B) int {
	var backend int
	if err := connect(b).QueryRow(b.Context(), "SELECT pg_backend_pid()").Scan(&backend); err != nil {
		b.Fatal(err)
	}
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", backend))
	_, rest, _ := strings.Cut(string(stat), ") ")
	if fields := strings.Fields(rest); err == nil && strings.Contains(string(stat), "postgres") {
		parent, _ := strconv.Atoi(fields[1])
		return parent
	}
	return 0
}
