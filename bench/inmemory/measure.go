package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/ojsengine/ojs/bench/internal/report"
)

// idleWorkers is how many jobs could run at once where only one does.
const idleWorkers = 8

// measure takes all measurements that the config asks for. Its error is that of ctx; a
// contender's is in the report.
func measure(ctx context.Context, cfg config) (*report.Report, error) {
	r := &report.Report{Machine: report.ThisMachine()}
	for _, producers := range cfg.producers {
		for _, workers := range cfg.workers {
			s := &report.Section{
				Title: fmt.Sprintf("Throughput: %d jobs, %d producers, %d workers, medians of %d rounds",
					cfg.jobs, producers, workers, cfg.rounds),
				Metrics: []report.Metric{{Name: "jobs/s"}, {Name: "allocs/job", Decimals: 1},
					{Name: "bytes/job"}},
				Base: ours,
			}
			r.Sections = append(r.Sections, s)
			if err := rounds(ctx, cfg, s, contender.runs, turn{Measure: ofThroughput, Jobs: cfg.jobs,
				Producers: producers, Workers: workers}); err != nil {
				return nil, err
			}
		}
	}
	if cfg.samples > 0 {
		s := &report.Section{
			Title:   fmt.Sprintf("From enqueue to handler in an idle system: %d samples, %d workers, medians of %d rounds", cfg.samples, idleWorkers, cfg.rounds),
			Metrics: []report.Metric{{Name: "p50 µs", Decimals: 1}, {Name: "p99 µs", Decimals: 1}},
			Base:    ours,
		}
		r.Sections = append(r.Sections, s)
		if err := rounds(ctx, cfg, s, contender.inLatency,
			turn{Measure: ofLatency, Jobs: cfg.samples, Workers: idleWorkers}); err != nil {
			return nil, err
		}
	}
	if cfg.waiting > 0 {
		s := &report.Section{
			Title: fmt.Sprintf("Memory that a waiting job keeps: %d jobs, medians of %d rounds",
				cfg.waiting, cfg.rounds),
			Metrics: []report.Metric{{Name: "bytes/job"}},
			Base:    ours,
		}
		r.Sections = append(r.Sections, s)
		if err := rounds(ctx, cfg, s, contender.holds,
			turn{Measure: ofMemory, Jobs: cfg.waiting}); err != nil {
			return nil, err
		}
	}
	return r, nil
}

// rounds interleaves: every contender has its first round before any has its second. A
// contender that fails is left out from then on.
func rounds(ctx context.Context, cfg config, s *report.Section, takesPart func(contender) bool,
	t turn) error {
	for range cfg.rounds {
		for _, c := range contenders {
			if !takesPart(c) || !cfg.only.MatchString(c.name) || s.Failed(c.name) {
				continue
			}
			t.Contender = c.name
			limited, cancel := wall.WithTimeout(ctx, cfg.timeout)
			values, err := t.delegate(limited)
			cancel()
			switch {
			case ctx.Err() != nil:
				return context.Cause(ctx)
			case errors.Is(err, context.DeadlineExceeded):
				s.Fail(c.name, fmt.Errorf("not finished within %v", cfg.timeout))
			case err != nil:
				s.Fail(c.name, err)
			default:
				s.Add(c.name, values...)
			}
		}
	}
	return nil
}
