package engine

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/ojsengine/ojs"
	"github.com/ojsengine/ojs/codec"
	"github.com/ojsengine/ojs/engine/internal/eventlog"
	"github.com/ojsengine/ojs/event"
	"github.com/ojsengine/ojs/internal/bridge"
	"github.com/ojsengine/ojs/internal/draft"
	"github.com/ojsengine/ojs/internal/foreign"
	"github.com/ojsengine/ojs/policy"
	"github.com/ojsengine/ojs/storage"
)

// enqueue enqueues one draft, which comes in parts: its args are kept and its options are
// not, so that a caller's list of these needs no memory from the heap.
func (c *core) enqueue(
	ctx context.Context, jobType string, args any, defaults, opts []ojs.Option,
) (ojs.Ticket, error) {
	var ticket ojs.Ticket
	err := c.withRoom(ctx, 1,
		func() error { return c.tryEnqueueOne(ctx, jobType, args, defaults, opts, &ticket) })
	switch {
	case err != nil:
		return ojs.Ticket{}, err
	case ticket.Dropped:
		return ojs.Ticket{}, ojs.ErrDropped
	}
	return ticket, nil
}

func (c *core) enqueueMany(ctx context.Context, drafts []ojs.Draft) ([]ojs.Ticket, error) {
	if len(drafts) == 0 {
		return nil, ctx.Err()
	}
	tickets := make([]ojs.Ticket, len(drafts))
	if err := c.withRoom(ctx, len(drafts),
		func() error { return c.tryEnqueue(ctx, drafts, tickets) }); err != nil {
		return nil, err
	}
	return tickets, nil
}

// withRoom enqueues by try. If a queue is full that callers wait for, it waits until
// there is room and tries again.
func (c *core) withRoom(ctx context.Context, jobs int, try func() error) error {
	for {
		err := try()
		queue, blocks := c.blocks(err)
		if !blocks {
			return err
		}
		full, err := c.inPlace(ctx, queue, jobs, try)
		if !full {
			return err
		}
	}
}

// inPlace tries until the queue has room. It reports whether another queue of the batch
// has none.
func (c *core) inPlace(ctx context.Context, queue string, jobs int, try func() error) (full bool, err error) {
	p := c.room.enter(queue)
	defer c.room.leave(p)
	for {
		// Again, since room made before the wait began is not announced.
		err := try()
		at, blocks := c.blocks(err)
		if !blocks {
			return false, err
		}
		if at != queue {
			return true, nil
		}
		if jobs > 1 {
			c.room.skip(p)
		}
		if err := c.waitForRoom(ctx, p); err != nil {
			return false, err
		}
		c.room.again(p)
	}
}

// shelf is the memory that one enqueue works in.
type shelf struct {
	batch  []storage.Insert
	stored []storage.Inserted
	places []int // of the batch's jobs among the drafts
	own    plan  // of a draft that has options of its own
}

var shelves = sync.Pool{New: func() any { return new(shelf) }}

// maxShelf is the largest batch whose shelf is kept.
const maxShelf = 1024

// putBack leaves the shelf to another enqueue, which overwrites it. Clearing it before
// would cost as much as filling it.
func (s *shelf) putBack() {
	if cap(s.batch) > maxShelf {
		return
	}
	s.batch, s.stored, s.places = s.batch[:0], s.stored[:0], s.places[:0]
	shelves.Put(s)
}

// tryEnqueue enqueues the drafts once, each of which has a ticket.
func (c *core) tryEnqueue(ctx context.Context, drafts []ojs.Draft, tickets []ojs.Ticket) error {
	now := c.now()
	s := shelves.Get().(*shelf)
	s.batch = slices.Grow(s.batch, len(drafts))
	for i := range drafts {
		d := &drafts[i]
		switch dropped, err := c.lay(ctx, s, i, d.Type(), d.Args(), d.Defaults(), d.Options(), now); {
		case err != nil && len(drafts) > 1:
			return fmt.Errorf("ojs: draft %d of %d: %w", i+1, len(drafts), err)
		case err != nil:
			return err
		default:
			tickets[i].Dropped = dropped
		}
	}
	if err := c.nameDependencies(s.batch, s.places, drafts); err != nil {
		return err
	}
	if len(drafts) > 1 {
		if err := c.nameAwaited(ctx, s.batch); err != nil {
			return err
		}
	}
	return c.insertShelf(ctx, s, tickets, now)
}

