package postgres_test

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/ojsengine/ojs"
	"github.com/ojsengine/ojs/storage"
)

// lockJobs keeps others from the jobs of a schema until what it returns is rolled back.
func lockJobs(t *testing.T, pool *pgxpool.Pool, schema string) pgx.Tx {
	tx, err := pool.Begin(t.Context())
	must(t, err)
	t.Cleanup(func() { _ = tx.Rollback(context.Background()) })
	_, err = tx.Exec(t.Context(), "LOCK TABLE "+schema+".job IN ACCESS EXCLUSIVE MODE")
	must(t, err)
	return tx
}

// Of calls that share a statement those fail that the database refuses, and no other.
func TestRefusedAmongOthers(t *testing.T) {
	s, name := open(t, "")
	pool := connect(t)
	must(t, insert(t.Context(), s, record(100), record(101), record(102), record(103), record(104)))
	var versions []uint64
	for n := range 5 {
		stored, err := s.Get(t.Context(), record(100+n).ID)
		must(t, err)
		versions = append(versions, stored.Version)
	}
	for kind, call := range map[string]func(n int, text string) error{
		"insert": func(n int, text string) error {
			r := record(n)
			r.Worker = text
			return insert(t.Context(), s, r)
		},
		"settle": func(n int, text string) error {
			c := storage.Change{Record: record(100 + n)}
			c.Record.State, c.Record.Version, c.Record.FinishedAt, c.Record.Worker = ojs.StateCancelled,
				versions[n], time.Now(), text
			settled, err := s.Settle(t.Context(), time.Now(), []storage.Change{c}, nil)
			if err == nil {
				err = settled[0].Err
			}
			return err
		},
	} {
		t.Run(kind, func(t *testing.T) {
			tx := lockJobs(t, pool, name)
			var calls sync.WaitGroup
			begin := func(n int) {
				calls.Go(func() {
					text, bad := "w", n == 3
					if bad {
						text = "a\x00b"
					}
					if err := call(n, text); (err != nil) != bad {
						t.Errorf("%d: %v", n, err)
					}
				})
			}
			begin(0) // which the others wait for
			awaitBlocked(t, pool, int(tx.Conn().PgConn().PID()))
			for n := 1; n < 5; n++ {
				begin(n)
			}
			for s.Pending() < 4 {
				must(t, t.Context().Err())
			}
			must(t, tx.Rollback(t.Context()))
			calls.Wait()
		})
	}
}
