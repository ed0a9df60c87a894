package main

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/ojsengine/ojs/bench/internal/load"
)

// idle is how long a system is left alone before each sample, so that its goroutines
// sleep and have to be woken.
const idle = 500 * time.Microsecond

// latency returns the times from before an enqueue until the handler starts, sorted, of
// jobs that come one at a time.
func latency(ctx context.Context, c contender, samples, workers int) ([]time.Duration, error) {
	started := make(chan time.Time, 1)
	s, err := c.start(workers, func(load.Args) { started <- wall.Now() })
	if err != nil {
		return nil, err
	}
	took := make([]time.Duration, 0, samples)
	for id := range samples {
		wall.Sleep(idle)
		before := wall.Now()
		if err := s.enqueue(ctx, id, 1); err != nil {
			return nil, err
		}
		select {
		case at := <-started:
			took = append(took, at.Sub(before))
		case <-ctx.Done():
			return nil, fmt.Errorf("job %d of %d has not started: %w", id+1, samples, context.Cause(ctx))
		}
	}
	slices.Sort(took)
	return took, s.close()
}

// percentile picks one of sorted times, of which there is at least one.
func percentile(sorted []time.Duration, p int) time.Duration {
	return sorted[min(len(sorted)*p/100, len(sorted)-1)]
}
