package ojsotel

import (
	"context"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/baggage"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/trace"

	"github.com/ojsengine/ojs"
	"github.com/ojsengine/ojs/telemetry"
	"github.com/ojsengine/ojs/workflow"
)

var kinds = map[telemetry.OperationKind]trace.SpanKind{
	telemetry.OpEnqueue: trace.SpanKindProducer, telemetry.OpEnqueueBatch: trace.SpanKindProducer,
	opCreate: trace.SpanKindProducer, telemetry.OpProcess: trace.SpanKindConsumer,
	telemetry.OpFetch: trace.SpanKindClient, telemetry.OpAck: trace.SpanKindClient,
	telemetry.OpNack:   trace.SpanKindClient,
	telemetry.OpCancel: trace.SpanKindClient, telemetry.OpGet: trace.SpanKindClient,
}

// Begin begins the span of an operation.
func (t *Telemetry) Begin(ctx context.Context, op *telemetry.Operation) (context.Context, func(error)) {
	switch op.Kind {
	case telemetry.OpFetch:
		start := t.clock.Now()
		return ctx, func(err error) { t.fetched(ctx, op, start, err) }
	case telemetry.OpProcess:
		return t.process(ctx, op)
	}
	ctx, span := t.start(ctx, op)
	if op.Kind == telemetry.OpEnqueue || op.Kind == telemetry.OpEnqueueBatch {
		t.inject(ctx, op)
	}
	return ctx, func(err error) { t.end(span, err) }
}

func (t *Telemetry) start(ctx context.Context, op *telemetry.Operation,
	opts ...trace.SpanStartOption) (context.Context, trace.Span) {
	kind, ok := kinds[op.Kind]
	if !ok {
		kind = trace.SpanKindInternal
	}
	// The last ones given hold.
	opts = append([]trace.SpanStartOption{
		trace.WithSpanKind(kind), trace.WithTimestamp(t.clock.Now()), trace.WithAttributes(attributes(op)...),
	}, opts...)
	ctx, span := t.tracer.Start(ctx, spanName(op), opts...)
	// the size may cost an encoding
	if (op.Kind == telemetry.OpEnqueue || op.Kind == telemetry.OpProcess) && span.IsRecording() {
		span.SetAttributes(attribute.Int("messaging.message.body.size", op.Jobs[0].Args.Len()))
	}
	return ctx, span
}

func spanName(op *telemetry.Operation) string {
	switch op.Kind {
	case telemetry.OpEnqueue, telemetry.OpEnqueueBatch, opCreate, telemetry.OpFetch, telemetry.OpProcess:
		if op.Queue == "" {
			return string(op.Kind)
		}
		return op.Queue + " " + string(op.Kind)
	}
	return "ojs." + string(op.Kind)
}

// end ends a span with the error of its operation.
func (t *Telemetry) end(span trace.Span, err error) {
	if err != nil {
		if e := describe(err); !e.cancelled {
			span.SetStatus(codes.Error, e.message)
			span.SetAttributes(attribute.String("error.type", e.kind),
				attribute.String("error.message", e.message))
		}
	}
	span.End(trace.WithTimestamp(t.clock.Now()))
}

// fetched makes the span of a fetch that has found something, or failed.
func (t *Telemetry) fetched(ctx context.Context, op *telemetry.Operation, start time.Time, err error) {
	if len(op.Jobs) == 0 && err == nil {
		return
	}
	_, span := t.start(ctx, op, trace.WithTimestamp(start))
	t.end(span, err)
}

