package ojsotel_test

import (
	"context"
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.opentelemetry.io/otel/trace"

	"github.com/ojsengine/ojs"
	"github.com/ojsengine/ojs/internal/test/pace"
	"github.com/ojsengine/ojs/storage/memory"
	"github.com/ojsengine/ojs/workflow"
)

// steps are the spans of a workflow by the names of its steps, and those of their
// attempts.
type steps struct {
	create   map[string]tracetest.SpanStub
	attempts map[string][]tracetest.SpanStub
	joins    map[trace.SpanID]tracetest.SpanStub
}

func stepSpans(spans tracetest.SpanStubs) steps {
	s := steps{make(map[string]tracetest.SpanStub), make(map[string][]tracetest.SpanStub),
		make(map[trace.SpanID]tracetest.SpanStub)}
	for _, span := range spans {
		step := ""
		for _, a := range span.Attributes {
			if a.Key == "ojs.workflow.step" {
				step = a.Value.AsString()
			}
		}
		switch {
		case span.Name == "default process":
			s.attempts[step] = append(s.attempts[step], span)
		case span.Name == "default create" && step == "":
			s.joins[span.SpanContext.SpanID()] = span
		case span.Name == "default create":
			s.create[step] = span
		}
	}
	return s
}

// before returns the steps that a step's span leads to, through joins.
func (s *steps) before(span tracetest.SpanStub) (names []string) {
	for _, l := range span.Links {
		if join, ok := s.joins[l.SpanContext.SpanID()]; ok {
			names = append(names, s.before(join)...)
		}
		for name, c := range s.create {
			if c.SpanContext.SpanID() == l.SpanContext.SpanID() {
				names = append(names, name)
			}
		}
	}
	slices.Sort(names)
	return names
}

// A request starts a workflow in one engine, and another one on the same storage runs it.
// Its spans are one trace, which begins with the request, and lead from step to step.
func TestWorkflowSpans(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memory.New()
		web, worker := newRig(t, store), newRig(t, store)
		worker.Handle("step", func(_ context.Context, job *ojs.Job[any]) error {
			if job.Args == "fails once" && job.Attempt == 1 {
				return ojs.RetryAfter(0, errors.New("again"))
			}
			return nil
		})
		step := func(name string) workflow.Part { return workflow.Step(name, ojs.NewDraft("step", name)) }
		ctx, request := web.tracers.Tracer("web").Start(withBaggage(t, t.Context(), "acme"), "POST /report")
		ticket, err := web.Workflows().Start(ctx, workflow.New("report", workflow.Chain(step("list"),
			workflow.Group(step("sales"), step("fails once"), step("costs")),
			workflow.Group(step("print"), step("mail")))))
		if err != nil {
			t.Fatal(err)
		}
		request.End()
		worker.during(func(context.Context) { synctest.Wait() })

		start := find(t, web.spans.GetSpans(), "default enqueue_batch")
		if start.Parent.SpanID() != request.SpanContext().SpanID() {
			t.Error("the start is no part of the request")
		}
		s := stepSpans(append(web.spans.GetSpans(), worker.spans.GetSpans()...))
		side := []string{"costs", "fails once", "sales"}
		for name, before := range map[string][]string{
			"list": nil, "sales": {"list"}, "fails once": {"list"}, "costs": {"list"},
			"print": side, "mail": side,
		} {
			create, ok := s.create[name]
			if !ok {
				t.Fatalf("step %q has no span", name)
			}
			if create.Parent.SpanID() != start.SpanContext.SpanID() {
				t.Errorf("the span of step %q is no part of the start", name)
			}
			if got := s.before(create); !slices.Equal(got, before) {
				t.Errorf("step %q leads to %q, want %q", name, got, before)
			}
			if len(create.Links) > len(side) {
				t.Errorf("step %q has %d links", name, len(create.Links))
			}
			want := 1
			if name == "fails once" {
				want = 2
			}
			if len(s.attempts[name]) != want {
				t.Errorf("step %q has %d spans of attempts, want %d", name, len(s.attempts[name]), want)
			}
			for _, a := range s.attempts[name] {
				if !a.Parent.IsRemote() || a.Parent.SpanID() != create.SpanContext.SpanID() ||
					a.SpanContext.TraceID() != request.SpanContext().TraceID() {
					t.Errorf("an attempt of step %q is in %v, want %v", name, a.Parent, create.SpanContext)
				}
				id, shape := "", ""
				for _, attr := range a.Attributes {
					switch attr.Key {
					case "ojs.workflow.id":
						id = attr.Value.AsString()
					case "ojs.workflow.type":
						shape = attr.Value.AsString()
					}
				}
				if id != ticket.ID || shape != "chain" {
					t.Errorf("P1.10 an attempt of step %q is of workflow %q, a %q", name, id, shape)
				}
			}
		}
		joins := 0
		for _, j := range s.joins {
			if len(s.before(j)) == 0 {
				t.Errorf("a join leads to nothing")
			}
			joins++
		}
		if joins > 2 {
			t.Errorf("%d joins have spans: the record of the workflow is one", joins)
		}
	})
}

