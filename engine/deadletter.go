package engine

import (
	"context"
	"fmt"
	"iter"
	"time"

	"github.com/ojsengine/ojs"
	"github.com/ojsengine/ojs/internal/jsonvalue"
	"github.com/ojsengine/ojs/storage"
)

// DeadLetters are the jobs that ended without success and were kept for a person: because their policy says so on
// exhaustion, because their handler did, or because their error forbids a retry (OJS dead letter). Their state is discarded.
type DeadLetters struct{ core *core }

// Filter selects jobs; a zero field selects all.
type Filter struct {
	Queues []string
	Types  []string
}

// List lists the dead letters, the longest dead first. A job that becomes one meanwhile may or may not be listed; one that is
// there throughout is listed once. After an error, which ends the listing, the job is nil.
func (d *DeadLetters) List(ctx context.Context, f Filter) iter.Seq2[*ojs.JobInfo, error] {
	return func(yield func(*ojs.JobInfo, error) bool) {
		q := storage.Query{DeadLetters: true, Queues: f.Queues, Types: f.Types}
		for {
			page, err := d.core.store.List(ctx, q)
			if err != nil {
				yield(nil, err)
				return
			}
			for i := range page.Records {
				if !yield(&page.Records[i].JobInfo, nil) {
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

// Retry makes a dead letter available again: the same id, attempt 0, its error history kept. Options change what they
// name of the job; its args, id and time cannot be changed. A deadline that has passed no longer holds. A job that is no
// dead letter gives an *ojs.TransitionError, an unknown id ojs.ErrNotFound.
func (d *DeadLetters) Retry(ctx context.Context, id string, opts ...ojs.Option) error {
	c := d.core
	_, err := c.change(ctx, id, ojs.EventDeadLetterRetried, func(r *storage.Record, now time.Time) error {
		if !r.DeadLettered() {
			return &ojs.TransitionError{ID: id, From: r.State, To: ojs.StateAvailable}
		}
		if err := override(r, now, opts); err != nil {
			return err
		}
		r.State = ojs.StateAvailable
		r.Attempt = 0
		r.Error = nil
		r.FinishedAt, r.DeadLetteredAt = time.Time{}, time.Time{}
		r.EnqueuedAt = now
		return nil
	})
	if err != nil {
		return err
	}
	rec, err := c.store.Get(ctx, id)
	if err != nil {
		return nil // it is available all the same; the next look at the deadlines finds its own
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.run != nil {
		c.run.wakeAt(rec.WakeAt())
		c.run.available(1)
	}
	return nil
}

// override lays options over a stored job.
func override(r *storage.Record, now time.Time, opts []ojs.Option) error {
	o := ojs.Options{
		Queue: r.Queue, Priority: r.Priority, Timeout: r.Timeout, TotalTimeout: r.TotalTimeout, Lease: r.Lease,
		Retry: r.Retry, Meta: jsonvalue.Clone(r.Meta), Extra: r.Extra, ExpiresAt: r.ExpiresAt,
	}
	o.Apply(opts...)
	if err := o.Validate(); err != nil {
		return err
	}
	switch {
	case o.ID != "":
		return invalid("id", "cannot be changed")
	case o.Delay > 0 || o.ScheduledAt.After(now):
		return invalid("scheduled_at", "a dead letter is retried at once")
	}
	retry, meta, err := effective(&o)
	if err != nil {
		return err
	}
	r.Queue, r.Priority, r.Timeout, r.TotalTimeout, r.Lease = o.Queue, o.Priority, o.Timeout, o.TotalTimeout, o.Lease
	r.Retry, r.MaxAttempts, r.Meta, r.Extra = retry, retry.Runs(), meta, o.Extra
	r.ExpiresAt = stored(o.ExpiresAt)
	if o.TTL > 0 {
		r.ExpiresAt = now.Add(o.TTL)
	}
	if !r.ExpiresAt.IsZero() && !now.Before(r.ExpiresAt) {
		r.ExpiresAt = time.Time{}
	}
	if r.TotalTimeout > 0 && !now.Before(r.CreatedAt.Add(r.TotalTimeout)) {
		r.TotalTimeout = 0
	}
	return nil
}

// Delete deletes a dead letter. A job that is none gives an *ojs.TransitionError, an unknown id ojs.ErrNotFound.
func (d *DeadLetters) Delete(ctx context.Context, id string) error {
	rec, err := d.core.store.Get(ctx, id)
	if err != nil {
		return err
	}
	if !rec.DeadLettered() {
		return &ojs.TransitionError{ID: id, From: rec.State, To: "deleted"}
	}
	op := d.core.hub.begin()
	n, err := d.core.store.Delete(ctx, []string{id})
	if op != 0 && n > 0 {
		d.core.hub.end(op, d.core.batch(&rec, rec.Version+1, d.core.now(), ojs.Event{Type: ojs.EventDeadLetterDeleted}))
	} else {
		d.core.hub.end(op)
	}
	if err == nil && n == 0 {
		return fmt.Errorf("%w: job %q", ojs.ErrNotFound, id)
	}
	return err
}
