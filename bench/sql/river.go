package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/riverqueue/river"
	"github.com/riverqueue/river/riverdriver/riverpgxv5"
	"github.com/riverqueue/river/rivermigrate"

	"github.com/ojsengine/ojs/bench/internal/load"
)

// riverArgs are load.Args with the method that River asks for.
type riverArgs struct{ load.Args }

// Kind names the job type.
func (riverArgs) Kind() string { return "noop" }

// riverContender is River with its maintenance, retries and notifications as they come,
// and no-op workers.
type riverContender struct {
	name                    string
	pool                    *pgxpool.Pool
	workers                 int
	fetchCooldown, pollTime time.Duration // zero: River's default
	fast                    bool          // insert batches by COPY, and get no rows back
	filled                  int           // finished jobs that were there before
}

// newRiver fetches up to 500 times a second instead of River's default of 10: at its
// default what is measured is the pause between fetches.
func newRiver(pool *pgxpool.Pool, workers int) Contender {
	return &riverContender{name: "river", pool: pool, workers: workers, fetchCooldown: 2 * time.Millisecond,
		pollTime: 20 * time.Millisecond}
}

// newRiverFast is newRiver with InsertManyFast instead of InsertMany.
func newRiverFast(pool *pgxpool.Pool, workers int) Contender {
	return &riverContender{name: "river InsertManyFast", pool: pool, workers: workers,
		fetchCooldown: 2 * time.Millisecond, pollTime: 20 * time.Millisecond, fast: true}
}

// newRiverDefaults is River as NewClient makes it.
func newRiverDefaults(pool *pgxpool.Pool, workers int) Contender {
	return &riverContender{name: "river, default fetch", pool: pool, workers: workers}
}

func (r *riverContender) Name() string { return r.name }

func (r *riverContender) Setup(ctx context.Context) error {
	migrator, err := rivermigrate.New(riverpgxv5.New(r.pool), nil)
	if err != nil {
		return err
	}
	_, err = migrator.Migrate(ctx, rivermigrate.DirectionUp, nil)
	return err
}

// Fill implements Filler. River keeps completed jobs for a day.
func (r *riverContender) Fill(ctx context.Context, n int) error {
	r.filled = n
	return inOrder(ctx, r.pool, []string{
		fmt.Sprintf(`INSERT INTO river_job (state, attempt, attempted_at, attempted_by, finalized_at, kind, args, max_attempts, queue, priority, scheduled_at)
			SELECT 'completed', 1, now(), ARRAY['worker'], now(), 'noop', '{"ID":1,"Name":"a job"}', 25, 'default', 1, now()
			FROM generate_series(1, %d)`, n),
		"VACUUM ANALYZE river_job",
	})
}

func (r *riverContender) EndToEnd(
	ctx context.Context, jobs, producers, batch int,
) (took time.Duration, err error) {
	if r.fast && batch == 1 {
		return 0, errors.ErrUnsupported
	}
	client, err := r.client(func() {})
	if err != nil {
		return 0, err
	}
	// An event is sent when the completion has been stored. Room for all, since those
	// that find none are dropped.
	completed, unsubscribe := client.SubscribeConfig(&river.SubscribeConfig{ChanSize: jobs,
		Kinds: []river.EventKind{river.EventKindJobCompleted}})
	defer unsubscribe()
	if err := client.Start(ctx); err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, client.Stop(ctx)) }()

	start := wall.Now()
	if err := load.Produce(ctx, jobs, producers, batch, r.insert(client)); err != nil {
		return 0, err
	}
	for n := range jobs {
		select {
		case <-completed:
		case <-ctx.Done():
			return 0, fmt.Errorf("%d of %d jobs have completed: %w", n, jobs, context.Cause(ctx))
		}
	}
	took = wall.Since(start)

	var stored int
	if err := r.pool.QueryRow(ctx, "SELECT count(*) FROM river_job WHERE state = 'completed'").Scan(
		&stored); err != nil {
		return 0, err
	}
	if stored != jobs+r.filled {
		return 0, fmt.Errorf("%d jobs are stored as completed, not %d", stored, jobs+r.filled)
	}
	return took, nil
}

// client makes a client whose worker calls done.
func (r *riverContender) client(done func()) (*river.Client[pgx.Tx], error) {
	workers := river.NewWorkers()
	river.AddWorker(workers, river.WorkFunc(func(context.Context, *river.Job[riverArgs]) error {
		done()
		return nil
	}))
	return river.NewClient(riverpgxv5.New(r.pool), &river.Config{
		Queues:            map[string]river.QueueConfig{river.QueueDefault: {MaxWorkers: r.workers}},
		Workers:           workers,
		FetchCooldown:     r.fetchCooldown,
		FetchPollInterval: r.pollTime,
	})
}

// Start implements Starter. Contenders that differ in how they enqueue batches are the
// same with one job.
func (r *riverContender) Start(
	ctx context.Context, started func(),
) (enqueue func(context.Context) error, stop func() error, err error) {
	if r.fast {
		return nil, nil, errors.ErrUnsupported
	}
	client, err := r.client(started)
	if err != nil {
		return nil, nil, err
	}
	if err := client.Start(ctx); err != nil {
		return nil, nil, err
	}
	insert := r.insert(client)
	return func(ctx context.Context) error { return insert(ctx, 0, 1) },
		func() error { return client.Stop(ctx) }, nil
}

func (r *riverContender) insert(client *river.Client[pgx.Tx]) func(ctx context.Context, first, n int) error {
	return func(ctx context.Context, first, n int) error {
		if n == 1 {
			_, err := client.Insert(ctx, riverArgs{load.Job(first)}, nil)
			return err
		}
		params := make([]river.InsertManyParams, 0, n)
		for id := first; id < first+n; id++ {
			params = append(params, river.InsertManyParams{Args: riverArgs{load.Job(id)}})
		}
		if r.fast {
			_, err := client.InsertManyFast(ctx, params)
			return err
		}
		_, err := client.InsertMany(ctx, params)
		return err
	}
}

// Join implements Sharer.
func (r *riverContender) Join(context.Context) error { return nil }

// Enqueue implements Sharer. Contenders that differ in how they enqueue are the same
// where jobs are only worked off.
func (r *riverContender) Enqueue(ctx context.Context, first, n int) error {
	if r.fast {
		return errors.ErrUnsupported
	}
	client, err := river.NewClient(riverpgxv5.New(r.pool), &river.Config{})
	if err != nil {
		return err
	}
	return r.insert(client)(ctx, first, n)
}

// Work implements Sharer.
func (r *riverContender) Work(ctx context.Context, done func()) error {
	client, err := r.client(done)
	if err != nil {
		return err
	}
	if err := client.Start(context.WithoutCancel(ctx)); err != nil {
		return err
	}
	<-ctx.Done()
	return client.Stop(context.WithoutCancel(ctx))
}

// Left implements Sharer.
func (r *riverContender) Left(ctx context.Context) (n int, err error) {
	err = r.pool.QueryRow(ctx, "SELECT count(*) FROM river_job WHERE state <> 'completed'").Scan(&n)
	return n, err
}

// Close has nothing to do: the client is EndToEnd's.
func (r *riverContender) Close() error { return nil }
