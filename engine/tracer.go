package engine

import (
	"context"

	"github.com/ojsengine/ojs"
	"github.com/ojsengine/ojs/internal/foreign"
	"github.com/ojsengine/ojs/storage"
)

// Tracer is an Observer that also follows what the engine does, operation by operation,
// each in the context of the one that it is part of. WithObserver takes it. An engine
// without one does nothing for it.
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

	Worker string // who does it: this engine's worker, or the one that has the job; empty for an enqueue
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

// nothing ends an operation without a tracer.
func nothing(error) {}

// tracing reports whether the engine has tracers.
func (c *core) tracing() bool { return len(c.tracers) > 0 }

// trace begins an operation about a job, or about none.
func (c *core) trace(
	ctx context.Context, kind OperationKind, rec *storage.Record,
) (context.Context, func(error)) {
	if !c.tracing() {
		return ctx, nothing
	}
	op := &Operation{Kind: kind, Worker: c.worker}
	if rec != nil {
		op.Queue, op.Jobs = rec.Queue, []*ojs.JobInfo{&rec.JobInfo}
		if rec.Worker != "" {
			op.Worker = rec.Worker
		}
	}
	return c.follow(ctx, op)
}

// traceID begins an operation about a job of which only the id is known.
func (c *core) traceID(ctx context.Context, kind OperationKind, id string) (context.Context, func(error)) {
	if !c.tracing() {
		return ctx, nothing
	}
	return c.trace(ctx, kind, &storage.Record{JobInfo: ojs.JobInfo{JobHeader: ojs.JobHeader{ID: id}}})
}

// traceEnqueue begins an enqueue.
func (c *core) traceEnqueue(ctx context.Context, batch []storage.Insert) (context.Context, func(error)) {
	if !c.tracing() {
		return ctx, nothing
	}
	op := &Operation{Kind: OpEnqueue}
	if len(batch) > 1 {
		op.Kind = OpEnqueueBatch
	}
	waits := false // an ordering key names no job
	for i := range batch {
		waits = waits || len(batch[i].DependsOn) > 0 || len(batch[i].AwaitedBy) > 0
	}
	for i := range batch {
		op.Jobs = append(op.Jobs, &batch[i].Record.JobInfo)
		if waits {
			op.DependsOn = append(op.DependsOn, batch[i].DependsOn)
		}
	}
	op.Queue = oneQueue(op.Jobs)
	return c.follow(ctx, op)
}

// traceFetch begins a fetch, which ends with what it has found.
func (c *core) traceFetch(
	ctx context.Context, queues []string, worker string,
) (context.Context, func([]storage.Record, error)) {
	if !c.tracing() {
		return ctx, func([]storage.Record, error) {}
	}
	op := &Operation{Kind: OpFetch, Worker: worker}
	if queues == nil {
		queues = c.queues.Load().names
	}
	if len(queues) == 1 {
		op.Queue = queues[0]
	}
	ctx, end := c.follow(ctx, op)
	return ctx, func(recs []storage.Record, err error) {
		for i := range recs {
			op.Jobs = append(op.Jobs, &recs[i].JobInfo)
		}
		if op.Queue == "" {
			op.Queue = oneQueue(op.Jobs)
		}
		end(err)
	}
}

// traceCron begins a run of a recurring entry.
func (c *core) traceCron(ctx context.Context, e *storage.Cron) (context.Context, func(error)) {
	if !c.tracing() {
		return ctx, nothing
	}
	return c.follow(ctx, &Operation{Kind: OpCron, Queue: e.Options.Queue, Worker: c.worker, Cron: e.Name})
}

// oneQueue is the queue that all jobs are of, "" if there is none.
func oneQueue(jobs []*ojs.JobInfo) (queue string) {
	for _, j := range jobs {
		if j.Queue != jobs[0].Queue {
			return ""
		}
		queue = j.Queue
	}
	return queue
}

// follow has the tracers begin an operation. They end it in the opposite order.
func (c *core) follow(ctx context.Context, op *Operation) (context.Context, func(error)) {
	op.Backend = c.store.Capabilities().Name
	ends := make([]func(error), 0, len(c.tracers))
	for _, t := range c.tracers {
		inner, end := c.begin(ctx, t, op)
		ctx = inner
		ends = append(ends, end)
	}
	return ctx, func(err error) {
		for i := len(ends) - 1; i >= 0; i-- {
			c.end(ends[i], op, err)
		}
	}
}

func (c *core) begin(ctx context.Context, t Tracer, op *Operation) (inner context.Context, end func(error)) {
	var traced context.Context
	stop := foreign.Call(func() { traced, end = t.Begin(ctx, op) })
	c.tracerStopped(op, stop)
	if stop != nil || traced == nil || end == nil {
		return ctx, nothing
	}
	return traced, end
}

func (c *core) end(end func(error), op *Operation, err error) {
	c.tracerStopped(op, foreign.Call(func() { end(foreign.Ending(err)) }))
}

// tracerStopped tells of a tracer that has not returned.
func (c *core) tracerStopped(op *Operation, stop *foreign.Stop) {
	if stop != nil {
		c.log.Error("tracer "+stop.How(), "operation", op.Kind, stop.Attr())
	}
}
