package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/ojsengine/ojs/bench/internal/report"
)

// entry makes a contender for one round, and what removes its database.
type entry func(ctx context.Context) (c Contender, remove func() error, err error)

// measure takes all measurements that the config asks for. Its errors are those of ctx
// and of servers and files; a contender's are in the report.
func measure(ctx context.Context, cfg config) (_ *report.Report, err error) {
	r := &report.Report{Machine: report.ThisMachine()}
	onServer, onFile := postgresSections, sqliteSections
	if len(cfg.processes) > 0 {
		onServer, onFile = sharedOnPostgres, sharedOnSQLite
	}
	if cfg.on != "sqlite" {
		s, err := startServer(cfg.dir)
		if err != nil {
			return nil, err
		}
		err = errors.Join(onServer(ctx, cfg, r, s), s.Close())
		if err != nil {
			return nil, err
		}
	}
	if cfg.on != "postgres" && cfg.samples == 0 {
		if err := onFile(ctx, cfg, r); err != nil {
			return nil, err
		}
	}
	return r, nil
}

func postgresSections(ctx context.Context, cfg config, r *report.Report, on *server) error {
	var entries []entry
	for _, newContender := range onPostgres {
		entries = append(entries, func(ctx context.Context) (Contender, func() error, error) {
			pool, remove, err := database(ctx, on.dsn, cfg.conns)
			if err != nil {
				return nil, nil, err
			}
			if cfg.old {
				if err := keepOld(ctx, pool); err != nil {
					return nil, nil, errors.Join(err, remove())
				}
			}
			return newContender(pool, cfg.workers), remove, nil
		})
	}
	if cfg.samples > 0 {
		return latencies(ctx, cfg, r, "PostgreSQL", entries)
	}
	return sections(ctx, cfg, r, "PostgreSQL", cfg.jobs, on.meter(), entries)
}

func sqliteSections(ctx context.Context, cfg config, r *report.Report) error {
	for _, sync := range cfg.sync {
		var entries []entry
		for _, newContender := range onSQLite {
			entries = append(entries, func(context.Context) (Contender, func() error, error) {
				dir, err := os.MkdirTemp(cfg.dir, "sqlite")
				if err != nil {
					return nil, nil, err
				}
				remove := func() error { return os.RemoveAll(dir) }
				return newContender(filepath.Join(dir, "jobs.db"), sync, cfg.workers), remove, nil
			})
		}
		if err := sections(ctx, cfg, r, "SQLite, synchronous="+string(sync), cfg.sqliteJobs, meter{},
			entries); err != nil {
			return err
		}
	}
	return nil
}

// sections measures both ways to enqueue: one producer with batches, and many job by job.
func sections(
	ctx context.Context, cfg config, r *report.Report, where string, jobs int, at meter, entries []entry,
) error {
	for _, m := range []mode{{producers: 1, batch: cfg.batch}, {producers: cfg.producers, batch: 1}} {
		s := &report.Section{
			Title: fmt.Sprintf("%s: %d jobs%s, %d producers, batches of %d, %d workers, medians of %d rounds",
				where, jobs, cfg.behind(), m.producers, m.batch, cfg.workers, cfg.rounds),
			Metrics: []report.Metric{{Name: "jobs/s"}},
		}
		if at.pid > 0 {
			s.Metrics = append(s.Metrics, costs...)
		}
		r.Sections = append(r.Sections, s)
		for range cfg.rounds {
			for _, e := range entries {
				err := turn(ctx, cfg, s, e, func(ctx context.Context, c Contender) ([]float64, error) {
					took, spent, err := endToEnd(ctx, c, cfg.finished, jobs, m, at)
					return append([]float64{float64(jobs) / took.Seconds()}, spent...), err
				})
				if err != nil {
					return err
				}
			}
		}
		if len(s.Rows) > 0 {
			s.Base = s.Rows[0].Name
		}
	}
	return nil
}

// behind is what the title of a section says of the jobs that are there before.
func (c *config) behind() string {
	if c.finished == 0 {
		return ""
	}
	return fmt.Sprintf(" behind %d finished", c.finished)
}

// turn is one contender's turn in a round, which returns a value for each metric. A
// contender that has failed is skipped.
func turn(
	ctx context.Context, cfg config, s *report.Section, e entry,
	take func(context.Context, Contender) ([]float64, error),
) (err error) {
	c, remove, err := e(ctx)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, remove()) }()
	if !cfg.only.MatchString(c.Name()) || s.Failed(c.Name()) {
		return nil
	}
	limited, cancel := wall.WithTimeout(ctx, cfg.timeout)
	defer cancel()
	values, err := take(limited, c)
	switch {
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case errors.Is(err, errors.ErrUnsupported):
	case errors.Is(err, context.DeadlineExceeded):
		s.Fail(c.Name(), fmt.Errorf("not finished within %v: %w", cfg.timeout, err))
	case err != nil:
		s.Fail(c.Name(), err)
	default:
		s.Add(c.Name(), values[:len(s.Metrics)]...)
	}
	return nil
}

// endToEnd returns how long jobs took behind finished ones, and what each of them cost.
func endToEnd(
	ctx context.Context, c Contender, finished, jobs int, m mode, at meter,
) (took time.Duration, spent []float64, err error) {
	defer func() { err = errors.Join(err, c.Close()) }()
	if err := c.Setup(ctx); err != nil {
		return 0, nil, err
	}
	if finished > 0 {
		f, ok := c.(Filler)
		if !ok {
			return 0, nil, errors.ErrUnsupported
		}
		if err := f.Fill(ctx, finished); err != nil {
			return 0, nil, err
		}
	}
	before, err := at.read(ctx)
	if err != nil {
		return 0, nil, err
	}
	if took, err = c.EndToEnd(ctx, jobs, m.producers, m.batch); err != nil {
		return took, nil, err
	}
	after, err := at.read(ctx)
	return took, after.perJob(before, jobs), err
}
