package engine

import (
	"context"
	"log/slog"
	"reflect"
	"slices"
	"time"

	"github.com/ojsengine/ojs"
	"github.com/ojsengine/ojs/engine/internal/eventlog"
	"github.com/ojsengine/ojs/event"
	"github.com/ojsengine/ojs/inspect"
	"github.com/ojsengine/ojs/operate"
	"github.com/ojsengine/ojs/storage"
	"github.com/ojsengine/ojs/workflow"
)

// newOperator makes what packages inspect and operate need of the engine.
func (c *core) newOperator() *operate.Operator {
	c.jobs = inspect.OpenFor(inspect.Engine{Codec: c.codec, Missing: c.missing, Hinders: c.hinders},
		c.store, c.clock)
	return operate.New(operate.Engine{
		Store: c.store, Clock: c.clock, Inspect: c.jobs, Codec: c.codec, Log: c.log, Now: c.now,
		NewID:    func() string { return c.rnd.id(c.now()) },
		NewOrder: func() string { return c.eventIDs.id(c.now()) },
		Enqueuer: (*enqueuer)(c), Wait: c.Wait,
		TraceCancel: func(ctx context.Context, id string) (context.Context, func(error)) {
			return c.traceID(ctx, OpCancel, id)
		},
		LogJob: func(level slog.Level, msg string, rec *storage.Record, attrs ...any) {
			c.logJob(level, msg, "lifecycle", rec, "", attrs...)
		},
		ArgsType: func(name, version string) reflect.Type {
			return c.registry.lookup(name, version).argsType()
		},
		Names: c.names, Queues: func() []string { return c.queues.Load().names },
		Settle: c.settleChange, Delete: c.delete, CancelAll: c.cancelAll, Revive: c.revive,
		QueueSet: c.queueSet, Paused: c.loadHolds, LimitSet: c.limitSet,
		Moved: func(from string) { c.room.made(from) },
		WorkerSet: func(id string, terminate bool) bool {
			to := WorkerQuiet
			if terminate {
				to = WorkerTerminate
			}
			return c.workers.set(c, id, to)
		},
	})
}

// names reports whether the engine names a queue or a type: it serves the queue, or has a
// handler whose jobs go there, or one of the type.
func (c *core) names(name storage.LimitName) bool {
	set := c.registry.handlers.Load()
	if name.Kind == storage.LimitType {
		return len(set.of(name.Name)) > 0
	}
	queues := c.queues.Load()
	return name.Name == ojs.DefaultQueue || queues.has(name.Name) ||
		slices.ContainsFunc(set.all(), func(t *jobType) bool {
			o, err := c.resolve(queues, t.given.Defaults(), nil)
			return err == nil && o.Queue == name.Name
		})
}

// delete deletes a job that has ended.
func (c *core) delete(ctx context.Context, rec *storage.Record) error {
	op := c.began(rec, event.DeadLetterDeleted)
	n, err := c.store.Delete(ctx, []string{rec.ID})
	if n > 0 && rec.DeadLettered() {
		c.transition(op, rec, rec.Version+1, eventlog.Ends, c.now(),
			event.Event{Type: event.DeadLetterDeleted})
	}
	op.End()
	switch {
	case err == nil && n == 0: // another caller has deleted it
		return &ojs.PrunedError{ID: rec.ID}
	case err == nil:
		c.gone.add(rec.ID)
	}
	return err
}

// cancelAll cancels the jobs of a workflow.
func (c *core) cancelAll(ctx context.Context, ids []string) error {
	now := c.now()
	var cancelled []storage.Record
	return c.journal.Do(c.beganGroup(ids), func() (moved []storage.Record, err error) {
		cancelled, moved, err = c.store.CancelAll(ctx, now, ids)
		return moved, err
	}, func(op *eventlog.Op) {
		for i := range cancelled {
			r := &cancelled[i]
			c.transition(op, r, r.Version, eventlog.None, now, event.Event{Type: event.Cancelled,
				Reason: byWorkflow})
		}
	}, func() {
		c.logJob(slog.LevelInfo, "workflow cancelled", "lifecycle", &cancelled[0], "",
			slog.Int("jobs", len(cancelled)))
		for i := range cancelled {
			c.meter.EndedOtherwise(&cancelled[i])
			c.jobEnded(&cancelled[i])
		}
	})
}

// revive makes jobs that have ended begin anew.
func (c *core) revive(ctx context.Context, batch []storage.Insert, now time.Time) error {
	ids := make([]string, len(batch))
	for i := range batch {
		ids[i] = batch[i].Record.ID
	}
	c.depends.Store(true)
	return c.journal.Do(c.beganGroup(ids), func() ([]storage.Record, error) {
		return c.store.Revive(ctx, now, batch)
	}, func(op *eventlog.Op) {
		for i := range batch {
			r := &batch[i].Record
			var events []event.Event
			if r.State == ojs.StateAvailable {
				events = append(events, event.Event{Type: event.Available})
			}
			if r.Type == workflow.Type {
				events = append(events, event.Event{Type: event.WorkflowRetried})
			}
			c.transition(op, r, r.Version+1, eventlog.Ends, now, events...)
		}
	}, func() {
		available := 0
		for i := range batch {
			if batch[i].Record.State == ojs.StateAvailable {
				available++
			}
			c.wakeAt(batch[i].Record.WakeAt())
		}
		c.available(available)
	})
}

// beganGroup begins an operation that ends or revives jobs. It returns nil if no listener
// wants their events.
func (c *core) beganGroup(ids []string) *eventlog.Op {
	if !c.events.Listening() {
		return nil
	}
	return c.events.Begin(eventlog.Ends, ids...)
}

var queueEvents = map[ojs.QueueState]event.Type{ojs.QueuePaused: event.QueuePaused,
	ojs.QueueDraining: event.QueueDraining, ojs.QueueActive: event.QueueResumed}

// queueSet follows a change of a queue's state.
func (c *core) queueSet(name string, was, to ojs.QueueState) {
	if to == ojs.QueuePaused {
		c.returnClaimed()
	}
	if was == to {
		return
	}
	c.log.Info("queue is "+string(to), "component", "worker", "category", "lifecycle",
		slog.Group("ojs", "queue", name))
	c.emit(event.Event{Type: queueEvents[to], Subject: name, Queue: name})
	switch was {
	case ojs.QueuePaused:
		c.available(unknown)
	case ojs.QueueDraining:
		c.room.made(name)
	}
}

// limitSet follows a change of a limit: this engine looks again, also if the call failed,
// and publishes the change if it did not.
func (c *core) limitSet(name storage.LimitName, until time.Time, reason string, err error) {
	c.available(unknown)
	if err == nil && name.Kind == storage.LimitKey {
		c.emit(event.Event{Type: event.LimitAdjusted, Subject: name.Name, Until: until, Reason: reason,
			Limit: &event.Limit{Key: name.Name}})
	}
}
