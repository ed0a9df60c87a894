package enqueue

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/ojsengine/ojs"
	"github.com/ojsengine/ojs/event"
	"github.com/ojsengine/ojs/internal/draft"
	"github.com/ojsengine/ojs/internal/foreign"
	"github.com/ojsengine/ojs/internal/locks"
	"github.com/ojsengine/ojs/storage"
)

// warnAt is the part of a queue's depth at which to warn.
const warnAt = 0.8

// roomEvery is how often a blocked enqueue looks for room that another engine or the
// passage of time made.
const roomEvery = time.Second

// Room tells blocked enqueues of room in their queues, and remembers which queues are
// nearly full.
//
// The end of a job wakes the enqueue that has waited longest. It stays at its place while
// it tries, so that room made meanwhile wakes it again, and wakes the next when it
// leaves, with or without its jobs: there may be room for both. A batch that does not fit
// wakes the one behind it, which may.
type Room struct {
	n       atomic.Int32        // enqueues that wait; raised before they look for room for the last time
	nearly  sync.Map            // whether a queue is nearly full, by its name
	mu      locks.Mutex         // guards the fields below
	waiting map[string][]*place // by queue, in the order in which they came
}

// place is where an enqueue waits.
type place struct {
	queue string
	woken bool          // since it last began to wait; guarded by Room.mu
	ready chan struct{} // gets a value when the queue may have room
}

// enter makes a place behind those of the queue.
func (r *Room) enter(queue string) *place {
	r.n.Add(1)
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.waiting == nil {
		r.waiting = make(map[string][]*place)
	}
	p := &place{queue: queue, ready: make(chan struct{}, 1)}
	r.waiting[queue] = append(r.waiting[queue], p)
	return p
}

// again has a place wait once more if it has been woken.
func (r *Room) again(p *place) {
	r.mu.Lock()
	defer r.mu.Unlock()
	p.woken = false
	select {
	case <-p.ready:
	default:
	}
}

// leave gives up a place and wakes the next. nil: there is none.
func (r *Room) leave(p *place) {
	if p == nil {
		return
	}
	r.n.Add(-1)
	r.mu.Lock()
	defer r.mu.Unlock()
	rest := slices.DeleteFunc(r.waiting[p.queue], func(q *place) bool { return q == p })
	if r.waiting[p.queue] = rest; len(rest) == 0 {
		delete(r.waiting, p.queue)
	}
	wake(rest)
}

// skip wakes the place behind one whose batch does not fit.
func (r *Room) skip(p *place) {
	r.mu.Lock()
	defer r.mu.Unlock()
	places := r.waiting[p.queue]
	wake(places[slices.Index(places, p)+1:])
}

// Made says that a queue has a job less.
func (r *Room) Made(queue string) {
	if r.n.Load() == 0 {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	wake(r.waiting[queue])
}

// wake wakes the first of the places that has not been woken. Room.mu is held.
func wake(places []*place) {
	for _, p := range places {
		if !p.woken {
			p.woken = true
			p.ready <- struct{}{}
			return
		}
	}
}

// blocks reports whether an enqueue that failed with err has to wait, and for which
// queue.
func (c *Enqueuer) blocks(ctx context.Context, err error) (queue string, blocks bool) {
	if err == nil {
		return "", false
	}
	var full *ojs.QueueError
	if !foreign.As(err, &full) || full.Err != ojs.ErrQueueFull {
		return "", false
	}
	config := c.Types.Queues.Load().Config[full.Queue]
	return full.Queue, config.Blocks || draft.BoundOf(ctx, full.Queue).Blocks
}

// waitForRoom waits until a look at the queue may find room; p waited before the look
// that found none with the error full. It returns that error when the wait has lasted
// long enough (draft.Caller).
func (c *Enqueuer) waitForRoom(ctx context.Context, p *place, full error) error {
	t := c.Clock.Timer(roomEvery)
	defer t.Stop()
	var until <-chan struct{}
	if caller := draft.CallerOf(ctx); caller != nil {
		until = caller.Until()
	}
	select {
	case <-p.ready:
	case <-t.C:
	case <-until:
	case <-ctx.Done():
	}
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("ojs: %w: queue %q is full, and the enqueue waited for room", err, p.queue)
	}
	select {
	case <-until:
		c.Rejected(full)
		return full
	default:
		return nil
	}
}

// Rejected publishes what a full queue has refused.
func (c *Enqueuer) Rejected(err error) {
	var full *ojs.QueueError
	if foreign.As(err, &full) && full.Err == ojs.ErrQueueFull {
		c.Emit(event.Event{Type: event.Rejected, Subject: full.Queue, Queue: full.Queue,
			Depth: full.MaxDepth, MaxDepth: full.MaxDepth})
	}
}

// pressed follows an insert into bounded queues: it warns when a queue comes near its
// depth, and emits an event then and when the queue has room again.
func (c *Enqueuer) pressed(batch []storage.Insert, stored []storage.Inserted) {
	for i := range batch {
		most := batch[i].MaxDepth
		if most == 0 {
			continue
		}
		queue, depth := batch[i].Record.Queue, stored[i].Depth
		near := float64(depth) >= warnAt*float64(most)
		before, _ := c.Room.nearly.Swap(queue, near)
		if was, _ := before.(bool); near == was {
			continue
		}
		what := event.Room
		if near {
			what = event.NearlyFull
			c.Log.Warn("queue is nearly full", "component", "client", "category", "performance",
				slog.Group("attributes", "queue", queue, "depth", depth, "max_depth", most))
		}
		c.Emit(event.Event{Type: what, Subject: queue, Queue: queue, Depth: depth, MaxDepth: most})
	}
}