// Steps that are added begin with the attempt that adds them.
func TestAddedSpans(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, memory.New())
		r.Handle("list", func(ctx context.Context, job *ojs.Job[any]) error {
			_, err := workflow.Add(ctx, workflow.Chain(workflow.Step("a", ojs.NewDraft("step", nil)),
				workflow.Step("b", ojs.NewDraft("step", nil))))
			return err
		})
		r.Handle("step", func(context.Context, *ojs.Job[any]) error { return nil })
		_, err := r.Workflows().Start(t.Context(), workflow.New("", workflow.Chain(
			workflow.Adder("list", ojs.NewDraft("list", nil)),
			workflow.Step("report", ojs.NewDraft("step", nil)))))
		if err != nil {
			t.Fatal(err)
		}
		r.during(func(context.Context) { synctest.Wait() })
		s := stepSpans(r.spans.GetSpans())
		for _, name := range []string{"list", "list/a", "list/b", "report"} {
			if len(s.attempts[name]) != 1 ||
				s.attempts[name][0].SpanContext.TraceID() != s.create["list"].SpanContext.TraceID() {
				t.Fatalf("step %q has the attempts %v", name, s.attempts[name])
			}
		}
		if got := s.before(s.create["list/b"]); !slices.Equal(got, []string{"list/a"}) {
			t.Errorf("step list/b leads to %q", got)
		}
		added := tracetest.SpanStub{}
		for _, span := range r.spans.GetSpans() {
			if span.SpanContext.SpanID() == s.create["list/a"].Parent.SpanID() {
				added = span
			}
		}
		if added.Parent.SpanID() != s.attempts["list"][0].SpanContext.SpanID() {
			t.Errorf("step list/a begins in %q, which is no part of the attempt of list", added.Name)
		}
	})
}

// Jobs that wait for each other outside of a workflow have spans that lead to each other,
// and traces of their own.
func TestDependentSpans(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, memory.New())
		r.Handle("step", func(context.Context, *ojs.Job[any]) error { return nil })
		stored := r.enqueue(t.Context(), "step", ojs.WithDelay(time.Second/2))
		tickets, err := r.EnqueueMany(t.Context(), // in no order
			ojs.NewDraft("step", nil, ojs.WithDependsOn("first", stored)),
			ojs.NewDraft("step", nil, ojs.WithDraftName("first")))
		if err != nil {
			t.Fatal(err)
		}
		r.enqueue(t.Context(), "step", ojs.WithDependsOn(tickets[0].ID))
		var creates tracetest.SpanStubs
		for _, s := range r.spans.GetSpans() {
			if s.Name == "default create" {
				creates = append(creates, s)
			}
		}
		if len(creates) != 2 || len(creates[0].Links) != 1 ||
			creates[0].Links[0].SpanContext.SpanID() != creates[1].SpanContext.SpanID() {
			t.Fatalf("spans %v", creates)
		}
		r.during(func(context.Context) { pace.Virtual(time.Second) })
		linked := 0
		for _, s := range r.spans.GetSpans() {
			if s.Name != "default process" {
				continue
			}
			if s.Parent.IsValid() || len(s.Links) != 1 {
				t.Errorf("an attempt is in %v, with %d links", s.Parent, len(s.Links))
			}
			for _, c := range creates {
				if s.Links[0].SpanContext.SpanID() == c.SpanContext.SpanID() {
					linked++
				}
			}
		}
		if linked != 2 {
			t.Errorf("%d attempts are linked to the spans of their jobs, want 2", linked)
		}
	})
}

// Jobs of an ordering key wait for no job that has a span, so a batch of them has one.
func TestOrderedBatchHasOneSpan(t *testing.T) {
	r := newRig(t, memory.New())
	_, err := r.EnqueueMany(t.Context(), ojs.NewDraft("step", nil, ojs.WithOrderingKey("k")),
		ojs.NewDraft("step", nil, ojs.WithOrderingKey("k")))
	if err != nil {
		t.Fatal(err)
	}
	if spans := r.spans.GetSpans(); len(spans) != 1 {
		t.Errorf("%d spans: %v", len(spans), spans)
	}
}
