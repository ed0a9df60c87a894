package engine

import (
	"cmp"
	"context"
	"iter"
	"log/slog"
	"slices"
	"time"

	"github.com/ojsengine/ojs"
	"github.com/ojsengine/ojs/engine/internal/eventlog"
	"github.com/ojsengine/ojs/inspect"
	"github.com/ojsengine/ojs/internal/foreign"
	"github.com/ojsengine/ojs/storage"
	"github.com/ojsengine/ojs/workflow"
)

// Workflows starts workflows (package workflow) and looks after them.
type Workflows struct{ core *core }

// Workflows returns the workflows of the storage.
func (e *Engine[T]) Workflows() *Workflows { return &Workflows{e.core} }

// Start starts a workflow, as workflow.Start does, under an id of the engine's.
func (w *Workflows) Start(ctx context.Context, wf *workflow.Workflow) (ojs.Ticket, error) {
	return workflow.Start(ctx, (*enqueuer)(w.core), wf, w.core.rnd.id(w.core.now()))
}

// Get returns a workflow and its steps, with args and results decoded as far as the
// engine's codecs can. ErrNotFound: no workflow with the id is stored. The cost grows
// with the number of steps.
func (w *Workflows) Get(ctx context.Context, id string) (*workflow.Status, error) {
	return workflow.Read(ctx, w.lookup, id)
}

func (w *Workflows) lookup(ctx context.Context, id string) (*ojs.JobInfo, error) {
	job, err := w.core.lookup(ctx, id)
	if err != nil {
		return nil, err
	}
	return w.core.readable(ctx, job), nil
}

// Wait waits until all steps of a workflow have ended or ctx has. The error is nil only
// for a completed workflow. For a failed, cancelled or compensated one it is a
// *workflow.EndedError, and the workflow is returned too.
func (w *Workflows) Wait(ctx context.Context, id string) (*workflow.Status, error) {
	job, ended := w.core.Wait(ctx, id)
	if job == nil {
		return nil, ended
	}
	s, err := w.Get(ctx, id)
	return s, cmp.Or(err, ended)
}

// List lists the workflows in a state of their records: pending ones go on, completed
// ones have ended, cancelled ones were cancelled. No state: all. Each is read with its
// steps, as by Get.
func (w *Workflows) List(ctx context.Context, states ...ojs.State) iter.Seq2[*workflow.Status, error] {
	return func(yield func(*workflow.Status, error) bool) {
		f := inspect.Filter{Types: []string{workflow.Type}, States: states}
		for job, err := range w.core.jobs().List(ctx, f) {
			var s *workflow.Status
			if err == nil {
				s, err = w.Get(ctx, job.ID)
			}
			if foreign.Is(err, ojs.ErrNotFound) { // it has been deleted meanwhile
				continue
			}
			if !yield(s, err) || err != nil {
				return
			}
		}
	}
}

// Cancel ends a workflow: its steps that have not started are cancelled, in one atomic
// step of the storage. Running steps may finish, and nothing follows them: one that fails
// is not retried, but cancelled. A second Cancel does nothing. A workflow that has ended,
// and one that undoes its steps (workflow.Saga), is refused with an *ojs.TransitionError.
func (w *Workflows) Cancel(ctx context.Context, id string) error {
	s, err := w.Get(ctx, id)
	if err != nil {
		return err
	}
	if s.State == workflow.StateCompensating {
		return &ojs.TransitionError{ID: id, From: ojs.StatePending, To: ojs.StateCancelled,
			Allowed: "a saga that undoes its steps cannot be cancelled"}
	}
	if s.State == workflow.StateCancelled {
		return nil
	}
	return w.cancelGroup(ctx, id)
}

// cancelGroup cancels the jobs of a workflow in one step, and then, in another, those
// that a step has added between the look for them and that step.
func (w *Workflows) cancelGroup(ctx context.Context, id string) error {
	if err := w.core.checkTx(ctx); err != nil {
		return err
	}
	seen := make(map[string]bool)
	for {
		ids, err := workflow.JobIDs(ctx, w.lookup, id)
		if err != nil {
			return err
		}
		late := len(seen) > 0
		ids = slices.DeleteFunc(ids, func(id string) bool { return seen[id] })
		if len(ids) == 0 {
			return nil
		}
		for _, id := range ids {
			seen[id] = true
		}
		if late {
			slices.Reverse(ids) // a record waits
		}
		err = w.cancelAll(ctx, ids)
		if err != nil && !(late && foreign.Is(err, ojs.ErrTransition)) {
			return err
		}
	}
}

