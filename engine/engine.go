package engine

import (
	"context"
	"fmt"
	"time"

	"github.com/ojsengine/ojs"
	"github.com/ojsengine/ojs/cron"
	"github.com/ojsengine/ojs/engine/fetch"
	"github.com/ojsengine/ojs/engine/internal/eventlog"
	"github.com/ojsengine/ojs/event"
	"github.com/ojsengine/ojs/handler"
	"github.com/ojsengine/ojs/inspect"
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
type Engine[T any] struct{ parts *parts }

var _ ojs.Enqueuer = (*Engine[any])(nil)

func (e *Engine[T]) own() *parts { return e.parts }

// New makes an engine over s. It starts nothing, and s stays yours to close. Options that
// make no sense are refused with an *ojs.InvalidError.
func New[T any](s storage.Storage, opts ...Option) (*Engine[T], error) {
	c, err := newParts(s, opts)
	if err != nil {
		return nil, err
	}
	return &Engine[T]{c}, nil
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
	if err := e.parts.types.Register(handlers); err != nil {
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
	return e.parts.enqueuer.Enqueue(ctx, jobType, args, nil, opts)
}

// EnqueueMany stores jobs of any types, all or none, in one step of the storage. It
// returns a ticket for each, in order. Jobs that an enqueue hook drops are left out, as
// their tickets say.
func (e *Engine[T]) EnqueueMany(ctx context.Context, drafts ...ojs.Draft) ([]ojs.Ticket, error) {
	return e.parts.enqueuer.EnqueueMany(ctx, drafts...)
}

// Run works until ctx ends. Then it takes no more jobs, lets running handlers finish
// within the grace period, ends the contexts of the rest with ojs.ErrShutdown, and gives
// their jobs back without spending the attempt. An attempt whose timeout passes meanwhile
// has failed. A handler still ends its job by a response code, and by an error that
// forbids a retry and does not wrap that of its context.
//
// It returns nil after a clean stop and may then be called again; ErrRunning while
// another Run works; an error that is ErrStuck if handlers went on after their contexts
// had ended; and one that is ErrUnanswered if calls of the storage were still under way a
// second after that, or if the storage has failed to take outcomes until then. It may be
// both. Run does not wait for ctx if the storage has been closed, with the error
// ojs.ErrClosed, and if a call of the storage at the start panics, with that error.
//
// With a storage that is not durable, unfinished jobs are lost when the program ends. Run
// logs at WARN how many running jobs a stop has given back to such a storage, and the ids
// of the first 10. WaitIdle before ending ctx waits for what is due then, but not for
// jobs that wait for a retry or for their time: wait for the tickets of the jobs that
// matter, or use a durable storage.
//
// Handler contexts have ctx's values, but do not end with it.
func (e *Engine[T]) Run(ctx context.Context) error { return e.parts.runUntil(ctx) }

// WaitIdle waits until the engine runs and has nothing to do at its clock's current time:
// no job is available, unless a limit is reached or every slot is taken, no handler runs,
// nothing is due, and the timer for the next deadline is armed. It does not wait for jobs
// that wait for a retry or for their time. It returns ctx's error if that ends first. If
// jobs are enqueued meanwhile the engine may be busy again.
//
// Under a virtual clock, a *clock.Mock, a handler in handler.Sleep counts as idle, since
// only a step of the clock wakes it up. Under any other clock it counts as running. While
// a storage fails, the engine is not idle, since jobs may be due.
func (e *Engine[T]) WaitIdle(ctx context.Context) error { return e.parts.waitIdle(ctx) }

// SetConcurrency changes WithConcurrency, with effect at once, before Run and during it.
// If more attempts run than n, they go on, and none starts until there are fewer than n.
// A number that WithConcurrency refuses is refused with an *ojs.InvalidError.
func (e *Engine[T]) SetConcurrency(n int) error {
	if err := WithConcurrency(n)(new(config)); err != nil {
		return err
	}
	e.parts.attempts.SetSlots(n)
	return nil
}

// Get looks a job up. It returns ojs.ErrNotFound if there is none with the id.
func (e *Engine[T]) Get(ctx context.Context, id string) (*ojs.JobInfo, error) {
	return e.parts.Lookup(ctx, id)
}

// Wait blocks until the job has ended or ctx has, as ojs.Ticket.Wait does. A handler that
// waits for a job keeps its own slot meanwhile: with every slot waiting, nothing runs.
func (e *Engine[T]) Wait(ctx context.Context, id string) (*ojs.JobInfo, error) {
	return e.parts.waits.Wait(ctx, id)
}

// Cancel ends a job that waits or runs. The context of a running handler ends with
// ojs.ErrCancelled, and what the handler then returns is dropped. Cancelling a cancelled
// job does nothing. A job that has completed or been discarded gives an
// *ojs.TransitionError; an unknown id, ojs.ErrNotFound.
func (e *Engine[T]) Cancel(ctx context.Context, id string) error { return e.Jobs().Cancel(ctx, id) }

// Jobs gives access to what operators do with stored jobs: list and change them, one or
// many.
func (e *Engine[T]) Jobs() *operate.Jobs { return e.parts.Operator.Jobs() }

// DeadLetters gives access to the jobs that were kept for a person.
func (e *Engine[T]) DeadLetters() *operate.DeadLetters { return e.parts.Operator.DeadLetters() }

// Queues gives access to the states of queues, and to pauses of types and everything.
func (e *Engine[T]) Queues() *operate.Queues { return e.parts.Operator.Queues() }

// Limits gives access to the limits that the storage counts, for all engines on it.
func (e *Engine[T]) Limits() *operate.Limits { return e.parts.Operator.Limits() }

// Workers gives access to what takes the jobs of the storage: engines, and workers that
// fetch jobs.
func (e *Engine[T]) Workers() *operate.Workers { return e.parts.Operator.Workers() }

// Workflows starts workflows (package workflow) and looks after them.
func (e *Engine[T]) Workflows() *operate.Workflows { return e.parts.Operator.Workflows() }

// Quarantine gives access to the stored records that do not decode.
func (e *Engine[T]) Quarantine() *operate.Quarantine { return e.parts.Operator.Quarantine() }

// String names the engine.
func (e *Engine[T]) String() string { return fmt.Sprintf("ojs engine %s", e.parts.Worker) }

// Worker returns the worker with the id, which is any name of 1 to 255 bytes. It may be
// asked for again and again, by each request to a bridge, say: it is the same. A worker
// that is unused for an hour and holds nothing may be forgotten.
func (e *Engine[T]) Worker(id string, cfg fetch.Config) *fetch.Worker {
	return e.parts.workers.Worker(id, cfg)
}

// Running lists the attempts that handlers of this engine work on, the longest running
// first, with their stacks. It is for debugging: it stops the program for as long as it
// takes to write down the stacks of all goroutines.
func (e *Engine[T]) Running() []inspect.Running { return e.parts.attempts.Works(true) }

// EventFilter selects events; a zero field selects all.
type EventFilter struct {
	Types  []event.Type // "job.*" matches every type that starts with "job."
	JobIDs []string
	Queues []string
	Buffer int // how many events may wait to be received; 0: 256
}

// Subscription receives the events that this engine brings about, from the moment it was
// made. A slow subscriber does not hold up the engine: it misses events, and the next
// event that it receives says how many.
//
// The events of one job come in the order in which they happened. An event waits while a
// storage call is under way that may have brought an earlier event of the same job: a
// call about that job, or a claim if the job was active, or a call that expires or
// replaces jobs if it had ended. Other jobs' events do not wait. If a call hangs and more
// than 16,384 events wait, the engine publishes them without the events of that call,
// which count as missed.
type Subscription struct{ s *eventlog.Subscription }

// C returns the channel of the events. Close closes it.
func (s *Subscription) C() <-chan event.Event { return s.s.C() }

// Close ends the subscription. Events that wait in the channel can still be received.
// Closing twice does nothing.
func (s *Subscription) Close() { s.s.Close() }

// Subscribe subscribes to the events of the jobs that this engine enqueues, runs and
// changes. Close the subscription after use. Each event that a filter selects costs the
// engine a snapshot of its job. An event that no filter selects costs nothing.
func (e *Engine[T]) Subscribe(f EventFilter) *Subscription {
	return &Subscription{s: e.parts.Events.Subscribe(eventlog.Filter(f))}
}

// Cron gives access to the recurring jobs. Every running engine on the storage fires
// them, each run once.
func (e *Engine[T]) Cron() *cron.Entries { return e.parts.crons }

// NextWake returns when an idle engine has something to do next without a call from
// outside: a job comes due, a lease wants renewing, a limit opens. It reports false if
// nothing is to come, or the engine does not run.
func (e *Engine[T]) NextWake() (time.Time, bool) {
	r := e.parts.attempts.Run.Load()
	if r == nil {
		return time.Time{}, false
	}
	r.Punctual()
	return r.Sched.Next()
}
