package postgres_test

import (
	"context"
	"fmt"
	"os"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ojsengine/ojs"
	"github.com/ojsengine/ojs/engine"
	"github.com/ojsengine/ojs/internal/test/pace"
	"github.com/ojsengine/ojs/internal/test/pgtest"
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

// BenchmarkLimitsBesideOthers runs 300 jobs of 15 ms of a key with a limit of 3, which
// takes 1.5 s at least. Three engines share them, and each also enqueues an unlimited job
// every 2 ms. A statement is one of the claims, which only limited jobs need.
func BenchmarkLimitsBesideOthers(b *testing.B) {
	const engines, limited, took, every = 3, 300, 15 * time.Millisecond, 2 * time.Millisecond
	for _, beside := range []bool{false, true} {
		b.Run(fmt.Sprintf("unlimited jobs %v", beside), func(b *testing.B) {
			var spent time.Duration
			var unlimited atomic.Int64
			statements := 0
			for b.Loop() {
				var left atomic.Int64
				left.Store(limited)
				ended := make(chan struct{})
				handlers := map[string]func(context.Context, *ojs.Job[int]) error{
					"limited": func(context.Context, *ojs.Job[int]) error {
						pace.Work(took)
						if left.Add(-1) == 0 {
							close(ended)
						}
						return nil
					},
					"unlimited": func(context.Context, *ojs.Job[int]) error {
						unlimited.Add(1)
						return nil
					},
				}
				name := ""
				var spies []*spy
				var list []*engine.Engine[int]
				for range engines {
					s, y, schema := openSpied(b, name)
					name = schema
					eng := newEngine(b, s, engine.WithConcurrency(20))
					for jobType, h := range handlers {
						eng.Handle(jobType, h)
					}
					list, spies = append(list, eng), append(spies, y)
				}
				drafts := make([]ojs.Draft, limited)
				for i := range drafts {
					drafts[i] = ojs.NewDraft("limited", i,
						ojs.WithRateLimit(ojs.RateLimit{Key: "k", Concurrency: 3}))
				}
				_, err := list[0].EnqueueMany(b.Context(), drafts...)
				must(b, err)
				ctx, stop := context.WithCancel(b.Context())
				var wg sync.WaitGroup
				began := time.Now()
				for _, eng := range list {
					wg.Go(func() { must(b, eng.Run(ctx)) })
					wg.Go(func() {
						for beside && ctx.Err() == nil {
							_, _ = eng.Enqueue(ctx, "unlimited", 0)
							pace.Work(every)
						}
					})
				}
				<-ended
				spent += time.Since(began)
				stop()
				wg.Wait()
				counted := strings.Fields("judgeLimits lockHeadsAll promote counters claimThese")
				for _, y := range spies {
					y.mu.Lock()
					for _, of := range counted {
						statements += y.counts[of]
					}
					y.mu.Unlock()
				}
			}
			b.ReportMetric(float64(limited*b.N)/spent.Seconds(), "limited/s")
			b.ReportMetric(float64(unlimited.Load())/spent.Seconds(), "unlimited/s")
			b.ReportMetric(float64(statements)/float64(limited*b.N), "statements/limited")
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
