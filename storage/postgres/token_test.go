package postgres_test

import (
	"context"
	"testing"
	"time"

	"github.com/ojsengine/ojs"
	"github.com/ojsengine/ojs/storage"
	"github.com/ojsengine/ojs/storage/postgres"
)

// An insert that has begun may have to wait while a job with one of its ids is there,
// goes on, ends and is deleted. Its own job gets none of the versions that the other one
// has had.
func TestTokensOfAJobThatEndsDuringAnInsert(t *testing.T) {
	equal := func(n int) storage.Record {
		r := record(n)
		r.Fingerprint, r.Unique = "f", &ojs.UniquePolicy{OnConflict: ojs.ConflictReplace}
		return r
	}
	for _, how := range []struct {
		name   string
		there  bool // the job is there before the insert begins
		insert func(s storage.Storage) error
		block  func(ctx context.Context, s storage.Storage, jobs string,
			exec func(sql string, args ...any) error) error
	}{
		{"deleted beside it", true,
			func(s storage.Storage) error { return insert(t.Context(), s, record(1), record(2)) },
			func(_ context.Context, _ storage.Storage, jobs string, exec func(string, ...any) error) error {
				return exec("DELETE FROM "+jobs+" WHERE id = $1", record(1).ID)
			}},
		{"there and gone", false, func(s storage.Storage) error { return insert(t.Context(), s, equal(2)) },
			func(ctx context.Context, s storage.Storage, _ string, _ func(string, ...any) error) error {
				return insert(ctx, s, equal(3))
			}},
	} {
		t.Run(how.name, func(t *testing.T) {
			s, name := open(t, "")
			pool := connect(t)
			addDead(t, s, 1)
			had := make(map[uint64]bool)
			note := func(v uint64) {
				t.Helper()
				if had[v] {
					t.Fatalf("version %d comes again", v)
				}
				had[v] = true
			}
			spend := func() { // runs the job to its end and deletes it
				t.Helper()
				for left := 20; ; left-- {
					claimed, err := s.Claim(t.Context(), time.Now(), storage.Claim{Max: 1}, nil)
					must(t, err)
					rec := claimed[0]
					note(rec.Version)
					if rec.LeaseUntil = (time.Time{}); left == 0 {
						rec.State, rec.FinishedAt = ojs.StateCompleted, time.Now()
						settle(t, t.Context(), s, rec)
						break
					}
					rec.State, rec.NextRetryAt = ojs.StateRetryable, time.Now()
					settle(t, t.Context(), s, rec)
					rec.Version++
					note(rec.Version)
					rec.State, rec.NextRetryAt = ojs.StateAvailable, time.Time{}
					settle(t, t.Context(), s, rec)
					note(rec.Version + 1)
				}
				n, err := s.Delete(t.Context(), []string{record(2).ID})
				if must(t, err); n != 1 {
					t.Fatalf("deleted %d", n)
				}
			}
			if how.there {
				must(t, insert(t.Context(), s, record(2)))
			}
			tx, err := pool.Begin(t.Context())
			must(t, err)
			defer tx.Rollback(context.Background())
			ctx := postgres.WithTx(t.Context(), tx)
			must(t, how.block(ctx, s, name+".job", func(sql string, args ...any) error {
				_, err := tx.Exec(t.Context(), sql, args...)
				return err
			}))
			inserted := make(chan error, 1)
			go func() { inserted <- how.insert(s) }()
			awaitBlocked(t, pool, int(tx.Conn().PgConn().PID()))
			if !how.there {
				must(t, insert(t.Context(), s, record(2)))
			}
			spend()
			if how.there {
				must(t, tx.Commit(t.Context()))
			} else {
				must(t, tx.Rollback(t.Context()))
			}
			must(t, <-inserted)
			if how.there {
				other, err := s.Get(t.Context(), record(1).ID)
				must(t, err)
				other.State, other.FinishedAt = ojs.StateCancelled, time.Now()
				settle(t, t.Context(), s, other)
			}
			stored, err := s.Get(t.Context(), record(2).ID)
			must(t, err)
			note(stored.Version)
			spend()
		})
	}
}
