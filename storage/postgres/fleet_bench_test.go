package postgres_test

import (
	"context"
	"fmt"
	"os"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ojsengine/ojs"
	"github.com/ojsengine/ojs/engine"
	"github.com/ojsengine/ojs/fleet"
	"github.com/ojsengine/ojs/internal/test/pace"
	"github.com/ojsengine/ojs/internal/test/pgtest"
	"github.com/ojsengine/ojs/storage/postgres"
)

// benchFleet is a running fleet. Each cell has a server of its own, and jobs do nothing.
type benchFleet struct {
	*fleet.Fleet[int]
	servers []*pgtest.Server
	left    atomic.Int64 // jobs that have not run
	done    chan bool    // left is 0
}

// startFleet starts servers that wait for the disk of the directory for temporary files.
func startFleet(b *testing.B, cells int, settings ...string) *benchFleet {
	f := &benchFleet{done: make(chan bool, 1)}
	cfg := fleet.Config{Concurrency: 64}
	for i := range cells {
		server, err := pgtest.StartIn("", append([]string{"fsync=on"}, settings...)...)
		must(b, err)
		b.Cleanup(func() { _ = server.Close() })
		f.servers = append(f.servers, server)
		pool := poolAt(b, server.DSN()+" pool_max_conns=10", nil)
		cfg.Cells = append(cfg.Cells, fleet.Cell{
			Name:  string(rune('a' + i)),
			Store: openAs(b, pool, "ojs", postgres.WithLogger(quietLog)),
		})
	}
	var err error
	f.Fleet, err = fleet.New[int](cfg, engine.WithLogger(quietLog))
	must(b, err)
	f.Handle("x", func(context.Context, *ojs.Job[int]) error {
		if f.left.Add(-1) == 0 {
			f.done <- true
		}
		return nil
	})
	ctx, stop := context.WithCancel(b.Context())
	var runs sync.WaitGroup
	runs.Go(func() { _ = f.Run(ctx) })
	b.Cleanup(func() { stop(); runs.Wait() })
	return f
}

// cost is what some jobs take: time, and processor time of this process and the servers.
type cost struct{ wall, here, servers float64 } // seconds

func (f *benchFleet) cost() (c cost) {
	c.here = pgtest.ProcessorTime(os.Getpid())
	for _, s := range f.servers {
		c.servers += pgtest.ProcessorTime(s.PID())
	}
	return c
}

// run enqueues jobs, in batches from some producers, and adds to c what it costs until
// all of them have run. Each batch has a key of its own.
func (f *benchFleet) run(b *testing.B, c *cost, jobs, producers, batch int) {
	runtime.GC()
	f.left.Store(int64(jobs))
	before, began := f.cost(), time.Now()
	var next atomic.Int64
	var all sync.WaitGroup
	for range producers {
		all.Go(func() {
			drafts := make([]ojs.Draft, batch)
			for n := next.Add(1); n <= int64(jobs/batch); n = next.Add(1) {
				for i := range drafts {
					drafts[i] = ojs.NewDraft("x", i, fleet.WithCell(fmt.Sprint("key-", n)))
				}
				if _, err := f.EnqueueMany(b.Context(), drafts...); err != nil {
					b.Error(err)
				}
			}
		})
	}
	all.Wait()
	if b.Failed() {
		b.FailNow() // not all jobs come
	}
	<-f.done
	after := f.cost()
	c.wall += time.Since(began).Seconds()
	c.here += after.here - before.here
	c.servers += after.servers - before.servers
}

// compare runs a load on two fleets in alternation, and reports their rates, and the
// processor time of this process and of the servers for one job.
func compare(b *testing.B, fleets [2]*benchFleet, units [2]string, jobs, producers, batch int) {
	var costs [2]cost
	for _, f := range fleets {
		f.run(b, new(cost), jobs, producers, batch) // fills the caches
	}
	for range b.N {
		for i, f := range fleets {
			f.run(b, &costs[i], jobs, producers, batch)
		}
	}
	n := float64(b.N * jobs)
	for i, c := range costs {
		b.ReportMetric((c.here+c.servers)*1e6/n, "cpu-µs-"+units[i])
		b.ReportMetric(c.servers*1e6/n, "server-µs-"+units[i])
		b.ReportMetric(n/c.wall, "jobs/s-"+units[i])
	}
	b.ReportMetric((costs[1].here+costs[1].servers)/(costs[0].here+costs[0].servers), "cpu-ratio")
	b.ReportMetric(costs[0].wall/costs[1].wall, "rate-ratio")
}

