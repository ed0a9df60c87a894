package postgres_test

import (
	"context"
	"database/sql"
	"errors"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	_ "github.com/jackc/pgx/v5/stdlib"
	_ "github.com/lib/pq"

	"github.com/ojsengine/ojs"
	"github.com/ojsengine/ojs/handler"
	"github.com/ojsengine/ojs/internal/document"
	"github.com/ojsengine/ojs/internal/test/eachtx"
	"github.com/ojsengine/ojs/storage"
	"github.com/ojsengine/ojs/storage/postgres"
	"github.com/ojsengine/ojs/storage/storagetest"
)

// drivers are those that WithSQLTx names.
var drivers = map[string]string{"pgx stdlib": "pgx", "pq": "postgres"}

func openSQL(t testing.TB, driver string) *sql.DB {
	t.Helper()
	connect(t) // or there is no server
	dsn := server
	if driver == "postgres" {
		dsn += " sslmode=disable"
	}
	db, err := sql.Open(driver, dsn)
	must(t, err)
	t.Cleanup(func() { must(t, db.Close()) })
	return db
}

// inSQL runs f in a transaction, which its error undoes.
func inSQL(t testing.TB, db *sql.DB, f func(ctx context.Context, tx *sql.Tx) error) error {
	t.Helper()
	tx, err := db.BeginTx(context.Background(), nil)
	must(t, err)
	if err := f(postgres.WithSQLTx(context.Background(), tx), tx); err != nil {
		must(t, tx.Rollback())
		return err
	}
	return tx.Commit()
}

// Calls through database/sql behave as others do, for all values of all fields.
func TestSQLTxBehaves(t *testing.T) {
	for name, driver := range drivers {
		t.Run(name, func(t *testing.T) {
			db := openSQL(t, driver)
			cfg := config(t)
			open := cfg.Open
			cfg.Open = func(tb testing.TB) storage.Storage {
				return eachtx.Storage{Storage: open(tb),
					Within: func(ctx context.Context, f func(ctx context.Context) error) error {
						if err := ctx.Err(); err != nil {
							return err
						}
						return inSQL(t, db, func(ctx context.Context, _ *sql.Tx) error { return f(ctx) })
					}}
			}
			cfg.Reopen, cfg.Another, cfg.Plant, cfg.Mend, cfg.Quarantine = nil, nil, nil, nil, false
			storagetest.SameBehaviour(t, cfg)
		})
	}
}

// An enqueue in a transaction of database/sql exists if and only if that commits, and the
// commit wakes engines.
func TestWithSQLTx(t *testing.T) {
	s, _ := open(t, "", postgres.WithPoll(time.Hour))
	eng := newEngine(t, s)
	ran := make(chan string, 10)
	eng.Handle("x", func(_ context.Context, job *ojs.Job[int]) error { ran <- job.ID; return nil })
	start(t, eng)
	errBack := errors.New("back")
	once := ojs.WithUnique(ojs.UniquePolicy{Keys: ojs.ByArgs})
	later := ojs.WithDelay(time.Hour)
	n := 0
	for name, driver := range drivers {
		t.Run(name, func(t *testing.T) {
			db := openSQL(t, driver)
			for kind, opts := range map[string][]ojs.Option{"plain": nil, "unique": {once}} {
				n++
				var ticket ojs.Ticket
				err := inSQL(t, db, func(ctx context.Context, _ *sql.Tx) (err error) {
					ticket, err = eng.Enqueue(ctx, "x", n, opts...)
					must(t, err)
					if job, err := eng.Get(ctx, ticket.ID); err != nil || job.State != ojs.StateAvailable {
						t.Errorf("%s: seen from the transaction: %+v, %v", kind, job, err)
					}
					return errBack
				})
				if _, gone := eng.Get(t.Context(), ticket.ID); !errors.Is(err, errBack) ||
					!errors.Is(gone, ojs.ErrNotFound) {
					t.Fatalf("%s: %v, %v", kind, err, gone)
				}
				must(t, inSQL(t, db, func(ctx context.Context, _ *sql.Tx) (err error) {
					ticket, err = eng.Enqueue(ctx, "x", n, opts...)
					return err
				}))
				if id := <-ran; id != ticket.ID {
					t.Errorf("%s: ran %s, not %s", kind, id, ticket.ID)
				}
			}
			n++
			ticket, err := eng.Enqueue(t.Context(), "x", n, once, later)
			must(t, err)
			must(t, inSQL(t, db, func(ctx context.Context, tx *sql.Tx) error {
				if _, err := eng.Enqueue(ctx, "x", n, once, later); !errors.Is(err, ojs.ErrDuplicate) {
					t.Errorf("an equal job: %v", err)
				}
				_, err := eng.Enqueue(ctx, "x", n, later, ojs.WithID(ticket.ID))
				if !errors.Is(err, ojs.ErrDuplicate) {
					t.Errorf("a job of the same id: %v", err)
				}
				_, err = tx.ExecContext(ctx, "SELECT 1") // the transaction is usable
				must(t, err)
				return eng.Cancel(ctx, ticket.ID)
			}))
			if job, err := eng.Get(t.Context(), ticket.ID); err != nil || job.State != ojs.StateCancelled {
				t.Errorf("cancelled in the transaction: %+v, %v", job, err)
			}
		})
	}
}