// process begins the span of an attempt.
func (t *Telemetry) process(ctx context.Context, op *telemetry.Operation) (context.Context, func(error)) {
	job := op.Jobs[0]
	var opts []trace.SpanStartOption
	from := t.propagator.Extract(ctx, carrier{job})
	enqueue := trace.SpanContextFromContext(from)
	switch {
	case enqueue.IsValid() && ofWorkflow(job):
		ctx = trace.ContextWithRemoteSpanContext(ctx, enqueue)
	case enqueue.IsValid():
		opts = append(opts, trace.WithNewRoot(), trace.WithLinks(trace.Link{SpanContext: enqueue}))
	default:
		opts = append(opts, trace.WithNewRoot())
	}
	ctx, span := t.start(baggage.ContextWithBaggage(ctx, baggage.FromContext(from)), op, opts...)
	return ctx, func(err error) {
		// A handler's error after it was told to stop says nothing about the handler.
		if cause := context.Cause(ctx); cause == ojs.ErrCancelled || cause == ojs.ErrReplaced ||
			cause == ojs.ErrLeaseLost {
			span.SetAttributes(attribute.String("ojs.job.state", string(ojs.StateCancelled)))
			err = nil
		}
		if err != nil {
			span.SetAttributes(attribute.Int("ojs.job.error.attempt", job.Attempt))
		}
		t.end(span, err)
	}
}

// inject puts the context of an enqueue into the metadata of its jobs. Package baggage
// allows no more than the 8192 bytes that OJS distributed tracing does.
func (t *Telemetry) inject(ctx context.Context, op *telemetry.Operation) {
	if op.Kind == telemetry.OpEnqueueBatch && op.DependsOn != nil {
		t.injectSteps(ctx, op)
		return
	}
	for _, j := range op.Jobs {
		t.propagator.Inject(ctx, carrier{j})
	}
}

// carrier is a job's metadata. A value that is no string does not exist for it.
type carrier struct{ job *ojs.JobInfo }

func (c carrier) Get(key string) string {
	s, _ := c.job.Meta[key].(string)
	return s
}

func (c carrier) Set(key, value string) {
	if c.job.Meta == nil {
		c.job.Meta = make(map[string]any, 3)
	}
	c.job.Meta[key] = value
}

func (c carrier) Keys() (keys []string) {
	for k, v := range c.job.Meta {
		if _, ok := v.(string); ok {
			keys = append(keys, k)
		}
	}
	return keys
}

// attributes describe an operation (OJS observability, section 6).
func attributes(op *telemetry.Operation) []attribute.KeyValue {
	list := []attribute.KeyValue{attribute.String("messaging.system", "ojs"),
		attribute.String("ojs.backend.type", op.Backend)}
	add := func(key, value string) {
		if value != "" {
			list = append(list, attribute.String(key, value))
		}
	}
	switch op.Kind {
	case telemetry.OpEnqueue, telemetry.OpEnqueueBatch:
		add("messaging.operation.type", "publish")
	case opCreate:
		add("messaging.operation.type", "create")
	case telemetry.OpProcess:
		add("messaging.operation.type", "process")
	case telemetry.OpFetch:
		add("messaging.operation.type", "receive")
	}
	add("messaging.destination.name", op.Queue)
	add("ojs.worker.id", op.Worker)
	add("ojs.cron.name", op.Cron)
	switch {
	case op.Kind == telemetry.OpEnqueueBatch || op.Kind == telemetry.OpFetch:
		return append(list, attribute.Int("messaging.batch.message_count", len(op.Jobs)))
	case len(op.Jobs) == 0:
		return list
	}
	j := op.Jobs[0]
	add("messaging.message.id", j.ID)
	add("ojs.job.id", j.ID)
	if j.Type == "" { // only its id is known
		return list
	}
	add("ojs.job.type", j.Type)
	add("ojs.job.queue", j.Queue)
	add("ojs.job.state", string(j.State))
	if w := workflow.Describe(j); w != nil {
		add("ojs.workflow.id", w.ID)
		add("ojs.workflow.type", w.Shape)
		add("ojs.workflow.step", w.Step)
	}
	list = append(list, attribute.Int("ojs.job.attempt", j.Attempt),
		attribute.Int("ojs.job.priority", j.Priority))
	if !j.ScheduledAt.IsZero() {
		add("ojs.job.scheduled_at", j.ScheduledAt.UTC().Format(time.RFC3339Nano))
	}
	return list
}
