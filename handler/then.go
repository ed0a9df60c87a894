package handler

import (
	"context"

	"github.com/ojsengine/ojs"
	"github.com/ojsengine/ojs/internal/attempt"
)

// Then has jobs stored in the same step as the completion of the attempt's job: they are
// stored if and only if the attempt completes it. A failure, a retry, a snooze, a cancel,
// a timeout and a lost lease store none of them. Several calls add up.
//
//	func charge(ctx context.Context, job *ojs.Job[Order]) error {
//		if err := handler.Then(ctx, SendReceipt.New(Receipt{Order: job.Args.ID})); err != nil {
//			return err
//		}
//		return gateway.Charge(ctx, job.Args, gateway.IdempotencyKey(job.ID))
//	}
//
// The drafts are checked now, and Then returns the errors of an enqueue for invalid ones.
// A job that an enqueue hook drops is left out. Delays and TTLs count from the end of the
// attempt. Whether a queue is full or draining and whether an equal job exists is known
// only then. If one of the jobs is refused for that, none is stored, and the attempt
// fails with that error: the retry policy decides. ojs.ConflictIgnore keeps a unique job
// from failing its parent. Then does not wait for room in a queue.
//
// Outside of an attempt, Then returns ErrNoAttempt. After the attempt's end it returns
// the cause of that. In a context that carries a transaction, which would not include the
// jobs, it returns ojs.ErrUnsupported.
func Then(ctx context.Context, drafts ...ojs.Draft) error {
	a := attempt.From(ctx)
	if a == nil {
		return ErrNoAttempt
	}
	return a.Then(ctx, drafts)
}

// Enqueuer returns the engine that runs the attempt, to enqueue jobs at once. These jobs
// stay even if the attempt fails. Outside of an attempt the Enqueuer returns
// ErrNoAttempt.
func Enqueuer(ctx context.Context) ojs.Enqueuer {
	if a := attempt.From(ctx); a != nil {
		return a.Enqueuer()
	}
	return noEnqueuer{}
}

type noEnqueuer struct{}

func (noEnqueuer) EnqueueMany(context.Context, ...ojs.Draft) ([]ojs.Ticket, error) {
	return nil, ErrNoAttempt
}
