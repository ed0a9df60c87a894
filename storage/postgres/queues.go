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

var lockNameSQL = define("lockName",
	`SELECT pg_advisory_xact_lock(hashtextextended(name, 3131961357)) FROM unnest($1::text[]) name`)

var queueStateSQL = define("queueState", `SELECT state FROM {schema}.queue_state WHERE queue = $1`)

var setQueueStateSQL = define("setQueueState",
	`INSERT INTO {schema}.queue_state VALUES ($1, $2) ON CONFLICT (queue) DO UPDATE SET state = excluded.state`)

var activateQueueSQL = define("activateQueue", `DELETE FROM {schema}.queue_state WHERE queue = $1`)

func (s *Storage) changeQueue(
	ctx context.Context, queue string, to ojs.QueueState,
) (was ojs.QueueState, err error) {
	err = pgx.BeginFunc(ctx, tuned{s}, func(tx pgx.Tx) error {
		name := s.config.schema + " state " + queue
		if _, err := tx.Exec(ctx, s.sql[lockNameSQL], []string{name}); err != nil {
			return err
		}
		var stored string
		switch err := tx.QueryRow(ctx, s.sql[queueStateSQL], queue).Scan(&stored); err {
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
			_, err := tx.Exec(ctx, s.sql[activateQueueSQL], queue)
			return err
		}
		_, err := tx.Exec(ctx, s.sql[setQueueStateSQL], queue, string(to))
		return err
	})
	return was, err
}

var queueStatesSQL = define("queueStates", `SELECT queue, state FROM {schema}.queue_state`)

// QueueStates implements storage.Storage.
func (s *Storage) QueueStates(ctx context.Context) (map[string]ojs.QueueState, error) {
	if err := s.enter(ctx); err != nil {
		return nil, err
	}
	defer s.mu.RUnlock()
	states := make(map[string]ojs.QueueState)
	var queue, state string
	var met []named
	err := s.query(ctx, s.sql[queueStatesSQL], nil, each([]any{&queue, &state}, func() {
		if ojs.QueueState(state).Valid() {
			states[queue] = ojs.QueueState(state)
		} else {
			met = append(met, named{storage.KindQueue, queue, state, rows.NoQueueState(state)})
		}
	}))
	if err == nil {
		_, err = s.setAsideNamed(ctx, met)
	}
	return states, wrap(err)
}
