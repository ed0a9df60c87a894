// Package enqueue takes in new jobs: it stores batches, and has enqueues to full queues
// wait for room.
//
// # Invariants
//
//  1. A batch is stored as a whole or not at all.
//  2. Enqueues that wait for the same queue are woken in the order in which they came. An
//     enqueue whose batch does not fit wakes the next. Each looks again after roomEvery.
//  3. No waiter and no listener is told of a job that was not stored.
package enqueue

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/ojsengine/ojs"
	"github.com/ojsengine/ojs/codec"
	"github.com/ojsengine/ojs/engine/internal/env"
	"github.com/ojsengine/ojs/engine/internal/eventlog"
	"github.com/ojsengine/ojs/engine/internal/jobtypes"
	"github.com/ojsengine/ojs/engine/internal/logs"
	"github.com/ojsengine/ojs/engine/internal/waits"
	"github.com/ojsengine/ojs/event"
	internal "github.com/ojsengine/ojs/internal/attempt"
	"github.com/ojsengine/ojs/internal/bridge"
	"github.com/ojsengine/ojs/internal/draft"
	"github.com/ojsengine/ojs/internal/foreign"
	"github.com/ojsengine/ojs/internal/times"
	"github.com/ojsengine/ojs/storage"
)

// Enqueuer stores new jobs for one engine. It is safe for concurrent use.
type Enqueuer struct {
	*env.Env
	Types *jobtypes.Types
	Waits *waits.Waits
	Room  Room

	// Reserve keeps slots for the jobs of a batch, and has the storage asked to claim
	// them. It returns nil if the jobs cannot start at once. Otherwise start follows the
	// insert.
	Reserve func(ctx context.Context, now time.Time, batch []storage.Insert) (
		start func(stored []storage.Inserted, err error))
}

// Enqueue enqueues one draft, which comes in parts: its args are kept and its options are
// not, so that a caller's list of these needs no memory from the heap.
func (c *Enqueuer) Enqueue(
	ctx context.Context, jobType string, args any, defaults, opts []ojs.Option,
) (ojs.Ticket, error) {
	var tickets [1]ojs.Ticket
	err := c.withRoom(ctx, 1,
		func() error { return c.try(ctx, tickets[:], nil, jobType, args, defaults, opts) })
	switch {
	case err != nil:
		return ojs.Ticket{}, err
	case tickets[0].Dropped:
		return ojs.Ticket{}, ojs.ErrDropped
	}
	return tickets[0], nil
}

// EnqueueMany implements ojs.Enqueuer.
func (c *Enqueuer) EnqueueMany(ctx context.Context, drafts ...ojs.Draft) ([]ojs.Ticket, error) {
	if len(drafts) == 0 {
		return nil, ctx.Err()
	}
	tickets := make([]ojs.Ticket, len(drafts))
	err := c.withRoom(ctx, len(drafts),
		func() error { return c.try(ctx, tickets, drafts, "", nil, nil, nil) })
	if err != nil {
		return nil, err
	}
	return tickets, nil
}

// withRoom enqueues by try. If a queue is full that callers wait for, it waits until
// there is room and tries again.
func (c *Enqueuer) withRoom(ctx context.Context, jobs int, try func() error) error {
	var p *place // in the queue that was full last; nil: none was
	defer func() { c.Room.leave(p) }()
	for {
		err := try()
		queue, blocks := c.blocks(ctx, err)
		if !blocks {
			return err
		}
		if p == nil || p.queue != queue {
			c.Room.leave(p)
			p = c.Room.enter(queue)
			continue // room made before the wait began is not announced
		}
		if jobs > 1 {
			c.Room.skip(p)
		}
		if err := c.waitForRoom(ctx, p, err); err != nil {
			return err
		}
		c.Room.again(p)
	}
}

// shelf is the memory that one enqueue works in.
type shelf struct {
	batch  []storage.Insert
	stored []storage.Inserted
	places []int         // of the batch's jobs among the drafts
	names  []string      // of the batch's drafts
	own    jobtypes.Plan // of a draft that has options of its own
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
	s.batch, s.stored, s.places, s.names = s.batch[:0], s.stored[:0], s.places[:0], s.names[:0]
	shelves.Put(s)
}

