package engine

import (
	"context"
	"errors"
	"time"

	"github.com/ojsengine/ojs"
	"github.com/ojsengine/ojs/storage"
)

func (c *core) cancel(ctx context.Context, id string) error {
	was, err := c.change(ctx, id, ojs.EventCancelled, func(r *storage.Record, now time.Time) error {
		if r.State == ojs.StateCancelled {
			return errUnchanged
		}
		if r.State.Terminal() {
			return &ojs.TransitionError{ID: id, From: r.State, To: ojs.StateCancelled}
		}
		r.State = ojs.StateCancelled
		r.NextRetryAt = time.Time{}
		r.FinishedAt = now
		return nil
	})
	if err != nil {
		return err
	}
	c.mu.Lock()
	if c.run != nil && was.State == ojs.StateActive {
		c.run.lose(id, was.Version, ojs.ErrCancelled)
	}
	c.mu.Unlock()
	c.waiters.ended(id)
	return nil
}

// errUnchanged is what a change answers if the job is already as it shall be.
var errUnchanged = errors.New("unchanged")

// change makes a change of a job that f decides on, and returns the job as it was before. If the job moves on in between,
// f decides anew. If f finds nothing to change, neither does change.
func (c *core) change(ctx context.Context, id string, event ojs.EventType, f func(*storage.Record, time.Time) error) (storage.Record, error) {
	for {
		was, err := c.store.Get(ctx, id)
		if err != nil {
			return was, err
		}
		now := c.now()
		to := was.Copy()
		if err := f(&to, now); err != nil {
			if err == errUnchanged {
				err = nil
			}
			return was, err
		}
		op := c.hub.begin()
		settled, err := c.store.Settle(ctx, now, []storage.Change{{Record: to}}, make([]storage.Settled, 0, 1))
		if err != nil {
			c.hub.end(op)
			c.uncertain(err)
			return was, err
		}
		if op != 0 && settled[0].Err == nil {
			c.hub.end(op, c.batch(&to, settled[0].Version, now, ojs.Event{Type: event}))
		} else {
			c.hub.end(op)
		}
		if err := settled[0].Err; !errors.Is(err, storage.ErrFenced) {
			return was, err
		}
	}
}