// tryEnqueueOne is tryEnqueue of one draft in parts.
func (c *core) tryEnqueueOne(
	ctx context.Context, jobType string, args any, defaults, opts []ojs.Option, ticket *ojs.Ticket,
) error {
	now := c.now()
	s := shelves.Get().(*shelf)
	s.batch = slices.Grow(s.batch, 1)
	dropped, err := c.lay(ctx, s, 0, jobType, args, defaults, opts, now)
	if err != nil {
		return err
	}
	if !dropped && len(s.batch[0].DependsOn) > 0 {
		drafts := []ojs.Draft{ojs.NewDraft(jobType, nil)} // it can name itself only by its id
		if err := c.nameDependencies(s.batch, s.places, drafts); err != nil {
			return err
		}
	}
	tickets := [1]ojs.Ticket{{Dropped: dropped}}
	err = c.insertShelf(ctx, s, tickets[:], now)
	*ticket = tickets[0]
	return err
}

// lay makes the i-th draft a job of the shelf's batch, which has room for it, unless a
// hook drops it.
func (c *core) lay(
	ctx context.Context, s *shelf, i int, jobType string, args any, defaults, opts []ojs.Option,
	now time.Time,
) (dropped bool, err error) {
	n := len(s.batch)
	s.batch = s.batch[:n+1]
	if err := c.prepare(ctx, &s.batch[n], jobType, args, defaults, opts, now, &s.own); err != nil {
		s.batch = s.batch[:n]
		if err == ojs.ErrDropped {
			return true, nil
		}
		return false, err
	}
	s.places = append(s.places, i)
	return false, nil
}

// insertShelf stores the shelf's batch, fills in the tickets of its jobs and puts the
// shelf back.
func (c *core) insertShelf(ctx context.Context, s *shelf, tickets []ojs.Ticket, now time.Time) (err error) {
	if len(s.batch) == 0 {
		s.putBack()
		return ctx.Err()
	}
	if s.stored, err = c.insert(ctx, now, s.batch, s.stored); err != nil {
		return s.named(err) // a storage that has given up may still read the batch
	}
	waiter := bridge.Waiter[ojs.JobInfo]((*ofStored)(c))
	if storage.Tx(ctx) != nil {
		waiter = c // the jobs exist if the transaction commits
	}
	for n, i := range s.places {
		r, equal := &s.batch[n].Record, s.stored[n].Existing
		if equal != nil {
			r = equal
		}
		ticket := ojs.Ticket{ID: r.ID, State: r.State, Deduplicated: equal != nil}
		tickets[i] = insideTickets.WithWaiter(ticket, waiter)
	}
	if len(s.places) > 1 {
		s.noteReplaced(tickets)
	}
	s.noteMoved(tickets)
	s.putBack()
	return nil
}

// noteReplaced says in the tickets of jobs that later jobs of the same batch have
// replaced that they are cancelled.
func (s *shelf) noteReplaced(tickets []ojs.Ticket) {
	var replaced map[string]struct{}
	for n := range s.places {
		for k := range s.stored[n].Replaced {
			if replaced == nil {
				replaced = make(map[string]struct{})
			}
			replaced[s.stored[n].Replaced[k].ID] = struct{}{}
		}
	}
	if replaced == nil {
		return
	}
	for _, i := range s.places {
		if _, ok := replaced[tickets[i].ID]; ok {
			tickets[i].State = ojs.StateCancelled
		}
	}
}

// noteMoved says in the tickets of jobs whose dependencies had ended what they have
// become.
func (s *shelf) noteMoved(tickets []ojs.Ticket) {
	moved := s.stored[len(s.stored)-1].Moved
	for k := range moved {
		for _, i := range s.places {
			if tickets[i].ID == moved[k].ID {
				tickets[i].State = moved[k].State
			}
		}
	}
}

