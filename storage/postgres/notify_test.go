package postgres_test

import (
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/ojsengine/ojs/storage"
	"github.com/ojsengine/ojs/storage/postgres"
)

// told returns a channel of what a storage tells, but for its own looks, which the end of the test ends.
func told(t *testing.T, s *postgres.Storage) chan storage.Notice {
	heard := make(chan storage.Notice, 1000)
	t.Cleanup(s.Notify(t, func(n storage.Notice) {
		if !n.Everything {
			heard <- n
		}
	}))
	return heard
}

// awaitListener waits until a storage hears what is sent by another one of its schema.
func awaitListener(t *testing.T, sender *postgres.Storage, heard chan storage.Notice) {
	t.Helper()
	for n := 900_000; ; n++ {
		must(t, t.Context().Err())
		must(t, insert(t.Context(), sender, record(n)))
		select {
		case <-heard:
		case <-time.After(50 * time.Millisecond):
			continue
		}
		return
	}
}

// A pool that hears its program's own notifications keeps none from the storage.
func TestOnNotification(t *testing.T) {
	other, name := open(t, "")
	cfg := connect(t).Config()
	cfg.ConnConfig.OnNotification = func(*pgconn.PgConn, *pgconn.Notification) {}
	pool, err := pgxpool.NewWithConfig(t.Context(), cfg)
	must(t, err)
	t.Cleanup(pool.Close)
	s, err := postgres.Open(t.Context(), pool, postgres.WithSchema(name), postgres.WithPoll(time.Hour))
	must(t, err)
	t.Cleanup(func() { must(t, s.Close()) })
	awaitListener(t, other, told(t, s))
}
