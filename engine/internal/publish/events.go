// Package publish makes the events of transitions, with those of workflows that follow
// from them, and hands them to the event log.
//
// # Invariants
//
//  1. No entry of the event log begins for a transition that no listener wants.
//  2. The events of a workflow are in the entry of the transition that they follow from.
package publish

import (
	"log/slog"
	"slices"
	"sync/atomic"
	"time"

	"github.com/ojsengine/ojs"
	"github.com/ojsengine/ojs/engine/internal/eventlog"
	"github.com/ojsengine/ojs/engine/internal/ids"
	"github.com/ojsengine/ojs/engine/internal/logs"
	"github.com/ojsengine/ojs/event"
	"github.com/ojsengine/ojs/inspect"
	"github.com/ojsengine/ojs/policy"
	"github.com/ojsengine/ojs/storage"
	"github.com/ojsengine/ojs/workflow"
)

// Publisher makes the events of one engine. It is safe for concurrent use.
type Publisher struct {
	*logs.Lines
	Events   *eventlog.Log
	Source   string      // of the events
	EventIDs *ids.Source // of its own: who listens does not change what happens
	Depends  atomic.Bool // the engine has seen a job that waits for others

	Now  func() time.Time
	Jobs *inspect.Jobs // the jobs of the storage

	workflows begun // to publish their starts once
}

// Began begins an operation on one job. It returns nil if no listener wants an event of
// the job of one of the types. Without types it is any event of the job.
func (c *Publisher) Began(rec *storage.Record, types ...event.Type) *eventlog.Op {
	if !c.Wanted(rec, types...) {
		return nil
	}
	return c.Events.Begin(eventlog.None, rec.ID)
}

// Wanted reports whether a listener wants an event of the job of one of the types, or of
// any type if none is given. For a job of a workflow it reports whether a listener may
// want any event of the job or the workflow.
func (c *Publisher) Wanted(rec *storage.Record, types ...event.Type) bool {
	if id := rec.Keeper(); id != "" {
		return c.Events.Wants("", rec.ID, rec.Queue) || c.Events.Wants("", id, rec.Queue)
	}
	if len(types) == 0 {
		return c.Events.Wants("", rec.ID, rec.Queue)
	}
	return slices.ContainsFunc(types, func(t event.Type) bool { return c.Events.Wants(t, rec.ID, rec.Queue) })
}

// Transition hands in a transition of one job with those of its events that a listener
// wants. rec is the job after it, but for its version, and does not change until the
// operation ends.
func (c *Publisher) Transition(op *eventlog.Op, rec *storage.Record, version uint64, after eventlog.Effect,
	now time.Time, events ...event.Event) {
	if op == nil {
		return
	}
	if after == eventlog.None && rec.Dependencies != nil {
		after = eventlog.Ends // the end of another job may have moved it
	}
	if rec.Keeper() != "" {
		events = c.workflowEvents(rec, now, events)
	}
	n := 0
	for i := range events {
		ev := &events[i]
		subject := rec.ID
		if ev.Workflow != nil {
			subject = ev.Workflow.ID
		}
		if !c.Events.Wants(ev.Type, rec.ID, rec.Queue) &&
			(ev.Workflow == nil || !c.Events.Wants(ev.Type, subject, rec.Queue)) {
			continue
		}
		ev.Subject, ev.Queue, ev.Source, ev.Time, ev.Job = subject, rec.Queue, c.Source, now, &rec.JobInfo
		events[n] = *ev
		n++
	}
	op.Add(rec.ID, version, after, events[:n]...)
}

// IdentifyEvent gives an event its id.
func (c *Publisher) IdentifyEvent(ev *event.Event) { ev.ID = c.EventIDs.Named("evt_", ev.Time, 0) }

// Emit publishes an event that is about no job.
func (c *Publisher) Emit(ev event.Event) {
	if !c.Events.Wants(ev.Type, "", ev.Queue) {
		return
	}
	ev.Source, ev.Time = c.Source, c.Now()
	c.Events.Emit(ev)
}

// StartedEvent is the event of a claim.
func StartedEvent(rec *storage.Record) event.Event {
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

// ExpiredEvents are the events of a job that has ended at its deadline while it waited.
func ExpiredEvents(rec *storage.Record) []event.Event {
	what, reason := event.Expired, "expired"
	switch rec.Error.Type {
	case policy.ErrorTypeTotalTimeout:
		what, reason = event.TotalTimeout, string(policy.RuleTotalTimeout)
	case policy.ErrorTypeEnqueueTTL:
		what = event.TTLExpired
	}
	events := []event.Event{{Type: what, Failure: rec.Error},
		{Type: event.Discarded, Failure: rec.Error, Reason: reason}}
	if rec.DeadLettered() {
		events = append(events, event.Event{Type: event.DeadLetterAdded, Failure: rec.Error})
	}
	return events
}

// ReachedBy returns what a call has done that brought a job into a state. The event log
// asks for it where a call cannot name its jobs.
func ReachedBy(state ojs.State) eventlog.Effect {
	switch {
	case state == ojs.StateActive:
		return eventlog.Starts
	case state.Terminal():
		return eventlog.Ends
	}
	return eventlog.None
}

// EndsOthers is the effect of an operation that ends a job on the jobs that wait for it.
func (c *Publisher) EndsOthers(rec *storage.Record) eventlog.Effect {
	if c.Depends.Load() || rec.Dependencies != nil || rec.Keeper() != "" {
		return eventlog.Ends
	}
	return eventlog.None
}

// BeganChange is Began for a change of one job, which may end it.
func (c *Publisher) BeganChange(rec *storage.Record, typ event.Type) *eventlog.Op {
	effect := c.EndsOthers(rec)
	if effect == eventlog.None {
		return c.Began(rec, typ)
	}
	return c.Events.Begin(effect, rec.ID)
}

// DependentEvents hands in the events of jobs that the ends of others have moved, those
// of the records of workflows last: the storage may have moved them before others.
func (c *Publisher) DependentEvents(op *eventlog.Op, moved []storage.Record) {
	for _, records := range []bool{false, true} {
		for i := range moved {
			if records == (moved[i].Type == workflow.Type) {
				c.dependentEvent(op, &moved[i])
			}
		}
	}
}

// dependentEvent has the time of the step that moved the job, as far as the job has it.
func (c *Publisher) dependentEvent(op *eventlog.Op, r *storage.Record) {
	ev, at := event.Event{Type: event.Available}, r.EnqueuedAt
	switch r.State {
	case ojs.StateScheduled:
		ev.Type, at = event.Scheduled, c.Now()
	case ojs.StateCompleted:
		ev.Type, at = event.Completed, r.FinishedAt
	case ojs.StateCancelled:
		ev.Type, at, ev.Failure = event.Cancelled, r.FinishedAt, r.Error
	}
	events := [2]event.Event{ev, {Type: event.WorkflowCallbackFired}}
	n := 1
	if !r.State.Terminal() && workflow.IsCallback(&r.JobInfo) {
		n = 2
	}
	c.Transition(op, r, r.Version, eventlog.Ends, at, events[:n]...)
}

func FailureAttrs(f *ojs.Failure) []any {
	attrs := []any{slog.String("error_type", f.Type), slog.String("error", f.Message)}
	if f.Backtrace != nil {
		attrs = append(attrs, slog.Any("backtrace", f.Backtrace))
	}
	return attrs
}

// Reasons of a worker's stop (OJS events).
const (
	StoppedShutdown = "shutdown"
	StoppedSignal   = "signal"
	StoppedError    = "error"
)