// named adds to the error of a duplicate which draft of the same batch it is equal to.
// The job of that draft cannot be looked up, since the batch is not stored.
func (s *shelf) named(err error) error {
	var dup *ojs.DuplicateError
	if len(s.batch) > 1 && foreign.As(err, &dup) {
		for n, i := range s.places {
			if s.batch[n].Record.ID == dup.ID {
				return fmt.Errorf("ojs: two drafts are equal, draft %d is one: %w", i+1, err)
			}
		}
	}
	return err
}

// insert stores a batch and tells whom it concerns.
func (c *core) insert(
	ctx context.Context, now time.Time, batch []storage.Insert, dst []storage.Inserted,
) ([]storage.Inserted, error) {
	if err := c.checkTx(ctx); err != nil {
		return nil, err
	}
	ctx, end := c.traceEnqueue(ctx, batch)
	op := c.beganInsert(batch)
	slots := c.reserve(ctx, now, batch)
	var stored []storage.Inserted
	var took time.Duration
	err := c.journal.Do(op, func() (moved []storage.Record, err error) {
		stored, err = c.store.Insert(ctx, now, batch, dst)
		if end(err); err != nil {
			return nil, c.explained(err, batch)
		}
		c.replaced(stored)
		took = c.now().Sub(now)
		return stored[len(stored)-1].Moved, nil
	}, func(op *eventlog.Op) { c.enqueuedEvents(op, batch, stored, now, took) },
		func() { c.inserted(batch, stored, took) })
	if slots != nil {
		slots.start(batch, stored, now, err)
	}
	if err != nil {
		if _, blocks := c.blocks(err); !blocks {
			c.rejected(err)
		}
		return nil, err
	}
	return stored, nil
}

// inserted follows a batch that was stored by a call that took so long.
func (c *core) inserted(batch []storage.Insert, stored []storage.Inserted, took time.Duration) {
	c.meter.Enqueued(batch, stored, took)
	c.pressed(batch, stored)
	available, wake := 0, time.Time{}
	for i := range batch {
		r, s := &batch[i].Record, &stored[i]
		c.endedOtherwise(s.Replaced)
		c.endedOtherwise(s.Dropped)
		if s.Existing != nil {
			c.logDuplicate(r, s.Existing)
			if s.Updated {
				wake = earliest(wake, s.Existing.WakeAt())
			}
			continue
		}
		c.logJob(levelOf(r), "job enqueued", "lifecycle", r, "")
		if r.State == ojs.StateAvailable && !s.Claimed {
			available++
		}
		wake = earliest(wake, r.WakeAt())
	}
	c.wakeAt(wake)
	c.available(available)
}

// replaced tells those who run replaced jobs, before the events of that: see
// attempt.start.
func (c *core) replaced(stored []storage.Inserted) {
	for i := range stored {
		for k := range stored[i].Replaced {
			r := &stored[i].Replaced[k]
			c.takenAway(storage.Held{ID: r.ID, Version: r.Version - 1}, ojs.ErrReplaced)
		}
	}
}

// beganInsert begins the operation of an insert. It returns nil if no listener wants its
// events.
func (c *core) beganInsert(batch []storage.Insert) *eventlog.Op {
	if !c.events.Wants("", "", "") {
		return nil
	}
	var few [1]string
	ids, effect := c.insertEffect(batch, few[:0], eventlog.None)
	if effect == eventlog.None && len(ids) == 0 {
		return nil
	}
	return c.events.Begin(effect, ids...)
}

// insertEffect adds what inserting a batch does to the ids and the effect of an
// operation.
func (c *core) insertEffect(
	batch []storage.Insert, ids []string, effect eventlog.Effect,
) ([]string, eventlog.Effect) {
	for i := range batch {
		r := &batch[i].Record
		if c.wanted(r, event.Enqueued, event.Scheduled) {
			ids = append(ids, r.ID)
		}
		if batch[i].Waits() {
			c.depends.Store(true)
			effect = eventlog.Ends
		}
		if batch[i].DropOldest || r.Unique != nil && replaces(r.Unique.Strategy()) {
			effect = eventlog.Ends
		}
	}
	return ids, effect
}

