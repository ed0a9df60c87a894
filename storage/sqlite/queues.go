package sqlite

import (
	"context"
	"fmt"

	zombiezen "zombiezen.com/go/sqlite"

	"github.com/ojsengine/ojs"
	"github.com/ojsengine/ojs/internal/rows"
	"github.com/ojsengine/ojs/storage"
)

// SetQueueState implements storage.Storage.
func (s *Storage) SetQueueState(ctx context.Context, queue string, to ojs.QueueState) (was ojs.QueueState,
	err error) {
	if !to.Valid() {
		return "", &ojs.InvalidError{Code: ojs.InvalidCodeOption, Field: "queue_state",
			Reason: fmt.Sprintf("%q is not active, paused or draining", to)}
	}
	err = s.write(ctx, func(t *tx) error {
		states, err := t.queueStates()
		if err != nil {
			return err
		}
		if was = ojs.QueueState(states[queue]); !was.Valid() {
			was = ojs.QueueActive
		}
		t.states, t.written = nil, true
		if t.notice != nil {
			t.notice.Available = to != ojs.QueuePaused
		}
		if to == ojs.QueueActive {
			return t.exec(deleteQueueState, queue)
		}
		return t.exec(upsertQueueState, queue, string(to))
	})
	return was, err
}

// QueueStates implements storage.Storage.
func (s *Storage) QueueStates(ctx context.Context) (map[string]ojs.QueueState, error) {
	states := make(map[string]ojs.QueueState)
	var bad []named
	err := s.read(ctx, func(conn *zombiezen.Conn) error {
		q := query(conn, selectQueueStates)
		for q.next() {
			name, state := q.text(), q.text()
			if !ojs.QueueState(state).Valid() {
				bad = append(bad, named{storage.KindQueue, name, state, rows.NoQueueState(state)})
				continue
			}
			states[name] = ojs.QueueState(state)
		}
		return q.close()
	})
	if err == nil {
		err = s.setAsideNamed(ctx, bad)
	}
	return states, err
}
