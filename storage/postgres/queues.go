package postgres

import (
	"context"

	"github.com/ojsengine/ojs"
	"github.com/ojsengine/ojs/internal/rows"
	"github.com/ojsengine/ojs/storage"
)

// SetQueueState implements storage.Storage.
func (s *Storage) SetQueueState(
	ctx context.Context, queue string, to ojs.QueueState,
) (was ojs.QueueState, err error) {
	if !to.Valid() {
		return "", invalid("queue_state", "%q is not active, paused or draining", to)
	}
	if err := s.enterApart(ctx); err != nil {
		return "", err
	}
	defer s.mu.RUnlock()
	var some bool
	var stored string
	change := sent{s.sql[setQueueStateSQL], []any{queue, string(to)}, nil}
	if to == ojs.QueueActive {
		change = sent{s.sql[activateQueueSQL], []any{queue}, nil}
	}
	err = s.atOnceTuned(ctx, true, s.nameLock("state "+queue),
		sent{s.sql[queueStateSQL], []any{queue}, one(&some, &stored)}, change)
	if err != nil {
		return "", wrap(err)
	}
	if was = ojs.QueueState(stored); !was.Valid() {
		was = ojs.QueueActive
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

// nameLock waits for a lock of this schema that ends with the transaction.
func (s *Storage) nameLock(name string) sent {
	return sent{s.sql[lockNameSQL], []any{[]string{s.config.schema + " " + name}}, nil}
}

var queueStateSQL = define("queueState", `SELECT state FROM {schema}.queue_state WHERE queue = $1`)

var setQueueStateSQL = define("setQueueState",
	`INSERT INTO {schema}.queue_state VALUES ($1, $2) ON CONFLICT (queue) DO UPDATE SET state = excluded.state`)

var activateQueueSQL = define("activateQueue", `DELETE FROM {schema}.queue_state WHERE queue = $1`)

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
