package postgres_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/ojsengine/ojs"
	"github.com/ojsengine/ojs/storage"
	"github.com/ojsengine/ojs/storage/postgres"
)

// An insert is refused for the id that is stored already, also if it could not see it.
func TestDuplicateID(t *testing.T) {
	for level, inTx := range map[pgx.TxIsoLevel]bool{
		"": false, pgx.ReadCommitted: true, pgx.RepeatableRead: true,
	} {
		t.Run(string(level), func(t *testing.T) {
			s, _ := open(t, "")
			pool := connect(t)
			ctx := t.Context()
			if inTx {
				tx, err := pool.BeginTx(t.Context(), pgx.TxOptions{IsoLevel: level})
				must(t, err)
				defer tx.Rollback(context.Background())
				_, err = tx.Exec(t.Context(), "SELECT FROM pg_class") // from now on it sees no others
				must(t, err)
				ctx = postgres.WithTx(ctx, tx)
			}
			other, err := pool.Begin(t.Context())
			must(t, err)
			defer other.Rollback(context.Background())
			must(t, insert(postgres.WithTx(t.Context(), other), s, record(2)))
			refused := make(chan error, 1)
			go func() {
				batch := []storage.Insert{{Record: record(1)}, {Record: record(2)}}
				if !inTx {
					batch[0].MaxDepth = 100 // by the same way as in a transaction
				}
				_, err := s.Insert(ctx, time.Now(), batch, nil)
				refused <- err
			}()
			awaitBlocked(t, pool, int(other.Conn().PgConn().PID()))
			must(t, other.Commit(t.Context()))
			var dup *ojs.DuplicateError
			if err := <-refused; !errors.As(err, &dup) || dup.ID != record(2).ID {
				t.Error(err)
			}
		})
	}
}

// The last of very many replacements of a scheduled job in one batch is what is stored.
func TestManyReplacements(t *testing.T) {
	s, _ := open(t, "")
	equal := func(n int) storage.Record {
		r := record(n)
		r.State, r.ScheduledAt, r.Fingerprint = ojs.StateScheduled, time.Now().Add(time.Hour), "f"
		r.Unique = &ojs.UniquePolicy{Keys: ojs.ByArgs, OnConflict: ojs.ConflictReplaceExceptSchedule}
		var err error
		r.Args, err = ojs.NewArgs(n)
		must(t, err)
		return r
	}
	must(t, insert(t.Context(), s, equal(0)))
	first, err := s.Get(t.Context(), record(0).ID)
	must(t, err)
	batch := make([]storage.Insert, 33_000) // more than 15 bits count
	for i := range batch {
		batch[i].Record = equal(i + 1)
	}
	_, err = s.Insert(t.Context(), time.Now(), batch, nil)
	must(t, err)
	last := batch[len(batch)-1].Record
	stored, err := s.Get(t.Context(), record(0).ID)
	must(t, err)
	if stored.Args.String() != last.Args.String() || stored.Version != first.Version+uint64(len(batch)) {
		t.Errorf("args %s and version %d", stored.Args, stored.Version)
	}
}
