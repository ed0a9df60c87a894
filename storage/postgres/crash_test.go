package postgres_test

import (
	"context"
	"errors"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/ojsengine/ojs/internal/test/crashtest"
	"github.com/ojsengine/ojs/internal/test/pgtest"
	"github.com/ojsengine/ojs/storage"
	"github.com/ojsengine/ojs/storage/postgres"
)

// openForCrash opens a storage at a schema and, after a space, a server, or one of some
// with "|" between them. After the schema may come a slash and how long to wait for an
// answer of the database.
func openForCrash(ctx context.Context, at string) (storage.Storage, func(), error) {
	where, dsn, _ := strings.Cut(at, " ")
	schema, patient, _ := strings.Cut(where, "/")
	dsns := strings.Split(dsn, "|")
	cfg, err := pgxpool.ParseConfig(dsns[os.Getpid()%len(dsns)])
	if err != nil {
		return nil, nil, err
	}
	cfg.ConnConfig.ConnectTimeout = 5 * time.Second
	opts := []postgres.Option{postgres.WithSchema(schema)}
	var patience time.Duration
	if patient != "" {
		if patience, err = time.ParseDuration(patient); err != nil {
			return nil, nil, err
		}
		cfg.ConnConfig.ConnectTimeout, cfg.PingTimeout = patience, patience
		opts = append(opts, postgres.WithPatience(patience))
	}
	pool, err := pgxpool.NewWithConfig(ctx, cfg)
	if err != nil {
		return nil, nil, err
	}
	if patient != "" { // of a network that may swallow what migrations say
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, 10*time.Second)
		defer cancel()
	}
	s, err := postgres.Open(ctx, pool, opts...)
	if err != nil {
		pool.Close()
		return nil, nil, err
	}
	return &crashing{s, pool, 4 * patience}, pool.Close, nil
}

// crashing is a storage with its pool, and how long a transaction of the program may
// take, or 0. A transaction whose answer the network has swallowed keeps the row of its
// job locked.
type crashing struct {
	*postgres.Storage
	pool *pgxpool.Pool
	most time.Duration
}

func (c *crashing) Unwrap() storage.Storage { return c.Storage }

func beginForCrash(s storage.Storage) crashtest.InTx {
	c := s.(*crashing)
	return func(ctx context.Context, f func(context.Context) error) error {
		if c.most > 0 {
			var cancel context.CancelFunc
			ctx, cancel = context.WithTimeout(ctx, c.most)
			defer cancel()
		}
		return pgx.BeginFunc(ctx, c.pool, func(tx pgx.Tx) error { return f(postgres.WithTx(ctx, tx)) })
	}
}

// Processes that share a server are killed at any moment.
func TestCrash(t *testing.T) {
	t.Parallel()
	pool := connect(t)
	crashtest.Run(t, crashtest.Config{Open: openForCrash, At: schema(t, pool) + " " + server, Workers: 4,
		Producers: 2})
}

// A killed process holds its job no longer than it may be silent.
func TestKilledProcess(t *testing.T) {
	t.Parallel()
	pool := connect(t)
	crashtest.Killed(t, openForCrash, schema(t, pool)+" "+server)
}

// privateServer runs a server for one test.
func privateServer(t *testing.T) *pgtest.Server {
	t.Helper()
	s, err := pgtest.Start()
	if errors.Is(err, pgtest.ErrNotInstalled) {
		t.Skip(err)
	}
	must(t, err)
	t.Cleanup(func() { _ = s.Close() })
	return s
}

// A server that crashes, and one that is shut down, costs time and nothing else.
func TestServerRestarts(t *testing.T) {
	t.Parallel()
	s := privateServer(t)
	at := "ojs " + s.DSN()
	disturb := func(ctx context.Context) {
		for range 2 {
			for _, stop := range []func() error{s.Crash, s.Down} {
				crashtest.Wait(ctx, crashtest.Time(t)/4)
				if err := stop(); err != nil {
					t.Error(err)
				}
				must(t, s.Up())
			}
		}
	}
	crashtest.Run(t, crashtest.Config{
		Open: openForCrash, At: at, Workers: 2, Producers: 2, Disturb: disturb,
	})
}

// A network that drops connections leaves the results of calls unknown. That costs time
// and nothing else.
func TestBadNetwork(t *testing.T) {
	t.Parallel()
	if os.Getenv("OJS_TEST_POSTGRES") != "" {
		t.Skip("the server may want more than a proxy knows")
	}
	pool := connect(t)
	name := schema(t, pool)
	p := startBadNetwork(t, server)
	crashtest.Run(t, crashtest.Config{
		Open: openForCrash, At: name + " " + p.dsn(), Direct: name + " " + server, Workers: 2, Producers: 2,
		Disturb: func(ctx context.Context) {
			crashtest.Wait(ctx, crashtest.Time(t))
			p.good.Store(true)
			t.Logf("%d connections were dropped, %d closed in one direction", p.dropped.Load(),
				p.halved.Load())
		},
	})
}

// A network that swallows everything, again and again, costs time and nothing else.
func TestSwallowingNetwork(t *testing.T) {
	t.Parallel()
	if os.Getenv("OJS_TEST_POSTGRES") != "" {
		t.Skip("the server may want more than a proxy knows")
	}
	pool := connect(t)
	name := schema(t, pool)
	p := startBadNetwork(t, server)
	p.good.Store(true)
	crashtest.Run(t, crashtest.Config{
		Open: openForCrash, At: name + "/500ms " + p.dsn(), Direct: name + " " + server, Workers: 2,
		Producers: 2,
		Disturb: func(ctx context.Context) {
			for range 2 {
				crashtest.Wait(ctx, crashtest.Time(t)/4)
				p.swallow()
				crashtest.Wait(ctx, crashtest.Time(t)/4)
				p.spit()
			}
		},
	})
}
