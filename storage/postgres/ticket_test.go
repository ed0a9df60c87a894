package postgres_test

import (
	"context"
	"errors"
	"testing"

	"github.com/ojsengine/ojs"
	"github.com/ojsengine/ojs/storage/postgres"
)

// A ticket of a transaction does not claim that its job was stored: before the commit,
// and after a rollback, there is none.
func TestTicketOfTransaction(t *testing.T) {
	s, _ := open(t, "")
	eng := newEngine(t, s)
	for name, commit := range map[string]bool{"commit": true, "rollback": false} {
		t.Run("P1.4 "+name, func(t *testing.T) {
			tx, err := connect(t).Begin(t.Context())
			must(t, err)
			defer tx.Rollback(context.Background())
			ticket, err := eng.Enqueue(postgres.WithTx(t.Context(), tx), "x", 1)
			must(t, err)
			if _, err := ticket.Wait(t.Context()); !errors.Is(err, ojs.ErrNotFound) ||
				errors.Is(err, ojs.ErrPruned) {
				t.Errorf("before the %s: %v", name, err)
			}
			if !commit {
				must(t, tx.Rollback(t.Context()))
				if _, err := ticket.Wait(t.Context()); !errors.Is(err, ojs.ErrNotFound) ||
					errors.Is(err, ojs.ErrPruned) {
					t.Errorf("after the rollback: %v", err)
				}
				return
			}
			must(t, tx.Commit(t.Context()))
			must(t, eng.Cancel(t.Context(), ticket.ID))
			must(t, eng.Jobs().Delete(t.Context(), ticket.ID))
			if _, err := ticket.Wait(t.Context()); !errors.Is(err, ojs.ErrPruned) {
				t.Errorf("after the commit and a deletion: %v", err)
			}
		})
	}
}
