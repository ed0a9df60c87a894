package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/ojsengine/ojs/bench/internal/report"
)

// Starter is a contender whose latency can be measured.
type Starter interface {
	Contender
	// Start begins to run jobs, and calls started when a handler is called. The function
	// enqueue stores one job in the same process, and stop ends what Start has begun.
	Start(ctx context.Context, started func()) (
		enqueue func(context.Context) error, stop func() error, err error)
}

// idle is how long a contender is left alone before each sample. By then the job before
// is stored as completed.
const idle = 20 * time.Millisecond

// latencies measures how long a job takes from before its enqueue until its handler
// starts, one job at a time.
func latencies(ctx context.Context, cfg config, r *report.Report, where string, entries []entry) error {
	s := &report.Section{
		Title: fmt.Sprintf("%s: latency of %d jobs, one at a time, %d workers, medians of %d rounds",
			where, cfg.samples, cfg.workers, cfg.rounds),
		Metrics: []report.Metric{{Name: "p50 µs"}, {Name: "p99 µs"}},
	}
	r.Sections = append(r.Sections, s)
	for range cfg.rounds {
		for _, e := range entries {
			err := turn(ctx, cfg, s, e, func(ctx context.Context, c Contender) ([]float64, error) {
				return latency(ctx, c, cfg.samples)
			})
			if err != nil {
				return err
			}
		}
	}
	if len(s.Rows) > 0 {
		s.Base = s.Rows[0].Name
	}
	return nil
}

// latency returns the percentiles of a section.
func latency(ctx context.Context, c Contender, samples int) (_ []float64, err error) {
	starter, ok := c.(Starter)
	if !ok {
		return nil, errors.ErrUnsupported
	}
	defer func() { err = errors.Join(err, c.Close()) }()
	if err := c.Setup(ctx); err != nil {
		return nil, err
	}
	started := make(chan time.Time, 1)
	enqueue, stop, err := starter.Start(ctx, func() { started <- wall.Now() })
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, stop()) }()
	var took []time.Duration
	for n := range samples {
		wall.Sleep(idle)
		before := wall.Now()
		if err := enqueue(ctx); err != nil {
			return nil, err
		}
		select {
		case at := <-started:
			took = append(took, at.Sub(before))
		case <-ctx.Done():
			return nil, fmt.Errorf("job %d of %d has not started: %w", n+1, samples, context.Cause(ctx))
		}
	}
	slices.Sort(took)
	at := func(p int) float64 {
		return float64(took[min(len(took)*p/100, len(took)-1)]) / float64(time.Microsecond)
	}
	return []float64{at(50), at(99)}, nil
}
