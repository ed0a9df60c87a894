package postgres_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/ojsengine/ojs"
	"github.com/ojsengine/ojs/engine"
	"github.com/ojsengine/ojs/storage/postgres"
)

var once = ojs.WithUnique(ojs.UniquePolicy{Keys: ojs.ByArgs})

// lockTable returns how many entries of the server's lock table a backend has.
func lockTable(t *testing.T, q interface {
	QueryRow(context.Context, string, ...any) pgx.Row
}, pid uint32) (n int) {
	t.Helper()
	must(t, q.QueryRow(t.Context(), "SELECT count(*) FROM pg_locks WHERE pid = $1", int(pid)).Scan(&n))
	return n
}

// The server's lock table, which all connections share, does not fill with the number of
// unique jobs or of bounded queues. With OJS_STORM one transaction has a million unique
// jobs.
func TestLockTable(t *testing.T) {
	jobs := 5_000
	if os.Getenv("OJS_STORM") != "" {
		jobs = 1_000_000
	}
	s, name := open(t, "")
	pool := connect(t)
	eng := newEngine(t, s)
	many := func(n int, draft func(i int) ojs.Draft) []ojs.Draft {
		drafts := make([]ojs.Draft, n)
		for i := range drafts {
			drafts[i] = draft(i)
		}
		return drafts
	}
	unique := func(from int) func(i int) ojs.Draft {
		return func(i int) ojs.Draft { return ojs.NewDraft("x", from+i, once) }
	}

	t.Run("one batch", func(t *testing.T) {
		_, err := eng.EnqueueMany(t.Context(), many(16_000, unique(0))...)
		must(t, err)
	})
	t.Run("open transaction", func(t *testing.T) {
		tx, err := pool.Begin(t.Context())
		must(t, err)
		defer tx.Rollback(context.Background())
		ctx, pid := postgres.WithTx(t.Context(), tx), tx.Conn().PgConn().PID()
		_, err = eng.EnqueueMany(ctx, many(10, unique(100_000))...)
		must(t, err)
		before := lockTable(t, tx, pid)
		for i := range 50 {
			_, err = eng.Enqueue(ctx, "x", 300_000+i, once)
			must(t, err)
		}
		most := before
		for n := 0; n < jobs; n += 5_000 {
			_, err = eng.EnqueueMany(ctx, many(5_000, unique(1_000_000+n))...)
			must(t, err)
			most = max(most, lockTable(t, tx, pid))
		}
		t.Logf("locks of 10 unique jobs: %d, of %d: %d", before, jobs+60, most)
		if most > before+10 {
			t.Errorf("10 unique jobs take %d locks and %d take %d", before, jobs+60, most)
		}
		// of another connection, which nothing is in the way of
		_, err = eng.Enqueue(t.Context(), "x", 400_000, once)
		must(t, err)
	})
	t.Run("bounded queues", func(t *testing.T) {
		queues := make([]engine.Option, 300)
		for i := range queues {
			queues[i] = engine.WithQueueConfig(fmt.Sprint("q", i), engine.QueueConfig{MaxDepth: 1})
		}
		eng := newEngine(t, s, queues...)
		tx, err := pool.Begin(t.Context())
		must(t, err)
		defer tx.Rollback(context.Background())
		ctx, pid := postgres.WithTx(t.Context(), tx), tx.Conn().PgConn().PID()
		_, err = eng.EnqueueMany(ctx, many(len(queues), func(i int) ojs.Draft {
			return ojs.NewDraft("x", i, ojs.WithQueue(fmt.Sprint("q", i)))
		})...)
		must(t, err)
		if n := lockTable(t, tx, pid); n > 80 { // of tables and their indexes
			t.Errorf("%d bounded queues take %d locks", len(queues), n)
		}
	})
	t.Run("nothing is left", func(t *testing.T) {
		var n int
		must(t, pool.QueryRow(t.Context(), "SELECT count(*) FROM "+name+".name_lock").Scan(&n))
		if n != 0 {
			t.Errorf("%d locks are left", n)
		}
	})
}

// Two transactions that want each other's names: the database ends the wait, and the
// error says what to do.
func TestDeadlock(t *testing.T) {
	s, _ := open(t, "")
	pool := connect(t)
	eng := newEngine(t, s)
	var txs [2]pgx.Tx
	for i := range txs {
		tx, err := pool.Begin(t.Context())
		must(t, err)
		defer tx.Rollback(context.Background())
		_, err = eng.Enqueue(postgres.WithTx(t.Context(), tx), "x", i, once)
		must(t, err)
		txs[i] = tx
	}
	first := make(chan error, 1)
	go func() {
		_, err := eng.Enqueue(postgres.WithTx(t.Context(), txs[0]), "x", 1, once)
		first <- errors.Join(err, txs[0].Rollback(context.Background()))
	}()
	awaitBlocked(t, pool, int(txs[1].Conn().PgConn().PID()))
	_, second := eng.Enqueue(postgres.WithTx(t.Context(), txs[1]), "x", 0, once)
	must(t, txs[1].Rollback(context.Background()))
	one := <-first
	if errors.Is(one, postgres.ErrDeadlock) == errors.Is(second, postgres.ErrDeadlock) {
		t.Errorf("of two that wait for each other one is to fail as such: %v, and %v", one, second)
	}
}

// Batches that name the same bounded queues in different orders wait for each other and
// do not deadlock.
func TestLockOrder(t *testing.T) {
	s, _ := open(t, "")
	pool := connect(t)
	queues := []engine.Option{}
	for i := range 20 {
		conf := engine.QueueConfig{MaxDepth: 100_000}
		queues = append(queues, engine.WithQueueConfig(fmt.Sprint("q", i), conf))
	}
	eng := newEngine(t, s, queues...)
	done := make(chan error, 4)
	for g := range cap(done) {
		go func() {
			for range 20 {
				drafts := make([]ojs.Draft, 20)
				for i := range drafts {
					n := i
					if g%2 == 1 {
						n = len(drafts) - 1 - i
					}
					drafts[i] = ojs.NewDraft("x", n, ojs.WithQueue(fmt.Sprint("q", n)))
				}
				// where a deadlock is not tried again
				err := pgx.BeginFunc(t.Context(), pool, func(tx pgx.Tx) error {
					_, err := eng.EnqueueMany(postgres.WithTx(t.Context(), tx), drafts...)
					return err
				})
				if err != nil {
					done <- err
					return
				}
			}
			done <- nil
		}()
	}
	for range cap(done) {
		must(t, <-done)
	}
}
