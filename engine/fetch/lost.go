package fetch

import (
	"context"
	"time"

	"github.com/ojsengine/ojs/engine/internal/env"
)

// asked is a claim of a worker, in the book of the worker's claims.
type asked struct {
	c  *Workers
	of *worker
	at time.Time // zero: it is not in the book
}

func (a *asked) Stopping() bool { return false }

func (a *asked) Asks(now time.Time) {
	a.c.workers.mu.Lock()
	defer a.c.workers.mu.Unlock()
	a.at = now
	a.of.claims.Begin()
	a.of.claims.Ask(now)
}

func (a *asked) Failed(now time.Time, err error) {
	if env.SaysNo(err) {
		return
	}
	a.c.workers.mu.Lock()
	a.of.claims.Fail(now, a.c.Now())
	a.c.workers.mu.Unlock()
	a.c.watch(a.c.Now())
}

// end ends the claim. The worker holds its jobs.
func (a *asked) end() {
	if a.at.IsZero() {
		return
	}
	a.c.workers.mu.Lock()
	met := a.of.claims.End(a.at)
	a.c.workers.mu.Unlock()
	if met {
		a.c.watch(a.c.Now()) // for a job that was left to this claim, and may not be its own
	}
}

// unanswered returns the workers of which a claim has failed.
func (ws *book) unanswered() (list []*worker) {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	for _, w := range ws.byID {
		if w.claims.Failed() {
			list = append(list, w)
		}
	}
	return list
}

// findClaims gives back the jobs of a worker's claims whose answer was lost. It returns
// when to look again.
func (c *Workers) findClaims(ctx context.Context, w *worker, now time.Time) (next time.Time, err error) {
	return c.settle.GiveBack(ctx, now, w.id, &c.workers.mu, &w.claims, func(id string) bool {
		for held := range w.held {
			if held.ID == id {
				return true
			}
		}
		return false
	})
}
