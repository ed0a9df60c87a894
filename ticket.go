package ojs

import (
	"context"
	"fmt"

	"github.com/ojsengine/ojs/internal/bridge"
)

// Ticket is the receipt of an enqueued job. It is small and copyable.
type Ticket struct {
	ID string
	// State is the job's state right after the enqueue: available, scheduled or pending.
	// It is cancelled if a later job of the same batch replaced it, and any state for an
	// equal job.
	State State
	// Deduplicated says that the ticket is for an equal job that was stored before
	// (UniquePolicy).
	Deduplicated bool
	Dropped      bool // an enqueue hook left the job out; the other fields are zero

	waiter bridge.Waiter[JobInfo] // nil: the ticket cannot wait
}

func init() {
	bridge.Give(bridge.Tickets[Ticket, JobInfo]{WithWaiter: func(t Ticket, w bridge.Waiter[JobInfo]) Ticket {
		t.waiter = w
		return t
	}})
}

// Wait blocks until the job has ended or ctx has. The error is nil only for a completed
// job. Otherwise it is ctx's, the storage's, or an *EndedError with the way the job
// ended; the job is returned with an *EndedError too. If ctx has ended, the text says why
// the job has not, in the words of inspect.Jobs.Explain. For the ticket of a
// workflow, the error is nil only if the workflow has completed (workflow.EndedError).
//
// A Wait that has begun when the engine ends the job returns its outcome. Later the job
// may have been deleted, by engine.Retention or by a call: the error is then ErrPruned.
// WithResultTTL keeps the job for longer. A dropped ticket gives ErrDropped. A ticket of
// a transaction (postgres.WithTx) that is not committed gives ErrNotFound. A ticket that
// no engine made gives ErrUnsupported.
func (t Ticket) Wait(ctx context.Context) (*JobInfo, error) {
	if t.Dropped {
		return nil, ErrDropped
	}
	if t.waiter == nil {
		return nil, fmt.Errorf("%w: wait for job %q: its ticket is of no engine", ErrUnsupported, t.ID)
	}
	return t.waiter.Wait(ctx, t.ID)
}

// Result waits as Wait does, and decodes the job's result into v. A completed job without
// a result is an error.
func (t Ticket) Result(ctx context.Context, v any) error {
	job, err := t.Wait(ctx)
	if err != nil {
		return err
	}
	return job.DecodeResult(v)
}
