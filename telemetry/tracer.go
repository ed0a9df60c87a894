package telemetry

import (
	"context"

	"github.com/ojsengine/ojs"
)

// Tracer is an Observer that also follows what the engine does, operation by operation,
// each in the context of the one that it is part of. engine.WithObserver takes it. An
// engine without one does nothing for it.
//
// Begin begins an operation. All that belongs to the operation, handlers included, runs
// in the context that Begin returns. That must be ctx or derived from it. If either
// result is nil the operation is left out. End is called once at the end, with the
// operation's error. Begin and end are called concurrently, without a lock, and each on a
// goroutine of its own while the operation waits. They may call the engine, though the
// operations that they cause are traced as well. If either panics or calls
// runtime.Goexit, the engine logs that and the operation goes on.
type Tracer interface {
	Observer
	Begin(ctx context.Context, op *Operation) (_ context.Context, end func(err error))
}

// Operation is something that an engine does and that takes time. Tracers must not change
// it, except the metadata of jobs that are being enqueued, nor keep it beyond its end.
type Operation struct {
	Kind OperationKind

	// Queue is that of the jobs, or the one queue that is asked. It is empty if there are
	// several or none.
	Queue string

	// Jobs are what the operation is about. The jobs of an enqueue are yet to be stored.
	// Begin may put strings into their Meta, and set it if it is nil: each job has a Meta
	// of its own, and these strings do not count as meta of a unique job. The jobs of a
	// fetch are known at its end.
	Jobs []*ojs.JobInfo

	// DependsOn has the ids of the jobs that each of the Jobs of an enqueue waits for.
	// Nil: none waits for another.
	DependsOn [][]string

	Worker string // the engine's worker id, or that of the job's worker; "" for an enqueue
	Cron   string // cron.trigger: the name of the entry

	Backend string // the storage's name
}

// OperationKind names a kind of operation as OJS observability does.
type OperationKind string

// The operations of a program that enqueues, works and asks.
const (
	OpEnqueue      OperationKind = "enqueue"       // one job
	OpEnqueueBatch OperationKind = "enqueue_batch" // several, as a whole
	OpFetch        OperationKind = "fetch"         // claim what may run
	OpProcess      OperationKind = "process"       // run a handler; its error is the handler's
	OpAck          OperationKind = "ack"           // store that an attempt completed its job
	OpNack         OperationKind = "nack"          // store that an attempt did not complete its job
	OpCancel       OperationKind = "cancel"
	OpGet          OperationKind = "get_job"
)

// The operations that an engine does by itself.
const (
	// make due jobs available, end jobs that have waited too long
	OpPoll          OperationKind = "scheduler.poll"
	OpCron          OperationKind = "cron.trigger"     // run an entry that is due, its enqueue included
	OpReaper        OperationKind = "reaper.check"     // prune finished jobs
	OpVisibility    OperationKind = "visibility.check" // settle a job whose lease has run out
	OpRetryEvaluate OperationKind = "retry.evaluate"   // decide on a failed attempt, hooks included
)
