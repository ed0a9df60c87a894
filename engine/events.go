package engine

import (
	"slices"
	"time"

	"github.com/ojsengine/ojs"
	"github.com/ojsengine/ojs/engine/internal/eventlog"
	"github.com/ojsengine/ojs/policy"
	"github.com/ojsengine/ojs/storage"
)

// EventFilter selects events; a zero field selects all.
type EventFilter struct {
	Types  []ojs.EventType // "job.*" matches every type that starts with "job."
	JobIDs []string
	Queues []string
	Buffer int // how many events may wait to be received; 0: 256
}

// Subscription receives the events that this engine brings about, from the moment it was made. A subscriber that is slow holds
// nobody up; it misses events, and the next one that it receives says how many.
//
// The events of one job come in the order in which they happened. An event waits while a storage call is under way that may
// have brought an earlier event of the same job: a call about that job, or a claim if the job was active, or a call that
// expires or replaces jobs if it had ended. Other jobs' events do not wait. If a call hangs and more than 16,384 events wait, the
// engine publishes them without the events of that call, which count as missed.
type Subscription struct{ s *eventlog.Subscription }

// C returns the channel of the events. Close closes it.
func (s *Subscription) C() <-chan ojs.Event { return s.s.C() }

// Close ends the subscription. What waits in the channel can still be received. Closing twice does nothing.
func (s *Subscription) Close() { s.s.Close() }

// Subscribe subscribes to the events of the jobs that this engine enqueues, runs and changes. Close the subscription when
// it is not needed any more. Each event that a filter selects costs the engine a snapshot of its job. A filter by type that
// selects neither job.started nor job.completed costs running jobs nothing.
func (e *Engine[T]) Subscribe(f EventFilter) *Subscription {
	return &Subscription{e.core.events.Subscribe(eventlog.Filter(f))}
}

// began begins an operation on one job. It returns nil if no listener wants the job's events.
func (c *core) began(rec *storage.Record) *eventlog.Op {
	if !c.events.Wants("", rec.ID, rec.Queue) {
		return nil
	}
	return c.events.Begin(eventlog.None, rec.ID)
}

// transition is a transition of one job with the events that a listener wants. rec is the job after it, but for its version.
// Without such events it is appended to nothing.
func (c *core) transition(to []eventlog.Entry, rec *storage.Record, version uint64, after eventlog.Effect, now time.Time, events ...ojs.Event) []eventlog.Entry {
	events = slices.DeleteFunc(events, func(ev ojs.Event) bool { return !c.events.Wants(ev.Type, rec.ID, rec.Queue) })
	if len(events) == 0 {
		return to
	}
	job := rec.Clone()
	events = slices.Clone(events) // the caller's events stay off the heap if no listener wants them
	for i := range events {
		ev := &events[i]
		ev.Subject, ev.Queue = rec.ID, rec.Queue
		ev.ID, ev.Source, ev.Time, ev.Job = "evt_"+c.eventIDs.id(now), "ojs://"+c.name+"/engine/"+c.worker, now, job
	}
	return append(to, eventlog.Entry{Job: rec.ID, Version: version, After: after, Events: events})
}

// emit publishes an event that is about no job.
func (c *core) emit(ev ojs.Event) {
	if !c.events.Wants(ev.Type, "", ev.Queue) {
		return
	}
	now := c.now()
	ev.ID, ev.Source, ev.Time = "evt_"+c.eventIDs.id(now), "ojs://"+c.name+"/engine/"+c.worker, now
	c.events.Emit(ev)
}

// endedEvents are the events of an attempt that has ended with a decision.
func endedEvents(rec *storage.Record, kind policy.Kind, d policy.Decision, took time.Duration) []ojs.Event {
	var events []ojs.Event
	add := func(t ojs.EventType) {
		events = append(events, ojs.Event{Type: t, Duration: took, Failure: d.Failure})
	}
	switch {
	case d.State == ojs.StateCompleted:
		add(ojs.EventCompleted)
		return events
	case d.Unspent:
		add(ojs.EventScheduled)
		return events
	}
	switch kind {
	case policy.TimedOut:
		add(ojs.EventTimeout)
	case policy.TotalTimedOut:
		add(ojs.EventTotalTimeout)
	case policy.LeaseExpired, policy.WorkerDied:
		add(ojs.EventStalled)
	}
	add(ojs.EventFailed)
	if d.State == ojs.StateRetryable {
		add(ojs.EventRetrying)
		events[len(events)-1].Wait = d.RunAt.Sub(d.Failure.At)
		return events
	}
	add(ojs.EventDiscarded)
	events[len(events)-1].Reason = string(d.Why)
	if rec.DeadLettered() {
		add(ojs.EventDeadLetterAdded)
	}
	return events
}

// startedEvent is the event of a claim.
func startedEvent(rec *storage.Record) ojs.Event {
	ev := ojs.Event{Type: ojs.EventStarted, WorkerID: rec.Worker}
	if rec.Attempt == 1 && !rec.EnqueuedAt.IsZero() {
		ev.Wait = max(rec.StartedAt.Sub(rec.EnqueuedAt), 0)
	}
	return ev
}

// expiredEvents are the events of a job that has ended at its deadline while it waited.
func expiredEvents(rec *storage.Record) []ojs.Event {
	what, reason := ojs.EventExpired, "expired"
	if rec.Error.Type == ojs.TypeTotalTimeout {
		what, reason = ojs.EventTotalTimeout, string(policy.WhyTotalTimeout)
	}
	events := []ojs.Event{{Type: what, Failure: rec.Error}, {Type: ojs.EventDiscarded, Failure: rec.Error, Reason: reason}}
	if rec.DeadLettered() {
		events = append(events, ojs.Event{Type: ojs.EventDeadLetterAdded, Failure: rec.Error})
	}
	return events
}