// replaces reports whether a unique job may end an equal one.
func replaces(c ojs.Conflict) bool {
	return c == ojs.ConflictReplace || c == ojs.ConflictReplaceExceptSchedule || c == ojs.ConflictDebounce
}

// explained says why an active job was not replaced, if that is what an insert failed
// with.
func (c *core) explained(err error, batch []storage.Insert) error {
	var dup *ojs.DuplicateError
	if !foreign.As(err, &dup) || dup.State != ojs.StateActive {
		return err
	}
	for i := range batch {
		if in := &batch[i]; in.KeepActive && in.Record.Fingerprint == dup.Fingerprint &&
			replaces(in.Record.Unique.Strategy()) {
			return fmt.Errorf("%w: an active job cannot be replaced over storage %s, "+
				"whose unique jobs are %s", err, c.store.Capabilities().Name, storage.BestEffort)
		}
	}
	return err
}

func (c *core) enqueuedEvents(
	op *eventlog.Op, jobs []storage.Insert, stored []storage.Inserted, now time.Time, took time.Duration,
) {
	for i := range jobs {
		r := &jobs[i].Record
		for k := range stored[i].Dropped {
			d := &stored[i].Dropped[k]
			c.transition(op, d, d.Version, eventlog.None, now,
				event.Event{Type: event.Dropped, Depth: stored[i].Depth, MaxDepth: jobs[i].MaxDepth},
				event.Event{Type: event.Discarded, Failure: d.Error, Reason: "dropped"})
		}
		for k := range stored[i].Replaced {
			q := &stored[i].Replaced[k]
			c.transition(op, q, q.Version, eventlog.Starts, now, event.Event{Type: event.Cancelled})
		}
		if stored[i].Version == 0 { // there is an equal job
			continue
		}
		events, n := [2]event.Event{{Type: event.Enqueued, Duration: took}, {Type: event.Scheduled}}, 1
		if r.State == ojs.StateScheduled {
			n = 2
		}
		c.transition(op, r, stored[i].Version, eventlog.None, now, events[:n]...)
	}
}

