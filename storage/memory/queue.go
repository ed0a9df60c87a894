package memory

import (
	"cmp"
	"context"
	"fmt"

	"github.com/ojsengine/ojs"
)

// SetQueueState implements storage.Storage.
func (s *store) SetQueueState(ctx context.Context, name string, to ojs.QueueState) (ojs.QueueState, error) {
	if !to.Valid() {
		return "", &ojs.InvalidError{Code: ojs.InvalidCodeOption, Field: "queue_state",
			Reason: fmt.Sprintf("%q is not active, paused or draining", to)}
	}
	if err := s.enter(ctx); err != nil {
		return "", err
	}
	defer s.leave()
	q := s.queue(name)
	was := cmp.Or(q.state, ojs.QueueActive)
	if was == ojs.QueueActive {
		s.states++
	}
	if q.state = to; to == ojs.QueueActive {
		q.state = ""
		s.states--
	}
	for _, x := range q.sections {
		if was == ojs.QueuePaused {
			x.close(-1)
		}
		if to == ojs.QueuePaused {
			x.close(1)
		}
	}
	s.notice.Available = s.heard && to != ojs.QueuePaused
	s.forgetIfEmpty(q)
	return was, nil
}

// QueueStates implements storage.Storage.
func (s personal) QueueStates(ctx context.Context) (map[string]ojs.QueueState, error) {
	if err := s.enter(ctx); err != nil {
		return nil, err
	}
	defer s.leave()
	states := make(map[string]ojs.QueueState)
	for name, q := range s.ready.queues {
		if q.state != "" {
			states[name] = q.state
		}
	}
	return states, nil
}

// queue finds a queue, or makes it.
func (s *store) queue(name string) *queue {
	return orMake(s.ready.queues, name, func() *queue {
		return &queue{name: name, sections: make(map[*typeBranch]*section)}
	})
}

// draining reports whether a queue takes no new jobs.
func (s *store) draining(name string) bool {
	q := s.ready.queues[name]
	return q != nil && q.state == ojs.QueueDraining
}
