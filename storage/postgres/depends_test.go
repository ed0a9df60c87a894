package postgres_test

import (
	"context"
	"testing"
	"time"

	"github.com/ojsengine/ojs"
	"github.com/ojsengine/ojs/storage"
	"github.com/ojsengine/ojs/storage/postgres"
)

// The end of a job counts for one that waits for it and that another transaction is
// changing: the row that the end finds locked is gone when the other one commits.
func TestEndBesideChange(t *testing.T) {
	for what, waiting := range map[string]storage.Insert{
		"for a job": {Record: record(2), DependsOn: []string{record(1).ID}},
		"in line":   ordered(2, "k"),
	} {
		t.Run(what, func(t *testing.T) {
			s, _ := open(t, "")
			pool := connect(t)
			first := storage.Insert{Record: record(1)}
			if waiting.OrderingKey != "" {
				first = ordered(1, waiting.OrderingKey)
			}
			waiting.Record.State = ojs.StatePending
			waiting.Record.Dependencies = &ojs.Dependencies{Condition: ojs.AllSucceeded}
			_, err := s.Insert(t.Context(), time.Now(), []storage.Insert{first, waiting}, nil)
			must(t, err)
			end := completed(claimOne(t, s, first.Record.ID))
			changed, err := s.Get(t.Context(), waiting.Record.ID)
			must(t, err)
			changed.Priority = 5

			tx, err := pool.Begin(t.Context())
			must(t, err)
			defer tx.Rollback(context.Background())
			out, err := s.Settle(postgres.WithTx(t.Context(), tx), time.Now(),
				[]storage.Change{{Record: changed}}, nil)
			must(t, err)
			must(t, out[0].Err)
			ended := make(chan error, 1)
			var moved []storage.Record
			go func() {
				out, err := s.Settle(t.Context(), time.Now(), []storage.Change{end}, nil)
				if err == nil {
					moved, err = out[0].Moved, out[0].Err
				}
				ended <- err
			}()
			awaitBlocked(t, pool, int(tx.Conn().PgConn().PID()))
			must(t, tx.Commit(t.Context()))
			must(t, <-ended)
			wantMoved(t, moved, waiting.Record.ID)
			got, err := s.Get(t.Context(), waiting.Record.ID)
			must(t, err)
			if got.State != ojs.StateAvailable || got.Priority != 5 {
				t.Errorf("it is %s, with priority %d", got.State, got.Priority)
			}
		})
	}
}
