package engine

import (
	"context"
	"sync"
	"time"

	"github.com/ojsengine/ojs"
	"github.com/ojsengine/ojs/internal/foreign"
	"github.com/ojsengine/ojs/storage"
)

// Changes that other engines make are known by the notices of the storage. While a shared
// subscription is open:
//
//  1. A notice names jobs that have ended or whose claims were taken. Their ids are kept
//     if a shared subscription selects them. An id is kept once.
//  2. changeDelay after the first id, the engine reads the jobs, and publishes the state
//     of each.
//  3. An event without a job is published if a notice stands for everything, if more than
//     maxChanges ids have come in changeDelay, and if a read fails.

const (
	changeDelay = 50 * time.Millisecond
	maxChanges  = 1000
)

// changeFeed has the jobs that other engines have changed.
type changeFeed struct {
	c      *core
	signal chan struct{} // something is due

	mu   sync.Mutex // guards the fields below
	ids  []string   // in the order of the notices
	kept map[string]struct{}
	all  bool // an event without a job is due
}

// SubscribeShared is Subscribe with what other engines on the storage do, in this process
// and in others. It comes as ojs.EventChanged beside the events of this engine. The Types
// of the filter have to select that type.
//
// An event with a Job has the latest state of a job that another engine has ended, or
// that was active and that another engine has cancelled, replaced or taken over. It is no
// transition: the engine reads the job 50 ms after the notice, and several changes in
// that time are one event. It has no order among the events of this engine. A job that
// has been deleted in the meantime has no event.
//
// An event without a Job says that other engines have changed jobs that the storage does
// not name. The subscriber looks again at the jobs that matter to it. The filter's JobIDs
// and Queues do not hold for such an event. Jobs that other engines enqueue or start have
// no event.
//
// Memory names the jobs. PostgreSQL names them, at most 500 in 10 ms, and may lose
// notices; each of its polls (postgres.WithPoll) brings an event without a Job. SQLite
// names the jobs of other engines in this process, and brings an event without a Job when
// another process has written. A storage without notices (storage.Notifier) gives
// ojs.ErrUnsupported.
//
// The engine does not have to run. Each event with a Job costs a lookup of the job, and
// none is made for jobs that no such subscription selects by JobIDs. Close the
// subscription after use.
func (e *Engine[T]) SubscribeShared(f EventFilter) (*Subscription, error) {
	c := e.core
	n, ok := storage.As[storage.Notifier](c.store)
	if !ok {
		return nil, c.unsupported("tells nothing of other engines")
	}
	s := &Subscription{s: c.events.Subscribe(f.log(true))}
	s.release = sync.OnceFunc(c.feed.use(func() func() { return c.openFeed(n) }))
	return s, nil
}

// openFeed opens the feed of all shared subscriptions.
func (c *core) openFeed(n storage.Notifier) (stop func()) {
	feed := &changeFeed{c: c, signal: make(chan struct{}, 1), kept: make(map[string]struct{})}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		feed.publish(ctx)
	}()
	silence := n.Notify(c, feed.hear)
	return func() {
		silence()
		cancel()
		<-done
	}
}

// hear keeps the ids of a notice.
func (f *changeFeed) hear(n storage.Notice) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, id := range n.Ended {
		f.keep(id)
	}
	for _, t := range n.Taken {
		f.keep(t.ID)
	}
	if f.all = f.all || n.Everything; f.all || len(f.ids) > 0 {
		select {
		case f.signal <- struct{}{}:
		default:
		}
	}
}

// keep keeps an id that a subscription selects. mu is held.
func (f *changeFeed) keep(id string) {
	if _, kept := f.kept[id]; kept || !f.c.events.WantsChange(id) {
		return
	}
	if len(f.ids) == maxChanges {
		f.all = true
		return
	}
	f.kept[id] = struct{}{}
	f.ids = append(f.ids, id)
}

func (f *changeFeed) take() (ids []string, all bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	ids, all = f.ids, f.all
	f.ids, f.all = nil, false
	clear(f.kept)
	return ids, all
}

// publish publishes the changes until ctx ends.
func (f *changeFeed) publish(ctx context.Context) {
	c := f.c
	for {
		select {
		case <-f.signal:
		case <-ctx.Done():
			return
		}
		if c.rest(ctx, changeDelay) != nil {
			return
		}
		ids, all := f.take()
		for _, id := range ids {
			rec, err := c.store.Get(ctx, id)
			switch {
			case err == nil:
				c.events.Tell(ojs.Event{Type: ojs.EventChanged, Source: c.source, Time: c.now(),
					Subject: rec.ID, Queue: rec.Queue, Job: &rec.JobInfo})
			case !foreign.Is(err, ojs.ErrNotFound) && !foreign.Is(err, ojs.ErrPruned):
				all = true
			}
		}
		if all && ctx.Err() == nil {
			c.events.Tell(ojs.Event{Type: ojs.EventChanged, Source: c.source, Time: c.now()})
		}
	}
}
