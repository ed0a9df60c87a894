package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/ojsengine/ojs"
	"github.com/ojsengine/ojs/bench/internal/load"
	"github.com/ojsengine/ojs/engine"
	"github.com/ojsengine/ojs/storage"
	"github.com/ojsengine/ojs/storage/postgres"
	"github.com/ojsengine/ojs/storage/sqlite"
)

// ojsContender is this repository's engine with everything on: events can be subscribed
// to, finished jobs are pruned to the default number by the engine itself while it is
// measured.
type ojsContender struct {
	workers int
	open    func(ctx context.Context) (storage.Storage, error)
	store   storage.Storage
	pool    *pgxpool.Pool // on PostgreSQL
	filled  int           // finished jobs that were there before
}

func newOJSOnPostgres(pool *pgxpool.Pool, workers int) Contender {
	return &ojsContender{workers: workers, pool: pool,
		open: func(ctx context.Context) (storage.Storage, error) { return postgres.Open(ctx, pool) }}
}

func newOJSOnSQLite(path string, sync synchronous, workers int) Contender {
	wait := map[synchronous]sqlite.Synchronous{full: sqlite.Full, normal: sqlite.Normal}[sync]
	return &ojsContender{workers: workers, open: func(ctx context.Context) (storage.Storage, error) {
		return sqlite.Open(ctx, path, sqlite.WithSynchronous(wait))
	}}
}

func (o *ojsContender) Name() string { return "ojs" }

func (o *ojsContender) Setup(ctx context.Context) (err error) {
	o.store, err = o.open(ctx)
	return err
}

// Fill implements Filler.
func (o *ojsContender) Fill(ctx context.Context, n int) error {
	if o.pool == nil {
		return errors.ErrUnsupported
	}
	o.filled = n
	now := wall.Now().UnixNano()
	return inOrder(ctx, o.pool, []string{
		fmt.Sprintf(`INSERT INTO ojs.job (seq, created, lease, id, args)
			SELECT n, %[2]d, 60000000000, gen_random_uuid()::text, '{"ID":1,"Name":"a job"}'
			FROM (SELECT nextval('ojs.place') AS n FROM generate_series(1, %[1]d)) n`, n, now),
		fmt.Sprintf(`INSERT INTO ojs.stage (seq, place, version, attempt, enqueued, started, finished, priority, state, queue, type, worker)
			SELECT seq, seq, 65536 * seq, 1, %[1]d, %[1]d, %[1]d, 0, 6, 'default', 'noop', 'worker' FROM ojs.job`, now),
		"VACUUM ANALYZE ojs.job, ojs.stage",
	})
}

// inOrder runs statements, each in a transaction of its own.
func inOrder(ctx context.Context, pool *pgxpool.Pool, statements []string) error {
	for _, sql := range statements {
		if _, err := pool.Exec(ctx, sql); err != nil {
			return err
		}
	}
	return nil
}

func (o *ojsContender) EndToEnd(
	ctx context.Context, jobs, producers, batch int,
) (took time.Duration, err error) {
	left := load.NewCountdown(jobs)
	eng, stop, err := o.run(ctx, left.Done)
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, stop()) }()

	start := wall.Now()
	if err := load.Produce(ctx, jobs, producers, batch, insert(eng)); err != nil {
		return 0, err
	}
	if err := left.Wait(ctx); err != nil {
		return 0, err
	}
	if err := eng.WaitIdle(ctx); err != nil { // the last outcomes are stored
		return 0, err
	}
	took = wall.Since(start)
	if err := left.Exact(); err != nil {
		return 0, err
	}

	stats, err := eng.Stats(ctx)
	if err != nil {
		return 0, err
	}
	for state, n := range stats.Total {
		if n > 0 && state != ojs.StateCompleted {
			return 0, fmt.Errorf("%d jobs are %s", n, state)
		}
	}
	return took, nil
}

// run makes an engine whose handler calls done, and runs it until stop.
func (o *ojsContender) run(
	ctx context.Context, done func(),
) (eng *engine.Engine[load.Args], stop func() error, err error) {
	opts := []engine.Option{
		engine.WithConcurrency(o.workers), engine.WithLogger(slog.New(slog.DiscardHandler)),
	}
	if o.filled > 0 {
		opts = append(opts, engine.WithRetention(engine.Retention{MaxFinished: 10 * o.filled}))
	}
	if eng, err = engine.New[load.Args](o.store, opts...); err != nil {
		return nil, nil, err
	}
	eng.Handle("noop", func(context.Context, *ojs.Job[load.Args]) error {
		done()
		return nil
	})
	running, cancel := context.WithCancel(ctx)
	ended := make(chan error, 1)
	go func() { ended <- eng.Run(running) }()
	return eng, func() error {
		cancel()
		return <-ended
	}, nil
}

// Start implements Starter.
func (o *ojsContender) Start(
	ctx context.Context, started func(),
) (enqueue func(context.Context) error, stop func() error, err error) {
	eng, stop, err := o.run(ctx, started)
	if err != nil {
		return nil, nil, err
	}
	return func(ctx context.Context) error { return insert(eng)(ctx, 0, 1) }, stop, nil
}

func insert(eng *engine.Engine[load.Args]) func(ctx context.Context, first, n int) error {
	return func(ctx context.Context, first, n int) error {
		if n == 1 {
			_, err := eng.Enqueue(ctx, "noop", load.Job(first))
			return err
		}
		drafts := make([]ojs.Draft, 0, n)
		for id := first; id < first+n; id++ {
			drafts = append(drafts, ojs.NewDraft("noop", load.Job(id)))
		}
		_, err := eng.EnqueueMany(ctx, drafts...)
		return err
	}
}

// Join implements Sharer.
func (o *ojsContender) Join(ctx context.Context) error { return o.Setup(ctx) }

// Enqueue implements Sharer.
func (o *ojsContender) Enqueue(ctx context.Context, first, n int) error {
	eng, err := engine.New[load.Args](o.store, engine.WithLogger(slog.New(slog.DiscardHandler)))
	if err != nil {
		return err
	}
	return insert(eng)(ctx, first, n)
}

// Work implements Sharer.
func (o *ojsContender) Work(ctx context.Context, done func()) error {
	eng, err := engine.New[load.Args](o.store, engine.WithConcurrency(o.workers),
		engine.WithLogger(slog.New(slog.DiscardHandler)))
	if err != nil {
		return err
	}
	eng.Handle("noop", func(context.Context, *ojs.Job[load.Args]) error {
		done()
		return nil
	})
	return eng.Run(ctx)
}

// Left implements Sharer.
func (o *ojsContender) Left(ctx context.Context) (n int, err error) {
	counts, err := o.store.Counts(ctx)
	for _, c := range counts {
		if c.State != ojs.StateCompleted {
			n += c.N
		}
	}
	return n, err
}

// Close closes the storage.
func (o *ojsContender) Close() error {
	if o.store == nil {
		return nil
	}
	return o.store.Close()
}