// prepare makes the record of a draft, or says what is wrong with it. own is for the
// draft's plan.
func (c *core) prepare(ctx context.Context, in *storage.Insert, jobType string, args any, defaults,
	opts []ojs.Option, now time.Time, own *plan) error {
	r := &in.Record
	in.AwaitedBy = nil
	t, err := c.jobType(jobType)
	if err != nil {
		return err
	}
	p, err := c.planFor(t, defaults, opts, own)
	if err != nil {
		return err
	}
	o, retry := &p.options, &p.retry
	if !t.handled && !o.Join {
		c.warnUnhandled(t, jobType)
	}
	if o.TypeVersion != "" || !t.handled {
		t = c.registry.lookup(jobType, o.TypeVersion) // whose args may be of another type
	}
	id := o.ID
	if id == "" {
		id = c.rnd.id(now)
	}
	if len(c.hooks) > 0 {
		changed := o.Clone()
		o = &changed
		if args, err = c.hook(ctx, o, retry.Runs(), id, jobType, args, now); err != nil {
			return err
		}
	}
	encoded, err := draft.Args(args, jobType, t.argsType(), c.codec)
	if err != nil {
		return err
	}
	meta, err := draft.Meta(o.Meta)
	if err != nil {
		return err
	}
	// A hook has seen the id, and may have passed it on: the id is not new.
	// the fields are set one by one: a record is large to copy
	*in = storage.Insert{IDIsNew: o.ID == "" && c.rand == nil && len(c.hooks) == 0}
	r.ID, r.Type, r.Queue, r.Priority, r.MaxAttempts, r.Meta = id, jobType, o.Queue, o.Priority,
		retry.Runs(), meta
	r.TypeVersion = o.TypeVersion
	r.CreatedAt, r.ScheduledAt, r.ExpiresAt = now, draft.Time(o.ScheduledAt), draft.Time(o.ExpiresAt)
	r.Args, r.State, r.Retry, r.RateLimit, r.Extra = encoded, ojs.StateAvailable, *retry, o.RateLimit, o.Extra
	r.Timeout, r.TotalTimeout, r.EnqueueTTL, r.Lease, r.ResultTTL = o.Timeout, o.TotalTimeout, o.EnqueueTTL,
		o.Lease, o.ResultTTL
	fromElsewhere := draft.FromElsewhere(args)
	if o.RateLimitBy != "" {
		if err := c.limitBy(r, o, fromElsewhere); err != nil {
			return err
		}
	}
	if r.Fairness = o.Fairness; o.FairnessBy != "" {
		if err := c.shareBy(r, o, fromElsewhere); err != nil {
			return err
		}
	}
	if o.Unique != nil {
		if fromElsewhere {
			if err := draft.CheckIdentity(o.Unique, r.Args, r.Meta); err != nil {
				return err
			}
		}
		if err := c.identify(in, o); err != nil {
			return err
		}
	}
	if queues := c.queues.Load(); len(queues.names) > 0 {
		qc, served := queues.config[o.Queue]
		if !served && !o.Join {
			c.warnUnserved(o.Queue)
		}
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
	if o.EnqueueTTL > 0 && !r.ScheduledAt.Before(now.Add(o.EnqueueTTL)) {
		return invalid("enqueue_ttl",
			"%v is over before scheduled_at %s", o.EnqueueTTL, r.ScheduledAt.Format(time.RFC3339Nano))
	}
	switch {
	case len(o.DependsOn) > 0 || o.OrderingKey != "":
		if err := c.depend(in, o); err != nil {
			return err
		}
	case o.Pending:
		r.State = ojs.StatePending
	case !r.ScheduledAt.After(now):
		r.EnqueuedAt = now
	default:
		r.State = ojs.StateScheduled
		if !r.ExpiresAt.IsZero() && !r.ExpiresAt.After(r.ScheduledAt) {
			return invalid("expires_at",
				"%s is not after scheduled_at %s", r.ExpiresAt.Format(time.RFC3339Nano),
				r.ScheduledAt.Format(time.RFC3339Nano))
		}
	}
	if err := draft.Encode(ctx, c.codec, r, fromElsewhere); err != nil {
		return err
	}
	return draft.CheckSize(&r.JobInfo)
}

// identify gives a unique job its fingerprint.
func (c *core) identify(in *storage.Insert, o *ojs.Options) (err error) {
	s := c.store.Capabilities()
	if s.Unique == "" {
		return c.unsupported("does not know unique jobs")
	}
	in.KeepActive = s.Unique != storage.Strong
	r := &in.Record
	r.Unique = o.Unique
	job := &r.JobInfo
	if len(o.Unique.MetaKeys) > 0 { // meta counts as it was given
		job = &ojs.JobInfo{JobHeader: ojs.JobHeader{
			Type: r.Type, TypeVersion: r.TypeVersion, Queue: r.Queue, Meta: o.Meta}, Args: r.Args}
	}
	r.Fingerprint, err = policy.Fingerprint(o.Unique, job)
	return err
}

// hook lets the enqueue hooks have their say. It returns the args to store.
func (c *core) hook(
	ctx context.Context, o *ojs.Options, runs int, id, jobType string, args any, now time.Time,
) (any, error) {
	if o.Meta == nil {
		o.Meta = make(map[string]any)
	}
	at := o.ScheduledAt
	if o.Delay > 0 {
		at = now.Add(o.Delay)
	}
	job := &ojs.Job[any]{Args: args, JobHeader: ojs.JobHeader{
		ID: id, Type: jobType, TypeVersion: o.TypeVersion, Queue: o.Queue, Priority: o.Priority,
		MaxAttempts: runs, Meta: o.Meta,
		CreatedAt: now, ScheduledAt: at,
	}}
	for _, h := range c.hooks {
		if err := runHook(ctx, h, job); err != nil {
			return nil, err
		}
	}
	o.Queue, o.Priority, o.Meta = job.Queue, job.Priority, job.Meta
	return job.Args, o.Validate()
}

// shareBy gives a job the fairness key of its value of a member (ojs.WithFairnessBy).
func (c *core) shareBy(r *storage.Record, o *ojs.Options, fromElsewhere bool) error {
	if fromElsewhere && strings.HasPrefix(o.FairnessBy, "args.") && codec.IsEncoded(r.Args, r.Meta) {
		return invalid("fairness_by",
			"names a member of args, which come encoded; give the key of the plain args by ojs.WithFairnessKey")
	}
	key, err := policy.FairnessKey(o.FairnessBy, &r.JobInfo)
	if err != nil {
		return err
	}
	if r.Fairness.Key = key; key == "" {
		r.Fairness.Weight = 0
	}
	return nil
}

// plan is what the options of a job add up to. It is not changed once it is made, since
// many jobs may share it.
type plan struct {
	options  ojs.Options
	retry    ojs.RetryPolicy
	queues   *queueSet   // whose defaults are in it
	defaults *ojs.Option // the first default of the job type, which identifies the list; nil if none
}

// planFor resolves the options of a draft. Without options of the draft's own, the plan
// is resolved once for the job type and the engine's queues, since the defaults of these
// do not change.
// Where possible, the draft's own options are applied on top of that plan, in own, which
// only this enqueue uses.
func (c *core) planFor(t *jobType, defaults, opts []ojs.Option, own *plan) (*plan, error) {
	if defaults == nil {
		defaults = t.handler.Defaults()
	}
	var first *ojs.Option
	if len(defaults) > 0 {
		first = &defaults[0]
	}
	base := t.plan.Load()
	queues := c.queues.Load()
	if base == nil || base.defaults != first || base.queues != queues {
		o, err := c.resolve(queues, defaults, nil)
		base = &plan{queues: queues}
		if err = base.finish(o, err); err == nil {
			base.defaults = first
			t.plan.Store(base)
		} else if base = nil; len(opts) == 0 {
			return nil, err
		}
	}
	if len(opts) == 0 {
		return base, nil
	}
	if base != nil {
		o := &own.options
		*o = base.options.Clone()
		o.Apply(opts...)
		// Another queue may have other defaults, which come in before the type's.
		if o.Queue == base.options.Queue || queues.hasNoDefaults(o.Queue, base.options.Queue) {
			err := o.Validate()
			if err != nil {
				return nil, err
			}
			if o.Retry.Equal(base.options.Retry) {
				own.retry = base.retry
				return own, nil
			}
			own.retry, err = policy.Resolve(o.Retry)
			return own, err
		}
	}
	return own, own.finish(c.resolve(queues, defaults, opts))
}

// finish completes the plan of resolved options.
func (p *plan) finish(o ojs.Options, err error) error {
	if err != nil {
		return err
	}
	retry, err := policy.Resolve(o.Retry)
	if err != nil {
		return err
	}
	p.options, p.retry = o, retry
	return nil
}

// resolve adds up the options of a draft: standard, engine, queue, job type, call; the
// later overrides the earlier.
func (c *core) resolve(queues *queueSet, defaults, own []ojs.Option) (ojs.Options, error) {
	o := ojs.DefaultOptions()
	o.Apply(c.defaults...)
	o.Apply(defaults...)
	o.Apply(own...)
	// Only now is the queue known, whose defaults come in before the type's.
	if qc := queues.config[o.Queue]; len(qc.Defaults) > 0 {
		queue := o.Queue
		o = ojs.DefaultOptions()
		o.Apply(c.defaults...)
		o.Apply(qc.Defaults...)
		o.Apply(defaults...)
		o.Apply(own...)
		o.Queue = queue
	}
	return o, o.Validate()
}
