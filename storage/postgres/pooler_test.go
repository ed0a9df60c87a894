package postgres_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/ojsengine/ojs"
	"github.com/ojsengine/ojs/internal/test/pace"
	"github.com/ojsengine/ojs/internal/test/pgtest"
	"github.com/ojsengine/ojs/storage/postgres"
	"github.com/ojsengine/ojs/storage/storagetest"
)

// pooled makes pools that reach a server through a pooler of transactions.
func pooled(t *testing.T, server *pgtest.Server, size int) func(mode pgx.QueryExecMode) *pgxpool.Pool {
	t.Helper()
	p, err := server.StartPooler(size)
	if errors.Is(err, pgtest.ErrNoPooler) {
		t.Skip(err)
	}
	must(t, err)
	t.Cleanup(func() { must(t, p.Close()) })
	return func(mode pgx.QueryExecMode) *pgxpool.Pool {
		cfg, err := pgxpool.ParseConfig(p.DSN())
		must(t, err)
		cfg.ConnConfig.DefaultQueryExecMode = mode
		pool, err := pgxpool.NewWithConfig(t.Context(), cfg)
		must(t, err)
		t.Cleanup(pool.Close)
		return pool
	}
}

// Behind a pooler that lends connections for a transaction at a time a storage does all
// that storages do, in the modes of pgx that need no prepared statement to stay. With
// OJS_STORM it passes the cases of the suite.
func TestPooler(t *testing.T) {
	t.Parallel()
	connectTo := pooled(t, privateServer(t), 20)
	for _, mode := range []pgx.QueryExecMode{pgx.QueryExecModeExec, pgx.QueryExecModeCacheDescribe} {
		t.Run(mode.String(), func(t *testing.T) {
			c := configOn(t, connectTo(mode))
			if mode == pgx.QueryExecModeExec { // which docs/storages.md recommends
				if os.Getenv("OJS_STORM") != "" { // the calls are those of TestStorage
					storagetest.Conformance(t, c)
				}
				t.Run("Histories", func(t *testing.T) { storagetest.Histories(t, c) })
			}
			storagetest.RunEngine(t, c)
			storagetest.SameBehaviour(t, c)
		})
	}
}

// Closing a storage breaks off none of its own statements: what is broken off is asked to
// be cancelled, which some poolers do not survive.
func TestPoolerHearsNoCancel(t *testing.T) {
	t.Parallel()
	p, err := privateServer(t).StartPooler(5)
	if errors.Is(err, pgtest.ErrNoPooler) {
		t.Skip(err)
	}
	must(t, err)
	cfg, err := pgxpool.ParseConfig(p.DSN())
	must(t, err)
	cfg.ConnConfig.DefaultQueryExecMode = pgx.QueryExecModeExec
	pool, err := pgxpool.NewWithConfig(t.Context(), cfg)
	must(t, err)
	for i := range 60 {
		s, err := postgres.Open(t.Context(), pool)
		if err != nil {
			t.Fatalf("%v\n%s", err, p.Log())
		}
		// so that some are closed in the middle of their first look
		pace.Work(time.Duration(i) * 200 * time.Microsecond)
		must(t, s.Close())
	}
	pool.Close()
	must(t, p.Close())
	if n := strings.Count(p.Log(), "cancel request"); n > 0 || !strings.Contains(p.Log(), "login attempt") {
		t.Errorf("%d lines about cancel requests in\n%s", n, p.Log())
	}
}

// Two processes behind a pooler, even one with very few connections, hear nothing of each
// other and find it when they look.
func TestPoolerTwoProcesses(t *testing.T) {
	t.Parallel()
	for _, size := range []int{1, 3} {
		t.Run(fmt.Sprint("connections ", size), func(t *testing.T) {
			connectTo := pooled(t, privateServer(t), size)
			storages := make([]*postgres.Storage, 2)
			for i := range storages {
				s, err := postgres.Open(t.Context(), connectTo(pgx.QueryExecModeExec),
					postgres.WithPoll(50*time.Millisecond))
				must(t, err)
				t.Cleanup(func() { must(t, s.Close()) })
				storages[i] = s
			}
			works, other := newEngine(t, storages[0]), newEngine(t, storages[1])
			works.Handle("x", func(context.Context, *ojs.Job[int]) error { return nil })
			start(t, works)
			must(t, works.WaitIdle(t.Context()))
			var slowest time.Duration
			for n := range 40 {
				began := time.Now()
				ticket, err := other.Enqueue(t.Context(), "x", n,
					ojs.WithUnique(ojs.UniquePolicy{Keys: ojs.ByArgs}))
				must(t, err)
				if job, err := ticket.Wait(t.Context()); err != nil || job.State != ojs.StateCompleted {
					t.Errorf("%+v, %v", job, err)
				}
				slowest = max(slowest, time.Since(began))
			}
			t.Logf("the slowest of 40 jobs took %v", slowest)
		})
	}
}

// With pgx's own mode, which prepares statements, calls behind a pooler of transactions
// fail with an error that names the remedy.
func TestPoolerOfPreparedStatements(t *testing.T) {
	t.Parallel()
	connectTo := pooled(t, privateServer(t), 3)
	opens := func() error {
		s, err := postgres.Open(t.Context(), connectTo(pgx.QueryExecModeCacheStatement),
			postgres.WithLogger(quietLog))
		if err != nil {
			return err
		}
		defer s.Close()
		return insert(t.Context(), s, record(time.Now().Nanosecond()))
	}
	await(t, "an error of a pooler", func() bool {
		err := opens()
		if err == nil {
			return false
		}
		if !errors.Is(err, postgres.ErrPooler) ||
			!strings.Contains(err.Error(), "default_query_exec_mode=exec") {
			t.Error(err)
		}
		return true
	})
}
