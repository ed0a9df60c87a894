package ojsotel

import (
	"context"

	"go.opentelemetry.io/otel/trace"

	"github.com/ojsengine/ojs"
	"github.com/ojsengine/ojs/telemetry"
	"github.com/ojsengine/ojs/workflow"
)

// How the spans of jobs that wait for each other are connected:
//
//  1. The span of the enqueue has a child for each job of the batch, "{queue} create". It
//     ends at once. Its context travels in the job's metadata.
//  2. The child has a link to the child of each job of the batch that its job waits for.
//     Joins have children, too: 1,000 jobs before 1,000 others are 2,000 links. A join
//     that no job of the batch waits for, such as the record of a workflow, has none. A
//     job that is stored already has no link: its context is not known.
//  3. In a workflow, the span of an attempt is a child of the span of its step. So a
//     workflow is one trace, and is sampled as a whole.

// injectSteps makes the spans of the jobs of a batch in which jobs wait for each other,
// and puts the context of each into the metadata of its job.
func (t *Telemetry) injectSteps(ctx context.Context, op *telemetry.Operation) {
	awaited := make(map[string]trace.SpanContext) // by id
	for _, ids := range op.DependsOn {
		for _, id := range ids {
			awaited[id] = trace.SpanContext{}
		}
	}
	spans := make([]trace.Span, len(op.Jobs))
	for i, j := range op.Jobs {
		_, waited := awaited[j.ID]
		if join := j.Dependencies != nil && j.Dependencies.Join; join && !waited {
			t.propagator.Inject(ctx, carrier{j})
			continue
		}
		inner, span := t.start(ctx, &telemetry.Operation{Kind: opCreate, Queue: j.Queue,
			Jobs:    op.Jobs[i : i+1],
			Backend: op.Backend})
		t.propagator.Inject(inner, carrier{j})
		if spans[i] = span; waited {
			awaited[j.ID] = span.SpanContext()
		}
	}
	for i, span := range spans {
		if span == nil {
			continue
		}
		for _, id := range op.DependsOn[i] {
			if step := awaited[id]; step.IsValid() { // a stored job's is not known
				span.AddLink(trace.Link{SpanContext: step})
			}
		}
		t.end(span, nil)
	}
}

// opCreate is the making of one job of a batch. No engine has such an operation.
const opCreate telemetry.OperationKind = "create"

// ofWorkflow reports whether a job is one of a workflow.
func ofWorkflow(job *ojs.JobInfo) bool {
	id, _ := job.Meta[workflow.MetaWorkflow].(string)
	return id != ""
}
