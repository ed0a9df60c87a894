//go:build unix

// Package watchcost measures what it costs to watch an engine.
package watchcost

import (
	"context"
	"slices"
	"syscall"
	"testing"
	"time"

	"github.com/ojsengine/ojs"
	"github.com/ojsengine/ojs/engine"
	"github.com/ojsengine/ojs/storage/memory"
)

// Way is a way of watching an engine.
type Way struct {
	Name  string
	Begin func(*testing.B) Watch // called for each engine; nil: nothing watches
}

// Watch is what watches one engine.
type Watch struct {
	Options   []engine.Option
	Subscribe *engine.EventFilter // nil: nothing subscribes
	Scrape    func() error        // called when the jobs have ended; nil: none
}

const jobs = 100_000

// Benchmark runs the same 100,000 jobs in memory in each way. The rounds take turns. Its
// figures are medians of processor time: of a job in the first way, and the rates in the
// others as shares of the rate in the first.
func Benchmark(b *testing.B, ways ...Way) {
	used := make([][]float64, len(ways))
	for i := 0; b.Loop(); i++ {
		for k := range ways { // each is first in its turn
			k = (k + i) % len(ways)
			used[k] = append(used[k], ways[k].round(b))
		}
	}
	median := func(list []float64) float64 {
		slices.Sort(list)
		return list[len(list)/2]
	}
	first := median(used[0])
	b.ReportMetric(first/jobs*1e9, ways[0].Name+"-ns/job")
	for k := 1; k < len(ways); k++ {
		b.ReportMetric(first/median(used[k]), ways[k].Name+"-rate")
	}
}

// round runs the jobs and returns the seconds of processor time.
func (w *Way) round(b *testing.B) float64 {
	type args struct {
		N int
		S string
	}
	var watch Watch
	if w.Begin != nil {
		watch = w.Begin(b)
	}
	eng, err := engine.New[args](memory.New(), append(watch.Options, engine.WithConcurrency(8))...)
	if err != nil {
		b.Fatal(err)
	}
	if watch.Subscribe != nil {
		defer eng.Subscribe(*watch.Subscribe).Close()
	}
	eng.Handle("noop", func(context.Context, *ojs.Job[args]) error { return nil })
	ctx, stop := context.WithCancel(b.Context())
	ended := make(chan error, 1)
	go func() { ended <- eng.Run(ctx) }()
	before := processorTime(b)
	for i := range jobs {
		if _, err := eng.Enqueue(ctx, "noop", args{i, "x"}); err != nil {
			b.Fatal(err)
		}
	}
	if err := eng.WaitIdle(ctx); err != nil {
		b.Fatal(err)
	}
	if watch.Scrape != nil {
		if err := watch.Scrape(); err != nil {
			b.Fatal(err)
		}
	}
	used := processorTime(b) - before
	stop()
	if err := <-ended; err != nil {
		b.Fatal(err)
	}
	return used
}

// processorTime is what this process has used, in seconds.
func processorTime(b *testing.B) float64 {
	var used syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &used); err != nil {
		b.Fatal(err)
	}
	return time.Duration(used.Utime.Nano() + used.Stime.Nano()).Seconds()
}
