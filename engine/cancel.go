package engine

import (
	"context"
	"time"

	"github.com/ojsengine/ojs"
	"github.com/ojsengine/ojs/storage"
)

func (c *core) cancel(ctx context.Context, id string) (err error) {
	ctx, end := c.traceID(ctx, OpCancel, id)
	defer func() { end(err) }()
	done, err := c.change(ctx, id, true, func(r *storage.Record, now time.Time) (ojs.EventType, error) {
		if r.State == ojs.StateCancelled {
			return "", errUnchanged
		}
		if r.State.Terminal() {
			return "", cannotBe(ojs.StateCancelled, r, "only a job that has not ended can be cancelled")
		}
		if ojs.Actor(ctx) != "" {
			note(ctx, r, now, ojs.NoteCancelled, "")
		}
		r.Cancel(now)
		r.Version-- // Settle raises it
		return ojs.EventCancelled, nil
	})
	if done == nil {
		return err
	}
	defer done.forget()
	to := done.to()
	c.meter.endedOtherwise(to)
	c.byHand(ctx, "job cancelled")(to)
	c.jobEnded(to)
	return nil
}

// takenAway follows a transition that has ended a claim. It ends the attempt of this
// engine, if there is one, or drops the claim of a remote worker. A step may be claiming
// the job right now, of a run that has ended too: enter then drops the attempt.
func (c *core) takenAway(held storage.Held, cause error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if r := c.run.Load(); r != nil && r.lose(held, cause) {
		return
	}
	if c.claiming > 0 {
		c.lostEarly[held] = true
	}
	c.workerLost(held, cause)
}
