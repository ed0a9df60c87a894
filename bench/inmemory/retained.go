package main

import (
	"context"
	"fmt"
	"runtime"
	"time"

	"github.com/ojsengine/ojs/bench/internal/load"
)

// retained returns how many bytes a job that waits keeps from the garbage collector, stacks of goroutines that hold one
// included.
func retained(ctx context.Context, c contender, jobs int) (float64, error) {
	goroutines := runtime.NumGoroutine()
	before := kept()
	s, err := c.hold(jobs)
	if err != nil {
		return 0, err
	}
	if err := load.Produce(ctx, jobs, 1, c.batch, s.enqueue); err != nil {
		return 0, err
	}
	after := kept()
	if err := s.close(); err != nil {
		return 0, err
	}
	return (float64(after) - float64(before)) / float64(jobs), gone(ctx, goroutines)
}

// gone waits until no more goroutines are left than there were. A contender may be closed before they all have ended, and
// the memory that they give back then would be subtracted from what the next contender keeps.
func gone(ctx context.Context, before int) error {
	for runtime.NumGoroutine() > before {
		if ctx.Err() != nil {
			return fmt.Errorf("%d goroutines have not ended: %w", runtime.NumGoroutine()-before, context.Cause(ctx))
		}
		wall.Sleep(time.Millisecond)
	}
	return nil
}

// kept collects twice, since what the first collection finalizes the second one frees.
func kept() uint64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc + m.StackInuse
}
