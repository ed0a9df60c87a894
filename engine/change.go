package engine

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	"github.com/ojsengine/ojs"
	"github.com/ojsengine/ojs/engine/internal/eventlog"
	"github.com/ojsengine/ojs/internal/foreign"
	"github.com/ojsengine/ojs/storage"
)

// cannotBe refuses to make something of a job in its state.
func cannotBe(to ojs.State, r *storage.Record, allowed string) error {
	return &ojs.TransitionError{ID: r.ID, From: r.State, To: to, Allowed: allowed}
}

// errUnchanged is what a change returns if the job is as wanted already.
var errUnchanged = errors.New("unchanged")

// changed is a change that has been made.
type changed struct {
	from   ojs.State
	change [1]storage.Change
	result [1]storage.Settled
}

var changes = sync.Pool{New: func() any { return new(changed) }}

// to is the job as it is now.
func (ch *changed) to() *storage.Record { return &ch.change[0].Record }

// forget frees the memory of a change for another change, which overwrites it. Clearing
// it before would cost more.
func (ch *changed) forget() { changes.Put(ch) }

// change makes the change of a job that f decides on, with the event that f names;
// sameJob is storage.Change.AttemptFieldsOnly. It returns nil if f found nothing to
// change. If the job moves on in between, f decides again.
func (c *core) change(
	ctx context.Context, id string, sameJob bool, f func(*storage.Record, time.Time) (ojs.EventType, error),
) (*changed, error) {
	if err := c.checkTx(ctx); err != nil {
		return nil, err
	}
	for {
		ch := changes.Get().(*changed)
		to := ch.to()
		var err error
		if *to, err = c.store.Get(ctx, id); err != nil {
			ch.forget()
			return nil, c.missing(id, err)
		}
		ch.from, ch.change[0].AttemptFieldsOnly = to.State, sameJob
		now := c.now()
		event, err := f(to, now)
		if err != nil {
			ch.forget()
			if err == errUnchanged {
				err = nil
			}
			return nil, err
		}
		var stored storage.Settled
		err = c.journal.Do(c.beganChange(to, event), func() ([]storage.Record, error) {
			settled, err := c.store.Settle(ctx, now, ch.change[:], ch.result[:0])
			if err != nil {
				return nil, err
			}
			stored, settled[0] = settled[0], storage.Settled{}
			if stored.Err == nil {
				to.Version = stored.Version
			}
			if stored.Err == nil && ch.from == ojs.StateActive { // before its event: see attempt.start
				c.takenAway(storage.Held{ID: id, Version: to.Version - 1}, ojs.ErrCancelled)
			}
			return stored.Moved, nil
		}, func(op *eventlog.Op) {
			if stored.Err == nil {
				c.transition(op, to, to.Version, reachedBy(ch.from), now, ojs.Event{Type: event})
			}
		}, nil)
		switch {
		case err != nil: // the storage may still read the change, so its memory is not reused
			return nil, err
		case stored.Err == nil:
			return ch, nil
		}
		ch.forget()
		if !foreign.Is(stored.Err, storage.ErrFenced) {
			return nil, c.missing(id, stored.Err)
		}
	}
}

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

// update is change of a job that it may let run, or that it gives another time. then is
// called with the changed job, such as for a log line; nil: it has none.
func (c *core) update(ctx context.Context, id string, then func(*storage.Record),
	f func(*storage.Record, time.Time) (ojs.EventType, error)) error {
	done, err := c.change(ctx, id, false, f)
	if done == nil {
		return err
	}
	defer done.forget()
	to := done.to()
	if then != nil {
		then(to)
	}
	c.wakeAt(to.WakeAt())
	if to.State == ojs.StateAvailable {
		c.available(1)
	}
	return nil
}

// byHand writes the line of a change that a person has made.
func (c *core) byHand(ctx context.Context, msg string) func(*storage.Record) {
	return func(rec *storage.Record) {
		var attrs []any
		if by := ojs.Actor(ctx); by != "" {
			attrs = append(attrs, slog.String("actor", by))
		}
		c.logJob(slog.LevelInfo, msg, "lifecycle", rec, "", attrs...)
	}
}

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
	c.meter.EndedOtherwise(to)
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
