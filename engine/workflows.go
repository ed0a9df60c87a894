package engine

import (
	"context"

	"github.com/ojsengine/ojs"
	"github.com/ojsengine/ojs/internal/foreign"
	"github.com/ojsengine/ojs/storage"
	"github.com/ojsengine/ojs/workflow"
)

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