// A nil transaction, of whichever type, is refused by every call, which stores nothing.
func TestNilTx(t *testing.T) {
	s, _ := open(t, "")
	eng := newEngine(t, s)
	with, completes := make(chan context.Context, 1), make(chan error)
	eng.Handle("complete", func(ctx context.Context, _ *ojs.Job[int]) error {
		completes <- handler.Complete(storage.WithTx(ctx, storage.Tx(<-with)))
		return nil
	})
	start(t, eng)
	there, err := eng.Enqueue(t.Context(), "x", 0)
	must(t, err)
	for name, ctx := range map[string]context.Context{
		"WithTx":                  postgres.WithTx(t.Context(), nil),
		"WithTx, a nil pointer":   postgres.WithTx(t.Context(), (*pgxpool.Tx)(nil)),
		"WithSQLTx":               postgres.WithSQLTx(t.Context(), nil),
		"storage.WithTx":          storage.WithTx(t.Context(), nil),
		"storage.WithTx, *sql.Tx": storage.WithTx(t.Context(), (*sql.Tx)(nil)),
	} {
		_, enqueue := eng.Enqueue(ctx, "x", 1)
		_, many := eng.EnqueueMany(ctx, ojs.NewDraft("x", 1), ojs.NewDraft("x", 2))
		_, get := eng.Get(ctx, there.ID)
		with <- ctx
		_, err := eng.Enqueue(t.Context(), "complete", 0)
		must(t, err)
		for call, err := range map[string]error{
			"Enqueue": enqueue, "EnqueueMany": many, "Get": get, "Cancel": eng.Cancel(ctx, there.ID),
			"Insert": insert(ctx, s, record(1)), "Complete": <-completes,
		} {
			var invalid *ojs.InvalidError
			if !errors.As(err, &invalid) || invalid.Field != "tx" {
				t.Errorf("%s: %s returned %v", name, call, err)
			}
		}
	}
	page, err := s.List(t.Context(), storage.Query{Types: []string{"x"}})
	must(t, err)
	if len(page.Records) != 1 {
		t.Errorf("%d jobs are stored, not 1", len(page.Records))
	}
}

// A job whose id another transaction has stored is refused by its id, by whichever
// driver.
func TestSQLTxDuplicateID(t *testing.T) {
	s, _ := open(t, "")
	for name, driver := range drivers {
		t.Run(name, func(t *testing.T) {
			db := openSQL(t, driver)
			tx, err := db.BeginTx(t.Context(), &sql.TxOptions{Isolation: sql.LevelRepeatableRead})
			must(t, err)
			defer tx.Rollback()
			_, err = tx.ExecContext(t.Context(), "SELECT FROM pg_class") // from now on it sees no others
			must(t, err)
			taken := record(100 + len(name))
			must(t, insert(t.Context(), s, taken))
			err = insert(postgres.WithSQLTx(t.Context(), tx), s, record(200+len(name)), taken)
			var dup *ojs.DuplicateError
			if !errors.As(err, &dup) || dup.ID != taken.ID {
				t.Error(err)
			}
			err = insert(postgres.WithSQLTx(t.Context(), tx), s, record(200+len(name)))
			must(t, err)
			must(t, tx.Commit())
		})
	}
}

// A call that would not be part of the transaction of its context is refused, and changes
// nothing.
func TestCallsApartFromTx(t *testing.T) {
	s, _ := open(t, "")
	ended := addDead(t, s, 1)
	pool := connect(t)
	err := pgx.BeginFunc(t.Context(), pool, func(tx pgx.Tx) error {
		ctx := postgres.WithTx(t.Context(), tx)
		_, deleted := s.Delete(ctx, []string{ended.ID})
		_, set := document.Of(s).SetCrons(ctx, []storage.Cron{{Name: "c"}})
		_, removed := document.Of(s).DeleteCron(ctx, "c")
		_, paused := s.SetQueueState(ctx, "q", ojs.QueuePaused)
		for call, err := range map[string]error{
			"Delete": deleted, "SetCrons": set, "DeleteCron": removed, "SetQueueState": paused,
			"ReleaseQuarantined": s.ReleaseQuarantined(ctx, "1"),
			"DeleteQuarantined":  s.DeleteQuarantined(ctx, "1"),
		} {
			if !errors.Is(err, ojs.ErrUnsupported) {
				t.Errorf("%s returned %v", call, err)
			}
		}
		return nil
	})
	must(t, err)
	if _, err := s.Get(t.Context(), ended.ID); err != nil {
		t.Error(err)
	}
}
