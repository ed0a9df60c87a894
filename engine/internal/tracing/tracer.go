// Package tracing has the tracers of an engine follow its operations.
package tracing

import (
	"context"

	"github.com/ojsengine/ojs"
	"github.com/ojsengine/ojs/engine/internal/logs"
	"github.com/ojsengine/ojs/internal/foreign"
	"github.com/ojsengine/ojs/storage"
	"github.com/ojsengine/ojs/telemetry"
)

// Tracers are those of an engine.
type Tracers struct {
	*logs.Lines
	All     []telemetry.Tracer
	Worker  string // the engine's
	Backend string // the storage's name
}

// Nothing ends an operation without a tracer.
func Nothing(error) {}

// Tracing reports whether the engine has tracers.
func (c *Tracers) Tracing() bool { return len(c.All) > 0 }

// Trace begins an operation about a job, or about none.
func (c *Tracers) Trace(
	ctx context.Context, kind telemetry.OperationKind, rec *storage.Record,
) (context.Context, func(error)) {
	if !c.Tracing() {
		return ctx, Nothing
	}
	op := &telemetry.Operation{Kind: kind, Worker: c.Worker}
	if rec != nil {
		op.Queue, op.Jobs = rec.Queue, []*ojs.JobInfo{&rec.JobInfo}
		if rec.Worker != "" {
			op.Worker = rec.Worker
		}
	}
	return c.follow(ctx, op)
}

// TraceID begins an operation about a job of which only the id is known.
func (c *Tracers) TraceID(
	ctx context.Context, kind telemetry.OperationKind, id string,
) (context.Context, func(error)) {
	if !c.Tracing() {
		return ctx, Nothing
	}
	return c.Trace(ctx, kind, &storage.Record{JobInfo: ojs.JobInfo{JobHeader: ojs.JobHeader{ID: id}}})
}

// TraceEnqueue begins an enqueue.
func (c *Tracers) TraceEnqueue(ctx context.Context, batch []storage.Insert) (context.Context, func(error)) {
	if !c.Tracing() {
		return ctx, Nothing
	}
	op := &telemetry.Operation{Kind: telemetry.OpEnqueue}
	if len(batch) > 1 {
		op.Kind = telemetry.OpEnqueueBatch
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

// TraceFetch begins a fetch, which ends with what it has found.
func (c *Tracers) TraceFetch(
	ctx context.Context, queues []string, worker string,
) (context.Context, func([]storage.Record, error)) {
	if !c.Tracing() {
		return ctx, func([]storage.Record, error) {}
	}
	op := &telemetry.Operation{Kind: telemetry.OpFetch, Worker: worker}
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

// TraceCron begins a run of a recurring entry.
func (c *Tracers) TraceCron(ctx context.Context, e *storage.Cron) (context.Context, func(error)) {
	if !c.Tracing() {
		return ctx, Nothing
	}
	return c.follow(ctx, &telemetry.Operation{Kind: telemetry.OpCron, Queue: e.Options.Queue,
		Worker: c.Worker, Cron: e.Name})
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
func (c *Tracers) follow(ctx context.Context, op *telemetry.Operation) (context.Context, func(error)) {
	op.Backend = c.Backend
	ends := make([]func(error), 0, len(c.All))
	for _, t := range c.All {
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

func (c *Tracers) begin(
	ctx context.Context, t telemetry.Tracer, op *telemetry.Operation,
) (inner context.Context, end func(error)) {
	var traced context.Context
	stop := foreign.Call(func() { traced, end = t.Begin(ctx, op) })
	c.tracerStopped(op, stop)
	if stop != nil || traced == nil || end == nil {
		return ctx, Nothing
	}
	return traced, end
}

func (c *Tracers) end(end func(error), op *telemetry.Operation, err error) {
	c.tracerStopped(op, foreign.Call(func() { end(foreign.Ending(err)) }))
}

// tracerStopped tells of a tracer that has not returned.
func (c *Tracers) tracerStopped(op *telemetry.Operation, stop *foreign.Stop) {
	if stop != nil {
		c.Log.Error("tracer "+stop.How(), "operation", op.Kind, stop.Attr())
	}
}
