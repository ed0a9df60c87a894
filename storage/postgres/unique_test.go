package postgres_test

import (
	"errors"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/ojsengine/ojs"
)

// A job that somebody is changing is in the way of an equal one all the same: the lookup waits for the change, and finds the job
// again among others that have ended.
func TestUniqueBesideChange(t *testing.T) {
	s, name := open(t, "")
	pool := connect(t)
	eng := newEngine(t, s)
	once := ojs.WithUnique(ojs.UniquePolicy{Keys: ojs.ByArgs})
	ended := ojs.WithUnique(ojs.UniquePolicy{Keys: ojs.ByArgs, States: []ojs.State{ojs.StateCancelled}}) // there is none yet
	drafts := make([]ojs.Draft, 1000)
	for i := range drafts {
		drafts[i] = ojs.NewDraft("x", i%10, ended)
	}
	_, err := eng.EnqueueMany(t.Context(), drafts...)
	must(t, err)
	_, err = pool.Exec(t.Context(), "UPDATE "+name+".job SET state = 6 + seq % 3")
	must(t, err)
	_, err = pool.Exec(t.Context(), "ANALYZE "+name+".job")
	must(t, err)
	ticket, err := eng.Enqueue(t.Context(), "x", 3, once)
	must(t, err)
	for round := range 10 { // the plan changes when the statement has been made some times
		second := make(chan error, 1)
		must(t, pgx.BeginFunc(t.Context(), pool, func(tx pgx.Tx) error {
			_, err := tx.Exec(t.Context(), "UPDATE "+name+".job SET state = 7 - state, version = version + 1 WHERE id = $1", ticket.ID)
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
