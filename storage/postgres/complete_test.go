package postgres_test

import (
	"context"
	"database/sql"
	"errors"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/ojsengine/ojs"
	"github.com/ojsengine/ojs/engine"
	"github.com/ojsengine/ojs/handler"
	"github.com/ojsengine/ojs/inspect"
	"github.com/ojsengine/ojs/storage/postgres"
)

// paying is a table of payments and an engine whose handlers make them.
type paying struct {
	*engine.Engine[any]
	t     *testing.T
	pool  *pgxpool.Pool // of the handlers
	looks *pgxpool.Pool // of the test
	table string
}

func pays(t *testing.T, opts ...engine.Option) *paying {
	t.Helper()
	pool := connect(t)
	store, name := open(t, "")
	table := name + ".payment"
	_, err := pool.Exec(t.Context(), "CREATE TABLE "+table+" (job text)")
	must(t, err)
	eng, err := engine.New[any](store, append([]engine.Option{quiet}, opts...)...)
	must(t, err)
	return &paying{eng, t, pool, connect(t), table}
}

// run runs the engine until the end of the test.
func (p *paying) run() {
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- p.Run(ctx) }()
	p.t.Cleanup(func() {
		stop()
		must(p.t, <-ended)
	})
}

// payments counts the payments of a job.
func (p *paying) payments(id string) (n int) {
	p.t.Helper()
	must(p.t, p.looks.QueryRow(p.t.Context(), "SELECT count(*) FROM "+p.table+" WHERE job = $1", id).Scan(&n))
	return n
}

// wantPaid wants each job to have completed, and to have been paid once.
func (p *paying) wantPaid(tickets ...ojs.Ticket) {
	p.t.Helper()
	for _, ticket := range tickets {
		if _, err := ticket.Wait(p.t.Context()); err != nil {
			p.t.Error(err)
		}
		if n := p.payments(ticket.ID); n != 1 {
			p.t.Errorf("%d payments of job %s", n, ticket.ID)
		}
	}
}

var soon = ojs.WithRetry(ojs.RetryPolicy{
	MaxAttempts: 100, InitialInterval: time.Millisecond, MaxInterval: time.Millisecond,
})

// The connections of the transactions are broken before the completion, after it, and
// while the commit is on its way, so that its answer is lost now and then.
func TestCompleteOnBrokenConnections(t *testing.T) {
	t.Parallel()
	p := pays(t, engine.WithConcurrency(8))
	p.Handle("pay", func(ctx context.Context, job *ojs.Job[any]) error {
		must(t, handler.SetResult(ctx, job.Attempt))
		must(t, handler.Then(ctx, ojs.NewDraft("paid", job.ID)))
		tx, err := p.pool.Begin(context.WithoutCancel(ctx))
		if err != nil {
			return err
		}
		defer tx.Rollback(context.Background()) //nolint:errcheck // after a commit it does nothing
		if _, err := tx.Exec(ctx, "INSERT INTO "+p.table+" VALUES ($1)", job.ID); err != nil {
			return err
		}
		breaks := func() error {
			pid := tx.Conn().PgConn().PID()
			_, err := p.looks.Exec(context.Background(), "SELECT pg_terminate_backend($1)", pid)
			return err
		}
		moment := rand.N(6)
		if moment == 0 {
			must(t, breaks())
		}
		if err := handler.Complete(postgres.WithTx(ctx, tx)); err != nil {
			return err
		}
		var broken sync.WaitGroup
		defer broken.Wait()
		switch moment {
		case 1:
			must(t, breaks())
		case 2, 3:
			broken.Go(func() { _ = breaks() })
		case 4:
			return errors.New("rolled back")
		}
		return tx.Commit(ctx)
	})
	var tickets []ojs.Ticket
	for range 100 {
		ticket, err := p.Enqueue(t.Context(), "pay", nil, soon)
		must(t, err)
		tickets = append(tickets, ticket)
	}
	p.run()
	p.wantPaid(tickets...)
	follow := 0
	for _, err := range p.Jobs().List(t.Context(), inspect.Filter{Types: []string{"paid"}}) {
		must(t, err)
		follow++
	}
	if follow != len(tickets) {
		t.Errorf("%d jobs follow %d", follow, len(tickets))
	}
}

func TestCompleteInSQLTx(t *testing.T) {
	for name, driver := range drivers {
		t.Run(name, func(t *testing.T) {
			db := openSQL(t, driver)
			p := pays(t)
			p.Handle("pay", func(ctx context.Context, job *ojs.Job[any]) error {
				tx, err := db.BeginTx(ctx, &sql.TxOptions{})
				must(t, err)
				defer tx.Rollback() //nolint:errcheck // after a commit it does nothing
				if _, err := tx.ExecContext(ctx, "INSERT INTO "+p.table+" VALUES ($1)", job.ID); err != nil {
					return err
				}
				if err := handler.Complete(postgres.WithSQLTx(ctx, tx)); err != nil {
					return err
				}
				if job.Attempt == 1 {
					return errors.New("rolled back")
				}
				return tx.Commit()
			})
			p.run()
			ticket, err := p.Enqueue(t.Context(), "pay", nil, soon)
			must(t, err)
			p.wantPaid(ticket)
			if job, err := p.Get(t.Context(), ticket.ID); err != nil || job.Attempt != 2 {
				t.Errorf("%+v, %v", job, err)
			}
		})
	}
}

// A transaction that stays open after Complete keeps the job's row. No other job waits
// for it: its lease is renewed, it ends, and the job itself is not taken over.
func TestCompleteHoldsUpNothing(t *testing.T) {
	t.Parallel()
	p := pays(t, engine.WithConcurrency(2))
	open, commit := make(chan struct{}), make(chan struct{})
	p.Handle("pay", func(ctx context.Context, job *ojs.Job[any]) error {
		return pgx.BeginFunc(ctx, p.pool, func(tx pgx.Tx) error {
			if _, err := tx.Exec(ctx, "INSERT INTO "+p.table+" VALUES ($1)", job.ID); err != nil {
				return err
			}
			if err := handler.Complete(postgres.WithTx(ctx, tx)); err != nil {
				return err
			}
			close(open)
			<-commit
			return nil
		})
	})
	p.Handle("other", func(ctx context.Context, _ *ojs.Job[any]) error { return handler.Heartbeat(ctx) })
	p.run()
	ticket, err := p.Enqueue(t.Context(), "pay", nil, ojs.WithLease(time.Second))
	must(t, err)
	<-open
	for end := time.Now().Add(3 * time.Second); time.Now().Before(end); {
		other, err := p.Enqueue(t.Context(), "other", nil)
		must(t, err)
		if _, err := other.Wait(t.Context()); err != nil {
			t.Error(err)
		}
	}
	close(commit)
	p.wantPaid(ticket)
	if job, err := p.Get(t.Context(), ticket.ID); err != nil || job.Attempt != 1 {
		t.Errorf("%+v, %v", job, err)
	}
}
