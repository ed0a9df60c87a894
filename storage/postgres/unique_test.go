package postgres_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/ojsengine/ojs"
	"github.com/ojsengine/ojs/storage"
	"github.com/ojsengine/ojs/storage/postgres"
)

// A job that another transaction is changing still blocks an equal one. The lookup waits
// for the change, and then finds the job among others that have ended.
func TestUniqueBesideChange(t *testing.T) {
	s, name := open(t, "")
	pool := connect(t)
	eng := newEngine(t, s)
	once := ojs.WithUnique(ojs.UniquePolicy{Keys: ojs.ByArgs})
	// there is none yet
	ended := ojs.WithUnique(ojs.UniquePolicy{Keys: ojs.ByArgs, States: []ojs.State{ojs.StateCancelled}})
	drafts := make([]ojs.Draft, 1000)
	for i := range drafts {
		drafts[i] = ojs.NewDraft("x", i%10, ended)
	}
	_, err := eng.EnqueueMany(t.Context(), drafts...)
	must(t, err)
	_, err = pool.Exec(t.Context(), "UPDATE "+name+".stage SET state = 6 + seq % 3")
	must(t, err)
	_, err = pool.Exec(t.Context(), "ANALYZE "+name+".stage")
	must(t, err)
	ticket, err := eng.Enqueue(t.Context(), "x", 3, once)
	must(t, err)
	for round := range 10 { // the plan changes when the statement has been made some times
		second := make(chan error, 1)
		must(t, pgx.BeginFunc(t.Context(), pool, func(tx pgx.Tx) error {
			_, err := tx.Exec(t.Context(),
				"UPDATE "+name+".stage SET state = 7 - state, version = version + 1"+
					" WHERE seq = (SELECT seq FROM "+name+".job WHERE id = $1)", ticket.ID)
			must(t, err)
			var pid int
			must(t, tx.QueryRow(t.Context(), "SELECT pg_backend_pid()").Scan(&pid))
			go func() {
				_, err := eng.Enqueue(t.Context(), "x", 3, once)
				second <- err
			}()
			awaitBlocked(t, pool, pid)
			return nil
		}))
		if err := <-second; !errors.Is(err, ojs.ErrDuplicate) {
			t.Fatalf("round %d: an equal job was admitted: %v", round, err)
		}
	}
}

// An equal job that has ended counts though a newer one is being deleted.
func TestUniqueBesideDelete(t *testing.T) {
	s, name := open(t, "")
	pool := connect(t)
	rec := func(n int, fingerprint string) storage.Record {
		r := record(n)
		r.CreatedAt = time.Now().Add(time.Duration(n) * time.Second)
		r.Fingerprint, r.Unique = fingerprint, &ojs.UniquePolicy{Keys: ojs.ByArgs,
			States: []ojs.State{ojs.StateCancelled}}
		return r
	}
	for n := range 2 { // two, which an earlier policy may have let in
		must(t, insert(t.Context(), s, rec(n, fmt.Sprint(n))))
		r, err := s.Get(t.Context(), record(n).ID)
		must(t, err)
		r.State, r.FinishedAt = ojs.StateCancelled, time.Now()
		settle(t, t.Context(), s, r)
	}
	_, err := pool.Exec(t.Context(), "UPDATE "+name+".stage SET fingerprint = 'f'")
	must(t, err)
	tx, err := pool.Begin(t.Context())
	must(t, err)
	defer tx.Rollback(context.Background())
	_, err = tx.Exec(t.Context(), "WITH body AS (DELETE FROM "+name+".job WHERE id = $1 RETURNING seq)"+
		// as Delete and Prune do
		" DELETE FROM "+name+".stage WHERE seq IN (SELECT seq FROM body)", record(1).ID)
	must(t, err)
	third := make(chan error, 1)
	go func() { third <- insert(t.Context(), s, rec(2, "f")) }()
	awaitBlocked(t, pool, int(tx.Conn().PgConn().PID()))
	must(t, tx.Commit(t.Context()))
	if err := <-third; !errors.Is(err, ojs.ErrDuplicate) {
		t.Errorf("equal to one that is left: %v", err)
	}
}

// An enqueue that waits for an equal job finds its id taken by another job that the same
// transaction has stored.
func TestUniqueBesideItsID(t *testing.T) {
	s, _ := open(t, "")
	pool := connect(t)
	equal := func(n int) storage.Record {
		r := record(n)
		r.Fingerprint = "f"
		r.Unique = &ojs.UniquePolicy{Keys: ojs.ByArgs, OnConflict: ojs.ConflictIgnore}
		return r
	}
	tx, err := pool.Begin(t.Context())
	must(t, err)
	defer tx.Rollback(context.Background())
	must(t, insert(postgres.WithTx(t.Context(), tx), s, equal(1), record(2)))
	second := make(chan error, 1)
	go func() { second <- insert(t.Context(), s, equal(2)) }()
	awaitBlocked(t, pool, int(tx.Conn().PgConn().PID()))
	must(t, tx.Commit(t.Context()))
	var taken *ojs.DuplicateError
	if err := <-second; !errors.As(err, &taken) || taken.ID != record(2).ID {
		t.Errorf("an equal job whose id is taken: %v", err)
	}
}
