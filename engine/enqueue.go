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
	switch {
	case err != nil:
		return ojs.Ticket{}, err
	case tickets[0].Dropped:
		return ojs.Ticket{}, ojs.ErrDropped
	}
	return tickets[0], nil
}

func (c *core) enqueueMany(ctx context.Context, drafts []ojs.Draft) ([]ojs.Ticket, error) {
	if len(drafts) == 0 {
		return nil, ctx.Err()
	}
	for {
		tickets, err := c.tryEnqueue(ctx, drafts)
		queue, blocks := c.blocks(err)
		if !blocks {
			return tickets, err
		}
		ch := c.room.wait(queue)
		// Again, since what made room before the wait began is not told.
		if tickets, err = c.tryEnqueue(ctx, drafts); err != nil {
			if _, blocks = c.blocks(err); blocks {
				err = c.waitForRoom(ctx, ch)
			}
		}
		c.room.giveUp(queue, ch)
		if err != nil || tickets != nil {
			return tickets, err
		}
	}
}

// tryEnqueue enqueues the drafts once.
func (c *core) tryEnqueue(ctx context.Context, drafts []ojs.Draft) ([]ojs.Ticket, error) {
	now := c.now()
	tickets := make([]ojs.Ticket, len(drafts))
	batch := make([]storage.Insert, 0, len(drafts))
	places := make([]int, 0, len(drafts)) // of the batch's jobs among the drafts
	for i, d := range drafts {
		batch = append(batch, storage.Insert{})
		err := c.prepare(ctx, &batch[len(batch)-1], d, now)
		switch {
		case err == ojs.ErrDropped:
			batch = batch[:len(batch)-1]
			tickets[i].Dropped = true
		case err != nil && len(drafts) > 1:
			return nil, fmt.Errorf("ojs: draft %d of %d: %w", i+1, len(drafts), err)
		case err != nil:
			return nil, err
		default:
			places = append(places, i)
		}
	}
	if len(batch) == 0 {
		return tickets, ctx.Err()
	}
	stored, err := c.insert(ctx, now, batch)
	if err != nil {
		return nil, err
	}
	for n, i := range places {
		r, equal := &batch[n].Record, stored[n].Existing
		if equal != nil {
			r = equal
		}
		tickets[i] = ojs.Ticket{ID: r.ID, State: r.State, Deduplicated: equal != nil, Waiter: c}
	}
	return tickets, nil
}

