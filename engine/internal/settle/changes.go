package settle

import (
	"context"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/ojsengine/ojs"
	"github.com/ojsengine/ojs/engine/internal/claims"
	"github.com/ojsengine/ojs/engine/internal/env"
	"github.com/ojsengine/ojs/engine/internal/eventlog"
	"github.com/ojsengine/ojs/engine/internal/publish"
	"github.com/ojsengine/ojs/event"
	"github.com/ojsengine/ojs/internal/foreign"
	"github.com/ojsengine/ojs/policy"
	"github.com/ojsengine/ojs/storage"
	"github.com/ojsengine/ojs/workflow"
)

// SettleChange stores the change of a job that was in a state, and follows it. then is
// called with the changed job, such as for a log line; nil: it has none.
func (c *Settler) SettleChange(ctx context.Context, now time.Time, from ojs.State, change []storage.Change,
	typ event.Type, then func(*storage.Record)) error {
	to := &change[0].Record
	var refused error
	err := c.Journal.Do(c.BeganChange(to, typ), func() ([]storage.Record, error) {
		settled, err := c.Store.Settle(ctx, now, change, nil)
		if err != nil {
			return nil, err
		}
		if refused = settled[0].Err; refused != nil {
			return nil, nil
		}
		to.Version = settled[0].Version
		if from == ojs.StateActive { // before its event: see attempt.start
			c.TakenAway(storage.Held{ID: to.ID, Version: to.Version - 1}, ojs.ErrCancelled)
		}
		return settled[0].Moved, nil
	}, func(op *eventlog.Op) {
		if refused == nil {
			c.Transition(op, to, to.Version, publish.ReachedBy(from), now, event.Event{Type: typ})
		}
	}, nil)
	switch {
	case err != nil:
		return err
	case refused != nil:
		return c.Missing(to.ID, refused)
	}
	ended := to.State.Terminal()
	if ended {
		c.Meter.EndedOtherwise(to)
	}
	if then != nil {
		then(to)
	}
	if ended {
		c.Ended(to)
		return nil
	}
	c.WakeAt(to.WakeAt())
	if to.State == ojs.StateAvailable {
		c.Available(1)
	}
	return nil
}

// Delete deletes a job that has ended.
func (c *Settler) Delete(ctx context.Context, rec *storage.Record) error {
	op := c.Began(rec, event.DeadLetterDeleted)
	n, err := c.Store.Delete(ctx, []string{rec.ID})
	if n > 0 && rec.DeadLettered() {
		c.Transition(op, rec, rec.Version+1, eventlog.Ends, c.Now(),
			event.Event{Type: event.DeadLetterDeleted})
	}
	op.End()
	switch {
	case err == nil && n == 0: // another caller has deleted it
		return &ojs.PrunedError{ID: rec.ID}
	case err == nil:
		c.Gone.Add(rec.ID)
	}
	return err
}

// CancelAll cancels the jobs of a workflow.
func (c *Settler) CancelAll(ctx context.Context, ids []string) error {
	now := c.Now()
	var cancelled []storage.Record
	return c.Journal.Do(c.Events.Begin(eventlog.Ends, ids...), func() (moved []storage.Record, err error) {
		cancelled, moved, err = c.Store.CancelAll(ctx, now, ids)
		return moved, err
	}, func(op *eventlog.Op) {
		for i := range cancelled {
			r := &cancelled[i]
			c.Transition(op, r, r.Version, eventlog.None, now, event.Event{Type: event.Cancelled,
				Reason: publish.ByWorkflow})
		}
	}, func() {
		c.LogJob(slog.LevelInfo, "workflow cancelled", "lifecycle", &cancelled[0], "",
			slog.Int("jobs", len(cancelled)), slog.String("workflow_id", cancelled[0].Keeper()))
		for i := range cancelled {
			c.Meter.EndedOtherwise(&cancelled[i])
			c.Ended(&cancelled[i])
		}
	})
}

// Revive makes jobs that have ended begin anew.
func (c *Settler) Revive(ctx context.Context, batch []storage.Insert, now time.Time) error {
	ids := make([]string, len(batch))
	for i := range batch {
		ids[i] = batch[i].Record.ID
	}
	c.Depends.Store(true)
	return c.Journal.Do(c.Events.Begin(eventlog.Ends, ids...), func() ([]storage.Record, error) {
		return c.Store.Revive(ctx, now, batch)
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
			c.Transition(op, r, r.Version+1, eventlog.Ends, now, events...)
		}
	}, func() {
		available := 0
		for i := range batch {
			if batch[i].Record.State == ojs.StateAvailable {
				available++
			}
			c.WakeAt(batch[i].Record.WakeAt())
		}
		c.Available(available)
	})
}

