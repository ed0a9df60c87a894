package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/ojsengine/ojs/bench/internal/load"
	"github.com/ojsengine/ojs/bench/internal/report"
)

// Sharer is a contender whose jobs several processes may run, each once.
type Sharer interface {
	Contender
	// Join replaces Setup in a process for which another one has made the tables.
	Join(ctx context.Context) error
	// Enqueue stores n jobs, numbered from first on, while no process works. It returns
	// errors.ErrUnsupported if the contender differs from another one in its enqueue
	// only.
	Enqueue(ctx context.Context, first, n int) error
	// Work runs jobs until ctx ends, and calls done for each when its handler is called.
	Work(ctx context.Context, done func()) error
	// Left returns how many jobs are not stored as completed.
	Left(ctx context.Context) (int, error)
}

// sharedOnPostgres measures how fast several processes work off a backlog that they
// share.
func sharedOnPostgres(ctx context.Context, cfg config, r *report.Report, on *server) error {
	dsn := on.dsn
	var places []place
	for _, newContender := range onPostgres {
		places = append(places, func(ctx context.Context) (order, func() error, error) {
			pool, remove, err := database(ctx, dsn, cfg.conns)
			if err != nil {
				return order{}, nil, err
			}
			name := newContender(pool, cfg.workers).Name()
			return order{Name: name, Server: dsn, Database: pool.Config().ConnConfig.Database,
				Workers: cfg.workers, Conns: cfg.conns}, remove, nil
		})
	}
	return shared(ctx, cfg, r, "PostgreSQL", cfg.jobs, places)
}

// sharedOnSQLite does the same on SQLite.
func sharedOnSQLite(ctx context.Context, cfg config, r *report.Report) error {
	for _, sync := range cfg.sync {
		var places []place
		for _, newContender := range onSQLite {
			places = append(places, func(context.Context) (order, func() error, error) {
				dir, err := os.MkdirTemp(cfg.dir, "sqlite")
				name := newContender("", sync, cfg.workers).Name()
				o := order{Name: name, File: filepath.Join(dir, "jobs.db"), Sync: sync, Workers: cfg.workers}
				return o, func() error { return os.RemoveAll(dir) }, err
			})
		}
		if err := shared(ctx, cfg, r, "SQLite, synchronous="+string(sync), cfg.sqliteJobs,
			places); err != nil {
			return err
		}
	}
	return nil
}

// place makes a database for one round of a contender, and what removes it.
type place func(ctx context.Context) (o order, remove func() error, err error)