func (w *Workflows) cancelAll(ctx context.Context, ids []string) error {
	c := w.core
	now := c.now()
	var cancelled []storage.Record
	return c.journal.Do(c.beganGroup(ids), func() (moved []storage.Record, err error) {
		cancelled, moved, err = c.store.CancelAll(ctx, now, ids)
		return moved, err
	}, func(op *eventlog.Op) {
		for i := range cancelled {
			r := &cancelled[i]
			c.transition(op, r, r.Version, eventlog.None, now, ojs.Event{Type: ojs.EventCancelled,
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

// beganGroup begins an operation that ends or revives jobs. It returns nil if no listener
// wants their events.
func (c *core) beganGroup(ids []string) *eventlog.Op {
	if !c.events.Listening() {
		return nil
	}
	return c.events.Begin(eventlog.Ends, ids...)
}

// Retry runs the failed steps of a failed workflow again, in one atomic step of the
// storage: each step begins at attempt 0 with its error history kept, and what was
// cancelled because of it waits again. Completed steps, callbacks among them, do not run
// again, and steps whose failure a callback has dealt with do not either. A saga that has
// begun to undo its steps goes on with that.
//
// A workflow that has not failed, that was cancelled or that has undone its steps, is
// refused with an *ojs.TransitionError. If a job of the workflow has been deleted, the
// error is ojs.ErrNotFound, or ojs.ErrPruned. The cost grows with the number of steps.
func (w *Workflows) Retry(ctx context.Context, id string) error {
	c := w.core
	if err := c.checkTx(ctx); err != nil {
		return err
	}
	for {
		err := w.retry(ctx, id)
		if !foreign.Is(err, storage.ErrFenced) { // another call has changed one of the jobs
			return err
		}
	}
}

func (w *Workflows) retry(ctx context.Context, id string) error {
	c := w.core
	recs := make(map[string]*storage.Record) // each as it was when the plan was made
	plan, err := workflow.Revivals(ctx, func(ctx context.Context, id string) (*ojs.JobInfo, error) {
		rec, err := c.store.Get(ctx, id)
		if err != nil {
			return nil, c.missing(id, err)
		}
		recs[id] = &rec
		return c.readable(ctx, &rec.JobInfo), nil
	}, id)
	if err != nil {
		return err
	}
	now := c.now()
	batch := make([]storage.Insert, len(plan))
	ids := make([]string, len(plan))
	for i, p := range plan {
		r := recs[p.JobID]
		in := storage.Insert{DependsOn: p.DependsOn}
		if r.Dependencies != nil {
			in.OrderingKey = r.Dependencies.OrderingKey
		}
		if err := c.revived(ctx, r, now, in.Waits()); err != nil {
			return err
		}
		in.Record = *r
		batch[i] = in
		ids[i] = p.JobID
	}
	c.depends.Store(true)
	return c.journal.Do(c.beganGroup(ids), func() ([]storage.Record, error) {
		return c.store.Revive(ctx, now, batch)
	}, func(op *eventlog.Op) {
		for i := range batch {
			r := &batch[i].Record
			var events []ojs.Event
			if r.State == ojs.StateAvailable {
				events = append(events, ojs.Event{Type: ojs.EventAvailable})
			}
			if r.Type == workflow.Type {
				events = append(events, ojs.Event{Type: ojs.EventWorkflowRetried})
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
		c.logJob(slog.LevelInfo, "workflow retried by hand", "lifecycle", recs[id], "",
			slog.Int("steps", available))
		c.available(available)
	})
}

// revived makes the record of a job that has ended one that begins anew, at once or
// after others.
func (c *core) revived(ctx context.Context, r *storage.Record, now time.Time, waits bool) error {
	if d := r.Dependencies; d == nil || !d.Join {
		if err := c.override(ctx, r, now, nil); err != nil {
			return err
		}
	}
	beginAnew(r, now)
	if waits {
		r.State, r.EnqueuedAt = ojs.StatePending, time.Time{}
	}
	expireAnew(r, now)
	return nil
}

// expireAnew has the WithTTL of a job that depends on others count from now on, or from
// when it need not wait any longer.
func expireAnew(r *storage.Record, now time.Time) {
	switch d := r.Dependencies; {
	case d == nil || d.TTL == 0:
	case r.State == ojs.StatePending:
		r.ExpiresAt = time.Time{}
	default:
		r.ExpiresAt = now.Add(d.TTL)
	}
}

// cancelWithWorkflow cancels a job if it is a step of a cancelled workflow, and reports
// whether it has. It is called when an attempt has ended after which the job is to run
// again. A workflow that is cancelled after the end was stored cancels the job itself. A
// later attempt calls it before it begins, too: a crash may have come before the first
// call.
func (c *core) cancelWithWorkflow(ctx context.Context, rec *storage.Record) (cancelled bool) {
	id := workflowOf(rec)
	if id == "" {
		return false
	}
	record, err := c.store.Get(ctx, id)
	if err == nil && record.Type == workflow.Type && record.State == ojs.StateCancelled {
		err = c.cancel(ctx, rec.ID)
		cancelled = err == nil
	}
	switch {
	case err == nil, foreign.Is(err, ojs.ErrNotFound), foreign.Is(err, ojs.ErrTransition):
	case ctx.Err() != nil: // the attempt was taken away: the next one cancels the job
	default:
		c.jobLog(&rec.JobHeader).Error("step of a cancelled workflow not cancelled; it runs again",
			"error", err)
	}
	return cancelled
}
