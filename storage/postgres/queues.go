package postgres

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/ojsengine/ojs"
	"github.com/ojsengine/ojs/internal/rows"
	"github.com/ojsengine/ojs/storage"
)

// SetQueueState implements storage.Storage.
func (s *Storage) SetQueueState(
	ctx context.Context, queue string, to ojs.QueueState,
) (was ojs.QueueState, err error) {
	if !to.Valid() {
		return "", &ojs.InvalidError{Code: ojs.InvalidCodeOption, Field: "queue_state",
			Reason: fmt.Sprintf("%q is not active, paused or draining", to)}
	}
	if err := s.enterApart(ctx); err != nil {
		return "", err
	}
	defer s.mu.RUnlock()
	err = s.within(ctx, func(ctx context.Context) (err error) {
		was, err = s.changeQueue(ctx, queue, to)
		return err
	})
	if err != nil {
		return "", wrap(err)
	}
	if to == ojs.QueuePaused {
		s.paused.Store(true)
	} else {
		s.tell(ctx, &storage.Notice{Available: true})
	}
	return was, nil
}

func (s *Storage) changeQueue(
	ctx context.Context, queue string, to ojs.QueueState,
) (was ojs.QueueState, err error) {
	err = pgx.BeginFunc(ctx, tuned{s}, func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, s.sql.lockName, []string{s.config.schema + " state " + queue}); err != nil {
			return err
		}
		var stored string
		switch err := tx.QueryRow(ctx, s.sql.queueState, queue).Scan(&stored); err {
		case nil:
			if was = ojs.QueueState(stored); !was.Valid() {
				was = ojs.QueueActive
			}
		case pgx.ErrNoRows:
			was = ojs.QueueActive
		default:
			return err
		}
		if to == ojs.QueueActive {
			_, err := tx.Exec(ctx, s.sql.activateQueue, queue)
			return err
		}
		_, err := tx.Exec(ctx, s.sql.setQueueState, queue, string(to))
		return err
	})
	return was, err
}

// QueueStates implements storage.Storage.
func (s *Storage) QueueStates(ctx context.Context) (map[string]ojs.QueueState, error) {
	if err := s.enter(ctx); err != nil {
		return nil, err
	}
	defer s.mu.RUnlock()
	states := make(map[string]ojs.QueueState)
	var queue, state string
	var met []named
	err := s.read(ctx, s.sql.queueStates, nil, []any{&queue, &state}, func() error {
		if !ojs.QueueState(state).Valid() {
			met = append(met, named{storage.KindQueue, queue, state, rows.NoQueueState(state)})
			return nil
		}
		states[queue] = ojs.QueueState(state)
		return nil
	})
	if err == nil {
		_, err = s.setAsideNamed(ctx, met)
	}
	return states, wrap(err)
}
