package engine

import (
	"context"
	"fmt"

	"github.com/ojsengine/ojs"
	"github.com/ojsengine/ojs/handler"
	"github.com/ojsengine/ojs/operate"
	"github.com/ojsengine/ojs/storage"
)

// Engine runs jobs whose args are T. An engine carries jobs of any type; T is only the
// args of Handle and Enqueue, its two typed methods. A program with one args type says
// New[Email]; one with several says New[any], declares each type with ojs.Define, and
// uses Register and JobType.Enqueue. Handle of an Engine[any] gives args as encoding/json
// decodes them into an any.
//
// Methods are safe for concurrent use. Enqueueing and looking up need no Run. A nil
// context panics, as in the standard library.
type Engine[T any] struct{ core *core }

var _ ojs.Enqueuer = (*Engine[any])(nil)

// New makes an engine over s. It starts nothing, and s stays yours to close. Options that
// make no sense are refused with an *ojs.InvalidError.
func New[T any](s storage.Storage, opts ...Option) (*Engine[T], error) {
	core, err := newCore(s, opts)
	if err != nil {
		return nil, err
	}
	return &Engine[T]{core}, nil
}

// Handle runs jobs of the type with f. It panics if the type's name is invalid or has a
// handler already (handler.WithVersions allows several), and if f is nil. A handler may
// be added while the engine runs.
func (e *Engine[T]) Handle(jobType string, f handler.Func[T], opts ...handler.Option) {
	e.Register(handler.For(ojs.Define[T](jobType), f, opts...))
}

// Register adds handlers made by handler.For. It panics as Handle does, and then adds
// none.
func (e *Engine[T]) Register(handlers ...handler.Handler) {
	if err := e.core.register(handlers); err != nil {
		panic(err)
	}
}

// Enqueue stores a job. Its errors: *ojs.InvalidError for bad input, *ojs.DuplicateError
// if its id or an equal job exists, *ojs.QueueError, a hook's, the storage's. After one
// nothing is stored, unless the storage could not tell.
//
// If the type has a handler in this engine, args must be of the handler's type.
func (e *Engine[T]) Enqueue(
	ctx context.Context, jobType string, args T, opts ...ojs.Option,
) (ojs.Ticket, error) {
	return e.core.enqueue(ctx, jobType, args, nil, opts)
}

// EnqueueMany stores jobs of any types, all or none, in one step of the storage. It
// returns a ticket for each, in order. Jobs that an enqueue hook drops are left out, as
// their tickets say.
func (e *Engine[T]) EnqueueMany(ctx context.Context, drafts ...ojs.Draft) ([]ojs.Ticket, error) {
	return e.core.enqueueMany(ctx, drafts)
}

// Run works until ctx ends. Then it takes no more jobs, lets running handlers finish
// within the grace period, ends the contexts of the rest with ojs.ErrShutdown, and gives
// their jobs back without spending the attempt. An attempt whose timeout passes meanwhile
// has failed.
//
// It returns nil after a clean stop and may then be called again; ErrRunning while
// another Run works; an error that is ErrStuck if handlers went on after their contexts
// had ended; and one that is ErrUnanswered if calls of the storage were still under way a
// second after that. It may be both. If the storage has been closed, Run does not wait
// for ctx, and its error is ojs.ErrClosed.
//
// With a storage that is not durable, unfinished jobs are lost when the program ends. Run
// logs at WARN how many running jobs a stop has given back to such a storage, and the ids
// of the first 10. WaitIdle before ending ctx waits for what is due then, but not for
// jobs that wait for a retry or for their time: wait for the tickets of the jobs that
// matter, or use a durable storage.
//
// Handler contexts have ctx's values, but do not end with it.
func (e *Engine[T]) Run(ctx context.Context) error { return e.core.runUntil(ctx) }

// WaitIdle waits until the engine runs and has nothing to do at its clock's current time:
// no job is available, unless a limit is reached or every slot is taken, no handler runs,
// nothing is due, and the timer for the next deadline is armed. It does not wait for jobs
// that wait for a retry or for their time. It returns ctx's error if that ends first. If
// jobs are enqueued meanwhile the engine may be busy again.
//
// Under a virtual clock, a *clock.Mock, a handler in handler.Sleep counts as idle, since
// only a step of the clock wakes it up. Under any other clock it counts as running. While
// a storage fails, the engine is not idle, since jobs may be due.
func (e *Engine[T]) WaitIdle(ctx context.Context) error { return e.core.waitIdle(ctx) }

// Get looks a job up. It returns ojs.ErrNotFound if there is none with the id.
func (e *Engine[T]) Get(ctx context.Context, id string) (*ojs.JobInfo, error) {
	return e.core.lookup(ctx, id)
}

// Wait blocks until the job has ended or ctx has, as ojs.Ticket.Wait does. A handler that
// waits for a job keeps its own slot meanwhile: with every slot waiting, nothing runs.
func (e *Engine[T]) Wait(ctx context.Context, id string) (*ojs.JobInfo, error) {
	return e.core.Wait(ctx, id)
}

// Cancel ends a job that waits or runs. The context of a running handler ends with
// ojs.ErrCancelled, and what the handler then returns is dropped. Cancelling a cancelled
// job does nothing. A job that has completed or been discarded gives an
// *ojs.TransitionError; an unknown id, ojs.ErrNotFound.
func (e *Engine[T]) Cancel(ctx context.Context, id string) error { return e.core.cancel(ctx, id) }

// Jobs gives access to what operators do with stored jobs: list and change them, one or
// many.
func (e *Engine[T]) Jobs() *operate.Jobs { return e.core.operator.Jobs() }

// DeadLetters gives access to the jobs that were kept for a person.
func (e *Engine[T]) DeadLetters() *operate.DeadLetters { return e.core.operator.DeadLetters() }

// Queues gives access to the states of queues, and to pauses of types and everything.
func (e *Engine[T]) Queues() *operate.Queues { return e.core.operator.Queues() }

// Limits gives access to the limits that the storage counts, for all engines on it.
func (e *Engine[T]) Limits() *operate.Limits { return e.core.operator.Limits() }

// Workers gives access to what takes the jobs of the storage: engines, and workers that
// fetch jobs.
func (e *Engine[T]) Workers() *operate.Workers { return e.core.operator.Workers() }

// Workflows starts workflows (package workflow) and looks after them.
func (e *Engine[T]) Workflows() *operate.Workflows { return e.core.operator.Workflows() }

// Quarantine gives access to the stored records that do not decode.
func (e *Engine[T]) Quarantine() *operate.Quarantine { return e.core.operator.Quarantine() }

// String names the engine.
func (e *Engine[T]) String() string { return fmt.Sprintf("ojs engine %s", e.core.worker) }
