package postgres_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/ojsengine/ojs"
	"github.com/ojsengine/ojs/storage"
	"github.com/ojsengine/ojs/storage/postgres"
)

// Delete waits for those who are changing what it is asked for, and deletes then all of
// it or nothing.
func TestDeleteBesideChange(t *testing.T) {
	pool := connect(t)
	for how, again := range map[string]bool{"stays ended": false, "retried": true} {
		t.Run(how, func(t *testing.T) {
			s, name := open(t, "")
			one, two := addDead(t, s, 1), addDead(t, s, 2)
			tx, err := pool.Begin(t.Context())
			must(t, err)
			defer tx.Rollback(context.Background())
			if again {
				changed := two
				changed.State, changed.FinishedAt, changed.DeadLetteredAt = ojs.StateAvailable,
					time.Time{}, time.Time{}
				settle(t, postgres.WithTx(t.Context(), tx), s, changed)
			} else {
				_, err = tx.Exec(t.Context(), "UPDATE "+name+".stage SET version = version + 1"+
					" WHERE seq = (SELECT seq FROM "+name+".job WHERE id = $1)", two.ID)
				must(t, err)
			}
			type result struct {
				n   int
				err error
			}
			deleted := make(chan result, 1)
			go func() {
				n, err := s.Delete(t.Context(), []string{one.ID, two.ID})
				deleted <- result{n, err}
			}()
			awaitBlocked(t, pool, int(tx.Conn().PgConn().PID()))
			must(t, tx.Commit(t.Context()))
			got := <-deleted
			var open *ojs.TransitionError
			switch {
			case again && (!errors.As(got.err, &open) || open.ID != two.ID ||
				open.From != ojs.StateAvailable):
				t.Errorf("%d, %v", got.n, got.err)
			case !again && (got.n != 2 || got.err != nil):
				t.Errorf("%d, %v", got.n, got.err)
			}
			page, err := s.List(t.Context(), storage.Query{})
			must(t, err)
			if left := map[bool]int{true: 2}[again]; len(page.Records) != left {
				t.Errorf("%d are left and not %d", len(page.Records), left)
			}
		})
	}
}
