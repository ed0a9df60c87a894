package engine

import (
	"context"
	"encoding/json"
	"fmt"
	"reflect"
	"time"

	"github.com/ojsengine/ojs"
	"github.com/ojsengine/ojs/handler"
	"github.com/ojsengine/ojs/internal/jsonvalue"
	"github.com/ojsengine/ojs/policy"
	"github.com/ojsengine/ojs/storage"
)

func (c *core) enqueue(ctx context.Context, d ojs.Draft) (ojs.Ticket, error) {
	tickets, err := c.enqueueMany(ctx, []ojs.Draft{d})
	if err != nil {
		return ojs.Ticket{}, err
	}
	return tickets[0], nil
}

func (c *core) enqueueMany(ctx context.Context, drafts []ojs.Draft) ([]ojs.Ticket, error) {
	if len(drafts) == 0 {
		return nil, ctx.Err()
	}
	now := c.now()
	batch := make([]storage.Insert, len(drafts))
	for i, d := range drafts {
		if err := c.prepare(&batch[i].Record, d, now); err != nil {
			if len(drafts) > 1 {
				err = fmt.Errorf("ojs: draft %d of %d: %w", i+1, len(drafts), err)
			}
			return nil, err
		}
	}
	op := c.hub.begin()
	stored, err := c.store.Insert(ctx, now, batch, make([]storage.Inserted, 0, len(batch)))
	if err != nil {
		c.hub.end(op)
		c.uncertain(err)
		return nil, err
	}
	if op != 0 {
		c.hub.end(op, c.enqueuedEvents(batch, stored, now)...)
	}

	tickets := make([]ojs.Ticket, len(batch))
	available, wake := 0, time.Time{}
	for i := range batch {
		r := &batch[i].Record
		tickets[i] = ojs.Ticket{ID: r.ID, State: r.State, Waiter: c}
		if r.State == ojs.StateAvailable {
			available++
		}
		if at := r.WakeAt(); !at.IsZero() && (wake.IsZero() || at.Before(wake)) {
			wake = at
		}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.run != nil {
		c.run.wakeAt(wake)
		c.run.available(available)
	}
	return tickets, nil
}

func (c *core) enqueuedEvents(jobs []storage.Insert, stored []storage.Inserted, now time.Time) []*batch {
	batches := make([]*batch, len(jobs))
	for i := range jobs {
		r := &jobs[i].Record
		events := []ojs.Event{{Type: ojs.EventEnqueued}}
		if r.State == ojs.StateScheduled {
			events = append(events, ojs.Event{Type: ojs.EventScheduled})
		}
		batches[i] = c.batch(r, stored[i].Version, now, events...)
	}
	return batches
}

// prepare makes the record of a draft, or says what is wrong with it.
func (c *core) prepare(r *storage.Record, d ojs.Draft, now time.Time) error {
	if err := ojs.ValidateType(d.Type()); err != nil {
		return err
	}
	h, handled := c.registry.lookup(d.Type())
	if !handled {
		if _, said := c.registry.unknown.LoadOrStore(d.Type(), true); !said {
			c.log.Warn("job type enqueued without a handler in this engine", "job_type", d.Type())
		}
	}
	args, err := encodeArgs(d, h, handled)
	if err != nil {
		return err
	}
	o, err := c.resolve(d, h)
	if err != nil {
		return err
	}
	retry, meta, err := effective(&o)
	if err != nil {
		return err
	}
	id := o.ID
	if id == "" {
		id = c.rnd.id(now)
	}
	r.JobInfo = ojs.JobInfo{
		JobHeader: ojs.JobHeader{
			ID: id, Type: d.Type(), Queue: o.Queue, Priority: o.Priority, MaxAttempts: retry.Runs(), Meta: meta,
			CreatedAt: now, ScheduledAt: stored(o.ScheduledAt),
		},
		Args: args, State: ojs.StateAvailable, Retry: retry,
		Timeout: o.Timeout, TotalTimeout: o.TotalTimeout, Lease: o.Lease, ExpiresAt: stored(o.ExpiresAt),
		Extra: o.Extra,
	}
	if o.Delay > 0 {
		r.ScheduledAt = now.Add(o.Delay)
	}
	if o.TTL > 0 {
		r.ExpiresAt = now.Add(o.TTL)
	}
	if o.TotalTimeout > 0 {
		r.Timeout = min(r.Timeout, o.TotalTimeout) // the default one; Validate refuses another
	}
	if r.ScheduledAt.After(now) {
		r.State = ojs.StateScheduled
		if !r.ExpiresAt.IsZero() && !r.ExpiresAt.After(r.ScheduledAt) {
			return invalid("expires_at", fmt.Sprintf("%s is not after scheduled_at %s",
				r.ExpiresAt.Format(time.RFC3339Nano), r.ScheduledAt.Format(time.RFC3339Nano)))
		}
	} else {
		r.EnqueuedAt = now
	}
	return nil
}

// resolve adds up the options of a draft: standard, engine, queue, job type, call; the later goes before the earlier.
func (c *core) resolve(d ojs.Draft, h handler.Handler) (ojs.Options, error) {
	defaults := d.Defaults()
	if defaults == nil {
		defaults = h.Defaults()
	}
	o := ojs.DefaultOptions()
	o.Apply(c.defaults...)
	o.Apply(defaults...)
	o.Apply(d.Options()...)
	// Only now is the queue known, whose defaults come in before the type's.
	if qc := c.queueConfig[o.Queue]; len(qc.Defaults) > 0 {
		queue := o.Queue
		o = ojs.DefaultOptions()
		o.Apply(c.defaults...)
		o.Apply(qc.Defaults...)
		o.Apply(defaults...)
		o.Apply(d.Options()...)
		o.Queue = queue
	}
	return o, o.Validate()
}

// effective returns what a job stores of its options' retry policy and meta.
func effective(o *ojs.Options) (ojs.RetryPolicy, map[string]any, error) {
	retry, err := policy.Resolve(o.Retry)
	if err != nil {
		return retry, nil, err
	}
	meta, err := jsonvalue.Normalize(o.Meta)
	if err != nil {
		return retry, nil, &ojs.InvalidError{Code: ojs.CodeMetaInvalid, Field: "meta", Reason: err.Error()}
	}
	return retry, meta, nil
}

// encodeArgs encodes a draft's args once, after checking them against the handler's type.
func encodeArgs(d ojs.Draft, h handler.Handler, handled bool) (ojs.Args, error) {
	args := d.Args()
	switch args.(type) {
	case nil, ojs.Args, json.RawMessage: // JSON from elsewhere: the handler's decoding judges it
		return ojs.NewArgs(args)
	}
	if handled {
		have, want := reflect.TypeOf(args), h.ArgsType()
		if have != want && !have.AssignableTo(want) && !(have.Kind() == reflect.Pointer && have.Elem() == want) {
			return ojs.Args{}, &ojs.InvalidError{Code: ojs.CodeArgsInvalid, Field: "args",
				Reason: fmt.Sprintf("are a %v, but the handler of %s takes a %v", have, d.Type(), want)}
		}
	}
	return ojs.NewArgs(args)
}

// stored is a caller's time as storages keep it.
func stored(t time.Time) time.Time {
	if t.IsZero() {
		return time.Time{}
	}
	return t.UTC().Round(0)
}
