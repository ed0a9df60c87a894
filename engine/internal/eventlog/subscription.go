package eventlog

import (
	"slices"
	"strings"

	"github.com/ojsengine/ojs/event"
)

// Filter selects events; a zero field selects all.
type Filter struct {
	Types  []event.Type // "job.*" matches every type that starts with "job."
	JobIDs []string
	Queues []string
	Buffer int // how many events may wait to be received; 0: DefaultBuffer
}

// DefaultBuffer is how many events may wait to be received unless a filter says
// otherwise.
const DefaultBuffer = 256

// selects reports whether the filter may select events of the type.
func (f *Filter) selects(t event.Type) bool {
	return len(f.Types) == 0 || slices.ContainsFunc(f.Types, func(pattern event.Type) bool {
		if prefix, ok := strings.CutSuffix(string(pattern), "*"); ok {
			return strings.HasPrefix(string(t), prefix)
		}
		return pattern == t
	})
}

// aboutJobs are the types of the events that are about a job.
var aboutJobs = []event.Type{
	event.Enqueued, event.Scheduled, event.Available, event.Started,
	event.Completed, event.Failed, event.Retrying, event.Discarded, event.Cancelled,
	event.Expired, event.TTLExpired, event.Timeout, event.TotalTimeout, event.Stalled,
	event.Progress, event.Checkpointed, event.Heartbeat, event.PriorityChanged,
	event.Edited,
	event.DeadLetterAdded, event.DeadLetterRetried, event.DeadLetterReplayed,
	event.DeadLetterDeleted, event.Dropped, event.LimitDropped,
	// jobs of workflows
	event.WorkflowCreated, event.WorkflowStarted, event.WorkflowStepCompleted,
	event.WorkflowStepFailed, event.WorkflowJobCompleted, event.WorkflowJobFailed,
	event.WorkflowCallbackFired, event.WorkflowCompensating, event.WorkflowRetried,
	event.WorkflowCompleted, event.WorkflowFailed, event.WorkflowCompensated,
	event.WorkflowCancelled,
}

// wants reports whether the subscription may want an event about a job, by its type, or
// by job and queue. Empty ones stand for all of them.
func (s *Subscription) wants(t event.Type, job, queue string) bool {
	f := &s.filter
	return (t == "" && s.jobs || t != "" && f.selects(t)) &&
		(job == "" || len(f.JobIDs) == 0 || slices.Contains(f.JobIDs, job)) &&
		(queue == "" || len(f.Queues) == 0 || slices.Contains(f.Queues, queue))
}

func (f *Filter) matches(ev *event.Event) bool {
	return f.selects(ev.Type) &&
		(len(f.JobIDs) == 0 || ev.Job != nil && slices.Contains(f.JobIDs, ev.Job.ID) ||
			ev.Workflow != nil && slices.Contains(f.JobIDs, ev.Workflow.ID)) &&
		(len(f.Queues) == 0 || slices.Contains(f.Queues, ev.Queue))
}

// Subscription receives events.
type Subscription struct {
	log    *Log
	filter Filter
	events chan event.Event
	jobs   bool // the filter may select events about jobs

	// Guarded by log.mu.
	missed int
	closed bool
}

// Subscribe makes a subscription.
func (l *Log) Subscribe(f Filter) *Subscription {
	if f.Buffer <= 0 {
		f.Buffer = DefaultBuffer
	}
	f.Types, f.JobIDs, f.Queues = slices.Clone(f.Types), slices.Clone(f.JobIDs), slices.Clone(f.Queues)
	s := &Subscription{log: l, filter: f, events: make(chan event.Event, f.Buffer)}
	s.jobs = slices.ContainsFunc(aboutJobs, f.selects)
	l.mu.Lock()
	defer l.mu.Unlock()
	subs := append(slices.Clone(l.subscriptions()), s)
	l.subs.Store(&subs)
	return s
}

// C returns the channel of the events. Close closes it.
func (s *Subscription) C() <-chan event.Event { return s.events }

// Close ends the subscription. Closing twice does nothing.
func (s *Subscription) Close() {
	s.log.mu.Lock()
	defer s.log.mu.Unlock()
	if s.closed {
		return
	}
	s.closed = true
	isThis := func(other *Subscription) bool { return other == s }
	subs := slices.DeleteFunc(slices.Clone(s.log.subscriptions()), isThis)
	s.log.subs.Store(&subs)
	close(s.events)
}

// send sends the event if the filter selects it, and counts it as missed if the channel
// is full. log.mu is held.
func (s *Subscription) send(ev *event.Event) {
	if !s.filter.matches(ev) {
		return
	}
	sent := *ev
	sent.Missed = s.missed
	select {
	case s.events <- sent:
		s.missed = 0
	default:
		s.missed++
	}
}
