package engine

import (
	"time"

	"github.com/ojsengine/ojs"
	"github.com/ojsengine/ojs/engine/internal/eventlog"
	"github.com/ojsengine/ojs/event"
	"github.com/ojsengine/ojs/policy"
	"github.com/ojsengine/ojs/storage"
)

// EventFilter selects events; a zero field selects all.
type EventFilter struct {
	Types  []event.Type // "job.*" matches every type that starts with "job."
	JobIDs []string
	Queues []string
	Buffer int // how many events may wait to be received; 0: 256
}

// Subscription receives the events that this engine brings about, from the moment it was
// made. A slow subscriber does not hold up the engine: it misses events, and the next
// event that it receives says how many.
//
// The events of one job come in the order in which they happened. An event waits while a
// storage call is under way that may have brought an earlier event of the same job: a
// call about that job, or a claim if the job was active, or a call that expires or
// replaces jobs if it had ended. Other jobs' events do not wait. If a call hangs and more
// than 16,384 events wait, the engine publishes them without the events of that call,
// which count as missed.
type Subscription struct{ s *eventlog.Subscription }

// C returns the channel of the events. Close closes it.
func (s *Subscription) C() <-chan event.Event { return s.s.C() }

// Close ends the subscription. Events that wait in the channel can still be received.
// Closing twice does nothing.
func (s *Subscription) Close() { s.s.Close() }

// Subscribe subscribes to the events of the jobs that this engine enqueues, runs and
// changes. Close the subscription after use. Each event that a filter selects costs the
// engine a snapshot of its job. An event that no filter selects costs nothing.
func (e *Engine[T]) Subscribe(f EventFilter) *Subscription {
	return &Subscription{s: e.core.events.Subscribe(eventlog.Filter(f))}
}

// began begins an operation on one job. It returns nil if no listener wants an event of
// the job of one of the types. Without types it is any event of the job.
func (c *core) began(rec *storage.Record, types ...event.Type) *eventlog.Op {
	if !c.wanted(rec, types...) {
		return nil
	}
	return c.events.Begin(eventlog.None, rec.ID)
}

// wanted reports whether a listener wants an event of the job of one of the types, or of
// any type if none is given. For a job of a workflow it reports whether a listener may
// want any event of the job or the workflow.
func (c *core) wanted(rec *storage.Record, types ...event.Type) bool {
	if id := workflowOf(rec); id != "" {
		return c.events.Wants("", rec.ID, rec.Queue) || c.events.Wants("", id, rec.Queue)
	}
	if len(types) == 0 {
		return c.events.Wants("", rec.ID, rec.Queue)
	}
	for _, t := range types {
		if c.events.Wants(t, rec.ID, rec.Queue) {
			return true
		}
	}
	return false
}

// transition hands in a transition of one job with those of its events that a listener
// wants. rec is the job after it, but for its version, and does not change until the
// operation ends.
func (c *core) transition(op *eventlog.Op, rec *storage.Record, version uint64, after eventlog.Effect,
	now time.Time, events ...event.Event) {
	if op == nil {
		return
	}
	if after == eventlog.None && rec.Dependencies != nil {
		after = eventlog.Ends // the end of another job may have moved it
	}
	if workflowOf(rec) != "" {
		events = c.workflowEvents(rec, now, events)
	}
	n := 0
	for i := range events {
		ev := &events[i]
		subject := rec.ID
		if ev.Workflow != nil {
			subject = ev.Workflow.ID
		}
		if !c.events.Wants(ev.Type, rec.ID, rec.Queue) &&
			(ev.Workflow == nil || !c.events.Wants(ev.Type, subject, rec.Queue)) {
			continue
		}
		ev.Subject, ev.Queue, ev.Source, ev.Time, ev.Job = subject, rec.Queue, c.source, now, &rec.JobInfo
		events[n] = *ev
		n++
	}
	op.Add(rec.ID, version, after, events[:n]...)
}

// identifyEvent gives an event its id.
func (c *core) identifyEvent(ev *event.Event) { ev.ID = "evt_" + c.eventIDs.id(ev.Time) }

