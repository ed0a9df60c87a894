package enqueue

import (
	"container/list"
	"context"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/ojsengine/ojs"
	"github.com/ojsengine/ojs/event"
	"github.com/ojsengine/ojs/internal/foreign"
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
	n       atomic.Int32          // enqueues that wait; raised before they look for room for the last time
	mu      sync.Mutex            // guards the fields below
	last    uint64                // the number of the latest place
	waiting map[string]*list.List // of *place that have not been woken, in the order of their numbers
	nearly  map[string]bool
}

// place is where an enqueue waits.
type place struct {
	queue  string
	number uint64
	ready  chan struct{} // gets a value when the queue may have room
	at     *list.Element // nil: it has been woken
}

// enter makes a place behind those of the queue.
func (r *Room) enter(queue string) *place {
	r.n.Add(1)
	r.mu.Lock()
	defer r.mu.Unlock()
	r.last++
	p := &place{queue: queue, number: r.last, ready: make(chan struct{}, 1)}
	r.put(p)
	return p
}

// again has a place wait once more if it has been woken.
func (r *Room) again(p *place) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if p.at == nil {
		select {
		case <-p.ready:
		default:
		}
		r.put(p)
	}
}

// leave gives up a place and wakes the next.
func (r *Room) leave(p *place) {
	r.n.Add(-1)
	r.mu.Lock()
	defer r.mu.Unlock()
	r.take(p)
	r.wake(p.queue, nil)
}

// skip wakes the place behind one whose batch does not fit.
func (r *Room) skip(p *place) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.wake(p.queue, p)
}

// Made says that a queue has a job less.
func (r *Room) Made(queue string) {
	if r.n.Load() == 0 {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.wake(queue, nil)
}

// blocks reports whether an enqueue that failed with err has to wait, and for which
// queue.
func (c *Enqueuer) blocks(err error) (queue string, blocks bool) {
	if err == nil {
		return "", false
	}
	var full *ojs.QueueError
	if !foreign.As(err, &full) || full.Err != ojs.ErrQueueFull {
		return "", false
	}
	return full.Queue, c.Types.Queues.Load().Config[full.Queue].Blocks
}

// waitForRoom waits until a look at the queue may find room; p waited before the look
// that found none.
func (c *Enqueuer) waitForRoom(ctx context.Context, p *place) error {
	t := c.Clock.Timer(roomEvery)
	defer t.Stop()
	select {
	case <-p.ready:
	case <-t.C:
	case <-ctx.Done():
	}
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("ojs: %w: queue %q is full, and the enqueue waited for room", err, p.queue)
	}
	return nil
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
		c.Room.mu.Lock()
		was := c.Room.nearly[queue]
		if c.Room.nearly == nil {
			c.Room.nearly = make(map[string]bool)
		}
		c.Room.nearly[queue] = near
		c.Room.mu.Unlock()
		if near == was {
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

// mu is held in the rest.

func (r *Room) put(p *place) {
	if r.waiting == nil {
		r.waiting = make(map[string]*list.List)
	}
	l := r.waiting[p.queue]
	if l == nil {
		l = list.New()
		r.waiting[p.queue] = l
	}
	at := l.Front()
	if back := l.Back(); back != nil && back.Value.(*place).number < p.number {
		at = nil
	}
	for at != nil && at.Value.(*place).number < p.number {
		at = at.Next()
	}
	if at == nil {
		p.at = l.PushBack(p)
	} else {
		p.at = l.InsertBefore(p, at)
	}
}

// wake wakes the first place of a queue, or the first behind a place.
func (r *Room) wake(queue string, behind *place) {
	l := r.waiting[queue]
	if l == nil {
		return
	}
	at := l.Front()
	for behind != nil && at != nil && at.Value.(*place).number <= behind.number {
		at = at.Next()
	}
	if at != nil {
		p := at.Value.(*place)
		r.take(p)
		p.ready <- struct{}{}
	}
}

// take takes a place off the list.
func (r *Room) take(p *place) {
	if p.at == nil {
		return
	}
	l := r.waiting[p.queue]
	l.Remove(p.at)
	if p.at = nil; l.Len() == 0 {
		delete(r.waiting, p.queue)
	}
}