// try enqueues drafts once, each of which has a ticket, or the one draft that comes in
// parts if drafts is nil. A draft that a hook drops is left out.
func (c *Enqueuer) try(ctx context.Context, tickets []ojs.Ticket, drafts []ojs.Draft,
	jobType string, args any, defaults, opts []ojs.Option) error {
	now := c.Now()
	s := shelves.Get().(*shelf)
	s.batch = slices.Grow(s.batch, len(tickets))
	for i := range tickets {
		if drafts != nil {
			d := &drafts[i]
			jobType, args, defaults, opts = d.Type(), d.Args(), d.Defaults(), d.Options()
		}
		n := len(s.batch)
		s.batch = s.batch[:n+1]
		p, err := c.Types.Prepare(ctx, &s.batch[n], jobType, args, defaults, opts, now, &s.own)
		switch tickets[i].Dropped = err == ojs.ErrDropped; {
		case err == nil:
			s.places, s.names = append(s.places, i), append(s.names, p.Options.Name)
		case err == ojs.ErrDropped:
			s.batch = s.batch[:n]
		case len(tickets) > 1:
			return fmt.Errorf("ojs: draft %d of %d: %w", i+1, len(tickets), err)
		default:
			return err
		}
	}
	if err := jobtypes.NameDependencies(s.batch, s.names); err != nil {
		return err
	}
	if awaited := internal.AwaitedOf(ctx); len(tickets) > 1 && awaited != nil { // see workflow.Add
		for i := range s.batch {
			s.batch[i].AwaitedBy = awaited[s.batch[i].Record.ID]
		}
	}
	return c.insertShelf(ctx, s, tickets, now)
}

// insertShelf stores the shelf's batch, fills in the tickets of its jobs and puts the
// shelf back.
func (c *Enqueuer) insertShelf(
	ctx context.Context, s *shelf, tickets []ojs.Ticket, now time.Time,
) (err error) {
	if len(s.batch) == 0 {
		s.putBack()
		return ctx.Err()
	}
	if s.stored, err = c.insert(ctx, now, s.batch, s.stored); err != nil {
		return s.named(err) // a storage that has given up may still read the batch
	}
	waiter := c.Waits.OfStored()
	if storage.Tx(ctx) != nil {
		waiter = c.Waits // the jobs exist if the transaction commits
	}
	caller, changed := draft.CallerOf(ctx), s.changed()
	for n, i := range s.places {
		r, equal := &s.batch[n].Record, s.stored[n].Existing
		if equal != nil {
			r = equal
		}
		if j := changed[r.ID]; j != nil {
			r = j
		}
		if caller != nil {
			caller.See(i, r)
		}
		ticket := ojs.Ticket{ID: r.ID, State: r.State, Deduplicated: equal != nil}
		tickets[i] = insideTickets.WithWaiter(ticket, waiter)
	}
	s.putBack()
	return nil
}

