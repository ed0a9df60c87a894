package engine

import (
	"context"
	"fmt"
	"iter"
	"log/slog"
	"slices"
	"strconv"
	"time"

	"github.com/ojsengine/ojs"
	"github.com/ojsengine/ojs/codec"
	"github.com/ojsengine/ojs/engine/internal/eventlog"
	"github.com/ojsengine/ojs/internal/foreign"
	"github.com/ojsengine/ojs/storage"
)

// Jobs is what operators do with stored jobs (OJS admin, OJS bulk operations).
type Jobs struct{ core *core }

// List lists the jobs that f selects, in its order. Jobs come, go and change meanwhile:
// one that is stored and selected throughout, and keeps its place in the order, is listed
// exactly once. After an error, which ends the listing, the job is nil. It costs a look
// at every job that the order has, in pages.
func (j *Jobs) List(ctx context.Context, f Filter) iter.Seq2[*ojs.JobInfo, error] {
	return func(yield func(*ojs.JobInfo, error) bool) {
		for rec, err := range j.core.list(ctx, f) {
			var job *ojs.JobInfo
			if err == nil {
				job = &rec.JobInfo
			}
			if !yield(job, err) {
				return
			}
		}
	}
}

func (c *core) list(ctx context.Context, f Filter) iter.Seq2[*storage.Record, error] {
	return func(yield func(*storage.Record, error) bool) {
		q, err := f.query()
		if err != nil {
			yield(nil, err)
			return
		}
		for {
			page, err := c.page(ctx, &f, q)
			if err != nil {
				yield(nil, err)
				return
			}
			for i := range page.Records {
				if !yield(&page.Records[i], nil) {
					return
				}
			}
			if page.Next == "" {
				return
			}
			q.Cursor = page.Next
		}
	}
}

// Page is a part of a listing.
type Page struct {
	Jobs   []*ojs.JobInfo
	Next   string // the cursor of the next page; "": this was the last
	Prev   string // the cursor of the page before; "": this was the first
	Looked int    // how many jobs were looked at for the page

	// Workers has for each of Jobs who claimed it last; "": it was never claimed. Of an
	// active job that is who holds it.
	Workers []string
}

// Page returns up to n jobs of a listing, 1 <= n <= 1000: the page whose cursor is given,
// Next or Prev of another one; "" is the first page. It is List for those who cannot hold
// an iterator, and as stable. A page costs a look at a bounded number of jobs, some
// thousands. It may have fewer jobs than n, or none, though more follow: Looked says how
// far it looked, and Next goes on from there. A cursor is good for as long as the storage
// is, with the filter it came from. A page that Prev leads to may begin a listing with
// fewer than n jobs. A storage that knows no order but OrderOldest has no Prev.
func (j *Jobs) Page(ctx context.Context, f Filter, cursor string, n int) (Page, error) {
	if n < 1 || n > 1000 {
		return Page{}, invalid("limit", "%d is not from 1 to 1000", n)
	}
	q, err := f.query()
	if err != nil {
		return Page{}, err
	}
	q.Cursor, q.Limit = cursor, n
	page, err := j.core.page(ctx, &f, q)
	if err != nil {
		return Page{}, err
	}
	out := Page{Next: page.Next, Prev: page.Prev, Looked: page.Looked}
	out.Jobs = make([]*ojs.JobInfo, 0, len(page.Records))
	out.Workers = make([]string, 0, len(page.Records))
	for i := range page.Records {
		out.Jobs = append(out.Jobs, &page.Records[i].JobInfo)
		out.Workers = append(out.Workers, page.Records[i].Worker)
	}
	return out, nil
}

// page is List of the storage, or a page of the jobs that a filter names by their ids.
// Its cursors are where it is among these.
func (c *core) page(ctx context.Context, f *Filter, q storage.Query) (page storage.Page, err error) {
	if !f.byID() {
		return c.store.List(ctx, q)
	}
	at := 0
	if q.Cursor != "" {
		if at, err = strconv.Atoi(q.Cursor); err != nil || at < 0 {
			return page, invalid("cursor", "%q is not of a page of this filter", q.Cursor)
		}
	}
	limit := q.Limit
	if limit == 0 {
		limit = 1000
	}
	if at > 0 {
		page.Prev = strconv.Itoa(max(at-limit, 0))
	}
	for end := at + limit; at < len(f.IDs) && at < end; at++ {
		if slices.Contains(f.IDs[:at], f.IDs[at]) {
			continue
		}
		page.Looked++
		switch rec, err := c.store.Get(ctx, f.IDs[at]); {
		case err == nil && q.Matches(&rec):
			page.Records = append(page.Records, rec)
		case err != nil && !foreign.Is(err, ojs.ErrNotFound):
			return page, err
		}
	}
	if at < len(f.IDs) {
		page.Next = strconv.Itoa(at)
	}
	return page, nil
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
