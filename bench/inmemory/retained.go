package main

import (
	"context"
	"runtime"

	"github.com/ojsengine/ojs/bench/internal/load"
)

// retained returns how many bytes a job that waits keeps from the garbage collector,
// stacks of goroutines that hold one included.
func retained(ctx context.Context, c contender, jobs int) (float64, error) {
	before := kept()
	s, err := c.hold(jobs)
	if err != nil {
		return 0, err
	}
	if err := load.Produce(ctx, jobs, 1, c.batch, s.enqueue); err != nil {
		return 0, err
	}
	after := kept()
	return (float64(after) - float64(before)) / float64(jobs), s.close()
}

// kept collects twice, since what the first collection finalizes the second one frees.
func kept() uint64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc + m.StackInuse
}
