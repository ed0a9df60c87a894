package memory

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/ojsengine/ojs"
	"github.com/ojsengine/ojs/storage"
)

// SetQueueState implements storage.QueueStore.
func (s *Storage) SetQueueState(ctx context.Context, name string, to ojs.QueueState) (ojs.QueueState, error) {
	if !to.Valid() {
		return "", &ojs.InvalidError{Code: ojs.InvalidCodeOption, Field: "queue_state",
			Reason: fmt.Sprintf("%q is not active, paused or draining", to)}
	}
	if err := s.enter(ctx); err != nil {
		return "", err
	}
	defer s.leave()
	q := s.queues[name]
	if q == nil {
		q = &queue{name: name}
		s.queues[name] = q
	}
	was := q.state
	if was == "" {
		was = ojs.QueueActive
	}
	if was != to {
		if to == ojs.QueueActive {
			s.states--
		} else if was == ojs.QueueActive {
			s.states++
		}
	}
	s.shutInbox(s.states > 0)
	if q.state = to; to == ojs.QueueActive {
		q.state = ""
	}
	s.ready.pause(name, to == ojs.QueuePaused)
	s.notice.Available = s.heard && to != ojs.QueuePaused
	s.forgetIfEmpty(q)
	return was, nil
}

// QueueStates implements storage.QueueStore.
func (s *Storage) QueueStates(ctx context.Context) (map[string]ojs.QueueState, error) {
	if err := s.enter(ctx); err != nil {
		return nil, err
	}
	defer s.leave()
	states := make(map[string]ojs.QueueState)
	for name, q := range s.queues {
		if q.state != "" {
			states[name] = q.state
		}
	}
	return states, nil
}

// overflow is by how much a batch overfills a queue.
type overflow struct {
	queue    string
	excess   int
	maxDepth int    // that is exceeded
	last     int    // the last of the batch's jobs that says how many there may be
	oldest   []*job // which have to go
}

// makeRoom looks whether the queues take the batch, and what has to go for it.
func (s *Storage) makeRoom(batch []storage.Insert, p *plan, now time.Time) ([]*overflow, error) {
	bounded := false
	for i := range batch {
		bounded = bounded || batch[i].MaxDepth > 0
		if s.states == 0 {
			continue
		}
		name := batch[i].Record.Queue
		if i > 0 && name == batch[i-1].Record.Queue {
			continue
		}
		if q := s.queues[name]; q != nil && q.state == ojs.QueueDraining {
			return nil, &ojs.QueueError{Queue: name, Err: ojs.ErrQueueDraining}
		}
	}
	if !bounded {
		return nil, nil
	}
	var comes map[string]int // jobs of the batch so far, by their queue
	var over []*overflow
	for i := range batch {
		in := &batch[i]
		name := in.Record.Queue
		if !p.stays(i) {
			continue
		}
		before := 0
		if len(batch) > 1 { // a lone job needs no map
			if comes == nil {
				comes = make(map[string]int)
			}
			before = comes[name]
			comes[name]++
		}
		if in.MaxDepth == 0 {
			continue
		}
		excess := before + 1 - in.MaxDepth
		if q := s.queues[name]; q != nil {
			excess += q.live - p.leaves(name)
		}
		if excess <= 0 {
			continue
		}
		if !in.DropOldest {
			return nil, &ojs.QueueError{Queue: name, MaxDepth: in.MaxDepth, Err: ojs.ErrQueueFull}
		}
		at := slices.IndexFunc(over, func(o *overflow) bool { return o.queue == name })
		if at < 0 {
			at = len(over)
			over = append(over, &overflow{queue: name})
		}
		over[at].excess = max(over[at].excess, excess)
		over[at].maxDepth, over[at].last = in.MaxDepth, i
	}
	slices.SortFunc(over, func(a, b *overflow) int { return cmp.Compare(a.last, b.last) })
	for _, o := range over {
		if o.oldest = s.ready.longest(o.queue, o.excess, p, now); len(o.oldest) < o.excess {
			return nil, &ojs.QueueError{Queue: o.queue, MaxDepth: o.maxDepth, Err: ojs.ErrQueueFull}
		}
	}
	return over, nil
}

// drop ends the jobs that go for the batch, which has been stored.
func (s *Storage) drop(over []*overflow, now time.Time, results []storage.Inserted) {
	for _, o := range over {
		for _, j := range o.oldest {
			results[o.last].Dropped = s.change(j, results[o.last].Dropped,
				func(r *storage.Record) { r.Drop(now) })
		}
	}
}

// tellDepths completes the results of a call with the depths of bounded queues.
func (s *Storage) tellDepths(batch []storage.Insert, results []storage.Inserted) {
	for i := range batch {
		if batch[i].MaxDepth > 0 {
			if q := s.queues[batch[i].Record.Queue]; q != nil {
				results[i].Depth = q.live
			}
		}
	}
}