// CancelWithWorkflow cancels a job if it is a step of a cancelled workflow, and reports
// whether it has. It is called when an attempt has ended after which the job is to run
// again, and before a claimed job is given back. A later attempt calls it before it
// begins, too, since a crash may have come before the first call.
func (c *Settler) CancelWithWorkflow(ctx context.Context, rec *storage.Record) (cancelled bool) {
	return c.cancelWith(ctx, rec, c.Operator.Jobs().Cancel)
}

// CancelBeforeStart is CancelWithWorkflow for a claimed job, if an attempt of it has
// ended. It is then a retry, or has a note, which a snooze leaves.
func (c *Settler) CancelBeforeStart(ctx context.Context, rec *storage.Record) (cancelled bool) {
	return (rec.Attempt > 1 || len(rec.History) > 0) && c.CancelWithWorkflow(ctx, rec)
}

func (c *Settler) cancelWith(
	ctx context.Context, rec *storage.Record, cancel func(ctx context.Context, id string) error,
) (cancelled bool) {
	id := rec.Keeper()
	if id == "" {
		return false
	}
	record, err := c.Store.Get(ctx, id)
	if err == nil && record.Type == workflow.Type && record.State == ojs.StateCancelled {
		err = cancel(ctx, rec.ID)
		cancelled = err == nil
	}
	// If ctx has ended, the attempt was taken away: the next attempt cancels the job.
	if err != nil && !foreign.Is(err, ojs.ErrNotFound) && !foreign.Is(err, ojs.ErrTransition) &&
		ctx.Err() == nil {
		c.JobLog(&rec.JobHeader).Error("step of a cancelled workflow not cancelled; it runs again",
			"error", err)
	}
	return cancelled
}

// LimitSet follows a change of a limit: this engine looks again, also if the call failed,
// and publishes the change if it did not.
func (c *Settler) LimitSet(name storage.LimitName, until time.Time, reason string, err error) {
	c.Available(env.Unknown)
	if err == nil && name.Kind == storage.LimitKey {
		c.Emit(event.Event{Type: event.LimitAdjusted, Subject: name.Name, Until: until, Reason: reason,
			Limit: &event.Limit{Key: name.Name}})
	}
}

var queueEvents = map[ojs.QueueState]event.Type{ojs.QueuePaused: event.QueuePaused,
	ojs.QueueDraining: event.QueueDraining, ojs.QueueActive: event.QueueResumed}

// QueueSet follows a change of a queue's state.
func (c *Settler) QueueSet(name string, was, to ojs.QueueState) {
	if to == ojs.QueuePaused {
		c.ReturnClaimed()
	}
	if was == to {
		return
	}
	c.Log.Info("queue is "+string(to), "component", "worker", "category", "lifecycle",
		slog.Group("ojs", "queue", name))
	c.Emit(event.Event{Type: queueEvents[to], Subject: name, Queue: name})
	switch was {
	case ojs.QueuePaused:
		c.Available(env.Unknown)
	case ojs.QueueDraining:
		c.Enqueue.Room.Made(name)
	}
}

// GiveBack gives back those of the active jobs of a worker that a failed claim has taken,
// by the book of its claims, and returns when to look again. mu guards the book and what
// has, which reports whether a job has an attempt, looks at. The lease is that of claims.
// Once it is over, another engine may have the job to settle.
func (c *Settler) GiveBack(ctx context.Context, now time.Time, worker string, lease time.Duration,
	mu sync.Locker, book *claims.Book, has func(id string) bool) (next time.Time, err error) {
	mu.Lock()
	failed := book.Failed()
	mu.Unlock()
	if !failed {
		return next, nil
	}
	active, err := c.Store.ClaimedBy(ctx, worker)
	if err != nil {
		return next, err
	}
	active = slices.DeleteFunc(active, func(rec storage.Record) bool {
		return !now.Before(rec.StartedAt.Add(rec.LeaseFor(lease)))
	})
	mu.Lock() // after the look: a claim that has returned meanwhile is in the books
	recs, waits := book.Unknown(active, c.Store.Capabilities().Precision, has)
	mu.Unlock()
	recs = slices.DeleteFunc(recs, func(rec storage.Record) bool { return c.CancelWithWorkflow(ctx, &rec) })
	err = c.unclaim(ctx, worker, recs)
	c.Available(len(recs)) // also if that failed: the storage may have done it
	for i := range recs {
		recs[i].Unclaim()
		c.WakeAt(recs[i].WakeAt())
	}
	if err != nil {
		return next, err
	}
	mu.Lock()
	defer mu.Unlock()
	return book.Looked(now, waits), nil
}