func shared(ctx context.Context, cfg config, r *report.Report, where string, jobs int, places []place) error {
	for _, n := range cfg.processes {
		s := &report.Section{
			Title: fmt.Sprintf("%s: a backlog of %d jobs, %d processes, %d workers each, "+
				"medians of %d rounds", where, jobs, n, cfg.workers, cfg.rounds),
			Metrics: []report.Metric{{Name: "jobs/s"}},
			Base:    "ojs",
		}
		r.Sections = append(r.Sections, s)
		for range cfg.rounds {
			for _, p := range places {
				if err := sharedRound(ctx, cfg, s, p, jobs, n); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

// sharedRound is one contender's turn. A contender that has failed is skipped.
func sharedRound(ctx context.Context, cfg config, s *report.Section, p place, jobs, n int) (err error) {
	o, remove, err := p(ctx)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, remove()) }()
	c, release, err := o.contender(ctx)
	if err != nil {
		return err
	}
	defer release()
	sharer, ok := c.(Sharer)
	if !ok || !cfg.only.MatchString(c.Name()) || s.Failed(c.Name()) {
		return nil
	}
	turn, cancel := wall.WithTimeout(ctx, cfg.timeout)
	defer cancel()
	took, err := backlog(turn, sharer, o, jobs, n)
	switch {
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case errors.Is(err, errors.ErrUnsupported):
	case err != nil:
		s.Fail(c.Name(), err)
	default:
		s.Add(c.Name(), float64(jobs)/took.Seconds())
	}
	return nil
}

// backlog takes the time that n processes need for jobs that are there before they begin.
func backlog(ctx context.Context, c Sharer, o order, jobs, n int) (took time.Duration, err error) {
	defer func() { err = errors.Join(err, c.Close()) }()
	if err := c.Setup(ctx); err != nil {
		return 0, err
	}
	if err := load.Produce(ctx, jobs, 1, 1000, c.Enqueue); err != nil {
		return 0, err
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	ready, ran, ended := make(chan struct{}, n), make(chan int, n), make(chan error, n)
	var inputs []io.Closer
	total := 0
	defer func() {
		for _, in := range inputs {
			_ = in.Close() // which ends the process
		}
		for left := len(inputs); left > 0; {
			select {
			case some := <-ran:
				total += some
			case end := <-ended:
				err = errors.Join(err, end)
				left--
			}
		}
		if err == nil && total != jobs {
			err = fmt.Errorf("%d jobs ran %d times", jobs, total)
		}
	}()
	var starts []io.Writer
	for range n {
		in, out, wait, err := startWorker(ctx, o)
		if err != nil {
			return 0, err
		}
		inputs, starts = append(inputs, in), append(starts, in)
		go func() {
			listen(out, ready, ran)
			ended <- wait()
		}()
	}
	for range n {
		select {
		case <-ready:
		case err := <-ended:
			ended <- nil // which the end waits for
			return 0, errors.Join(errors.New("a worker process has ended"), err)
		case <-ctx.Done():
			return 0, context.Cause(ctx)
		}
	}
	start := wall.Now()
	for _, w := range starts {
		if _, err := io.WriteString(w, "start\n"); err != nil {
			return 0, err
		}
	}
	for total < jobs {
		select {
		case some := <-ran:
			total += some
		case err := <-ended:
			ended <- nil // which the end waits for
			return 0, errors.Join(errors.New("a worker process has ended"), err)
		case <-ctx.Done():
			return 0, fmt.Errorf("%d of %d jobs have run: %w", total, jobs, context.Cause(ctx))
		}
	}
	for {
		left, err := c.Left(ctx)
		if err != nil {
			return 0, err
		}
		if left == 0 {
			break
		}
		wall.Sleep(time.Millisecond)
	}
	return wall.Since(start), nil
}

// listen reads what a worker process says: that it is ready, and then how many more jobs
// have run.
func listen(out io.Reader, ready chan<- struct{}, ran chan<- int) {
	for lines := bufio.NewScanner(out); lines.Scan(); {
		if n, err := strconv.Atoi(lines.Text()); err == nil {
			ran <- n
		} else {
			ready <- struct{}{}
		}
	}
}

// envOrder tells a process of this program that it is a worker, and which.
const envOrder = "OJS_BENCH_ORDER"

// order is what a worker process is to do, and where.
type order struct {
	Name             string
	Server, Database string      // of PostgreSQL
	File             string      // of SQLite
	Sync             synchronous // of SQLite
	Workers, Conns   int
}

// contender makes the contender of the order, with a pool of its own.
func (o order) contender(ctx context.Context) (c Contender, release func(), err error) {
	if o.File != "" {
		for _, newContender := range onSQLite {
			if c := newContender(o.File, o.Sync, o.Workers); c.Name() == o.Name {
				return c, func() {}, nil
			}
		}
		return nil, nil, fmt.Errorf("%q is no contender", o.Name)
	}
	config, err := pgxpool.ParseConfig(o.Server)
	if err != nil {
		return nil, nil, err
	}
	config.ConnConfig.Database, config.MaxConns = o.Database, int32(o.Conns)
	pool, err := pgxpool.NewWithConfig(ctx, config)
	if err != nil {
		return nil, nil, err
	}
	for _, newContender := range onPostgres {
		if c := newContender(pool, o.Workers); c.Name() == o.Name {
			return c, pool.Close, nil
		}
	}
	pool.Close()
	return nil, nil, fmt.Errorf("%q is no contender", o.Name)
}

// startWorker starts a process of this program as a worker. It ends when its input does.
func startWorker(
	ctx context.Context, o order,
) (in io.WriteCloser, out io.Reader, wait func() error, err error) {
	text, err := json.Marshal(o)
	if err != nil {
		return nil, nil, nil, err
	}
	cmd := exec.CommandContext(ctx, os.Args[0])
	cmd.Env = append(os.Environ(), envOrder+"="+string(text))
	cmd.Stderr = os.Stderr
	if in, err = cmd.StdinPipe(); err != nil {
		return nil, nil, nil, err
	}
	if out, err = cmd.StdoutPipe(); err != nil {
		return nil, nil, nil, err
	}
	return in, out, cmd.Wait, cmd.Start()
}

// processCounts reads a list such as "1,2,4".
func processCounts(s string) (list []int, err error) {
	for part := range strings.SplitSeq(s, ",") {
		n, err := strconv.Atoi(part)
		if err != nil || n < 1 {
			return nil, fmt.Errorf("%q is no number of processes", part)
		}
		list = append(list, n)
	}
	return list, nil
}
