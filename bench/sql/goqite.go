package main

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"sync"
	"time"

	"maragu.dev/goqite"

	"github.com/ojsengine/ojs/bench/internal/load"
)

// goqiteContender receives from the queue itself. goqite's jobs.Runner waits for a tick
// of its poll interval, 100 ms by default, before every single job, so that it would show
// nothing but that interval.
type goqiteContender struct {
	path    string
	sync    synchronous
	workers int
	db      *sql.DB
	queue   *goqite.Queue
}

func newGoqite(path string, sync synchronous, workers int) Contender {
	return &goqiteContender{path: path, sync: sync, workers: workers}
}

func (g *goqiteContender) Name() string { return "goqite" }

func (g *goqiteContender) Setup(ctx context.Context) (err error) {
	if g.db, err = openSQLite(g.path, g.sync); err != nil {
		return err
	}
	if err := goqite.Setup(ctx, g.db); err != nil {
		return err
	}
	g.open()
	return nil
}

func (g *goqiteContender) open() {
	// A job that waits for the connection must not time out and run again.
	g.queue = goqite.New(goqite.NewOpts{DB: g.db, Name: "jobs", Timeout: time.Minute})
}

// Join implements Sharer.
func (g *goqiteContender) Join(context.Context) (err error) {
	if g.db, err = openSQLite(g.path, g.sync); err != nil {
		return err
	}
	g.open()
	return nil
}

// Enqueue implements Sharer.
func (g *goqiteContender) Enqueue(ctx context.Context, first, n int) error {
	return g.send(ctx, first, n)
}

// Work implements Sharer.
func (g *goqiteContender) Work(ctx context.Context, done func()) error {
	if err := g.work(ctx, done); !errors.Is(err, context.Canceled) {
		return err
	}
	return nil
}

// Left implements Sharer.
func (g *goqiteContender) Left(ctx context.Context) (n int, err error) {
	err = g.db.QueryRowContext(ctx, "SELECT count(*) FROM goqite").Scan(&n)
	return n, err
}

func (g *goqiteContender) EndToEnd(ctx context.Context, jobs, producers, batch int) (time.Duration, error) {
	running, stop := context.WithCancelCause(ctx)
	left := load.NewCountdown(jobs)
	ended := make(chan error, 1)
	go func() {
		err := g.work(running, left.Done)
		stop(err)
		ended <- err
	}()

	start := wall.Now()
	err := load.Produce(running, jobs, producers, batch, g.send)
	if err == nil {
		err = left.Wait(running)
	}
	if err == nil {
		err = emptied(running, g.db, "goqite")
	}
	took := wall.Since(start)
	stop(nil)
	if worked := <-ended; err == nil && !errors.Is(worked, context.Canceled) {
		err = worked
	}
	if err == nil {
		err = left.Exact()
	}
	return took, err
}

// send enqueues a batch in a transaction, which is the only batch that goqite has.
func (g *goqiteContender) send(ctx context.Context, first, n int) error {
	tx, err := g.db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	for id := first; id < first+n; id++ {
		body, err := json.Marshal(load.Job(id))
		if err != nil {
			return errors.Join(err, tx.Rollback())
		}
		if err := g.queue.SendTx(ctx, tx, goqite.Message{Body: body}); err != nil {
			return errors.Join(err, tx.Rollback())
		}
	}
	return tx.Commit()
}

// work receives one message after the other, as goqite's runner does, and hands each to a
// goroutine. It ends with the error of ctx, when all goroutines have ended, or with the
// first error of the queue.
func (g *goqiteContender) work(ctx context.Context, done func()) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var group sync.WaitGroup
	defer group.Wait()
	slots := make(chan struct{}, g.workers)
	for ctx.Err() == nil {
		m, err := g.queue.Receive(ctx)
		switch {
		case err != nil:
			cancel(err)
		case m == nil:
			wall.Sleep(time.Millisecond)
		default:
			slots <- struct{}{}
			group.Go(func() {
				if err := g.handle(ctx, m, done); err != nil {
					cancel(err)
				}
				<-slots
			})
		}
	}
	return context.Cause(ctx)
}

func (g *goqiteContender) handle(ctx context.Context, m *goqite.Message, done func()) error {
	var args load.Args
	if err := json.Unmarshal(m.Body, &args); err != nil {
		return err
	}
	done()
	return g.queue.Delete(ctx, m.ID)
}

// Close closes the file.
func (g *goqiteContender) Close() error {
	if g.db == nil {
		return nil
	}
	return g.db.Close()
}