// changed returns the jobs that have changed in the step that stored the batch, by id. A
// job of the batch has replaced, dropped or updated them, or their dependencies had
// ended.
func (s *shelf) changed() (records map[string]*storage.Record) {
	note := func(list ...storage.Record) {
		if records == nil && len(list) > 0 {
			records = make(map[string]*storage.Record)
		}
		for k := range list {
			records[list[k].ID] = &list[k]
		}
	}
	for n := range s.stored {
		note(s.stored[n].Replaced...)
		note(s.stored[n].Dropped...)
		if s.stored[n].Updated {
			note(*s.stored[n].Existing)
		}
	}
	note(s.stored[len(s.stored)-1].Moved...)
	return records
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
func (c *Enqueuer) insert(
	ctx context.Context, now time.Time, batch []storage.Insert, dst []storage.Inserted,
) ([]storage.Inserted, error) {
	if err := c.CheckTx(ctx); err != nil {
		return nil, err
	}
	ctx, end := c.TraceEnqueue(ctx, batch)
	op := c.beganInsert(batch)
	start := c.Reserve(ctx, now, batch)
	var stored []storage.Inserted
	var took time.Duration
	err := c.Journal.Do(op, func() (moved []storage.Record, err error) {
		stored, err = c.Store.Insert(ctx, now, batch, dst)
		if end(err); err != nil {
			return nil, c.Explained(err, batch)
		}
		c.Replaced(stored)
		took = c.Now().Sub(now)
		return stored[len(stored)-1].Moved, nil
	}, func(op *eventlog.Op) { c.EnqueuedEvents(op, batch, stored, now, took) },
		func() { c.Inserted(batch, stored, took) })
	if start != nil {
		start(stored, err)
	}
	if err != nil {
		if _, blocks := c.blocks(ctx, err); !blocks {
			c.Rejected(err)
		}
		return nil, err
	}
	return stored, nil
}

// Inserted follows a batch that was stored by a call that took so long.
func (c *Enqueuer) Inserted(batch []storage.Insert, stored []storage.Inserted, took time.Duration) {
	c.Meter.Enqueued(batch, stored, took)
	c.pressed(batch, stored)
	available, wake := 0, time.Time{}
	for i := range batch {
		r, s := &batch[i].Record, &stored[i]
		c.EndedOtherwise(s.Replaced)
		c.EndedOtherwise(s.Dropped)
		if s.Existing != nil {
			c.LogDuplicate(r, s.Existing)
			if s.Updated {
				wake = times.Earliest(wake, s.Existing.WakeAt())
			}
			continue
		}
		c.LogJob(logs.LevelOf(r), "job enqueued", "lifecycle", r, "")
		if r.State == ojs.StateAvailable && !s.Claimed {
			available++
		}
		wake = times.Earliest(wake, r.WakeAt())
	}
	c.WakeAt(wake)
	c.Available(available)
}

// Replaced tells those who run replaced jobs, before the events of that: see
// attempt.start.
func (c *Enqueuer) Replaced(stored []storage.Inserted) {
	for i := range stored {
		for k := range stored[i].Replaced {
			r := &stored[i].Replaced[k]
			c.TakenAway(storage.Held{ID: r.ID, Version: r.Version - 1}, ojs.ErrReplaced)
		}
	}
}

// beganInsert begins the operation of an insert. It returns nil if no listener wants its
// events.
func (c *Enqueuer) beganInsert(batch []storage.Insert) *eventlog.Op {
	if !c.Events.Wants("", "", "") {
		return nil
	}
	var few [1]string
	ids, effect := c.InsertEffect(batch, few[:0], eventlog.None)
	if effect == eventlog.None && len(ids) == 0 {
		return nil
	}
	return c.Events.Begin(effect, ids...)
}

// InsertEffect adds what inserting a batch does to the ids and the effect of an
// operation.
func (c *Enqueuer) InsertEffect(
	batch []storage.Insert, ids []string, effect eventlog.Effect,
) ([]string, eventlog.Effect) {
	for i := range batch {
		r := &batch[i].Record
		if c.Wanted(r, event.Enqueued, event.Scheduled) {
			ids = append(ids, r.ID)
		}
		if batch[i].Waits() {
			c.Depends.Store(true)
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

// Explained says why an active job was not replaced, if that is what an insert failed
// with.
func (c *Enqueuer) Explained(err error, batch []storage.Insert) error {
	var dup *ojs.DuplicateError
	if !foreign.As(err, &dup) || dup.State != ojs.StateActive {
		return err
	}
	for i := range batch {
		if in := &batch[i]; in.KeepActive && in.Record.Fingerprint == dup.Fingerprint &&
			replaces(in.Record.Unique.Strategy()) {
			return fmt.Errorf("%w: an active job cannot be replaced over storage %s, "+
				"whose unique jobs are %s", err, c.Store.Capabilities().Name, storage.BestEffort)
		}
	}
	return err
}

// EnqueuedEvents hands in the events of jobs that were stored.
func (c *Enqueuer) EnqueuedEvents(
	op *eventlog.Op, jobs []storage.Insert, stored []storage.Inserted, now time.Time, took time.Duration,
) {
	for i := range jobs {
		r := &jobs[i].Record
		for k := range stored[i].Dropped {
			d := &stored[i].Dropped[k]
			c.Transition(op, d, d.Version, eventlog.None, now,
				event.Event{Type: event.Dropped, Depth: stored[i].Depth, MaxDepth: jobs[i].MaxDepth},
				event.Event{Type: event.Discarded, Failure: d.Error, Reason: "dropped"})
		}
		for k := range stored[i].Replaced {
			q := &stored[i].Replaced[k]
			c.Transition(op, q, q.Version, eventlog.Starts, now, event.Event{Type: event.Cancelled})
		}
		if stored[i].Version == 0 { // there is an equal job
			continue
		}
		events, n := [2]event.Event{{Type: event.Enqueued, Duration: took}, {Type: event.Scheduled}}, 1
		if r.State == ojs.StateScheduled {
			n = 2
		}
		c.Transition(op, r, stored[i].Version, eventlog.None, now, events[:n]...)
	}
}

var insideTickets = bridge.Take[bridge.Tickets[ojs.Ticket, ojs.JobInfo]]()

// CronDraft resolves the draft of a recurring entry.
func (c *Enqueuer) CronDraft(d ojs.Draft) (args ojs.Args, o ojs.Options, err error) {
	t, p, err := c.Types.Plan(d.Type(), d.Defaults(), d.Options(), new(jobtypes.Plan))
	if err != nil {
		return args, o, err
	}
	if !t.Handled {
		c.Types.WarnUnhandled(t, d.Type())
	}
	o = p.Options.Clone()
	if o.TypeVersion != "" || !t.Handled {
		t = c.Types.Registry.Lookup(d.Type(), o.TypeVersion)
	}
	args, err = draft.Args(d.Args(), d.Type(), t.ArgsType(), c.Codec)
	return args, o, err
}

// CheckCron says what is wrong with the draft of a recurring entry.
func (c *Enqueuer) CheckCron(ctx context.Context, d ojs.Draft) error {
	var probe storage.Insert
	_, err := c.Types.Prepare(ctx, &probe, d.Type(), d.Args(), d.Defaults(), d.Options(), c.Now(),
		new(jobtypes.Plan))
	if err == ojs.ErrDropped {
		return nil
	}
	return err
}

// EnqueueCron enqueues the job of a recurring entry.
func (c *Enqueuer) EnqueueCron(ctx context.Context, d ojs.Draft) (ojs.Ticket, error) {
	var tickets [1]ojs.Ticket
	var err error
	// A hook may have put a value into the job whose MarshalJSON ends this goroutine,
	// which may be that of the chores.
	stop := foreign.Call(func() {
		err = c.try(ctx, tickets[:], nil, d.Type(), d.Args(), d.Defaults(), d.Options())
	})
	if stop != nil {
		return ojs.Ticket{}, &jobtypes.HookError{Err: stop}
	}
	if err == nil && tickets[0].Dropped {
		err = ojs.ErrDropped
	}
	return tickets[0], err
}

// Refused reports whether an enqueue was refused for what it is. Otherwise the storage
// failed, and may have stored it.
func Refused(err error) bool {
	var hook *jobtypes.HookError
	var encoding *codec.Error
	return foreign.Is(err, ojs.ErrInvalid) || foreign.Is(err, ojs.ErrDuplicate) ||
		foreign.Is(err, ojs.ErrDropped) || foreign.Is(err, ojs.ErrDependency) ||
		foreign.Is(err, ojs.ErrUnsupported) ||
		foreign.Is(err, ojs.ErrQueueFull) || foreign.Is(err, ojs.ErrQueueDraining) ||
		foreign.As(err, &hook) || foreign.As(err, &encoding)
}
