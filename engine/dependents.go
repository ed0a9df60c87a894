package engine

import (
	"context"
	"time"

	"github.com/ojsengine/ojs"
	"github.com/ojsengine/ojs/engine/internal/eventlog"
	"github.com/ojsengine/ojs/event"
	internal "github.com/ojsengine/ojs/internal/attempt"
	"github.com/ojsengine/ojs/storage"
	"github.com/ojsengine/ojs/workflow"
)

// Jobs that wait for others (ojs.WithDependsOn):
//
//  1. An enqueue gives the storage the ids of the jobs that each job waits for. Names of
//     drafts become the ids of their jobs.
//  2. The storage counts each end in its own step, and returns the jobs that this has
//     moved, with the result of the call that ended the job.
//  3. That call publishes their events, after those of the job that ended, and wakes
//     workers and callers that wait.
//
// No operation can name the jobs that it will move. Once this engine has seen a job that
// waits for others, the operations that end jobs have the effect eventlog.Ends, and every
// event of such a job waits for them. Until then, operations that end jobs of workflows
// or of ordering keys have it.

// depend makes a job one that waits for others or for its turn (ojs.WithOrderingKey).
func (c *core) depend(in *storage.Insert, o *ojs.Options) error {
	in.DependsOn, in.OrderingKey = o.DependsOn, o.OrderingKey
	in.Record.State = ojs.StatePending
	in.Record.Dependencies = &ojs.Dependencies{Condition: o.Condition, Join: o.Join}
	if o.Condition == "" {
		in.Record.Dependencies.Condition = ojs.AllSucceeded
	}
	if len(o.DependsOn) > 0 { // until then ScheduledAt is the earliest that it can come to
		if o.TTL > 0 && o.TTL <= o.Delay {
			return invalid("ttl", "%v is not longer than the delay of %v", o.TTL, o.Delay)
		}
		in.Record.Dependencies.Delay, in.Record.Dependencies.TTL = o.Delay, o.TTL
		if o.TTL > 0 {
			in.Record.ExpiresAt = time.Time{}
		}
	}
	return nil
}

// nameDependencies replaces the names of drafts in the DependsOn of a batch by the ids of
// their jobs. places are the places of the batch's jobs among the drafts.
func (c *core) nameDependencies(batch []storage.Insert, places []int, drafts []ojs.Draft) error {
	if !storage.DependsOn(batch) {
		return nil
	}
	names := make(map[string]string)
	for n, i := range places {
		d := &drafts[i]
		t, err := c.jobType(d.Type())
		if err != nil {
			return err
		}
		p, err := c.planFor(t, d.Defaults(), d.Options(), new(plan))
		if err != nil {
			return err
		}
		switch name := p.options.Name; {
		case name == "":
		case names[name] != "":
			return invalid("name", "two drafts have the name %q", name)
		default:
			names[name] = batch[n].Record.ID
		}
	}
	for n := range batch {
		in := &batch[n]
		given := in.DependsOn
		in.DependsOn = make([]string, len(given))
		for k, job := range given {
			in.DependsOn[k] = job
			if id, ok := names[job]; ok {
				in.DependsOn[k] = id
			}
		}
		if len(given) == 0 {
			in.DependsOn = nil
		}
	}
	return nil
}

// nameAwaited has stored jobs wait for those of a batch, as the context says
// (workflow.Add).
func (c *core) nameAwaited(ctx context.Context, batch []storage.Insert) error {
	awaited := internal.AwaitedOf(ctx)
	if awaited == nil {
		return nil
	}
	for i := range batch {
		batch[i].AwaitedBy = awaited[batch[i].Record.ID]
	}
	return nil
}

// endsOthers is the effect of an operation that ends a job on the jobs that wait for it.
func (c *core) endsOthers(rec *storage.Record) eventlog.Effect {
	if c.depends.Load() || rec.Dependencies != nil || workflowOf(rec) != "" {
		return eventlog.Ends
	}
	return eventlog.None
}

// beganChange is began for a change of one job, which may end it.
func (c *core) beganChange(rec *storage.Record, typ event.Type) *eventlog.Op {
	effect := c.endsOthers(rec)
	if effect == eventlog.None || !c.events.Listening() {
		return c.began(rec, typ)
	}
	return c.events.Begin(effect, rec.ID)
}

// dependentEvents hands in the events of jobs that the ends of others have moved, those
// of the records of workflows last: the storage may have moved them before others.
func (c *core) dependentEvents(op *eventlog.Op, moved []storage.Record) {
	now := c.now()
	records := false
	for i := range moved {
		if moved[i].Type == workflow.Type {
			records = true
			continue
		}
		c.dependentEvent(op, &moved[i], now)
	}
	for i := range moved {
		if records && moved[i].Type == workflow.Type {
			c.dependentEvent(op, &moved[i], now)
		}
	}
}

func (c *core) dependentEvent(op *eventlog.Op, r *storage.Record, now time.Time) {
	ev := event.Event{Type: event.Available}
	switch r.State {
	case ojs.StateScheduled:
		ev.Type = event.Scheduled
	case ojs.StateCompleted:
		ev.Type = event.Completed
	case ojs.StateCancelled:
		ev.Type, ev.Failure = event.Cancelled, r.Error
	}
	events := [2]event.Event{ev, {Type: event.WorkflowCallbackFired}}
	n := 1
	if !r.State.Terminal() && workflow.IsCallback(&r.JobInfo) {
		n = 2
	}
	c.transition(op, r, r.Version, eventlog.Ends, now, events[:n]...)
}

// dependentsMoved follows jobs that the ends of others have moved.
func (c *core) dependentsMoved(moved []storage.Record) {
	if len(moved) == 0 {
		return
	}
	c.depends.Store(true)
	available, wake := 0, time.Time{}
	for i := range moved {
		switch r := &moved[i]; {
		case r.State.Terminal():
			c.endedOtherwise(moved[i : i+1])
			continue
		case r.State == ojs.StateAvailable:
			available++
		}
		wake = earliest(wake, moved[i].WakeAt())
	}
	c.wakeAt(wake)
	c.available(available)
}
