package engine

import (
	"context"
	"sync"
	"sync/atomic"

	"github.com/ojsengine/ojs"
	internal "github.com/ojsengine/ojs/internal/attempt"
)

// waiters are those who wait for jobs to end.
type waiters struct {
	n    atomic.Int32 // how many there are; raised before they look at the job for the first time
	mu   sync.Mutex   // guards byID
	byID map[string]map[chan struct{}]struct{}
}

func (w *waiters) add(id string) chan struct{} {
	ch := make(chan struct{}, 1)
	w.n.Add(1)
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.byID == nil {
		w.byID = make(map[string]map[chan struct{}]struct{})
	}
	if w.byID[id] == nil {
		w.byID[id] = make(map[chan struct{}]struct{})
	}
	w.byID[id][ch] = struct{}{}
	return ch
}

func (w *waiters) remove(id string, ch chan struct{}) {
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.byID[id], ch)
	if len(w.byID[id]) == 0 {
		delete(w.byID, id)
	}
	w.n.Add(-1)
}

// ended tells those who wait for the job to look at it.
func (w *waiters) ended(id string) {
	if w.n.Load() == 0 {
		return // whoever comes now finds it ended
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.tell(id)
}

// tell: mu is held.
func (w *waiters) tell(id string) {
	for ch := range w.byID[id] {
		select {
		case ch <- struct{}{}:
		default:
		}
	}
}

// all tells everybody who waits to look.
func (w *waiters) all() {
	w.mu.Lock()
	defer w.mu.Unlock()
	for id := range w.byID {
		w.tell(id)
	}
}

// Wait implements ojs.Waiter.
func (c *core) Wait(ctx context.Context, id string) (*ojs.JobInfo, error) {
	ch := c.waiters.add(id) // before the look, or an end in between would go unnoticed
	defer c.waiters.remove(id, ch)
	defer c.listen()()
	for {
		job, err := c.get(ctx, id)
		if err != nil {
			return nil, err
		}
		switch {
		case job.State == ojs.StateCompleted:
			return job, nil
		case job.State.Terminal():
			return job, &ojs.EndedError{ID: id, State: job.State, DeadLettered: job.DeadLettered(), Last: job.Error}
		}
		waitsFor(ctx)
		select {
		case <-ch:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

// waitsFor says that the owner of ctx waits for a job. If it is a handler, its own worker may have claimed that job ahead.
func waitsFor(ctx context.Context) {
	a, ok := internal.From(ctx).(*attempt)
	if !ok {
		return
	}
	a.r.c.mu.Lock()
	defer a.r.c.mu.Unlock()
	a.r.mayPile = false // there will be others
	a.blocks()
}
