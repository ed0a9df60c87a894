package main

import (
	"context"
	"runtime"

	"github.com/benbjohnson/clock"

	"github.com/ojsengine/ojs/bench/internal/load"
)

// wall is the clock on the wall, which benchmarks go by.
var wall = clock.New()

// rate is what throughput measures.
type rate struct{ jobsPerSecond, allocsPerJob, bytesPerJob float64 }

// throughput takes jobs through a fresh system: from before the first enqueue until the
// last is over.
func throughput(ctx context.Context, c contender, jobs, producers, workers int) (rate, error) {
	left := load.NewCountdown(jobs)
	s, err := c.start(workers, func(load.Args) { left.Done() })
	if err != nil {
		return rate{}, err
	}
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	start := wall.Now()
	if err := run(ctx, s, left, jobs, producers, c.batch); err != nil {
		return rate{}, err
	}
	took := wall.Since(start)
	runtime.ReadMemStats(&after)
	if err := left.Exact(); err != nil {
		return rate{}, err
	}
	n := float64(jobs)
	return rate{
		jobsPerSecond: n / took.Seconds(),
		allocsPerJob:  float64(after.Mallocs-before.Mallocs) / n,
		bytesPerJob:   float64(after.TotalAlloc-before.TotalAlloc) / n,
	}, s.close()
}

// run enqueues the jobs and waits until they are over.
func run(ctx context.Context, s *system, left *load.Countdown, jobs, producers, batch int) error {
	if err := load.Produce(ctx, jobs, producers, batch, s.enqueue); err != nil {
		return err
	}
	if err := left.Wait(ctx); err != nil {
		return err
	}
	if s.settle == nil {
		return nil
	}
	return s.settle(ctx)
}
