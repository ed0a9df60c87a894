package postgres_test

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"runtime"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
	"go.uber.org/goleak"

	"github.com/ojsengine/ojs/internal/test/bindingtest"
	"github.com/ojsengine/ojs/internal/test/crashtest"
	"github.com/ojsengine/ojs/internal/test/limittest"
	"github.com/ojsengine/ojs/internal/test/pgtest"
	"github.com/ojsengine/ojs/storage"
	"github.com/ojsengine/ojs/storage/postgres"
	"github.com/ojsengine/ojs/storage/storagetest"
)

// server is the database of these tests.
var server string

func TestMain(m *testing.M) {
	crashtest.Child(openForCrash, beginForCrash)
	limittest.Child(openForCrash)
	bindingtest.Child(openForCrash)
	// Flags of the command line override these.
	if os.Getenv("RAPID_CHECKS") == "" { // 100 runs of storagetest.Random take a minute of the server
		_ = flag.Set("rapid.checks", "25")
	}
	// Parallel tests wait for servers and networks that fail, for most of their time.
	_ = flag.Set("test.parallel", strconv.Itoa(max(8, runtime.GOMAXPROCS(0))))
	code := pgtest.Main(m, &server, "wal_level=logical")
	if err := goleak.Find(); err != nil && code == 0 {
		fmt.Fprintln(os.Stderr, err)
		code = 1
	}
	os.Exit(code)
}

// connect makes a pool.
func connect(tb testing.TB) *pgxpool.Pool {
	tb.Helper()
	if server == "" {
		tb.Skip("no PostgreSQL server is installed, and OJS_TEST_POSTGRES names none")
	}
	pool, err := pgxpool.New(context.Background(), server)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(pool.Close)
	return pool
}

var schemas atomic.Int64

// schema makes up a name that no other test has, and removes what it names in the end.
func schema(tb testing.TB, pool *pgxpool.Pool) string {
	name := fmt.Sprintf("t%d_%d", os.Getpid(), schemas.Add(1))
	tb.Cleanup(func() {
		_, err := pool.Exec(context.Background(), "DROP SCHEMA IF EXISTS "+name+" CASCADE")
		var refused *pgconn.PgError
		for errors.As(err, &refused) && refused.Code == "40P01" { // with a backend that a test has left
			refused = nil
			_, err = pool.Exec(context.Background(), "DROP SCHEMA IF EXISTS "+name+" CASCADE")
		}
		if err != nil {
			tb.Error(err)
		}
	})
	return name
}

// spares are schemas that a storage has used, emptied for the next one. To make a schema
// and to drop it takes the server longer than most cases take.
type spares struct {
	pool  *pgxpool.Pool
	mu    sync.Mutex // guards names
	names []string
}

// take returns an empty schema, or the name of one that Open makes. The test gives it
// back when it ends.
func (s *spares) take(config, tb testing.TB) (name string) {
	s.mu.Lock()
	if last := len(s.names) - 1; last >= 0 {
		name, s.names = s.names[last], s.names[:last]
	}
	s.mu.Unlock()
	if name == "" {
		name = schema(config, s.pool)
	}
	tb.Cleanup(func() {
		if err := s.empty(name); err != nil {
			tb.Error(err)
			return
		}
		s.mu.Lock()
		defer s.mu.Unlock()
		s.names = append(s.names, name)
	})
	return name
}

// empty makes the tables of a schema as they were when it was made, statistics included.
func (s *spares) empty(name string) error {
	ctx := context.Background()
	return pgx.BeginFunc(ctx, s.pool, func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, "SET LOCAL search_path = pg_catalog, pg_temp"); err != nil {
			return err
		}
		var used *string
		err := tx.QueryRow(ctx, `SELECT string_agg(format('%I.%I', schemaname, tablename), ', ')
			FROM pg_tables WHERE schemaname = $1 AND tablename <> 'migration'
			AND pg_relation_size(format('%I.%I', schemaname, tablename)) > 0`, name).Scan(&used)
		if err == nil && used != nil {
			_, err = tx.Exec(ctx, "TRUNCATE "+*used)
		}
		return err
	})
}

func config(t *testing.T) storagetest.Config { return configOn(t, connect(t)) }

// configOn makes the storages of a test in a database.
func configOn(config testing.TB, pool *pgxpool.Pool) storagetest.Config {
	unused := &spares{pool: pool}
	names := make(map[storage.Storage]string)
	open := func(tb testing.TB, name string) storage.Storage {
		s, err := postgres.Open(context.Background(), pool, postgres.WithSchema(name))
		if err != nil {
			tb.Fatal(err)
		}
		names[s] = name
		return s
	}
	change := func(sql string) func(tb testing.TB, s storage.Storage, id string) {
		return func(tb testing.TB, s storage.Storage, id string) {
			tb.Helper()
			if _, err := pool.Exec(context.Background(), fmt.Sprintf(sql, names[s]), id); err != nil {
				tb.Fatal(err)
			}
		}
	}
	return storagetest.Config{
		Open: func(tb testing.TB) storage.Storage { return open(tb, unused.take(config, tb)) },
		Reopen: func(tb testing.TB, s storage.Storage) storage.Storage {
			if err := s.Close(); err != nil {
				tb.Fatal(err)
			}
			return open(tb, names[s])
		},
		Another:      func(tb testing.TB, s storage.Storage) storage.Storage { return open(tb, names[s]) },
		JobByJob:     true,
		SettleClaims: true,
		InsertClaims: true,
		Notices:      true,
		Quarantine:   true,
		// The args are no JSON with a brace before them.
		Plant: change(
			`UPDATE %s.job SET args = '\x7b'::bytea || coalesce(args, 'null'::bytea) WHERE id = $1`),
		Mend: change(`UPDATE %s.quarantined_job SET args = substr(args, 2) WHERE id = $1`),
		PlantNamed: func(tb testing.TB, s storage.Storage, kind storage.Kind, name string) {
			tb.Helper()
			sql := `UPDATE %s.document SET data = '\x7b'::bytea || data WHERE kind = 'cron' AND name = $1`
			if kind == storage.KindQueue {
				sql = `UPDATE %s.queue_state SET state = '{' || state WHERE queue = $1`
			}
			change(sql)(tb, s, name)
		},
		MendNamed: func(tb testing.TB, s storage.Storage, kind storage.Kind, name string) {
			tb.Helper()
			change(`UPDATE %s.quarantine SET body = substr(body, 2) WHERE name = $1 AND kind = '`+
				string(kind)+`'`)(tb, s, name)
		},
	}
}

// The storage keeps the contract in a database that publishes all its tables.
func TestStorage(t *testing.T) {
	t.Parallel()
	storagetest.Run(t, configOn(t, published(t)))
}

func TestEngine(t *testing.T) { storagetest.RunEngine(t, config(t)) }

func TestSameBehaviour(t *testing.T) { storagetest.SameBehaviour(t, config(t)) }

func BenchmarkStorage(b *testing.B) { storagetest.Benchmark(b, configOn(b, connect(b)).Open) }