// emit publishes an event that is about no job.
func (c *core) emit(ev event.Event) {
	if !c.events.Wants(ev.Type, "", ev.Queue) {
		return
	}
	ev.Source, ev.Time = c.source, c.now()
	c.events.Emit(ev)
}

// beganEnds begins the operation of attempts' ends. It returns nil if no listener wants
// their events.
func (c *core) beganEnds(list []*settlement, s *scratch) *eventlog.Op {
	if !c.events.Listening() {
		return nil
	}
	s.ids = s.ids[:0]
	effect := eventlog.None
	for _, f := range list {
		effect = max(effect, c.endsOthers(f.rec))
		if f.then != nil {
			s.ids, effect = c.insertEffect(f.then.batch, s.ids, effect)
		}
		if f.decision.State == ojs.StateCompleted && c.wanted(f.rec, event.Completed) ||
			f.decision.State != ojs.StateCompleted && c.wanted(f.rec) {
			s.ids = append(s.ids, f.rec.ID)
		}
	}
	if effect == eventlog.None && len(s.ids) == 0 {
		return nil
	}
	return c.events.Begin(effect, s.ids...)
}

// publishEnds hands in the attempts' ends that were stored. Their claims have returned,
// except that of a job whose lease ran out.
func (c *core) publishEnds(op *eventlog.Op, list []*settlement, settled []storage.Settled) {
	for i, f := range list {
		switch {
		case settled[i].Err != nil:
		case f.decision.State == ojs.StateCompleted:
			c.transition(op, f.rec, f.rec.Version+1, eventlog.None, f.at,
				event.Event{Type: event.Completed, Duration: f.took})
			if f.then != nil {
				c.enqueuedEvents(op, f.then.batch, settled[i].Then, f.at, 0)
			}
		case f.kind == policy.LeaseExpired:
			c.transition(op, f.rec, f.rec.Version+1, eventlog.Starts, f.at,
				endedEvents(f.rec, f.kind, f.decision, f.took)...)
		default:
			c.transition(op, f.rec, f.rec.Version+1, eventlog.None, f.at,
				endedEvents(f.rec, f.kind, f.decision, f.took)...)
		}
	}
}

// endedEvents are the events of an attempt that has ended with a decision.
func endedEvents(
	rec *storage.Record, kind policy.OutcomeKind, d policy.Decision, took time.Duration,
) []event.Event {
	var events []event.Event
	add := func(t event.Type) {
		events = append(events, event.Event{Type: t, Duration: took, Failure: d.Failure})
	}
	switch {
	case d.State == ojs.StateCompleted:
		add(event.Completed)
		return events
	case d.Refunded:
		add(event.Scheduled)
		return events
	}
	switch kind {
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
	if rec.DeadLettered() {
		add(event.DeadLetterAdded)
	}
	return events
}

// startedEvent is the event of a claim.
func startedEvent(rec *storage.Record) event.Event {
	ev := event.Event{Type: event.Started, WorkerID: rec.Worker}
	if rec.Attempt == 1 {
		ev.Wait = queued(rec)
	}
	return ev
}

// queued is how long a job was available before its attempt began.
func queued(rec *storage.Record) time.Duration {
	if rec.EnqueuedAt.IsZero() {
		return 0
	}
	return max(rec.StartedAt.Sub(rec.EnqueuedAt), 0)
}

// expiredEvents are the events of a job that has ended at its deadline while it waited.
func expiredEvents(rec *storage.Record) []event.Event {
	what, reason := event.Expired, "expired"
	switch rec.Error.Type {
	case ojs.ErrorTypeTotalTimeout:
		what, reason = event.TotalTimeout, string(policy.RuleTotalTimeout)
	case ojs.ErrorTypeEnqueueTTL:
		what = event.TTLExpired
	}
	events := []event.Event{{Type: what, Failure: rec.Error},
		{Type: event.Discarded, Failure: rec.Error, Reason: reason}}
	if rec.DeadLettered() {
		events = append(events, event.Event{Type: event.DeadLetterAdded, Failure: rec.Error})
	}
	return events
}
