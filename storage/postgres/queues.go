package postgres

import (
	"context"

	"github.com/ojsengine/ojs"
	"github.com/ojsengine/ojs/internal/fail"
	"github.com/ojsengine/ojs/internal/rows"
	"github.com/ojsengine/ojs/storage"
)

// SetQueueState implements storage.Storage.
func (s *Storage) SetQueueState(
	ctx context.Context, queue string, to ojs.QueueState,
) (ojs.QueueState, error) {
	if !to.Valid() {
		return "", invalid("queue_state", "%q is not active, paused or draining", to)
	}
	return ask(s.pooled(ctx), func(t *tx) (was ojs.QueueState) {
		t.apart()
		change := s.sent(setQueueStateSQL, nil, queue, string(to))
		if to == ojs.QueueActive {
			change = s.sent(activateQueueSQL, nil, queue)
		}
		fail.If(tuned{s, true}.query(ctx, s.nameLock("state "+queue),
			s.sent(queueStateSQL, one(&was), queue), change))
		if to == ojs.QueuePaused {
			s.paused.Store(true)
		} else {
			s.tell(ctx, &storage.Notice{Available: true})
		}
		if !was.Valid() {
			was = ojs.QueueActive
		}
		return was
	})
}

var lockNameSQL = define("lockName",
	`SELECT pg_advisory_xact_lock(hashtextextended(name, 3131961357)) FROM unnest($1::text[]) name`)

// nameLock waits for a lock of this schema that ends with the transaction.
func (s *Storage) nameLock(name string) sent {
	return s.sent(lockNameSQL, nil, []string{s.config.schema + " " + name})
}

var queueStateSQL = define("queueState", `SELECT state FROM {schema}.queue_state WHERE queue = $1`)

var setQueueStateSQL = define("setQueueState",
	`INSERT INTO {schema}.queue_state VALUES ($1, $2) ON CONFLICT (queue) DO UPDATE SET state = excluded.state`)

var activateQueueSQL = define("activateQueue", `DELETE FROM {schema}.queue_state WHERE queue = $1`)

var queueStatesSQL = define("queueStates", `SELECT queue, state FROM {schema}.queue_state`)

// QueueStates implements storage.Storage.
func (s *Storage) QueueStates(ctx context.Context) (map[string]ojs.QueueState, error) {
	states := make(map[string]ojs.QueueState)
	err := s.pooled(ctx).run(func(t *tx) {
		var queue, state string
		var met []named
		t.query(queueStatesSQL, each([]any{&queue, &state}, func() {
			if ojs.QueueState(state).Valid() {
				states[queue] = ojs.QueueState(state)
			} else {
				met = append(met, named{storage.KindQueue, queue, state, rows.NoQueueState(state)})
			}
		}))
		fail.Must(s.setAsideNamed(ctx, met))
	})
	return states, err
}
