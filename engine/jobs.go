package engine

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	"github.com/ojsengine/ojs"
	"github.com/ojsengine/ojs/codec"
	"github.com/ojsengine/ojs/engine/internal/eventlog"
	"github.com/ojsengine/ojs/inspect"
	"github.com/ojsengine/ojs/internal/foreign"
	"github.com/ojsengine/ojs/storage"
)

// Jobs is what operators do with stored jobs (OJS admin, OJS bulk operations). The
// methods of inspect.Jobs list, count and group them.
type Jobs struct {
	*inspect.Jobs
	core *core
}

// jobs gives access to the jobs of the storage.
func (c *core) jobs() *Jobs { return &Jobs{inspect.Open(lookups{c.store, c}, c.clock), c} }

// lookups is the storage whose lookups tell a deleted job from one that never existed, as
// far as that is known.
type lookups struct {
	storage.Storage
	core *core
}

func (l lookups) Get(ctx context.Context, id string) (storage.Record, error) {
	rec, err := l.Storage.Get(ctx, id)
	if err != nil {
		err = l.core.missing(id, err)
	}
	return rec, err
}

// Result is the result for one job of an operation on many.
type Result struct {
	ID  string
	Err error // nil: done
}

// refused reports whether an enqueue was refused for what it is. Otherwise the storage
// failed, and may have stored it.
func refused(err error) bool {
	var hook *hookError
	var encoding *codec.Error
	return foreign.Is(err, ojs.ErrInvalid) || foreign.Is(err, ojs.ErrDuplicate) ||
		foreign.Is(err, ojs.ErrDropped) || foreign.Is(err, ojs.ErrDependency) ||
		foreign.Is(err, ojs.ErrUnsupported) ||
		foreign.Is(err, ojs.ErrQueueFull) || foreign.Is(err, ojs.ErrQueueDraining) ||
		foreign.As(err, &hook) || foreign.As(err, &encoding)
}

// SetPriority changes the priority of a job that is available or scheduled (OJS core,
// section 5.2). An available one goes behind those of the same priority. A job in another
// state gives an *ojs.TransitionError.
func (j *Jobs) SetPriority(ctx context.Context, id string, priority int) error {
	if err := checkPriority(priority); err != nil {
		return err
	}
	return j.core.update(ctx, id, nil, func(r *storage.Record, now time.Time) (ojs.EventType, error) {
		switch {
		case r.State != ojs.StateAvailable && r.State != ojs.StateScheduled:
			return "", cannotBe("reprioritized", r,
				"only an available or scheduled job can change its priority")
		case r.Priority == priority:
			return "", errUnchanged
		}
		note(ctx, r, now, ojs.NotePriority, fmt.Sprintf("from %d to %d", r.Priority, priority))
		r.Priority = priority
		return ojs.EventPriority, nil
	})
}

func checkPriority(priority int) error {
	o := ojs.DefaultOptions()
	o.Priority = priority
	return o.Validate()
}

// Reschedule gives a waiting job another time: for its start if it is scheduled or
// available, for its next attempt if retryable. A time that has come makes a scheduled
// job available. Pending jobs wait for Activate; they and jobs that run or have ended
// give an *ojs.TransitionError. A time at which the job would have expired is refused.
func (j *Jobs) Reschedule(ctx context.Context, id string, at time.Time) error {
	if err := checkSchedule(at); err != nil {
		return err
	}
	at = normalTime(at)
	return j.core.update(ctx, id, nil, func(r *storage.Record, now time.Time) (ojs.EventType, error) {
		if end := r.Deadline(); !end.IsZero() && !at.Before(end) {
			return "", invalid("scheduled_at", "%s is not before the job's end at %s",
				at.Format(time.RFC3339Nano), end.Format(time.RFC3339Nano))
		}
		moved := func() { note(ctx, r, now, ojs.NoteRescheduled, ""); r.History[len(r.History)-1].Until = at }
		switch r.State {
		case ojs.StateRetryable:
			moved()
			r.NextRetryAt = at
		case ojs.StateScheduled, ojs.StateAvailable:
			switch r.ScheduledAt = at; {
			case at.After(now):
				moved()
				r.State = ojs.StateScheduled
			case r.State == ojs.StateAvailable:
				return "", errUnchanged
			default:
				moved()
				r.Promote(now)
				r.Version-- // Settle raises it
				return ojs.EventAvailable, nil
			}
		default:
			return "", cannotBe(ojs.StateScheduled, r,
				"only a scheduled, available or retryable job can be rescheduled")
		}
		return ojs.EventScheduled, nil
	})
}

func checkSchedule(at time.Time) error {
	o := ojs.DefaultOptions()
	o.ScheduledAt = at
	if at.IsZero() {
		return invalid("scheduled_at", "is not set")
	}
	return o.Validate()
}

