package engine

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/ojsengine/ojs"
	"github.com/ojsengine/ojs/storage"
)

// warnAt is the part of a queue's depth at which to warn.
const warnAt = 0.8

// roomEvery is how often a blocked enqueue looks for room that somebody else made: another engine, or time.
const roomEvery = time.Second

// room tells blocked enqueues of room in their queues, and remembers which queues are nearly full.
type room struct {
	n       atomic.Int32 // enqueues that wait; raised before they look for room for the last time
	mu      sync.Mutex   // guards the fields below
	waiting map[string]map[chan struct{}]struct{}
	nearly  map[string]bool
}

// wait returns a channel that is closed when the queue may have room.
func (r *room) wait(queue string) chan struct{} {
	r.n.Add(1)
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.waiting == nil {
		r.waiting = make(map[string]map[chan struct{}]struct{})
	}
	if r.waiting[queue] == nil {
		r.waiting[queue] = make(map[chan struct{}]struct{})
	}
	ch := make(chan struct{})
	r.waiting[queue][ch] = struct{}{}
	return ch
}

func (r *room) giveUp(queue string, ch chan struct{}) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.waiting[queue], ch)
	if len(r.waiting[queue]) == 0 {
		delete(r.waiting, queue)
	}
	r.n.Add(-1)
}

// made says that a queue has a job less.
func (r *room) made(queue string) {
	if r.n.Load() == 0 {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	for ch := range r.waiting[queue] {
		close(ch)
	}
	delete(r.waiting, queue)
}

// blocks reports whether an enqueue that failed with err has to wait, and for which queue.
func (c *core) blocks(err error) (queue string, blocks bool) {
	if err == nil {
		return "", false
	}
	var full *ojs.QueueError
	if !errors.As(err, &full) || full.Err != ojs.ErrQueueFull {
		return "", false
	}
	return full.Queue, c.queueConfig[full.Queue].Overflow == OverflowBlock
}

// waitForRoom waits until a look at the queue may find room; ch comes from room.wait, before the look that found none.
func (c *core) waitForRoom(ctx context.Context, ch chan struct{}) error {
	t := c.clock.Timer(roomEvery)
	defer t.Stop()
	select {
	case <-ch:
	case <-t.C:
	case <-ctx.Done():
		return ctx.Err()
	}
	return nil
}

// rejected publishes what a full queue has refused.
func (c *core) rejected(err error) {
	var full *ojs.QueueError
	if errors.As(err, &full) && full.Err == ojs.ErrQueueFull {
		c.emit(ojs.Event{Type: ojs.EventRejected, Subject: full.Queue, Queue: full.Queue, Depth: full.MaxDepth, MaxDepth: full.MaxDepth})
	}
}

// pressed follows an insert into bounded queues: it warns when a queue comes near its depth, and tells when it is not any
// more.
func (c *core) pressed(batch []storage.Insert, stored []storage.Inserted) {
	for i := range batch {
		most := batch[i].MaxDepth
		if most == 0 {
			continue
		}
		queue, depth := batch[i].Record.Queue, stored[i].Depth
		near := float64(depth) >= warnAt*float64(most)
		c.room.mu.Lock()
		was := c.room.nearly[queue]
		if c.room.nearly == nil {
			c.room.nearly = make(map[string]bool)
		}
		c.room.nearly[queue] = near
		c.room.mu.Unlock()
		if near == was {
			continue
		}
		what := ojs.EventRoom
		if near {
			what = ojs.EventNearlyFull
			c.log.Warn("queue is nearly full", "component", "client", "category", "performance",
				slog.Group("attributes", "queue", queue, "depth", depth, "max_depth", most))
		}
		c.emit(ojs.Event{Type: what, Subject: queue, Queue: queue, Depth: depth, MaxDepth: most})
	}
}