// insert stores a batch and tells whom it concerns.
func (c *core) insert(ctx context.Context, now time.Time, batch []storage.Insert) ([]storage.Inserted, error) {
	ctx, end := c.traceEnqueue(ctx, batch)
	op := c.hub.begin()
	stored, err := c.store.Insert(ctx, now, batch, make([]storage.Inserted, 0, len(batch)))
	end(err)
	if err != nil {
		c.hub.end(op)
		c.uncertain(err)
		if _, blocks := c.blocks(err); !blocks {
			c.rejected(err)
		}
		return nil, err
	}
	if op != 0 {
		c.hub.end(op, c.enqueuedEvents(batch, stored, now, c.now().Sub(now))...)
	}
	c.pressed(batch, stored)
	available, wake := 0, time.Time{}
	for i := range batch {
		r, s := &batch[i].Record, &stored[i]
		for k := range s.Replaced {
			c.logCancelled(&s.Replaced[k])
		}
		for k := range s.Dropped {
			c.logExpired(&s.Dropped[k])
		}
		if s.Existing != nil {
			c.logDuplicate(r, s.Existing)
			continue
		}
		c.logEnqueued(r)
		if r.State == ojs.StateAvailable {
			available++
		}
		wake = earliest(wake, r.WakeAt())
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for i := range stored {
		for k := range stored[i].Replaced {
			r := &stored[i].Replaced[k]
			c.takenAway(storage.Held{ID: r.ID, Version: r.Version - 1}, ojs.ErrReplaced)
			c.jobEnded(r)
		}
		for k := range stored[i].Dropped {
			c.jobEnded(&stored[i].Dropped[k])
		}
	}
	c.wakeAt(wake)
	c.available(available)
	return stored, nil
}

func (c *core) enqueuedEvents(jobs []storage.Insert, stored []storage.Inserted, now time.Time, took time.Duration) []*batch {
	batches := make([]*batch, 0, len(jobs))
	for i := range jobs {
		r := &jobs[i].Record
		for k := range stored[i].Dropped {
			d := &stored[i].Dropped[k]
			batches = append(batches, c.batch(d, d.Version, now,
				ojs.Event{Type: ojs.EventDropped, Depth: stored[i].Depth, MaxDepth: jobs[i].MaxDepth},
				ojs.Event{Type: ojs.EventDiscarded, Failure: d.Error, Reason: "dropped"}))
		}
		for k := range stored[i].Replaced {
			q := &stored[i].Replaced[k]
			batches = append(batches, c.batch(q, q.Version, now, ojs.Event{Type: ojs.EventCancelled}))
		}
		if stored[i].Existing != nil {
			continue
		}
		events := []ojs.Event{{Type: ojs.EventEnqueued, Duration: took}}
		if r.State == ojs.StateScheduled {
			events = append(events, ojs.Event{Type: ojs.EventScheduled})
		}
		batches = append(batches, c.batch(r, stored[i].Version, now, events...))
	}
	return batches
}

// prepare makes the record of a draft, or says what is wrong with it.
func (c *core) prepare(ctx context.Context, in *storage.Insert, d ojs.Draft, now time.Time) error {
	r := &in.Record
	if err := ojs.ValidateType(d.Type()); err != nil {
		return err
	}
	h, handled := c.registry.lookup(d.Type())
	if !handled {
		if _, said := c.registry.unknown.LoadOrStore(d.Type(), true); !said {
			c.log.Warn("job type enqueued without a handler in this engine", "job_type", d.Type())
		}
	}
	o, err := c.resolve(d, h)
	if err != nil {
		return err
	}
	retry, err := policy.Resolve(o.Retry)
	if err != nil {
		return err
	}
	id := o.ID
	if id == "" {
		id = c.rnd.id(now)
	}
	given := d.Args()
	if len(c.hooks) > 0 {
		if given, err = c.hook(ctx, &o, retry.Runs(), id, d, now); err != nil {
			return err
		}
	}
	args, err := encodeArgs(given, d.Type(), h, handled)
	if err != nil {
		return err
	}
	meta, err := normalMeta(o.Meta)
	if err != nil {
		return err
	}
	r.JobInfo = ojs.JobInfo{
		JobHeader: ojs.JobHeader{
			ID: id, Type: d.Type(), Queue: o.Queue, Priority: o.Priority, MaxAttempts: retry.Runs(), Meta: meta,
			CreatedAt: now, ScheduledAt: stored(o.ScheduledAt),
		},
		Args: args, State: ojs.StateAvailable, Retry: retry,
		Timeout: o.Timeout, TotalTimeout: o.TotalTimeout, Lease: o.Lease, RateLimit: o.RateLimit, ExpiresAt: stored(o.ExpiresAt),
		Extra: o.Extra,
	}
	if o.Unique != nil {
		if err := c.identify(r, &o); err != nil {
			return err
		}
	}
	if qc, ok := c.queueConfig[o.Queue]; ok {
		in.MaxDepth, in.DropOldest = qc.MaxDepth, qc.Overflow == OverflowDropOldest
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
	switch {
	case o.Pending:
		r.State = ojs.StatePending
	case !r.ScheduledAt.After(now):
		r.EnqueuedAt = now
	default:
		r.State = ojs.StateScheduled
		if !r.ExpiresAt.IsZero() && !r.ExpiresAt.After(r.ScheduledAt) {
			return invalid("expires_at", fmt.Sprintf("%s is not after scheduled_at %s",
				r.ExpiresAt.Format(time.RFC3339Nano), r.ScheduledAt.Format(time.RFC3339Nano)))
		}
	}
	return checkSize(&r.JobInfo)
}

// identify gives a unique job its fingerprint.
func (c *core) identify(r *storage.Record, o *ojs.Options) (err error) {
	if s := c.store.Capabilities(); s.Unique == "" {
		return fmt.Errorf("%w: storage %s does not know unique jobs", ojs.ErrUnsupported, s.Name)
	}
	given := ojs.JobInfo{JobHeader: ojs.JobHeader{Type: r.Type, Queue: r.Queue, Meta: o.Meta}, Args: r.Args} // meta as it was given
	r.Unique = o.Unique
	r.Fingerprint, err = policy.Fingerprint(o.Unique, &given)
	return err
}

// hook lets the enqueue hooks have their say. It returns the args to store.
func (c *core) hook(ctx context.Context, o *ojs.Options, runs int, id string, d ojs.Draft, now time.Time) (any, error) {
	if o.Meta == nil {
		o.Meta = make(map[string]any)
	}
	at := o.ScheduledAt
	if o.Delay > 0 {
		at = now.Add(o.Delay)
	}
	job := &ojs.Job[any]{Args: d.Args(), JobHeader: ojs.JobHeader{
		ID: id, Type: d.Type(), Queue: o.Queue, Priority: o.Priority, MaxAttempts: runs, Meta: o.Meta,
		CreatedAt: now, ScheduledAt: at,
	}}
	if err := c.runHooks(ctx, job); err != nil {
		return nil, err
	}
	o.Queue, o.Priority, o.Meta = job.Queue, job.Priority, job.Meta
	return job.Args, o.Validate()
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

// normalMeta returns what a job stores of its options' meta.
func normalMeta(m map[string]any) (map[string]any, error) {
	meta, err := jsonvalue.Normalize(m)
	if err != nil {
		return nil, &ojs.InvalidError{Code: ojs.CodeMetaInvalid, Field: "meta", Reason: err.Error()}
	}
	return meta, nil
}

// encodeArgs encodes args once, after checking them against the handler's type.
func encodeArgs(args any, jobType string, h handler.Handler, handled bool) (ojs.Args, error) {
	switch args.(type) {
	case nil, ojs.Args, json.RawMessage: // JSON from elsewhere: the handler's decoding judges it
		return ojs.NewArgs(args)
	}
	if handled {
		have, want := reflect.TypeOf(args), h.ArgsType()
		if have != want && !have.AssignableTo(want) && !(have.Kind() == reflect.Pointer && have.Elem() == want) {
			return ojs.Args{}, &ojs.InvalidError{Code: ojs.CodeArgsInvalid, Field: "args",
				Reason: fmt.Sprintf("are a %v, but the handler of %s takes a %v", have, jobType, want)}
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