// Unclaim gives back jobs that were claimed ahead, and returns how many are available
// again. Steps of a cancelled workflow are cancelled instead. It tries until it succeeds,
// or pause reports that the engine stops: a call that fails may have undone the claims,
// and then no handler may start.
func (c *Settler) Unclaim(ctx context.Context, recs []*storage.Record, pause func(tries int) bool) int {
	kept := c.goOn(ctx, recs, c.Operator.Jobs().Cancel)
	held := make([]storage.Held, len(kept))
	for i, rec := range kept {
		held[i] = storage.Held{ID: rec.ID, Version: rec.Version}
	}
	stepper := c.Store.(storage.SettleClaimer) // or nothing is claimed ahead
	n, err := stepper.Unclaim(ctx, c.Now(), held)
	for tries := 1; err != nil && !foreign.Is(err, ojs.ErrClosed); tries++ {
		c.Failed("unclaim", err, "jobs", len(held))
		n = env.Unknown
		if !pause(tries) {
			break
		}
		_, err = stepper.Unclaim(ctx, c.Now(), held)
	}
	for _, rec := range recs {
		undone := *rec
		undone.Unclaim()
		c.WakeAt(undone.WakeAt()) // a look since its claim has not counted it
	}
	if err != nil {
		return n
	}
	c.Answered()
	// A cancel of a workflow in between has left its steps, as active ones. Steps that
	// another claim has taken go on.
	c.goOn(ctx, kept, func(ctx context.Context, id string) error { return c.CancelAll(ctx, []string{id}) })
	return n
}

// goOn cancels the steps of cancelled workflows among jobs, and returns the other jobs.
// It looks a workflow up once for steps that come one after another.
func (c *Settler) goOn(ctx context.Context, recs []*storage.Record,
	cancel func(ctx context.Context, id string) error) (list []*storage.Record) {
	goesOn := ""
	for _, rec := range recs {
		if id := rec.Keeper(); id == goesOn || !c.cancelWith(ctx, rec, cancel) {
			goesOn, list = id, append(list, rec)
		}
	}
	return list
}

// LookUp reads a job, again and again until the storage answers, or pause reports that
// the engine stops.
func (c *Settler) LookUp(
	ctx context.Context, id string, pause func(tries int) bool,
) (rec storage.Record, err error) {
	for n := 1; ; n++ {
		rec, err = c.Store.Get(ctx, id)
		if err == nil || foreign.Is(err, ojs.ErrNotFound) || foreign.Is(err, ojs.ErrClosed) {
			c.Answered()
			return rec, err
		}
		c.Failed("get", err, "job_id", id)
		if !pause(n) {
			return rec, err
		}
	}
}

// unclaim gives back jobs whose attempts have not begun.
func (c *Settler) unclaim(ctx context.Context, worker string, recs []storage.Record) error {
	if len(recs) == 0 {
		return nil
	}
	c.Log.Warn("claims whose answer was lost are given back", "worker_id", worker, "jobs", len(recs))
	now := c.Now()
	if stepper, ok := c.Store.(storage.SettleClaimer); ok {
		var held []storage.Held
		recs = slices.DeleteFunc(slices.Clone(recs), func(rec storage.Record) bool {
			undoes := rec.EnqueueTTL == 0 // Unclaim would have it count again
			if undoes {
				held = append(held, storage.Held{ID: rec.ID, Version: rec.Version})
			}
			return undoes
		})
		if _, err := stepper.Unclaim(ctx, now, held); err != nil {
			return err
		}
	}
	for i := range recs {
		f := NewSettlement(&recs[i], worker)
		c.Decide(f, policy.Outcome{Kind: policy.Interrupted}, now, now, nil)
		if _, err := c.SettleOne(ctx, f); err != nil {
			return err
		}
	}
	return nil
}
