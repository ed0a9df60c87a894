package settle

import (
	"context"
	"slices"

	"github.com/ojsengine/ojs"
	"github.com/ojsengine/ojs/engine/internal/enqueue"
	"github.com/ojsengine/ojs/engine/internal/eventlog"
	"github.com/ojsengine/ojs/event"
	"github.com/ojsengine/ojs/policy"
	"github.com/ojsengine/ojs/storage"
	"github.com/ojsengine/ojs/storage/insert"
)

// beganEnds begins the operation of attempts' ends. It returns nil if no listener wants
// their events.
func (c *Settler) beganEnds(list []*Settlement, s *Scratch) *eventlog.Op {
	if !c.Events.Listening() {
		return nil
	}
	s.ids = s.ids[:0]
	effect := eventlog.None
	for _, f := range list {
		effect = max(effect, c.EndsOthers(f.Rec))
		if f.Then != nil {
			s.ids, effect = c.Enqueue.InsertEffect(f.Then.Batch, s.ids, effect)
		}
		if f.Decision.State == ojs.StateCompleted && c.Wanted(f.Rec, event.Completed) ||
			f.Decision.State != ojs.StateCompleted && c.Wanted(f.Rec) {
			s.ids = append(s.ids, f.Rec.ID)
		}
	}
	if effect == eventlog.None && len(s.ids) == 0 {
		return nil
	}
	return c.Events.Begin(effect, s.ids...)
}

// publishEnds hands in the attempts' ends that were stored. Their claims have returned,
// except that of a job whose lease ran out.
func (c *Settler) publishEnds(op *eventlog.Op, list []*Settlement, settled []storage.Settled) {
	for i, f := range list {
		switch {
		case settled[i].Err != nil:
		case f.Decision.State == ojs.StateCompleted:
			c.Transition(op, f.Rec, f.Rec.Version+1, eventlog.None, f.at,
				event.Event{Type: event.Completed, Duration: f.took})
			if f.Then != nil {
				c.Enqueue.EnqueuedEvents(op, f.Then.Batch, settled[i].Then, f.at, 0)
			}
		default:
			after := eventlog.None
			if f.kind == policy.LeaseExpired {
				after = eventlog.Starts
			}
			c.Transition(op, f.Rec, f.Rec.Version+1, after, f.at, f.events()...)
		}
	}
}

// events are those of an attempt that has ended and has not completed its job.
func (f *Settlement) events() (events []event.Event) {
	d := &f.Decision
	add := func(t event.Type) {
		events = append(events, event.Event{Type: t, Duration: f.took, Failure: d.Failure})
	}
	if d.Refunded {
		add(event.Scheduled)
		return events
	}
	switch f.kind {
	case policy.TimedOut:
		add(event.Timeout)
	case policy.TotalTimedOut:
		add(event.TotalTimeout)
	case policy.LeaseExpired, policy.WorkerDied:
		add(event.Stalled)
	}
	add(event.Failed)
	if d.State == ojs.StateRetryable {
		add(event.Retrying)
		events[len(events)-1].Wait = d.RunAt.Sub(d.Failure.At)
		return events
	}
	add(event.Discarded)
	events[len(events)-1].Reason = string(d.Rule)
	if f.Rec.DeadLettered() {
		add(event.DeadLetterAdded)
	}
	return events
}

// Follow gives a settlement its follow-ups, if it completes its job.
func (f *Settlement) Follow(l *enqueue.FollowUps) {
	if l != nil && f.Rec.State == ojs.StateCompleted {
		l.EnqueueAt(f.at)
		f.Then = l
	}
}

// AnyExtras reports whether a settlement of a list is more than a record, so that
// SettleAndClaim cannot store it.
func AnyExtras(list []*Settlement) bool {
	return slices.ContainsFunc(list, func(f *Settlement) bool { return f.Then != nil || f.Log != nil })
}

// RefusedThen reports whether a settlement was refused for its follow-ups.
func (f *Settlement) RefusedThen(err error) bool {
	return f.Then != nil && insert.Refused(err)
}

// followed follows the follow-ups of outcomes that were stored, before their events.
func (c *Settler) followed(ctx context.Context, list []*Settlement, settled []storage.Settled) {
	for i, f := range list {
		if f.Then == nil || settled[i].Err != nil {
			continue
		}
		if len(settled[i].Then) != len(f.Then.Batch) { // the storage breaks its contract
			settled[i].Then = c.lookUpThen(ctx, f.Then)
		}
		c.Enqueue.Replaced(settled[i].Then)
	}
}

// enqueuedThen follows the follow-ups of outcomes that were stored, after their events.
func (c *Settler) enqueuedThen(list []*Settlement, settled []storage.Settled) {
	for i, f := range list {
		if f.Then != nil && settled[i].Err == nil {
			c.Enqueue.Inserted(f.Then.Batch, settled[i].Then, 0)
		}
	}
}

// lookUpThen returns the results of follow-ups that a call has stored which seemed to
// fail, as far as they can still be seen. The others have no version.
func (c *Settler) lookUpThen(ctx context.Context, l *enqueue.FollowUps) []storage.Inserted {
	found := make([]storage.Inserted, len(l.Inserts()))
	for i := range found {
		r := &l.Batch[i].Record
		if there, err := c.Store.Get(ctx, r.ID); err == nil && there.State == r.State && there.Attempt == 0 {
			found[i].Version = there.Version
		}
	}
	return found
}
