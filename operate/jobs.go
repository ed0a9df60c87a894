package operate

import (
	"context"
	"fmt"
	"iter"
	"log/slog"
	"time"

	"github.com/ojsengine/ojs"
	"github.com/ojsengine/ojs/event"
	"github.com/ojsengine/ojs/inspect"
	"github.com/ojsengine/ojs/internal/bridge"
	"github.com/ojsengine/ojs/internal/draft"
	"github.com/ojsengine/ojs/storage"
)

// Jobs is what operators do with stored jobs (OJS admin, OJS bulk operations). The
// methods of inspect.Jobs list, count and group them.
type Jobs struct {
	*inspect.Jobs
	op *Operator
}

func init() {
	bridge.Give(bridge.Operators[Jobs, storage.DocumentStore]{
		Documents: func(j *Jobs) storage.DocumentStore { return j.op.eng.Store }})
}

// Result is the result for one job of an operation on many.
type Result struct {
	ID  string
	Err error // nil: done
}

// SetPriority changes the priority of a job that is available or scheduled (OJS core,
// section 5.2). An available one goes behind those of the same priority. A job in another
// state gives an *ojs.TransitionError.
func (j *Jobs) SetPriority(ctx context.Context, id string, priority int) error {
	if err := checkPriority(priority); err != nil {
		return err
	}
	return j.op.change(ctx, id, nil, func(r *storage.Record, now time.Time) (event.Type, error) {
		switch {
		case r.State != ojs.StateAvailable && r.State != ojs.StateScheduled:
			return "", cannotBe("reprioritized", r,
				"only an available or scheduled job can change its priority")
		case r.Priority == priority:
			return "", nil
		}
		note(ctx, r, now, ojs.NotePriority, fmt.Sprintf("from %d to %d", r.Priority, priority))
		r.Priority = priority
		return event.PriorityChanged, nil
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
	at = draft.Time(at)
	return j.op.change(ctx, id, nil, func(r *storage.Record, now time.Time) (event.Type, error) {
		if end := r.Deadline(); !end.IsZero() && !at.Before(end) {
			return "", draft.Invalid("scheduled_at", "%s is not before the job's end at %s",
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
				return "", nil
			default:
				moved()
				r.Promote(now)
				r.Version-- // Settle raises it
				return event.Available, nil
			}
		default:
			return "", cannotBe(ojs.StateScheduled, r,
				"only a scheduled, available or retryable job can be rescheduled")
		}
		return event.Scheduled, nil
	})
}

func checkSchedule(at time.Time) error {
	o := ojs.DefaultOptions()
	o.ScheduledAt = at
	if at.IsZero() {
		return draft.Invalid("scheduled_at", "is not set")
	}
	return o.Validate()
}

// Activate makes a pending job available (ojs.WithPending), or scheduled if its time is
// yet to come. A job in another state gives an *ojs.TransitionError.
func (j *Jobs) Activate(ctx context.Context, id string) error {
	return j.op.change(ctx, id, nil, func(r *storage.Record, now time.Time) (event.Type, error) {
		if r.State != ojs.StatePending {
			return "", cannotBe(ojs.StateAvailable, r, "only a pending job can be activated")
		}
		if ojs.Actor(ctx) != "" {
			note(ctx, r, now, ojs.NoteActivated, "")
		}
		if r.ScheduledAt.After(now) && r.Dependencies == nil {
			r.State = ojs.StateScheduled
			return event.Scheduled, nil
		}
		r.State = ojs.StateAvailable
		r.EnqueuedAt = now
		expireAnew(r, now)
		return event.Available, nil
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
	return j.op.retry(ctx, id, "", func(r *storage.Record) bool {
		return r.State == ojs.StateDiscarded || r.State == ojs.StateRetryable && len(opts) == 0
	}, allowed, Edit{}, opts)
}

// Cancel ends a job that waits or runs. The context of a running handler ends with
// ojs.ErrCancelled, and what the handler then returns is dropped. Cancelling a cancelled
// job does nothing. A job that has completed or been discarded gives an
// *ojs.TransitionError, and so does the record or a join of a workflow, which
// Workflows.Cancel cancels with the steps. An unknown id gives ojs.ErrNotFound.
func (j *Jobs) Cancel(ctx context.Context, id string) (err error) {
	ctx, end := j.op.eng.TraceCancel(ctx, id)
	defer func() { end(err) }()
	then := j.op.byHand(ctx, "job cancelled")
	return j.op.change(ctx, id, then, func(r *storage.Record, now time.Time) (event.Type, error) {
		switch id := r.Keeper(); {
		case r.State == ojs.StateCancelled:
			return "", nil
		case r.State.Terminal():
			return "", cannotBe(ojs.StateCancelled, r, "only a job that has not ended can be cancelled")
		case id != "" && r.Dependencies != nil && r.Dependencies.Join:
			return "", cannotBe(ojs.StateCancelled, r,
				fmt.Sprintf("workflow %s can only be cancelled as a whole", id))
		}
		if ojs.Actor(ctx) != "" {
			note(ctx, r, now, ojs.NoteCancelled, "")
		}
		r.Cancel(now)
		r.Version-- // Settle raises it
		return event.Cancelled, nil
	})
}

// Delete deletes a job that has ended. A job that has not gives an *ojs.TransitionError,
// an unknown id ojs.ErrNotFound.
func (j *Jobs) Delete(ctx context.Context, id string) error {
	rec, err := j.op.eng.Inspect.Record(ctx, id)
	if err == nil {
		err = j.op.delete(ctx, &rec)
	}
	return err
}

// retry makes a job available again, if ok says it may be, for the replay rule of a name
// or "", a person.
func (o *Operator) retry(
	ctx context.Context, id, rule string, ok func(*storage.Record) bool, allowed string, e Edit,
	opts []ojs.Option,
) error {
	text, then := "", o.byHand(ctx, "job retried by hand")
	if rule != "" {
		text = "replay rule " + rule
		then = func(rec *storage.Record) {
			o.eng.LogJob(slog.LevelInfo, "dead letter replayed", rec, slog.String("rule", rule))
		}
	}
	return o.change(ctx, id, then, func(r *storage.Record, now time.Time) (event.Type, error) {
		if !ok(r) {
			return "", cannotBe(ojs.StateAvailable, r, allowed)
		}
		if id := r.Keeper(); id != "" && r.State == ojs.StateDiscarded {
			return "", cannotBe(ojs.StateAvailable, r, fmt.Sprintf(
				"it is a step of a workflow: run the workflow's failed steps again with Workflows().Retry(ctx, %q)",
				id))
		}
		note(ctx, r, now, ojs.NoteRetried, text)
		if r.State == ojs.StateRetryable {
			r.NextRetryAt = now
			r.Promote(now)
			r.Version-- // Settle raises it
			return event.Available, nil
		}
		err := draft.Override(ctx, o.eng.Codec, r, now, opts)
		if err == nil && e.Args != nil {
			err = o.edit(ctx, r, e)
		}
		if err != nil {
			return "", err
		}
		typ := event.Available
		if r.DeadLettered() {
			typ = event.DeadLetterRetried
			if rule != "" {
				typ = event.DeadLetterReplayed
			}
			draft.CountReplay(r, now, rule)
		}
		beginAnew(r, now)
		return typ, nil
	})
}

// delete deletes a job that has ended.
func (o *Operator) delete(ctx context.Context, rec *storage.Record) error {
	if err := draft.CheckTx(ctx, o.eng.Store); err != nil {
		return err
	}
	if !rec.State.Terminal() {
		return cannotBe("deleted", rec, "only a job that has ended can be deleted")
	}
	return o.eng.Delete(ctx, rec)
}

// cannotBe refuses to make something of a job in its state.
func cannotBe(to ojs.State, r *storage.Record, allowed string) error {
	return &ojs.TransitionError{ID: r.ID, From: r.State, To: to, Allowed: allowed}
}

// DeadLetters are the jobs that ended without success and were kept for a person: because
// their policy says so on exhaustion, because their handler did, or because their error
// forbids a retry (OJS dead letter). Their state is discarded.
type DeadLetters struct{ op *Operator }

// List lists the dead letters that f selects, the longest dead first, as Jobs.List does.
func (d *DeadLetters) List(ctx context.Context, f inspect.Filter) iter.Seq2[*ojs.JobInfo, error] {
	f.DeadLettered = true
	return d.op.eng.Inspect.List(ctx, f)
}

// DeadLetterStats counts dead letters.
type DeadLetterStats struct {
	Total          int
	ByQueue        map[string]int
	ByType         map[string]int
	ByErrorType    map[string]int
	Oldest, Newest time.Time // times of death; zero if there is none
}

// Stats counts the dead letters. It looks at each of them.
func (d *DeadLetters) Stats(ctx context.Context) (DeadLetterStats, error) {
	s := DeadLetterStats{ByQueue: make(map[string]int), ByType: make(map[string]int),
		ByErrorType: make(map[string]int)}
	for job, err := range d.List(ctx, inspect.Filter{}) {
		if err != nil {
			return DeadLetterStats{}, err
		}
		s.Total++
		s.ByQueue[job.Queue]++
		s.ByType[job.Type]++
		if job.Error != nil {
			s.ByErrorType[job.Error.Type]++
		}
		if s.Total == 1 || job.DeadLetteredAt.Before(s.Oldest) {
			s.Oldest = job.DeadLetteredAt
		}
		if job.DeadLetteredAt.After(s.Newest) {
			s.Newest = job.DeadLetteredAt
		}
	}
	return s, nil
}

// Retry makes a dead letter available again: the same id, attempt 0, its error history
// kept. Options change what they name of the job; its id and time cannot be changed, and
// RetryWithArgs changes its args. A deadline that has passed is dropped. A job that is
// no dead letter gives an
// *ojs.TransitionError, an unknown id ojs.ErrNotFound. So does a step of a workflow, as
// in Jobs.Retry. The job's meta counts how often it has been replayed
// ("ojs.replay_count"). Jobs.Apply retries many, of a filter with DeadLettered. To
// replay dead letters without a person, see engine.WithReplayRules.
func (d *DeadLetters) Retry(ctx context.Context, id string, opts ...ojs.Option) error {
	return d.RetryWithArgs(ctx, id, nil, opts...)
}

// RetryWithArgs is Retry with other args, as for Jobs.Edit.
func (d *DeadLetters) RetryWithArgs(ctx context.Context, id string, args any, opts ...ojs.Option) error {
	return d.op.retry(ctx, id, "", func(r *storage.Record) bool { return r.DeadLettered() },
		"only a dead letter can be replayed", Edit{Args: args}, opts)
}

// Replay is Retry of the dead letter that died at a time, for the replay rule of a name
// (engine.WithReplayRules).
func (d *DeadLetters) Replay(ctx context.Context, id, rule string, died time.Time) error {
	return d.op.retry(ctx, id, rule, func(r *storage.Record) bool {
		return r.DeadLettered() && r.DeadLetteredAt.Equal(died)
	}, "", Edit{}, nil)
}

// Delete deletes a dead letter. A job that is none gives an *ojs.TransitionError, an
// unknown id ojs.ErrNotFound.
func (d *DeadLetters) Delete(ctx context.Context, id string) error {
	rec, err := d.op.eng.Inspect.Record(ctx, id)
	if err == nil && !rec.DeadLettered() {
		err = cannotBe("deleted", &rec, "only a dead letter can be deleted here")
	}
	if err == nil {
		err = d.op.delete(ctx, &rec)
	}
	return err
}
