package fleet_test

import (
	"context"
	"fmt"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/ojsengine/ojs"
	"github.com/ojsengine/ojs/engine"
	"github.com/ojsengine/ojs/fleet"
	"github.com/ojsengine/ojs/internal/test/pace"
	"github.com/ojsengine/ojs/storage/memory"
	"github.com/ojsengine/ojs/storage/storagetest"
)

// processorTime is that of this process.
func processorTime() time.Duration {
	var u syscall.Rusage
	_ = syscall.Getrusage(syscall.RUSAGE_SELF, &u)
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

func benchFleet(
	b *testing.B, cells int, wrap func(*storagetest.Faulty) *storagetest.Faulty, slots int,
) *fleet.Fleet[int] {
	cfg := fleet.Config{Concurrency: slots}
	for i := range cells {
		cell := fleet.Cell{Name: string(rune('a' + i)), Store: memory.New()}
		if wrap != nil {
			cell.Store = wrap(&storagetest.Faulty{Storage: cell.Store})
		}
		b.Cleanup(func() { _ = cell.Store.Close() })
		cfg.Cells = append(cfg.Cells, cell)
	}
	f, err := fleet.New[int](cfg, quiet)
	if err != nil {
		b.Fatal(err)
	}
	return f
}

// The processor time of a keyed enqueue through the fleet, of that of its engine with the
// same option, and of a batch of 1,000, in alternation.
func BenchmarkKeyed(b *testing.B) {
	ctx := context.Background()
	for _, batch := range []int{1, 1000} {
		b.Run(fmt.Sprintf("batch=%d", batch), func(b *testing.B) {
			f := benchFleet(b, 1, nil, 10)
			eng, err := f.Cell(ctx, "key-1")
			if err != nil {
				b.Fatal(err)
			}
			drafts := make([]ojs.Draft, batch)
			for i := range drafts {
				drafts[i] = ojs.NewDraft("x", i, fleet.WithCell("key-1"))
			}
			var spent [2]time.Duration
			const part = 1000
			for range b.N {
				for k, q := range []front{eng, f} {
					runtime.GC()
					began := processorTime()
					for i := range part / batch {
						if batch == 1 {
							_, err = q.Enqueue(ctx, "x", i, fleet.WithCell("key-1"))
						} else {
							_, err = q.EnqueueMany(ctx, drafts...)
						}
						if err != nil {
							b.Fatal(err)
						}
					}
					spent[k] += processorTime() - began
				}
			}
			b.ReportMetric(float64(spent[0].Nanoseconds())/float64(b.N*part), "engine-ns")
			b.ReportMetric(float64(spent[1].Nanoseconds())/float64(b.N*part), "fleet-ns")
			b.ReportMetric(float64(spent[1])/float64(spent[0]), "ratio")
		})
	}
}

// The processor time of a job in batches of 1,000 for a key, enqueued and run by 64
// slots, with one cell and with four, in alternation.
func BenchmarkBatches(b *testing.B) {
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	var spent [2]time.Duration
	const part = 8000
	var fleets []*fleet.Fleet[int]
	var left atomic.Int64
	done := make(chan bool, 1)
	for _, cells := range []int{1, 4} {
		f := benchFleet(b, cells, nil, 64)
		f.Handle("x", func(context.Context, *ojs.Job[int]) error {
			if left.Add(-1) == 0 {
				done <- true
			}
			return nil
		})
		go func() { _ = f.Run(ctx) }()
		fleets = append(fleets, f)
	}
	for range b.N {
		for k, f := range fleets {
			runtime.GC()
			left.Store(part)
			began := processorTime()
			for i := range part / 1000 {
				drafts := make([]ojs.Draft, 1000)
				for n := range drafts {
					drafts[n] = ojs.NewDraft("x", n, fleet.WithCell(keyIn(i%4, 4)))
				}
				if _, err := f.EnqueueMany(ctx, drafts...); err != nil {
					b.Fatal(err)
				}
			}
			<-done
			spent[k] += processorTime() - began
		}
	}
	b.ReportMetric(float64(spent[0].Nanoseconds())/float64(b.N*part), "one-ns")
	b.ReportMetric(float64(spent[1].Nanoseconds())/float64(b.N*part), "four-ns")
	b.ReportMetric(float64(spent[1])/float64(spent[0]), "ratio")
}

// Enqueues from 64 producers over storages that store one batch at a time and take 10 ms
// for it without processor time, with one cell and with four.
func BenchmarkSlowCommits(b *testing.B) {
	for _, keyed := range []bool{true, false} {
		b.Run(fmt.Sprintf("keyed=%v", keyed), func(b *testing.B) {
			var rates []float64
			for range b.N {
				for _, cells := range []int{1, 4} {
					f := benchFleet(b, cells, func(s *storagetest.Faulty) *storagetest.Faulty {
						var commit sync.Mutex
						s.OnCall(func(c *storagetest.Call) {
							if c.Method == "Insert" {
								commit.Lock()
								defer commit.Unlock()
								pace.Work(10 * time.Millisecond)
							}
						})
						return s
					}, 64)
					ctx, stop := context.WithTimeout(context.Background(), 2*time.Second)
					var n atomic.Int64
					var all sync.WaitGroup
					for p := range 64 {
						all.Go(func() {
							for i := 0; ctx.Err() == nil; i++ {
								var opts []ojs.Option
								if keyed {
									opts = append(opts, fleet.WithCell(fmt.Sprint(p, "-", i)))
								}
								if _, err := f.Enqueue(ctx, "x", i, opts...); err == nil {
									n.Add(1)
								}
							}
						})
					}
					all.Wait()
					stop()
					rates = append(rates, float64(n.Load())/2)
				}
			}
			var one, four float64
			for i := 0; i < len(rates); i += 2 {
				one, four = one+rates[i], four+rates[i+1]
			}
			b.ReportMetric(one/float64(b.N), "one/s")
			b.ReportMetric(four/float64(b.N), "four/s")
			b.ReportMetric(four/one, "ratio")
		})
	}
}

// The 99th percentile of keyed enqueues to three cells of four, with the fourth alive and
// dead, in alternation, while other producers have keys of it and none.
func BenchmarkDeadCell(b *testing.B) {
	ctx := context.Background()
	var stores []*storagetest.Faulty
	f := benchFleet(b, 4, func(s *storagetest.Faulty) *storagetest.Faulty {
		stores = append(stores, s)
		return s
	}, 64)
	if _, err := f.Enqueue(ctx, "x", 1); err != nil {
		b.Fatal(err)
	}
	var took [2][]time.Duration
	for range b.N {
		for k := range took {
			if stores[3].OnCall(nil); k == 1 {
				stores[3].OnCall(func(c *storagetest.Call) { c.Err = errDown })
			}
			for i := range 3000 {
				began := time.Now()
				if _, err := f.Enqueue(ctx, "x", i, fleet.WithCell(keyIn(i%3, 4))); err != nil {
					b.Fatal(err)
				}
				took[k] = append(took[k], time.Since(began))
				_, _ = f.Enqueue(ctx, "x", i, fleet.WithCell(keyIn(3, 4)))
				if _, err := f.Enqueue(ctx, "x", i); err != nil {
					b.Fatal(err)
				}
			}
		}
	}
	for k := range took {
		slices.Sort(took[k])
	}
	alive, dead := took[0][len(took[0])*99/100], took[1][len(took[1])*99/100]
	b.ReportMetric(float64(alive.Nanoseconds()), "alive-p99-ns")
	b.ReportMetric(float64(dead.Nanoseconds()), "dead-p99-ns")
	b.ReportMetric(float64(dead)/float64(alive), "ratio")
}

var _ front = (*engine.Engine[int])(nil)