// BenchmarkFleet enqueues and runs jobs in one cell and in four, each with a server of
// its own on this machine. A slow commit takes 10 ms more, without processor time.
func BenchmarkFleet(b *testing.B) {
	slow := []string{"commit_delay=10000", "commit_siblings=0"}
	for _, tt := range []struct {
		name                   string
		jobs, producers, batch int
		settings               []string
	}{
		{"batches of 1000", 16_000, 1, 1000, nil},
		{"64 producers", 8000, 64, 1, nil},
		{"64 producers, slow commits", 8000, 64, 1, slow},
	} {
		b.Run(tt.name, func(b *testing.B) {
			fleets := [2]*benchFleet{startFleet(b, 1, tt.settings...), startFleet(b, 4, tt.settings...)}
			compare(b, fleets, [2]string{"one", "four"}, tt.jobs, tt.producers, tt.batch)
		})
	}
}

// BenchmarkStandby enqueues and runs jobs on a server alone, and on one whose commits
// wait until a synchronous standby has applied them. The standby's own processor time
// does not count.
func BenchmarkStandby(b *testing.B) {
	for _, tt := range []struct{ jobs, producers, batch int }{{16_000, 1, 1000}, {8000, 16, 1}} {
		b.Run(fmt.Sprintf("producers=%d,batch=%d", tt.producers, tt.batch), func(b *testing.B) {
			alone, beside := startFleet(b, 1), startFleet(b, 1)
			standby, err := beside.servers[0].Standby()
			must(b, err)
			b.Cleanup(func() { _ = standby.Close() })
			fleets, units := [2]*benchFleet{alone, beside}, [2]string{"alone", "standby"}
			compare(b, fleets, units, tt.jobs, tt.producers, tt.batch)
		})
	}
}

// BenchmarkDeadServer enqueues jobs for three cells of four while the fourth server is up
// and while it is down, in alternation. Other producers enqueue for the fourth cell, and
// without a key. It reports the 99th percentile of enqueues for the three.
func BenchmarkDeadServer(b *testing.B) {
	f := startFleet(b, 4)
	m, err := f.Map(b.Context())
	must(b, err)
	alive := make(map[int]bool) // partitions of the first three
	for _, name := range []string{"a", "b", "c"} {
		for _, p := range m.Partitions(name) {
			alive[p] = true
		}
	}
	var keys [2][]string // of the dead cell, of the others
	for i := range 1000 {
		key, of := fmt.Sprint("key-", i), 0
		if alive[fleet.Partition(key)] {
			of = 1
		}
		keys[of] = append(keys[of], key)
	}
	var took [2][]time.Duration
	var failed atomic.Int64 // without a key
	part := func(k int) {
		ctx, stop := context.WithCancel(b.Context())
		var others sync.WaitGroup
		for p := range 4 {
			others.Go(func() {
				for i := p; ctx.Err() == nil; i++ {
					key := fleet.WithCell(keys[0][i%len(keys[0])])
					_, _ = f.Enqueue(ctx, "x", i, key) // fails while the server is down
					if _, err := f.Enqueue(ctx, "x", i); err != nil && ctx.Err() == nil {
						failed.Add(1)
					}
					pace.Work(time.Millisecond)
				}
			})
		}
		for i := range 2000 {
			began := time.Now()
			if _, err := f.Enqueue(ctx, "x", i, fleet.WithCell(keys[1][i%len(keys[1])])); err != nil {
				b.Error(err)
			}
			took[k] = append(took[k], time.Since(began))
		}
		stop()
		others.Wait()
	}
	for range b.N {
		part(0)
		must(b, f.servers[3].Crash())
		part(1)
		must(b, f.servers[3].Up())
		pace.Until(b, "the server is back", func() bool {
			_, err := f.Enqueue(b.Context(), "x", 0, fleet.WithCell(keys[0][0]))
			return err == nil
		})
	}
	var p99 [2]float64
	for k, unit := range []string{"p99-ms-alive", "p99-ms-dead"} {
		slices.Sort(took[k])
		p99[k] = took[k][len(took[k])*99/100].Seconds() * 1e3
		b.ReportMetric(p99[k], unit)
	}
	b.ReportMetric(p99[1]/p99[0], "ratio")
	b.ReportMetric(float64(failed.Load()), "errors-without-key")
}
