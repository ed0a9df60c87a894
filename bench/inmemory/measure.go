package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/ojsengine/ojs/bench/internal/report"
)

// inLatency are those of which the latency says something that the others would only repeat.
var inLatency = []string{"channel", "golang-queue task", "golang-queue message", ours}

// measure takes all measurements that the config asks for. Its error is that of ctx; a contender's is in the report.
func measure(ctx context.Context, cfg config) (*report.Report, error) {
	r := &report.Report{Machine: report.ThisMachine()}
	for _, producers := range cfg.producers {
		for _, workers := range cfg.workers {
			s := &report.Section{
				Title:   fmt.Sprintf("Throughput: %d jobs, %d producers, %d workers, medians of %d rounds", cfg.jobs, producers, workers, cfg.rounds),
				Metrics: []report.Metric{{Name: "jobs/s"}, {Name: "allocs/job", Decimals: 1}, {Name: "bytes/job"}},
				Base:    ours,
			}
			r.Sections = append(r.Sections, s)
			err := rounds(ctx, cfg, s, contenders, func(ctx context.Context, c contender) ([]float64, error) {
				v, err := throughput(ctx, c, cfg.jobs, producers, workers)
				return []float64{v.jobsPerSecond, v.allocsPerJob, v.bytesPerJob}, err
			})
			if err != nil {
				return nil, err
			}
		}
	}
	if cfg.samples > 0 {
		s := &report.Section{
			Title:   fmt.Sprintf("From enqueue to handler in an idle system: %d samples, 8 workers, medians of %d rounds", cfg.samples, cfg.rounds),
			Metrics: []report.Metric{{Name: "p50 µs", Decimals: 1}, {Name: "p99 µs", Decimals: 1}},
			Base:    ours,
		}
		r.Sections = append(r.Sections, s)
		in := slices.DeleteFunc(slices.Clone(contenders), func(c contender) bool { return !slices.Contains(inLatency, c.name) })
		err := rounds(ctx, cfg, s, in, func(ctx context.Context, c contender) ([]float64, error) {
			sorted, err := latency(ctx, c, cfg.samples, 8)
			if err != nil {
				return nil, err
			}
			micros := func(p int) float64 { return float64(percentile(sorted, p)) / float64(time.Microsecond) }
			return []float64{micros(50), micros(99)}, nil
		})
		if err != nil {
			return nil, err
		}
	}
	if cfg.waiting > 0 {
		s := &report.Section{
			Title:   fmt.Sprintf("Memory that a waiting job keeps: %d jobs, medians of %d rounds", cfg.waiting, cfg.rounds),
			Metrics: []report.Metric{{Name: "bytes/job"}},
			Base:    ours,
		}
		r.Sections = append(r.Sections, s)
		in := slices.DeleteFunc(slices.Clone(contenders), func(c contender) bool { return c.hold == nil })
		in = append(in, contender{name: ours + " scheduled", batch: 1, hold: holdOJSScheduled})
		err := rounds(ctx, cfg, s, in, func(ctx context.Context, c contender) ([]float64, error) {
			bytes, err := retained(ctx, c, cfg.waiting)
			return []float64{bytes}, err
		})
		if err != nil {
			return nil, err
		}
	}
	return r, nil
}

// rounds interleaves: every contender has its first round before any has its second. One that fails is left out from then on.
func rounds(ctx context.Context, cfg config, s *report.Section, cs []contender, once func(ctx context.Context, c contender) ([]float64, error)) error {
	for range cfg.rounds {
		for _, c := range cs {
			if !cfg.only.MatchString(c.name) || s.Failed(c.name) {
				continue
			}
			turn, cancel := wall.WithTimeout(ctx, cfg.timeout)
			values, err := once(turn, c)
			cancel()
			switch {
			case ctx.Err() != nil:
				return context.Cause(ctx)
			case errors.Is(err, context.DeadlineExceeded):
				s.Fail(c.name, fmt.Errorf("not finished within %v: %w", cfg.timeout, err))
			case err != nil:
				s.Fail(c.name, err)
			default:
				s.Add(c.name, values...)
			}
		}
	}
	return nil
}
