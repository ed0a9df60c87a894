package engine

import (
	"context"
	"errors"
	"time"

	"github.com/ojsengine/ojs"
	"github.com/ojsengine/ojs/storage"
)

func (c *core) cancel(ctx context.Context, id string) (err error) {
	ctx, end := c.traceID(ctx, OpCancel, id)
	defer func() { end(err) }()
	was, to, err := c.change(ctx, id, func(r *storage.Record, now time.Time) (ojs.EventType, error) {
		if r.State == ojs.StateCancelled {
			return "", errUnchanged
		}
		if r.State.Terminal() {
			return "", &ojs.TransitionError{ID: id, From: r.State, To: ojs.StateCancelled}
		}
		r.Cancel(now)
		r.Version-- // Settle raises it
		return ojs.EventCancelled, nil
	})
	if err != nil || to == nil {
		return err
	}
	c.logCancelled(to)
	c.mu.Lock()
	defer c.mu.Unlock()
	if was.State == ojs.StateActive {
		c.takenAway(storage.Held{ID: id, Version: was.Version}, ojs.ErrCancelled)
	}
	c.jobEnded(to)
	return nil
}

// takenAway follows a transition that took a job from whoever ran it, if anybody did. It wants mu.
func (c *core) takenAway(held storage.Held, cause error) {
	if c.run == nil || !c.run.lose(held, cause) {
		c.workerLost(held)
	}
}

// errUnchanged is what a change answers if the job is already as it shall be.
var errUnchanged = errors.New("unchanged")

// change makes a change of a job that f decides on, and the event that f names. It returns the job as it was before and as
// it is now, nil if f found nothing to change. If the job moves on in between, f decides anew.
func (c *core) change(ctx context.Context, id string, f func(*storage.Record, time.Time) (ojs.EventType, error)) (was storage.Record, to *storage.Record, err error) {
	for {
		was, err := c.store.Get(ctx, id)
		if err != nil {
			return was, nil, err
		}
		now := c.now()
		to := was.Copy()
		event, err := f(&to, now)
		if err != nil {
			if err == errUnchanged {
				err = nil
			}
			return was, nil, err
		}
		op := c.hub.begin()
		settled, err := c.store.Settle(ctx, now, []storage.Change{{Record: to}}, make([]storage.Settled, 0, 1))
		if err != nil {
			c.hub.end(op)
			c.uncertain(err)
			return was, nil, err
		}
		switch err := settled[0].Err; {
		case errors.Is(err, storage.ErrFenced):
			c.hub.end(op)
		case err != nil:
			c.hub.end(op)
			return was, nil, err
		default:
			to.Version = settled[0].Version
			if op != 0 {
				c.hub.end(op, c.batch(&to, to.Version, now, ojs.Event{Type: event}))
			}
			return was, &to, nil
		}
	}
}

// moved follows a change that may let a waiting job run, or gives it another time.
func (c *core) moved(to *storage.Record) {
	if to == nil {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.wakeAt(to.WakeAt())
	if to.State == ojs.StateAvailable {
		c.available(1)
	}
}