// Activate makes a pending job available (ojs.WithPending). A job in another state gives
// an *ojs.TransitionError.
func (j *Jobs) Activate(ctx context.Context, id string) error {
	return j.core.update(ctx, id, nil, func(r *storage.Record, now time.Time) (ojs.EventType, error) {
		if r.State != ojs.StatePending {
			return "", cannotBe(ojs.StateAvailable, r, "only a pending job can be activated")
		}
		if ojs.Actor(ctx) != "" {
			note(ctx, r, now, ojs.NoteActivated, "")
		}
		r.State = ojs.StateAvailable
		r.EnqueuedAt = now
		expireAnew(r, now)
		return ojs.EventAvailable, nil
	})
}

// Retry makes a discarded job available again, a dead letter or not, and a retryable one
// at once: the same id, the error history kept; a discarded one begins at attempt 0.
// Options change what they name of a discarded job, as in DeadLetters.Retry. A job in
// another state gives an *ojs.TransitionError, an unknown id ojs.ErrNotFound. So does a
// discarded step of a workflow, which Workflows.Retry runs again: its workflow has failed
// and would stay so.
func (j *Jobs) Retry(ctx context.Context, id string, opts ...ojs.Option) error {
	allowed := "only a discarded or retryable job can be retried"
	if len(opts) > 0 {
		allowed = "only a discarded job can be retried with options"
	}
	return j.core.retry(ctx, id, "", func(r *storage.Record) bool {
		return r.State == ojs.StateDiscarded || r.State == ojs.StateRetryable && len(opts) == 0
	}, allowed, opts)
}

// Delete deletes a job that has ended. A job that has not gives an *ojs.TransitionError,
// an unknown id ojs.ErrNotFound.
func (j *Jobs) Delete(ctx context.Context, id string) error {
	rec, err := j.core.store.Get(ctx, id)
	if err != nil {
		return j.core.missing(id, err)
	}
	return j.core.delete(ctx, &rec)
}

// retry makes a job available again, if ok says it may be, for the replay rule of a name
// or "", a person.
func (c *core) retry(
	ctx context.Context, id, rule string, ok func(*storage.Record) bool, allowed string, opts []ojs.Option,
) error {
	text, then := "", c.byHand(ctx, "job retried by hand")
	if rule != "" {
		text = "replay rule " + rule
		then = func(rec *storage.Record) {
			c.logJob(slog.LevelInfo, "dead letter replayed", "lifecycle", rec, "", slog.String("rule", rule))
		}
	}
	return c.update(ctx, id, then, func(r *storage.Record, now time.Time) (ojs.EventType, error) {
		if !ok(r) {
			return "", cannotBe(ojs.StateAvailable, r, allowed)
		}
		if id := workflowOf(r); id != "" && r.State == ojs.StateDiscarded {
			return "", cannotBe(ojs.StateAvailable, r, fmt.Sprintf(
				"it is a step of a workflow: run the workflow's failed steps again with Workflows().Retry(ctx, %q)",
				id))
		}
		note(ctx, r, now, ojs.NoteRetried, text)
		if r.State == ojs.StateRetryable {
			r.NextRetryAt = now
			r.Promote(now)
			r.Version-- // Settle raises it
			return ojs.EventAvailable, nil
		}
		if err := c.override(ctx, r, now, opts); err != nil {
			return "", err
		}
		event := ojs.EventAvailable
		if r.DeadLettered() {
			event = ojs.EventDeadLetterRetried
			if rule != "" {
				event = ojs.EventDeadLetterReplayed
			}
			countReplay(r, now, rule)
		}
		beginAnew(r, now)
		return event, nil
	})
}

// beginAnew makes a job that has ended one that is available, at attempt 0.
func beginAnew(r *storage.Record, now time.Time) {
	r.State, r.EnqueuedAt = ojs.StateAvailable, now
	r.Attempt, r.Progress, r.Error = 0, 0, nil
	r.FinishedAt, r.DeadLetteredAt = time.Time{}, time.Time{}
}

// delete deletes a job that has ended.
func (c *core) delete(ctx context.Context, rec *storage.Record) error {
	if err := c.checkTx(ctx); err != nil {
		return err
	}
	if !rec.State.Terminal() {
		return cannotBe("deleted", rec, "only a job that has ended can be deleted")
	}
	op := c.began(rec, ojs.EventDeadLetterDeleted)
	n, err := c.store.Delete(ctx, []string{rec.ID})
	if n > 0 && rec.DeadLettered() {
		c.transition(op, rec, rec.Version+1, eventlog.Ends, c.now(),
			ojs.Event{Type: ojs.EventDeadLetterDeleted})
	}
	op.End()
	switch {
	case err == nil && n == 0: // another caller has deleted it
		return &ojs.PrunedError{ID: rec.ID}
	case err == nil:
		c.gone.add(rec.ID)
	}
	return err
}

// note adds an entry to the history of a job, in the name of the caller.
func note(ctx context.Context, r *storage.Record, now time.Time, what ojs.NoteKind, text string) {
	r.Note(ojs.Note{At: now, What: what, By: ojs.Actor(ctx), Text: text})
}
