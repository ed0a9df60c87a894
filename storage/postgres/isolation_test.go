package postgres_test

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/ojsengine/ojs"
	"github.com/ojsengine/ojs/storage/postgres"
)

// isolated makes a pool whose connections have another isolation by default.
func isolated(t *testing.T, level string) *pgxpool.Pool {
	cfg := connect(t).Config()
	cfg.ConnConfig.RuntimeParams["default_transaction_isolation"] = level
	pool, err := pgxpool.NewWithConfig(t.Context(), cfg)
	must(t, err)
	t.Cleanup(pool.Close)
	return pool
}

// Under any default isolation, one of several equal jobs is admitted, and one of several
// concurrent Opens makes the schema.
func TestDefaultIsolation(t *testing.T) {
	for _, level := range []string{"repeatable read", "serializable"} {
		t.Run(level, func(t *testing.T) {
			pool, name := isolated(t, level), schema(t, connect(t))
			var all sync.WaitGroup
			stores := make([]*postgres.Storage, 4)
			for i := range stores {
				all.Go(func() {
					var err error
					if stores[i], err = postgres.Open(t.Context(), pool,
						postgres.WithSchema(name)); err != nil {
						t.Error(err)
					}
				})
			}
			all.Wait()
			if t.Failed() {
				return
			}
			for _, s := range stores {
				defer s.Close()
			}
			eng := newEngine(t, stores[0])
			for round := range 20 {
				var admitted atomic.Int64
				for range 8 {
					all.Go(func() {
						_, err := eng.Enqueue(t.Context(), "x", round,
							ojs.WithUnique(ojs.UniquePolicy{Keys: ojs.ByArgs}))
						if err == nil {
							admitted.Add(1)
						} else if !errors.Is(err, ojs.ErrDuplicate) {
							t.Error(err)
						}
					})
				}
				all.Wait()
				if n := admitted.Load(); n != 1 {
					t.Fatalf("round %d: %d equal jobs were admitted", round, n)
				}
			}
		})
	}
}

// If the database undoes a statement because of a concurrent one, the storage makes it
// again. Neither a caller nor the log sees an error.
func TestSerializable(t *testing.T) {
	_, name := open(t, "")
	pool := isolated(t, "serializable")
	logged := make(lines, 100)
	var all sync.WaitGroup
	for range 3 {
		s, err := postgres.Open(t.Context(), pool, postgres.WithSchema(name),
			postgres.WithPoll(20*time.Millisecond), postgres.WithLogger(slog.New(logged)))
		must(t, err)
		t.Cleanup(func() { must(t, s.Close()) })
		eng := newEngine(t, s)
		eng.Handle("x", func(context.Context, *ojs.Job[int]) error { return nil })
		start(t, eng)
		for range 4 {
			all.Go(func() {
				for n := range 100 {
					if _, err := eng.Enqueue(t.Context(), "x", n); err != nil {
						t.Error(err)
					}
				}
			})
		}
	}
	all.Wait()
	select {
	case line := <-logged:
		t.Error(line)
	default:
	}
}

// Open repeats what it asks of a database that undoes it. So do the looks that follow.
func TestOpenIsUndone(t *testing.T) {
	_, name := open(t, "")
	pool := connect(t)
	execAll(t, pool,
		"CREATE SEQUENCE "+name+".undone",
		// A sequence does not go back with the transaction that failed.
		"CREATE FUNCTION "+name+".undo() RETURNS boolean LANGUAGE plpgsql AS $$ BEGIN "+
			"IF nextval('"+name+".undone') < 3 THEN RAISE serialization_failure; END IF; RETURN true; END $$",
		"ALTER TABLE "+name+".queue_state RENAME TO kept_state",
		"CREATE VIEW "+name+".queue_state AS SELECT * FROM "+name+".kept_state WHERE "+name+".undo()",
		"INSERT INTO "+name+".kept_state (queue, state) VALUES ('q', 'paused')")
	logged := make(lines, 100)
	s, err := postgres.Open(t.Context(), pool, postgres.WithSchema(name),
		postgres.WithPoll(20*time.Millisecond), postgres.WithLogger(slog.New(logged)))
	must(t, err)
	execAll(t, pool, "SELECT setval('"+name+".undone', 1, false)")
	await(t, "a look is undone twice and made again", func() bool {
		var n int
		must(t, pool.QueryRow(t.Context(), "SELECT last_value FROM "+name+".undone").Scan(&n))
		return n >= 3
	})
	must(t, s.Close())
	if len(logged) > 0 {
		t.Error(<-logged)
	}
}

// A transaction that cannot see the jobs of others is refused for unique jobs, bounded
// queues and ordering keys, and for nothing else.
func TestWithTxIsolation(t *testing.T) {
	s, _ := open(t, "")
	pool := connect(t)
	eng := newEngine(t, s)
	once := ojs.WithUnique(ojs.UniquePolicy{Keys: ojs.ByArgs})
	for level, able := range map[pgx.TxIsoLevel]bool{
		pgx.ReadUncommitted: true, pgx.ReadCommitted: true, pgx.RepeatableRead: false,
		pgx.Serializable: false,
	} {
		t.Run(string(level), func(t *testing.T) {
			tx, err := pool.BeginTx(t.Context(), pgx.TxOptions{IsoLevel: level})
			must(t, err)
			defer tx.Rollback(context.Background())
			_, err = tx.Exec(t.Context(), "SELECT FROM pg_class") // the caller's own
			must(t, err)
			ctx := postgres.WithTx(t.Context(), tx)
			_, err = eng.Enqueue(ctx, "x", 1, once)
			var invalid *ojs.InvalidError
			if refused := errors.As(err, &invalid) && invalid.Field == "tx"; refused == able ||
				able && err != nil {
				t.Errorf("a unique job: %v", err)
			}
			_, err = eng.Enqueue(ctx, "x", 1, ojs.WithOrderingKey("k"))
			if errors.As(err, &invalid) == able || able && err != nil || !able && invalid.Field != "tx" {
				t.Errorf("a job with an ordering key: %v", err)
			}
			_, err = eng.Enqueue(ctx, "x", 1)
			must(t, err)
		})
	}
}
