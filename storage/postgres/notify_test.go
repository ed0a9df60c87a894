package postgres_test

import (
	"context"
	"log/slog"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/ojsengine/ojs"
	"github.com/ojsengine/ojs/storage"
	"github.com/ojsengine/ojs/storage/postgres"
)

// told returns a channel of what a storage tells, but for its own looks, which the end of
// the test ends.
func told(t *testing.T, s *postgres.Storage) chan storage.Notice {
	heard := make(chan storage.Notice, 1000)
	t.Cleanup(s.Notify(t, func(n storage.Notice) {
		if !n.Everything {
			heard <- n
		}
	}))
	return heard
}

// awaitListener waits until a storage hears what another one of its schema sends. It
// waits for the end of one job: the storage hears of its own calls without a listener.
func awaitListener(t *testing.T, sender *postgres.Storage, heard chan storage.Notice) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	for {
		rec := record(0)
		rec.ID = uuid.NewString()
		must(t, insert(ctx, sender, rec))
		stored, err := sender.Get(ctx, rec.ID)
		must(t, err)
		stored.State, stored.FinishedAt = ojs.StateCancelled, time.Now()
		settle(t, ctx, sender, stored)
		late := time.After(50 * time.Millisecond)
		for waits := true; waits; {
			select {
			case n := <-heard:
				if slices.Contains(n.Ended, rec.ID) {
					return
				}
			case <-late:
				waits = false
			}
		}
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

// The listener's connection is prepared like the others of the pool: without the role
// that it takes on it may do nothing.
func TestListenerRole(t *testing.T) {
	if os.Getenv("OJS_TEST_POSTGRES") != "" {
		t.Skip("the server may want a password")
	}
	admin := connect(t)
	name := schema(t, admin)
	_, err := admin.Exec(t.Context(), strings.ReplaceAll(
		"CREATE ROLE $; CREATE ROLE $_login LOGIN NOINHERIT IN ROLE $; CREATE SCHEMA $ AUTHORIZATION $", "$",
		name))
	must(t, err)
	t.Cleanup(func() { // after the schema, which goes first
		_, err := admin.Exec(context.Background(),
			strings.ReplaceAll("DROP SCHEMA $ CASCADE; DROP ROLE $_login; DROP ROLE $", "$", name))
		must(t, err)
	})
	cfg := admin.Config()
	cfg.ConnConfig.User = name + "_login"
	cfg.AfterConnect = func(ctx context.Context, conn *pgx.Conn) error {
		_, err := conn.Exec(ctx, "SET ROLE "+name)
		return err
	}
	pool, err := pgxpool.NewWithConfig(t.Context(), cfg)
	must(t, err)
	t.Cleanup(pool.Close)
	logged := make(lines, 100)
	opts := []postgres.Option{postgres.WithSchema(name), postgres.WithPoll(time.Hour),
		postgres.WithLogger(slog.New(logged))}
	s, err := postgres.Open(t.Context(), pool, opts...)
	must(t, err)
	t.Cleanup(func() { must(t, s.Close()) })
	other, err := postgres.Open(t.Context(), pool, opts...)
	must(t, err)
	t.Cleanup(func() { must(t, other.Close()) })
	awaitListener(t, other, told(t, s))
	select {
	case line := <-logged:
		t.Error(line)
	default:
	}
}

// The commit of a transaction announces what it has settled, to this process and to
// others. A rollback announces nothing.
func TestSettleInTxIsTold(t *testing.T) {
	s, name := open(t, "", postgres.WithPoll(time.Hour))
	other, _ := open(t, name, postgres.WithPoll(time.Hour))
	pool := connect(t)
	here, there := told(t, s), told(t, other)
	awaitListener(t, other, here)
	awaitListener(t, s, there)
	cancel := func(n int) (tx pgx.Tx, id string) {
		must(t, insert(t.Context(), s, record(n)))
		rec, err := s.Get(t.Context(), record(n).ID)
		must(t, err)
		tx, err = pool.Begin(t.Context())
		must(t, err)
		rec.State, rec.FinishedAt = ojs.StateCancelled, time.Now()
		settle(t, postgres.WithTx(t.Context(), tx), s, rec)
		return tx, rec.ID
	}
	tx, undone := cancel(1)
	must(t, tx.Rollback(t.Context()))
	tx, done := cancel(2)
	must(t, tx.Commit(t.Context()))
	for where, heard := range map[string]chan storage.Notice{"here": here, "there": there} {
		for n := (storage.Notice{}); !slices.Contains(n.Ended, done); {
			n = <-heard
			if slices.Contains(n.Ended, undone) ||
				slices.ContainsFunc(n.Taken, func(x storage.Taken) bool { return x.ID == undone }) {
				t.Errorf("%s: told of what was rolled back", where)
			}
		}
	}
}

// A process tells of the ends of jobs that count for the limit of a queue as soon as it
// hears that another process has set one: they may let a job start.
func TestHearsOfALimitOfAQueue(t *testing.T) {
	s, name := open(t, "", postgres.WithPoll(time.Hour))
	other, _ := open(t, name)
	heard := told(t, s)
	awaitListener(t, other, heard)
	queue := storage.LimitName{Kind: storage.LimitQueue, Name: record(0).Queue}
	must(t, other.SetLimit(t.Context(), time.Now(), queue, ojs.RateLimit{Concurrency: 1}, time.Time{}))
	n := 0
	await(t, "the end of a job is told", func() bool {
		n++
		must(t, insert(t.Context(), s, record(n)))
		claimed := claimOne(t, s, record(n).ID)
		for len(heard) > 0 {
			<-heard
		}
		settle(t, t.Context(), s, completed(claimed).Record)
		for len(heard) > 0 {
			if notice := <-heard; slices.Contains(notice.Ended, claimed.ID) {
				return notice.Available
			}
		}
		return false
	})
}

// Other processes are notified of a change that was made right before Close.
func TestToldBeforeClose(t *testing.T) {
	s, name := open(t, "", postgres.WithPoll(time.Hour))
	other, _ := open(t, name)
	heard := told(t, s)
	awaitListener(t, other, heard)
	for n := range 10 {
		must(t, insert(t.Context(), s, record(n)))
		rec, err := s.Get(t.Context(), record(n).ID)
		must(t, err)
		short, err := postgres.Open(t.Context(), connect(t), postgres.WithSchema(name))
		must(t, err)
		must(t, insert(t.Context(), short, record(100+n))) // which keeps it from telling more for some ms
		rec.State, rec.FinishedAt = ojs.StateCancelled, time.Now()
		settle(t, t.Context(), short, rec)
		must(t, short.Close())
		late := time.After(time.Minute)
		for ended := false; !ended; {
			select {
			case notice := <-heard:
				ended = slices.Contains(notice.Ended, rec.ID)
			case <-late:
				t.Fatal("nobody was told")
			}
		}
	}
}
