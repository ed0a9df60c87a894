package main

import (
	"io"
	"log/slog"
	"path/filepath"
	"testing"
	"time"

	"github.com/benbjohnson/clock"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/ojsengine/ojs/dashboard"
	"github.com/ojsengine/ojs/engine"
	"github.com/ojsengine/ojs/internal/test/needles"
	"github.com/ojsengine/ojs/storage"
	"github.com/ojsengine/ojs/storage/postgres"
	"github.com/ojsengine/ojs/storage/sqlite"
)

// Pages find the few jobs that people look for among many others, as on the memory
// storage in module dashboard.
func TestNeedles(t *testing.T) {
	const others = 20_000
	check := func(t *testing.T, store storage.Storage, err error) {
		if err != nil {
			t.Fatal(err)
		}
		defer func() {
			if err := store.Close(); err != nil {
				t.Error(err)
			}
		}()
		cl, log := clock.NewMock(), slog.New(slog.NewTextHandler(io.Discard, nil))
		cl.Set(time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC))
		eng, err := engine.New[any](store, engine.WithClock(cl), engine.WithLogger(log))
		if err != nil {
			t.Fatal(err)
		}
		flows := needles.Fill(t, store, eng, cl, others)
		pages, err := dashboard.New(eng, dashboard.WithClock(cl), dashboard.WithLogger(log),
			dashboard.WithAuthorizer(dashboard.AllowAll))
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = pages.Close() }()
		needles.Check(t, pages, flows)
	}
	t.Run("sqlite", func(t *testing.T) {
		store, err := sqlite.Open(t.Context(), filepath.Join(t.TempDir(), "jobs.db"))
		check(t, store, err)
	})
	t.Run("postgres", func(t *testing.T) {
		pool, err := pgxpool.New(t.Context(), newDatabase(t, "template1"))
		if err != nil {
			t.Fatal(err)
		}
		defer pool.Close()
		store, err := postgres.Open(t.Context(), pool)
		check(t, store, err)
	})
}
