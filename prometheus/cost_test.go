//go:build unix

package ojsprometheus_test

import (
	"context"
	"slices"
	"syscall"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/ojsengine/ojs"
	"github.com/ojsengine/ojs/engine"
	ojsprometheus "github.com/ojsengine/ojs/prometheus"
	"github.com/ojsengine/ojs/storage/memory"
)

// BenchmarkWatched runs the same 100,000 jobs in memory with and without what watches an
// engine. The rounds take turns. Its figures are medians of processor time: of a job, and
// of the rate without as a share.
func BenchmarkWatched(b *testing.B) {
	type args struct {
		N int
		S string
	}
	const jobs = 100_000
	round := func(b *testing.B, opts []engine.Option, subscribe bool) (seconds float64) {
		eng, err := engine.New[args](memory.New(), append(opts, engine.WithConcurrency(8))...)
		if err != nil {
			b.Fatal(err)
		}
		if subscribe {
			defer eng.Subscribe(engine.EventFilter{Types: []ojs.EventType{ojs.EventDiscarded}}).Close()
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
		seconds = processorTime(b) - before
		stop()
		if err := <-ended; err != nil {
			b.Fatal(err)
		}
		return seconds
	}
	ways := []struct {
		name string
		run  func(b *testing.B) float64
	}{
		{"alone", func(b *testing.B) float64 { return round(b, nil, false) }},
		{"collector", func(b *testing.B) float64 {
			c, reg := ojsprometheus.New(), prometheus.NewRegistry()
			reg.MustRegister(c)
			seconds := round(b, []engine.Option{engine.WithObserver(c)}, false)
			before := processorTime(b)
			if _, err := reg.Gather(); err != nil {
				b.Fatal(err)
			}
			return seconds + processorTime(b) - before
		}},
		{"history", func(b *testing.B) float64 {
			return round(b, []engine.Option{engine.WithReports(engine.Reports{Every: time.Second})}, true)
		}},
	}
	used := make([][]float64, len(ways))
	for i := 0; b.Loop(); i++ {
		for k := range ways { // each is first in its turn
			k = (k + i) % len(ways)
			used[k] = append(used[k], ways[k].run(b))
		}
	}
	median := func(list []float64) float64 {
		slices.Sort(list)
		return list[len(list)/2]
	}
	alone := median(used[0])
	b.ReportMetric(alone/jobs*1e9, "alone-ns/job")
	for k := 1; k < len(ways); k++ {
		b.ReportMetric(alone/median(used[k]), ways[k].name+"-rate")
	}
}

// processorTime is what this process has used, in seconds.
func processorTime(b *testing.B) float64 {
	var used syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &used); err != nil {
		b.Fatal(err)
	}
	return time.Duration(used.Utime.Nano() + used.Stime.Nano()).Seconds()
}
