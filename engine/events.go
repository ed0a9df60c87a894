package engine

import (
	"time"

	"github.com/ojsengine/ojs"
	"github.com/ojsengine/ojs/policy"
	"github.com/ojsengine/ojs/storage"
)

// Subscribe subscribes to the events of the jobs that this engine enqueues, runs and changes. Close the subscription when
// it is not needed any more. It costs the engine one snapshot of the job for each transition while anybody subscribes.
func (e *Engine[T]) Subscribe(f EventFilter) *Subscription { return e.core.hub.subscribe(f) }

// batch makes the events of one transition. rec is the job after it, but for its version.
func (c *core) batch(rec *storage.Record, version uint64, now time.Time, events ...ojs.Event) *batch {
	job := rec.Clone()
	for i := range events {
		ev := &events[i]
		ev.Subject, ev.Queue = rec.ID, rec.Queue
		ev.ID, ev.Source, ev.Time, ev.Job = "evt_"+c.eventIDs.id(now), "ojs://"+c.name+"/engine/"+c.worker, now, job
	}
	return &batch{id: rec.ID, version: version, events: events}
}

// emit publishes an event that is about no job.
func (c *core) emit(ev ojs.Event) {
	op := c.hub.begin()
	if op == 0 {
		return
	}
	now := c.now()
	ev.ID, ev.Source, ev.Time = "evt_"+c.eventIDs.id(now), "ojs://"+c.name+"/engine/"+c.worker, now
	c.hub.end(op, &batch{id: ev.ID, events: []ojs.Event{ev}})
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
