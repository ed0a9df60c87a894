package engine

import (
	"context"
	"time"

	"github.com/ojsengine/ojs"
	"github.com/ojsengine/ojs/engine/internal/eventlog"
	"github.com/ojsengine/ojs/event"
	"github.com/ojsengine/ojs/storage"
)

// reachedBy returns what a call has done that brought a job into a state. The event log
// asks for it where a call cannot name its jobs.
func reachedBy(state ojs.State) eventlog.Effect {
	switch {
	case state == ojs.StateActive:
		return eventlog.Starts
	case state.Terminal():
		return eventlog.Ends
	}
	return eventlog.None
}

// settleChange stores the change of a job that was in a state, and follows it. then is
// called with the changed job, such as for a log line; nil: it has none.
func (c *core) settleChange(ctx context.Context, now time.Time, from ojs.State, change []storage.Change,
	typ event.Type, then func(*storage.Record)) error {
	to := &change[0].Record
	var refused error
	err := c.journal.Do(c.beganChange(to, typ), func() ([]storage.Record, error) {
		settled, err := c.store.Settle(ctx, now, change, nil)
		if err != nil {
			return nil, err
		}
		if refused = settled[0].Err; refused != nil {
			return nil, nil
		}
		to.Version = settled[0].Version
		if from == ojs.StateActive { // before its event: see attempt.start
			c.takenAway(storage.Held{ID: to.ID, Version: to.Version - 1}, ojs.ErrCancelled)
		}
		return settled[0].Moved, nil
	}, func(op *eventlog.Op) {
		if refused == nil {
			c.transition(op, to, to.Version, reachedBy(from), now, event.Event{Type: typ})
		}
	}, nil)
	switch {
	case err != nil:
		return err
	case refused != nil:
		return c.missing(to.ID, refused)
	}
	ended := to.State.Terminal()
	if ended {
		c.meter.EndedOtherwise(to)
	}
	if then != nil {
		then(to)
	}
	if ended {
		c.jobEnded(to)
		return nil
	}
	c.wakeAt(to.WakeAt())
	if to.State == ojs.StateAvailable {
		c.available(1)
	}
	return nil
}

func (c *core) cancel(ctx context.Context, id string) error { return c.operator.Jobs().Cancel(ctx, id) }

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
