package operate

import (
	"cmp"
	"context"
	"iter"
	"log/slog"
	"slices"

	"github.com/ojsengine/ojs"
	"github.com/ojsengine/ojs/inspect"
	"github.com/ojsengine/ojs/internal/draft"
	"github.com/ojsengine/ojs/internal/foreign"
	"github.com/ojsengine/ojs/internal/stored"
	"github.com/ojsengine/ojs/storage"
	"github.com/ojsengine/ojs/workflow"
)

// Workflows starts workflows (package workflow) and looks after them.
type Workflows struct{ op *Operator }

// Start starts a workflow, as workflow.Start does, under an id of the engine's.
func (w *Workflows) Start(ctx context.Context, wf *workflow.Workflow) (ojs.Ticket, error) {
	return workflow.Start(ctx, w.op.eng.Enqueuer, wf, w.op.eng.NewID())
}

// Get returns a workflow and its steps, with args and results decoded as far as the
// engine's codecs can. ErrNotFound, or ErrPruned if it was deleted lately: no workflow
// with the id is stored. The steps of its definition are read by one listing, up to 1000,
// and others one by one.
func (w *Workflows) Get(ctx context.Context, id string) (*workflow.Status, error) {
	jobs := w.op.eng.Inspect
	f := inspect.Filter{Workflow: id}
	q, err := f.Query()
	if err != nil {
		return nil, err
	}
	page, err := jobs.RecordPage(ctx, &f, q)
	if err != nil {
		return nil, err
	}
	steps := make(map[string]*ojs.JobInfo, len(page.Records))
	for i := range page.Records {
		steps[page.Records[i].ID] = &page.Records[i].JobInfo
	}
	return workflow.Read(ctx, func(ctx context.Context, id string) (*ojs.JobInfo, error) {
		if job := steps[id]; job != nil {
			return jobs.Readable(ctx, job), nil
		}
		return jobs.Step(ctx, id)
	}, id)
}

// Wait waits until all steps of a workflow have ended or ctx has. The error is nil only
// for a completed workflow. For a failed, cancelled or compensated one it is a
// *workflow.EndedError, and the workflow is returned too.
func (w *Workflows) Wait(ctx context.Context, id string) (*workflow.Status, error) {
	job, ended := w.op.eng.Wait(ctx, id)
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
		for job, err := range w.op.eng.Inspect.List(ctx, f) {
			var s *workflow.Status
			if err == nil {
				s, err = w.Get(ctx, job.ID)
			}
			if stored.Missing(err) { // deleted meanwhile
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
	err = w.cancelGroup(ctx, id)
	var wrong *ojs.TransitionError
	if foreign.As(err, &wrong) && wrong.ID != id { // the join of a saga that has ended meanwhile
		if rec, err := w.op.eng.Store.Get(ctx, id); err == nil {
			wrong.ID, wrong.From = id, rec.State
		}
	}
	return err
}

// cancelGroup cancels the jobs of a workflow in one step, and then, in another, those
// that a step has added between the look for them and that step.
func (w *Workflows) cancelGroup(ctx context.Context, id string) error {
	if err := draft.CheckTx(ctx, w.op.eng.Store); err != nil {
		return err
	}
	seen := make(map[string]bool)
	for {
		ids, err := workflow.CancelIDs(ctx, w.op.eng.Inspect.Step, id)
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
		err = w.op.eng.CancelAll(ctx, ids)
		if err != nil && !(late && foreign.Is(err, ojs.ErrTransition)) {
			return err
		}
	}
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
	if err := draft.CheckTx(ctx, w.op.eng.Store); err != nil {
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
	o := w.op
	recs := make(map[string]*storage.Record) // each as it was when the plan was made
	plan, err := workflow.Revivals(ctx, func(ctx context.Context, id string) (*ojs.JobInfo, error) {
		rec, err := o.eng.Inspect.Record(ctx, id)
		if err != nil {
			return nil, err
		}
		recs[id] = &rec
		return o.eng.Inspect.Readable(ctx, &rec.JobInfo), nil
	}, id)
	if err != nil {
		return err
	}
	now := o.eng.Now()
	batch := make([]storage.Insert, len(plan))
	ids := make([]string, len(plan))
	for i, p := range plan {
		r := recs[p.JobID]
		in := storage.Insert{DependsOn: p.DependsOn}
		if r.Dependencies != nil {
			in.OrderingKey = r.Dependencies.OrderingKey
		}
		if err := o.revived(ctx, r, now, in.Waits()); err != nil {
			return err
		}
		in.Record = *r
		batch[i] = in
		ids[i] = p.JobID
	}
	if err := o.eng.Revive(ctx, batch, now); err != nil {
		return err
	}
	available := 0
	for i := range batch {
		if batch[i].Record.State == ojs.StateAvailable {
			available++
		}
	}
	o.eng.LogJob(slog.LevelInfo, "workflow retried by hand", recs[id], slog.Int("steps", available))
	return nil
}
