package main

import (
	"context"
	"database/sql"
	"errors"
	"time"

	"github.com/mikestefanello/backlite"

	"github.com/ojsengine/ojs/bench/internal/load"
)

// backliteTask is load.Args with the method that backlite asks for. Nothing is retained,
// as backlite has it unless told to.
type backliteTask struct{ load.Args }

// Config names the queue.
func (backliteTask) Config() backlite.QueueConfig {
	return backlite.QueueConfig{Name: "noop", MaxAttempts: 3, Timeout: time.Minute}
}

// backliteContender has many workers for its dispatcher's sake, which sleeps for 100 ms
// whenever it finds all of them taken.
type backliteContender struct {
	path    string
	sync    synchronous
	workers int
	db      *sql.DB
	client  *backlite.Client
	left    *load.Countdown
}

func newBacklite(path string, sync synchronous, workers int) Contender {
	return &backliteContender{path: path, sync: sync, workers: workers}
}

func (b *backliteContender) Name() string { return "backlite" }

func (b *backliteContender) Setup(context.Context) (err error) {
	if b.db, err = openSQLite(b.path, b.sync); err != nil {
		return err
	}
	b.client, err = backlite.NewClient(backlite.ClientConfig{DB: b.db, NumWorkers: b.workers,
		ReleaseAfter: time.Hour})
	if err != nil {
		return err
	}
	b.client.Register(backlite.NewQueue(func(context.Context, backliteTask) error {
		b.left.Done()
		return nil
	}))
	return b.client.Install()
}

func (b *backliteContender) EndToEnd(ctx context.Context, jobs, producers, batch int) (time.Duration, error) {
	b.left = load.NewCountdown(jobs)
	running, stop := context.WithCancel(ctx)
	defer stop()
	b.client.Start(running)

	start := wall.Now()
	if err := load.Produce(ctx, jobs, producers, batch, b.save); err != nil {
		return 0, err
	}
	if err := b.left.Wait(ctx); err != nil {
		return 0, err
	}
	if err := emptied(ctx, b.db, "backlite_tasks"); err != nil {
		return 0, err
	}
	took := wall.Since(start)
	if !b.client.Stop(ctx) {
		return 0, errors.New("backlite has not stopped")
	}
	return took, b.left.Exact()
}

func (b *backliteContender) save(ctx context.Context, first, n int) error {
	tasks := make([]backlite.Task, 0, n)
	for id := first; id < first+n; id++ {
		tasks = append(tasks, backliteTask{load.Job(id)})
	}
	_, err := b.client.Add(tasks...).Ctx(ctx).Save()
	return err
}

// Close closes the file.
func (b *backliteContender) Close() error {
	if b.db == nil {
		return nil
	}
	return b.db.Close()
}
