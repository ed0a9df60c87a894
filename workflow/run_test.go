package workflow_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"path"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"github.com/benbjohnson/clock"

	"github.com/ojsengine/ojs"
	"github.com/ojsengine/ojs/codec"
	"github.com/ojsengine/ojs/engine"
	"github.com/ojsengine/ojs/engine/fetch"
	"github.com/ojsengine/ojs/event"
	"github.com/ojsengine/ojs/handler"
	"github.com/ojsengine/ojs/inspect"
	"github.com/ojsengine/ojs/internal/test/pace"
	"github.com/ojsengine/ojs/storage"
	"github.com/ojsengine/ojs/storage/memory"
	"github.com/ojsengine/ojs/storage/storagetest"
	"github.com/ojsengine/ojs/workflow"
)

// rig is an engine in a bubble of virtual time.
type rig struct {
	*engine.Engine[any]
	t   *testing.T
	ctx context.Context

	mu  sync.Mutex
	ran []string // the steps, in the order of their starts
}

func inBubble(t *testing.T, f func(b *rig), opts ...engine.Option) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		quiet := engine.WithLogger(slog.New(slog.DiscardHandler))
		eng, err := engine.New[any](memory.New(), append([]engine.Option{quiet}, opts...)...)
		must(t, err)
		b := &rig{Engine: eng, t: t, ctx: t.Context()}
		ctx, stop := context.WithCancel(context.Background())
		ended := make(chan error, 1)
		f(b)
		go func() { ended <- eng.Run(ctx) }()
		synctest.Wait()
		stop()
		must(t, <-ended)
	})
}

// run runs the engine for as long as d.
func (b *rig) run(d time.Duration) {
	b.t.Helper()
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- b.Run(ctx) }()
	pace.Virtual(d)
	synctest.Wait()
	stop()
	must(b.t, <-ended)
}

// handle adds a handler that notes its step.
func (b *rig) handle(jobType string, f func(ctx context.Context, step string) error) {
	b.Handle(jobType, func(ctx context.Context, job *ojs.Job[any]) error {
		step, _ := job.Meta[workflow.MetaStep].(string)
		b.mu.Lock()
		b.ran = append(b.ran, step)
		b.mu.Unlock()
		return f(ctx, step)
	})
}

func (b *rig) start(w *workflow.Workflow) string {
	b.t.Helper()
	ticket, err := b.Workflows().Start(b.ctx, w)
	must(b.t, err)
	return ticket.ID
}

func (b *rig) status(id string) *workflow.Status {
	b.t.Helper()
	s, err := b.Workflows().Get(b.ctx, id)
	must(b.t, err)
	return s
}

// want checks the states of a workflow and of its steps.
func (b *rig) want(id string, state workflow.State, steps string) *workflow.Status {
	b.t.Helper()
	s := b.status(id)
	var got []string
	for i := range s.Steps {
		got = append(got, s.Steps[i].Name+":"+string(s.Steps[i].State()))
	}
	if s.State != state || strings.Join(got, " ") != steps {
		b.t.Errorf("%s, %s\nwant %s, %s", s.State, strings.Join(got, " "), state, steps)
	}
	return s
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

var errBoom = errors.New("boom")

const anyID = "019b0000-0000-7000-8000-000000000000"

func step(name string, opts ...ojs.Option) workflow.Part {
	return workflow.Step(name, ojs.NewDraft("x", nil, opts...))
}

// W001 W030 W031 W032 W033 W034 W035 W063 W081 W083 W094: workflows of any shape, with
// any steps failing and steps that add parts, run as a model says. A retry after that
// runs what has failed, and nothing that has completed.
func TestRandomWorkflows(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		w := workflow.Draw(rt)
		slots := rapid.IntRange(1, 4).Draw(rt, "slots")
		inBubble(t, func(b *rig) {
			fails := w.Fails
			b.handle("x", func(ctx context.Context, step string) error {
				name := path.Base(step)
				if part, ok := w.Adds[name]; ok {
					if _, err := workflow.Add(ctx, part); err != nil {
						rt.Errorf("%s adds: %v", step, err)
					}
				}
				if fails[name] {
					return ojs.Discard(errBoom)
				}
				return nil
			})
			sub := b.Subscribe(engine.EventFilter{Types: []event.Type{"workflow.*"}, Buffer: 10_000})
			defer sub.Close()
			id := b.start(w.Workflow)
			b.run(0)
			s := b.status(id)
			if fault := checkEvents(heard(sub), event.WorkflowCreated, s, nil); fault != "" {
				rt.Error(fault)
			}
			if s.State != w.State || s.FinishedAt.IsZero() {
				rt.Errorf("%s since %v, want %s", s.State, s.FinishedAt, w.State)
			}
			for name, runs := range w.Runs {
				state := ojs.StateCancelled
				switch {
				case runs && w.Fails[path.Base(name)]:
					state = ojs.StateDiscarded
				case runs:
					state = ojs.StateCompleted
				}
				if got := s.Step(name); got.State() != state {
					rt.Errorf("%s is %s, want %s", name, got.State(), state)
				}
				if slices.Contains(b.ran, name) != runs {
					rt.Errorf("%s ran: %v, want %v", name, !runs, runs)
				}
			}
			before := b.ran
			b.ran, fails = nil, nil
			err := b.Workflows().Retry(b.ctx, id)
			if w.State != workflow.StateFailed || w.Retried == "" && errors.Is(err, ojs.ErrTransition) {
				if !errors.Is(err, ojs.ErrTransition) {
					rt.Errorf("a retry of a workflow that is %s: %v", w.State, err)
				}
				return
			}
			must(t, err)
			b.run(0)
			after := b.status(id)
			if fault := checkEvents(heard(sub), event.WorkflowRetried, after, s); fault != "" {
				rt.Error(fault)
			}
			if !after.State.Final() || w.Retried != "" && after.State != w.Retried {
				rt.Errorf("%s after a retry, want %s", after.State, w.Retried)
			}
			for _, step := range b.ran {
				if slices.Contains(before, step) && !w.Fails[path.Base(step)] {
					rt.Errorf("%s has completed, and runs again", step)
				}
			}
		}, engine.WithConcurrency(slots))
	})
}

func TestRun(t *testing.T) {
	t.Run("W021 W030 W036 a chain, whose second step fails", func(t *testing.T) {
		inBubble(t, func(b *rig) {
			b.handle("x", func(_ context.Context, step string) error {
				if step == "b" {
					return ojs.Discard(errBoom)
				}
				return nil
			})
			id := b.start(workflow.New("abc", workflow.Chain(step("a"), step("b"), step("c"))))
			s := b.want(id, workflow.StateRunning, "a:available b:pending c:pending")
			if s.Name != "abc" || !s.StartedAt.IsZero() {
				t.Errorf("%+v", s)
			}
			b.start(workflow.New("", step("other")))
			f, err := inspect.Parse("workflow:"+id+" type:x", time.Now())
			must(t, err)
			var steps []string
			for job, err := range b.Jobs().List(b.ctx, f) {
				must(t, err)
				steps = append(steps, job.Meta[workflow.MetaStep].(string))
			}
			if got := strings.Join(steps, " "); got != "a b c" {
				t.Errorf("the filter selects %s", got)
			}
			b.run(0)
			s = b.want(id, workflow.StateFailed, "a:completed b:discarded c:cancelled")
			if s.StartedAt.IsZero() || s.FinishedAt.IsZero() || s.Count(ojs.StateCompleted) != 1 {
				t.Errorf("%+v", s)
			}
		})
	})
	t.Run("W002 a name is kept, and options hold for every member", func(t *testing.T) {
		inBubble(t, func(b *rig) {
			s := b.status(b.start(workflow.New("abc", workflow.Chain(
				workflow.Batch(step("a"), workflow.OnComplete(ojs.NewDraft("x", nil))),
				workflow.Saga(workflow.Compensate, undoable("c"))), ojs.WithQueue("q"))))
			if s.Name != "abc" || len(s.Steps) != 4 {
				t.Errorf("%+v", s)
			}
			for i := range s.Steps {
				if queue := s.Steps[i].Job.Queue; queue != "q" {
					t.Errorf("%s is in queue %s", s.Steps[i].Name, queue)
				}
			}
		})
	})
	t.Run("W020 W021 W024 a first job can be fetched at once, and its end enqueues the next, once",
		func(t *testing.T) {
			inBubble(t, func(b *rig) {
				w := b.Worker("w", fetch.Config{Types: []string{"x"}})
				id := b.start(workflow.New("", workflow.Chain(step("a"), step("b"), step("c"))))
				for _, want := range []string{"a:completed b:available c:pending",
					"a:completed b:completed c:available"} {
					ctx, stop := context.WithTimeout(b.ctx, time.Second)
					ds, err := w.FetchMany(ctx, 3)
					stop()
					if err != nil || len(ds) != 1 {
						t.Fatalf("%d jobs, %v", len(ds), err)
					}
					must(t, ds[0].Ack(b.ctx, nil))
					b.want(id, workflow.StateRunning, want)
					_ = ds[0].Ack(b.ctx, nil) // again
					b.want(id, workflow.StateRunning, want)
				}
			})
		})
	t.Run("W031 a group with a failed member has not failed until all have ended", func(t *testing.T) {
		inBubble(t, func(b *rig) {
			w := b.Worker("w", fetch.Config{Types: []string{"x"}})
			id := b.start(workflow.New("", workflow.Group(step("a"), step("b"))))
			ds, err := w.FetchMany(b.ctx, 2)
			must(t, err)
			must(t, ds[0].Fail(b.ctx, ojs.Discard(errBoom)))
			if s := b.want(id, workflow.StateRunning, "a:discarded b:active"); !s.FinishedAt.IsZero() {
				t.Errorf("it ended at %v", s.FinishedAt)
			}
			must(t, ds[1].Ack(b.ctx, nil))
			b.want(id, workflow.StateFailed, "a:discarded b:completed")
		})
	})
	t.Run("W024 W062 a step is enqueued with the last end that it waits for, once", func(t *testing.T) {
		inBubble(t, func(b *rig) {
			w := b.Worker("w", fetch.Config{Types: []string{"x"}})
			node := func(name string, after ...string) workflow.Node {
				return workflow.Node{Name: name, Job: ojs.NewDraft("x", nil), After: after}
			}
			id := b.start(workflow.New("", workflow.Graph(
				node("a"), node("b", "a"), node("c", "a"), node("d", "b", "c"))))
			ack := func(d *fetch.Delivery, want string) {
				t.Helper()
				must(t, d.Ack(b.ctx, nil))
				b.want(id, workflow.StateRunning, want)
				_ = d.Ack(b.ctx, nil) // again: it counts once
				b.want(id, workflow.StateRunning, want)
			}
			a, err := w.Fetch(b.ctx)
			must(t, err)
			ack(a, "a:completed b:available c:available d:pending")
			ds, err := w.FetchMany(b.ctx, 3)
			if err != nil || len(ds) != 2 {
				t.Fatalf("%d jobs, %v", len(ds), err)
			}
			ack(ds[0], "a:completed b:completed c:active d:pending")
			ack(ds[1], "a:completed b:completed c:completed d:available")
		})
	})
	t.Run("W022 the members of a group and of a batch begin at once", func(t *testing.T) {
		inBubble(t, func(b *rig) {
			parts := workflow.Group(step("a"), step("b"), step("c"))
			const all = "a:available b:available c:available"
			b.want(b.start(workflow.New("", parts)), workflow.StateRunning, all)
			batch := workflow.Batch(parts, workflow.OnComplete(ojs.NewDraft("x", nil)))
			b.want(b.start(workflow.New("", batch)), workflow.StateRunning, all+" on_complete:pending")
		})
	})
	t.Run("W023 each step has its own retries, and the workflow adds none", func(t *testing.T) {
		inBubble(t, func(b *rig) {
			b.handle("x", func(context.Context, string) error { return errBoom })
			attempts := map[string]int{"a": 1, "b": 2, "c": 4, "d": 3} // d has the default
			id := b.start(workflow.New("", workflow.Group(step("a", ojs.WithMaxAttempts(1)),
				step("b", ojs.WithMaxAttempts(2)), step("c", ojs.WithMaxAttempts(4)), step("d"))))
			b.run(time.Hour)
			b.want(id, workflow.StateFailed, "a:discarded b:discarded c:discarded d:discarded")
			for _, step := range b.ran {
				attempts[step]--
			}
			for step, n := range attempts {
				if n != 0 {
					t.Errorf("%s has run %d times less than it should", step, n)
				}
			}
		})
	})
	t.Run("W033 a callback has its own options and retries, and the batch runs until it ends", func(t *testing.T) {
		inBubble(t, func(b *rig) {
			b.handle("x", func(context.Context, string) error { return nil })
			b.handle("call", func(context.Context, string) error { return errBoom })
			call := ojs.NewDraft("call", nil, ojs.WithMaxAttempts(2), ojs.WithPriority(5))
			id := b.start(workflow.New("", workflow.Chain(
				workflow.Batch(step("a"), workflow.OnSuccess(call).Named("tell")), step("z"))))
			b.run(0)
			b.want(id, workflow.StateRunning, "a:completed tell:retryable z:pending")
			b.run(time.Hour)
			tell := b.want(id, workflow.StateFailed, "a:completed tell:discarded z:cancelled").Step("tell")
			if tell.Callback != "on_success" || tell.Job.Priority != 5 || tell.Job.Error == nil ||
				tell.Job.Error.Message != "boom" || tell.Job.Error.Attempt != 2 {
				t.Errorf("%+v, %+v", tell, tell.Job.Error)
			}
		})
	})
	t.Run("W036 a pending or running workflow can be cancelled, and no other", func(t *testing.T) {
		inBubble(t, func(b *rig) {
			b.handle("x", func(_ context.Context, step string) error {
				if step == "bad" {
					return ojs.Discard(errBoom)
				}
				return nil
			})
			completed, failed := b.start(workflow.New("", step("a"))), b.start(workflow.New("", step("bad")))
			b.run(0)
			for _, id := range []string{completed, failed} {
				before := b.status(id).State
				if err := b.Workflows().Cancel(b.ctx, id); !errors.Is(err, ojs.ErrTransition) {
					t.Errorf("of a workflow that is %s: %v", before, err)
				}
				if after := b.status(id).State; after != before || !after.Final() {
					t.Errorf("%s, and %s before", after, before)
				}
			}
			for state, first := range map[workflow.State]workflow.Part{
				workflow.StatePending: step("a", ojs.WithDelay(time.Hour)), workflow.StateRunning: step("a"),
			} {
				id := b.start(workflow.New("", first))
				if got := b.status(id).State; got != state {
					t.Errorf("%s, not %s", got, state)
				}
				must(t, b.Workflows().Cancel(b.ctx, id))
				b.run(time.Hour)
				b.want(id, workflow.StateCancelled, "a:cancelled")
			}
		})
	})
	t.Run("W037 a first step that is available makes it run", func(t *testing.T) {
		inBubble(t, func(b *rig) {
			later := ojs.WithDelay(time.Hour)
			id := b.start(workflow.New("", workflow.Group(step("a"), step("b", later))))
			b.want(id, workflow.StateRunning, "a:available b:scheduled")
			id = b.start(workflow.New("", workflow.Group(step("a", ojs.WithPending()), step("b", later))))
			s := b.want(id, workflow.StatePending, "a:pending b:scheduled")
			must(t, b.Jobs().Activate(b.ctx, s.Step("a").JobID))
			b.want(id, workflow.StateRunning, "a:available b:scheduled")
		})
	})
	t.Run("W038 it has started when the first claim was made, not at a retry", func(t *testing.T) {
		inBubble(t, func(b *rig) {
			attempts := 0
			b.handle("x", func(_ context.Context, step string) error {
				switch attempts++; {
				case step != "a", attempts == 3:
					return nil
				case attempts == 1:
					return ojs.Snooze(time.Minute)
				}
				return errBoom
			})
			id := b.start(workflow.New("", workflow.Chain(step("a"), step("b"))))
			if s := b.status(id); !s.StartedAt.IsZero() {
				t.Errorf("it has started at %v", s.StartedAt)
			}
			pace.Virtual(time.Minute)
			b.run(time.Hour)
			s := b.want(id, workflow.StateCompleted, "a:completed b:completed")
			if after := s.StartedAt.Sub(s.CreatedAt); after != time.Minute {
				t.Errorf("it has started after %v", after)
			}
		})
	})
	t.Run("W039 a failed workflow says which steps have failed, and why", func(t *testing.T) {
		inBubble(t, func(b *rig) {
			b.handle("x", func(_ context.Context, step string) error {
				if step == "b" {
					return ojs.Errorf("card.declined", "no money")
				}
				return nil
			})
			twice := ojs.WithMaxAttempts(2)
			id := b.start(workflow.New("", workflow.Chain(step("a"), step("b", twice), step("c"))))
			b.run(time.Hour)
			s := b.want(id, workflow.StateFailed, "a:completed b:discarded c:cancelled")
			failed := s.Step("b")
			e := failed.Job.Error
			if failed.JobID != failed.Job.ID || e == nil || e.Type != "card.declined" ||
				e.Message != "no money" || e.Attempt != 2 {
				t.Errorf("the error of b is %+v", e)
			}
			if e := s.Step("a").Job.Error; e != nil {
				t.Errorf("the error of a is %+v", e)
			}
			if e := s.Step("c").Job.Error; e == nil || e.Details["dependency"] != failed.JobID {
				t.Errorf("the error of c is %+v", e)
			}
		})
	})
	t.Run("W023 a step that waits for a retry has not failed", func(t *testing.T) {
		inBubble(t, func(b *rig) {
			fails := true
			b.handle("x", func(_ context.Context, step string) error {
				if step == "a" && fails {
					fails = false
					return errBoom
				}
				return nil
			})
			id := b.start(workflow.New("", workflow.Chain(step("a"), step("b"))))
			b.run(time.Minute)
			b.want(id, workflow.StateCompleted, "a:completed b:completed")
			if got := strings.Join(b.ran, " "); got != "a a b" {
				t.Error(got)
			}
		})
	})
	t.Run("W012 a later step without a priority has that of the first", func(t *testing.T) {
		p := func(name string, n int) workflow.Part { return step(name, ojs.WithPriority(n)) }
		typed := ojs.Define[any]("typed", ojs.WithPriority(4))
		none := workflow.Group()
		node := func(name string, opts []ojs.Option, after ...string) workflow.Node {
			return workflow.Node{Name: name, Job: ojs.NewDraft("x", nil, opts...), After: after}
		}
		for want, w := range map[string]*workflow.Workflow{
			"a7 b7 c2 d7": workflow.New("", workflow.Chain(p("a", 7), step("b"), p("c", 2), step("d"))),
			"a0 b5 c0":    workflow.New("", workflow.Chain(step("a"), p("b", 5), step("c"))),
			"a7 b4 c0": workflow.New("", workflow.Chain(p("a", 7), workflow.Step("b", typed.New(nil)),
				p("c", 0))),
			"a4 b4": workflow.New("", workflow.Chain(workflow.Step("a", typed.New(nil)), step("b"))),
			"a7 b3": workflow.New("", workflow.Chain(p("a", 7), step("b")), ojs.WithPriority(3)),
			"a7 b0 c7 d7": workflow.New("", workflow.Chain(none, workflow.Group(p("a", 7), step("b")),
				workflow.Group(step("c"), step("d")))),
			"a7 b2 c2 d7": workflow.New("", workflow.Chain(p("a", 7), workflow.Chain(p("b", 2), step("c")),
				step("d"))),
			"a7 b7 c7 d7": workflow.New("", workflow.Chain(p("a", 7), workflow.Chain(step("b"), step("c")),
				workflow.Graph(workflow.Node{Name: "d", Job: ojs.NewDraft("x", nil)}))),
			"a7 b7":   workflow.New("", workflow.Saga(workflow.Compensate, p("a", 7), step("b"))),
			"a-3 b-3": workflow.New("", workflow.Saga(workflow.Skip, p("a", -3), step("b"))),
			"a7 b0":   workflow.New("", workflow.Group(p("a", 7), step("b"))),
			"a7 b0 c7 d3 e7": workflow.New("", workflow.Graph(node("a", []ojs.Option{ojs.WithPriority(7)}),
				node("b", nil), node("c", nil, "a", "b"), node("d", []ojs.Option{ojs.WithPriority(3)}, "c"),
				node("e", nil, "d"))),
		} {
			inBubble(t, func(b *rig) {
				var got []string
				for _, s := range b.status(b.start(w)).Steps {
					got = append(got, fmt.Sprint(s.Name, s.Job.Priority))
				}
				if strings.Join(got, " ") != want {
					t.Errorf("%v, want %s", got, want)
				}
			})
		}
	})
	t.Run("W002 W012 options of the workflow hold under those of its steps", func(t *testing.T) {
		inBubble(t, func(b *rig) {
			id := b.start(workflow.New("", workflow.Chain(step("a"), step("b", ojs.WithPriority(7))),
				ojs.WithPriority(3), ojs.WithQueue("q")))
			s := b.status(id)
			for step, priority := range map[string]int{"a": 3, "b": 7} {
				if job := s.Step(step).Job; job.Priority != priority || job.Queue != "q" {
					t.Errorf("%+v", job)
				}
			}
		})
	})
	t.Run("W002 options of the workflow and of the engine are for its steps only", func(t *testing.T) {
		run := func(what string, of, by ojs.Option) {
			inBubble(t, func(b *rig) {
				b.handle("x", func(ctx context.Context, _ string) error {
					return handler.Sleep(ctx, 4*time.Minute)
				})
				part := func(n int, opts ...ojs.Option) workflow.Part {
					return workflow.Step("", ojs.NewDraft("x", map[string]int{"n": n}, opts...))
				}
				longer := ojs.WithTotalTimeout(time.Hour)
				ticket, err := b.Workflows().Start(b.ctx, workflow.New("", workflow.Chain(
					workflow.Group(part(1), part(2)), workflow.Group(part(3, longer), part(4, longer))), of))
				if err != nil {
					t.Errorf("%s: %v", what, err)
					return
				}
				b.run(time.Hour)
				s := b.status(ticket.ID)
				if s.State != workflow.StateCompleted || s.Count(ojs.StateCompleted) != 4 {
					t.Errorf("%s: %+v", what, s)
				}
			}, engine.WithDefaults(by))
		}
		none := func(*ojs.Options) {}
		for name, opt := range map[string]ojs.Option{
			"expires_at":    ojs.WithExpiresAt(time.Date(2000, 1, 1, 0, 5, 0, 0, time.UTC)),
			"enqueue_ttl":   ojs.WithEnqueueTTL(5 * time.Minute),
			"total_timeout": ojs.WithTotalTimeout(5 * time.Minute),
			"unique": ojs.WithUnique(ojs.UniquePolicy{
				Keys: ojs.ByType | ojs.ByArgs, ArgsKeys: []string{"n"},
			}),
		} {
			run(name+" of the workflow", opt, none)
			run(name+" of the engine", none, opt)
		}
	})
	t.Run("W022 W026 W038 steps of a group begin in order, carry its id, and start it", func(t *testing.T) {
		inBubble(t, func(b *rig) {
			id := ""
			b.handle("x", func(ctx context.Context, step string) error {
				s := b.status(id)
				if s.StartedAt.IsZero() || s.Step(step).Job.Meta[workflow.MetaWorkflow] != id {
					t.Errorf("%+v", s)
				}
				return nil
			})
			id = b.start(workflow.New("", workflow.Group(step("a"), step("b"), step("c"))))
			b.run(0)
			if got := strings.Join(b.ran, " "); got != "a b c" {
				t.Errorf("ran %s", got)
			}
		}, engine.WithConcurrency(1))
	})
	t.Run("W026 results are kept until the workflow has ended, and a day longer", func(t *testing.T) {
		inBubble(t, func(b *rig) {
			b.handle("x", func(ctx context.Context, step string) error {
				if step == "last" {
					for _, name := range []string{"a", "brief", "none"} {
						n, err := workflow.Result[int](ctx, name)
						if name != "none" && (err != nil || n != 7) {
							t.Errorf("the result of %s: %d, %v", name, n, err)
						}
					}
					if s, err := workflow.Current(ctx); err != nil || s.Count(ojs.StateCompleted) != 3 {
						t.Errorf("%+v, %v", s, err)
					}
				}
				return handler.SetResult(ctx, 7)
			})
			id := b.start(workflow.New("", workflow.Chain(
				workflow.Group(step("a"), step("brief", ojs.WithResultTTL(time.Minute)),
					step("none", ojs.WithResultTTL(ojs.NoResult))),
				step("last", ojs.WithDelay(72*time.Hour)))))
			prune := func(hours time.Duration) { // an end, and time, make it look
				_, err := b.Enqueue(b.ctx, "x", nil)
				must(t, err)
				b.run(hours * time.Hour)
				b.run(0)
			}
			prune(71)
			prune(2)
			prune(22)
			if s := b.status(id); s.State != workflow.StateCompleted || s.Count(ojs.StateCompleted) != 4 {
				t.Errorf("%+v", s)
			}
			prune(3)
			prune(0)
			if _, err := b.Workflows().Get(b.ctx, id); !errors.Is(err, ojs.ErrPruned) {
				t.Errorf("after its time: %v", err)
			}
			left := 0
			for job, err := range b.Jobs().List(b.ctx, inspect.Filter{}) {
				must(t, err)
				if left++; left > 1 {
					t.Errorf("job %s of step %v is left", job.ID, job.Meta[workflow.MetaStep])
				}
			}
		}, engine.WithRetention(engine.Retention{Completed: time.Minute, MaxFinished: 1, MinAge: -1}))
	})
	t.Run("W037 it is pending while its first steps wait for their time", func(t *testing.T) {
		inBubble(t, func(b *rig) {
			b.handle("x", func(context.Context, string) error { return nil })
			id := b.start(workflow.New("", workflow.Chain(step("a", ojs.WithDelay(time.Hour)), step("b"))))
			b.want(id, workflow.StatePending, "a:scheduled b:pending")
			b.run(time.Hour)
			s := b.want(id, workflow.StateCompleted, "a:completed b:completed")
			if took := s.FinishedAt.Sub(s.CreatedAt); took != time.Hour {
				t.Errorf("it took %v", took)
			}
		})
	})
	t.Run("W011 a delay and a time to live count from when a step may start", func(t *testing.T) {
		inBubble(t, func(b *rig) {
			b.handle("x", func(context.Context, string) error { return nil })
			_, err := b.Queues().Pause(b.ctx, "paused")
			must(t, err)
			id := b.start(workflow.New("", workflow.Chain(
				step("a", ojs.WithDelay(2*time.Hour)),
				step("b", ojs.WithDelay(time.Hour), ojs.WithTTL(2*time.Hour)),
				step("c", ojs.WithTTL(time.Hour)),
				step("d", ojs.WithTTL(time.Hour), ojs.WithQueue("paused")))))
			b.run(2 * time.Hour)
			b.want(id, workflow.StateRunning, "a:completed b:scheduled c:pending d:pending")
			b.run(time.Hour)
			s := b.want(id, workflow.StateRunning, "a:completed b:completed c:completed d:available")
			if at := s.Step("b").Job.StartedAt.Sub(s.CreatedAt); at != 3*time.Hour {
				t.Errorf("b began after %v, not 3h", at)
			}
			b.run(time.Hour)
			b.want(id, workflow.StateFailed, "a:completed b:completed c:completed d:discarded")

			b.run(time.Hour)
			must(t, b.Workflows().Retry(b.ctx, id)) // it may start at once
			d := b.status(id).Step("d").Job
			if end := d.ExpiresAt.Sub(s.CreatedAt); end != 6*time.Hour {
				t.Errorf("after a retry d expires after %v, not 6h", end)
			}
			_, err = b.Queues().Resume(b.ctx, "paused")
			must(t, err)
			b.run(0)
			b.want(id, workflow.StateCompleted, "a:completed b:completed c:completed d:completed")
		})
	})
	t.Run("W011 times that are given stay as they are", func(t *testing.T) {
		inBubble(t, func(b *rig) {
			b.handle("x", func(context.Context, string) error { return nil })
			at, end := time.Now().Add(3*time.Hour), time.Now().Add(4*time.Hour)
			id := b.start(workflow.New("", workflow.Chain(step("a", ojs.WithDelay(time.Hour)),
				step("b", ojs.WithScheduledAt(at), ojs.WithExpiresAt(end)))))
			b.run(time.Hour)
			b.want(id, workflow.StateRunning, "a:completed b:scheduled")
			job := b.status(id).Step("b").Job
			if !job.ScheduledAt.Equal(at) || !job.ExpiresAt.Equal(end) {
				t.Errorf("b is scheduled at %v and expires at %v, not %v and %v",
					job.ScheduledAt, job.ExpiresAt, at, end)
			}
			b.run(2 * time.Hour)
			b.want(id, workflow.StateCompleted, "a:completed b:completed")

			late := b.start(workflow.New("", workflow.Chain(step("a", ojs.WithDelay(time.Hour)),
				step("b", ojs.WithExpiresAt(time.Now().Add(time.Minute))))))
			b.run(time.Minute)
			b.want(late, workflow.StatePending, "a:scheduled b:discarded")
		})
	})
	t.Run("W011 a step that waits again after a retry does not expire meanwhile", func(t *testing.T) {
		inBubble(t, func(b *rig) {
			fail := true
			b.handle("x", func(_ context.Context, step string) error {
				if fail {
					return ojs.Permanent(errBoom)
				}
				return nil
			})
			id := b.start(workflow.New("", workflow.Graph(
				workflow.Node{Name: "a", Job: ojs.NewDraft("x", nil)},
				workflow.Node{Name: "b", Job: ojs.NewDraft("x", nil, ojs.WithTTL(3*time.Hour)),
					After: []string{"a"}, When: ojs.AllEnded})))
			b.run(0)
			b.want(id, workflow.StateFailed, "a:discarded b:discarded")
			fail = false
			must(t, b.Workflows().Retry(b.ctx, id))
			b.want(id, workflow.StateRunning, "a:available b:pending")
			if at := b.status(id).Step("b").Job.ExpiresAt; !at.IsZero() {
				t.Errorf("b waits, and expires at %v", at)
			}
			b.run(0)
			b.want(id, workflow.StateCompleted, "a:completed b:completed")
		})
	})
	t.Run("W011 they count anew after a retry", func(t *testing.T) {
		inBubble(t, func(b *rig) {
			fail := true
			b.handle("x", func(_ context.Context, step string) error {
				if step == "a" && fail {
					return ojs.Permanent(errors.New("it fails"))
				}
				return nil
			})
			id := b.start(workflow.New("", workflow.Chain(step("a"),
				step("b", ojs.WithDelay(time.Hour), ojs.WithTTL(2*time.Hour)))))
			b.run(3 * time.Hour)
			fail = false
			must(t, b.Workflows().Retry(b.ctx, id))
			b.run(time.Hour)
			s := b.want(id, workflow.StateCompleted, "a:completed b:completed")
			if at := s.Step("b").Job.StartedAt.Sub(s.CreatedAt); at != 4*time.Hour {
				t.Errorf("b began after %v, not 4h", at)
			}
		}, engine.WithConcurrency(1))
	})
	t.Run("W006 W013 W020 all or nothing", func(t *testing.T) {
		inBubble(t, func(b *rig) {
			id := b.start(workflow.New("", step("a")))
			_, err := workflow.Start(b.ctx, b, workflow.New("", step("a")), id)
			if !errors.Is(err, ojs.ErrDuplicate) {
				t.Errorf("%v", err)
			}
			unique := ojs.WithUnique(ojs.UniquePolicy{Keys: ojs.ByArgs})
			twins := workflow.New("", workflow.Chain(step("a", unique), step("b", unique)))
			_, err = workflow.Start(b.ctx, b, twins, "")
			if !errors.Is(err, ojs.ErrDuplicate) {
				t.Errorf("%v", err)
			}
			n := 0
			for _, err := range b.Workflows().List(b.ctx) {
				must(t, err)
				n++
			}
			if n != 1 {
				t.Errorf("%d workflows", n)
			}
			_, err = b.Workflows().Get(b.ctx, b.status(id).Steps[0].JobID)
			if !errors.Is(err, ojs.ErrNotFound) {
				t.Errorf("a step is no workflow: %v", err)
			}
			for _, id := range []string{"x", "1b4e28ba-2fa1-41d2-883f-0016d3cca427"} { // a UUIDv4
				_, err = workflow.Start(b.ctx, b, workflow.New("", step("a")), id)
				if !errors.Is(err, ojs.ErrInvalid) {
					t.Errorf("the id %s: %v", id, err)
				}
			}
		})
	})
	t.Run("a listing skips a workflow that is deleted meanwhile", func(t *testing.T) {
		inBubble(t, func(b *rig) {
			b.handle("x", func(context.Context, string) error { return nil })
			var ids []string
			for range 3 {
				ids = append(ids, b.start(workflow.New("", step("a"))))
			}
			b.run(0)
			var listed []string
			for s, err := range b.Workflows().List(b.ctx) {
				must(t, err)
				if len(listed) == 0 {
					must(t, b.Jobs().Delete(b.ctx, ids[1]))
					if _, err := b.Workflows().Get(b.ctx, ids[1]); !errors.Is(err, ojs.ErrPruned) {
						t.Errorf("Get of it: %v", err)
					}
				}
				listed = append(listed, s.ID)
			}
			if want := []string{ids[0], ids[2]}; !slices.Equal(listed, want) {
				t.Errorf("listed %v, want %v", listed, want)
			}
		})
	})
	t.Run("W008 W013 W020 nothing is stored of a workflow that is refused", func(t *testing.T) {
		inBubble(t, func(b *rig) {
			unique := func(c ojs.Conflict) ojs.Option {
				return ojs.WithUnique(ojs.UniquePolicy{Keys: ojs.ByType, OnConflict: c})
			}
			first, err := b.Enqueue(b.ctx, "x", nil, unique(""))
			must(t, err)
			for _, c := range []struct {
				part workflow.Part
				want error
			}{
				{workflow.Chain(step("a"), step("b", ojs.WithTTL(0))), ojs.ErrInvalid},
				{workflow.Chain(step("a"), step("b", unique(ojs.ConflictReject))), ojs.ErrDuplicate},
				{workflow.Chain(step("a"), step("b", unique(ojs.ConflictIgnore))), ojs.ErrDuplicate},
				{step("a", unique(ojs.ConflictIgnore)), ojs.ErrDuplicate},
			} {
				if _, err := b.Workflows().Start(b.ctx, workflow.New("", c.part)); !errors.Is(err, c.want) {
					t.Errorf("%v, want %v", err, c.want)
				}
				for job, err := range b.Jobs().List(b.ctx, inspect.Filter{}) {
					must(t, err)
					if job.ID != first.ID {
						t.Errorf("a job %s is stored", job.Type)
					}
				}
			}
			id := b.start(workflow.New("", workflow.Chain(step("a"), step("b", unique(ojs.ConflictReplace)))))
			b.want(id, workflow.StateRunning, "a:available b:pending")
			if job, err := b.Get(b.ctx, first.ID); err != nil || job.State != ojs.StateCancelled {
				t.Errorf("the replaced job is %+v, %v", job, err)
			}
		})
	})
	t.Run("W024 stored with the end of an attempt", func(t *testing.T) {
		inBubble(t, func(b *rig) {
			drafts, err := workflow.New("", workflow.Chain(step("a"), step("b"))).Drafts(anyID)
			must(t, err)
			b.handle("x", func(context.Context, string) error { return nil })
			b.Handle("first", func(ctx context.Context, _ *ojs.Job[any]) error {
				return handler.Then(ctx, drafts...)
			})
			_, err = b.Enqueue(b.ctx, "first", nil)
			must(t, err)
			b.run(0)
			b.want(anyID, workflow.StateCompleted, "a:completed b:completed")
		})
	})
}

func TestResult(t *testing.T) {
	key, err := codec.NewKey("k", []byte(strings.Repeat("k", 32)))
	must(t, err)
	ring, err := codec.NewRing(key)
	must(t, err)
	for name, opts := range map[string][]engine.Option{
		"plain": nil, "encrypted": {engine.WithCodec(codec.AES256GCM(ring))},
	} {
		t.Run("K015 W040 W041 W043 results by name, "+name, func(t *testing.T) {
			inBubble(t, func(b *rig) {
				var sum int
				b.handle("x", func(ctx context.Context, step string) error {
					switch step {
					case "a", "b":
						return handler.SetResult(ctx, len(step)+int(step[0]-'a')) // 1, 2
					case "c":
						return ojs.Discard(errBoom)
					case "sum":
						for _, from := range []string{"a", "b"} {
							n, err := workflow.Result[int](ctx, from)
							if err != nil {
								return err
							}
							sum += n
						}
						var failed *workflow.StepError
						_, err := workflow.Result[int](ctx, "c")
						if !errors.As(err, &failed) || failed.Job.Error.Message != "boom" {
							t.Errorf("of a failed step: %v", err)
						}
						_, err = workflow.Result[int](ctx, "late")
						if !errors.As(err, &failed) || failed.Job.State != ojs.StatePending {
							t.Errorf("of a later step: %v", err)
						}
						_, err = workflow.Result[string](ctx, "a")
						if err == nil || errors.As(err, &failed) {
							t.Errorf("of another type: %v", err)
						}
						var invalid *ojs.InvalidError
						_, err = workflow.Result[int](ctx, "d")
						if !errors.As(err, &invalid) || invalid.Field != "step" {
							t.Errorf("of no step: %v", err)
						}
					}
					return nil
				})
				callback := workflow.OnComplete(ojs.NewDraft("x", nil)).Named("sum")
				id := b.start(workflow.New("", workflow.Chain(
					workflow.Batch(workflow.Group(step("a"), step("b"), step("c")), callback), step("late"))))
				b.run(0)
				b.want(id, workflow.StateCompleted,
					"a:completed b:completed c:discarded sum:completed late:completed")
				if sum != 3 {
					t.Errorf("sum %d", sum)
				}
			}, opts...)
		})
	}
	t.Run("W040 a result is any JSON value, of 64 KiB at least", func(t *testing.T) {
		values := []any{nil, true, 1.5, "text", []any{1.0, "a", nil}, map[string]any{"a": map[string]any{}},
			strings.Repeat("x", 64<<10-2)} // and two quotes
		inBubble(t, func(b *rig) {
			var parts []workflow.Part
			for i := range values {
				parts = append(parts, step(fmt.Sprint(i)))
			}
			b.handle("x", func(ctx context.Context, step string) error {
				i, err := strconv.Atoi(step)
				must(t, err)
				return handler.SetResult(ctx, values[i])
			})
			b.handle("last", func(ctx context.Context, _ string) error {
				for i, want := range values {
					if got, err := workflow.Result[any](ctx, fmt.Sprint(i)); !reflect.DeepEqual(got, want) {
						t.Errorf("%.50v, %v, not %.50v", got, err, want)
					}
				}
				return nil
			})
			id := b.start(workflow.New("", workflow.Chain(workflow.Group(parts...),
				workflow.Step("last", ojs.NewDraft("last", nil)))))
			b.run(0)
			if s := b.status(id); s.State != workflow.StateCompleted {
				t.Errorf("%s", s.State)
			}
		})
	})
	t.Run("W041 a step of a chain gets the results of all steps before it", func(t *testing.T) {
		inBubble(t, func(b *rig) {
			results(b, map[string][]string{"b": {"a"}, "c": {"b", "a"}, "d": {"c", "b", "a"}})
			id := b.start(workflow.New("", workflow.Chain(step("a"), step("b"), step("c"), step("d"))))
			b.run(0)
			b.want(id, workflow.StateCompleted, "a:completed b:completed c:completed d:completed")
		})
	})
	t.Run("W042 steps within get the results of steps without, and the other way round", func(t *testing.T) {
		inBubble(t, func(b *rig) {
			results(b, map[string][]string{
				"b": {"a"}, "c": {"a"}, "d": {"a", "b", "c"}, "e": {"a"}, "f": {"a", "b", "c", "d", "e"},
			})
			id := b.start(workflow.New("", workflow.Chain(step("a"),
				workflow.Group(workflow.Chain(workflow.Group(step("b"), step("c")), step("d")), step("e")),
				step("f"))))
			b.run(0)
			b.want(id, workflow.StateCompleted,
				"a:completed b:completed c:completed d:completed e:completed f:completed")
		})
	})
	t.Run("W044 no result is left out, however large all of them are", func(t *testing.T) {
		const steps, size = 30, 60_000 // each may be 64 KiB
		inBubble(t, func(b *rig) {
			var parts []workflow.Part
			for i := range steps {
				parts = append(parts, step(fmt.Sprint(i)))
			}
			b.handle("x", func(ctx context.Context, name string) error {
				return handler.SetResult(ctx, name+strings.Repeat("x", size))
			})
			total := 0
			b.handle("last", func(ctx context.Context, _ string) error {
				for i := range steps {
					r, err := workflow.Result[string](ctx, fmt.Sprint(i))
					if err != nil || !strings.HasPrefix(r, fmt.Sprint(i)) {
						return fmt.Errorf("step %d: %w", i, err)
					}
					total += len(r)
				}
				return nil
			})
			b.start(workflow.New("", workflow.Chain(append(parts,
				workflow.Step("last", ojs.NewDraft("last", nil)))...)))
			b.run(0)
			if total < steps*size {
				t.Errorf("the last step got %d bytes", total)
			}
		})
	})
	t.Run("W064 the dependencies in their order, and earlier steps", func(t *testing.T) {
		inBubble(t, func(b *rig) {
			results(b, map[string][]string{"c": {"b", "a", "first"}})
			node := func(name string, after ...string) workflow.Node {
				return workflow.Node{Name: name, Job: ojs.NewDraft("x", nil), After: after}
			}
			id := b.start(workflow.New("", workflow.Graph(node("first"), node("a", "first"),
				node("b", "first"), node("c", "b", "a"))))
			b.run(0)
			s := b.want(id, workflow.StateCompleted, "first:completed a:completed b:completed c:completed")
			if after := s.Step("c").After; !slices.Equal(after, []string{"b", "a"}) {
				t.Errorf("c comes after %q", after)
			}
		})
	})
	t.Run("outside of a workflow", func(t *testing.T) {
		if _, err := workflow.Result[int](t.Context(), "a"); !errors.Is(err, handler.ErrNoAttempt) {
			t.Errorf("%v", err)
		}
		inBubble(t, func(b *rig) {
			var got error
			b.handle("x", func(ctx context.Context, _ string) error {
				_, got = workflow.Result[int](ctx, "a")
				return nil
			})
			_, err := b.Enqueue(b.ctx, "x", nil)
			must(t, err)
			b.run(0)
			var invalid *ojs.InvalidError
			if !errors.As(got, &invalid) || invalid.Field != "workflow" {
				t.Errorf("%v", got)
			}
		})
	})
}

// results has each step set its name as its result, after it has read those of others.
func results(b *rig, reads map[string][]string) {
	b.handle("x", func(ctx context.Context, step string) error {
		for _, from := range reads[step] {
			if got, err := workflow.Result[string](ctx, from); got != from {
				b.t.Errorf("step %s reads %q of step %s: %v", step, got, from, err)
			}
		}
		return handler.SetResult(ctx, step)
	})
}

// failingLookups is a storage whose lookups fail for a while.
type failingLookups struct {
	storage.Storage
	waits  bool // for the end of their contexts, if those can end
	fails  atomic.Bool
	failed atomic.Int32
}

func (s *failingLookups) Unwrap() storage.Storage { return s.Storage }

func (s *failingLookups) Get(ctx context.Context, id string) (storage.Record, error) {
	if s.fails.Load() {
		if s.waits {
			if ctx.Done() == nil {
				return s.Storage.Get(ctx, id)
			}
			s.failed.Add(1)
			<-ctx.Done()
			return storage.Record{}, ctx.Err()
		}
		s.failed.Add(1)
		return storage.Record{}, errBoom
	}
	return s.Storage.Get(ctx, id)
}

// readings is a clock that counts its readings.
type readings struct {
	clock.Clock
	n *atomic.Int64
}

func (r readings) Now() time.Time {
	r.n.Add(1)
	return r.Clock.Now()
}

// watched is a storage that counts the cancels of workflows, and calls before ahead of
// the next one.
type watched struct {
	storage.Storage
	before  func()
	cancels int
}

func (s *watched) Unwrap() storage.Storage { return s.Storage }

func (s *watched) CancelAll(
	ctx context.Context, now time.Time, ids []string,
) (cancelled, moved []storage.Record, err error) {
	s.cancels++
	if f := s.before; f != nil {
		s.before = nil
		f()
	}
	return s.Storage.CancelAll(ctx, now, ids)
}

func TestCancel(t *testing.T) {
	t.Run("W050 W051 running steps may finish, and nothing follows", func(t *testing.T) {
		inBubble(t, func(b *rig) {
			var id string
			b.handle("x", func(ctx context.Context, step string) error {
				if step == "b" {
					must(t, b.Workflows().Cancel(ctx, id))
				}
				return nil
			})
			id = b.start(workflow.New("", workflow.Batch(
				workflow.Chain(step("a"),
					workflow.Group(step("b"), workflow.Chain(step("c"), step("d"))), step("e")),
				workflow.OnComplete(ojs.NewDraft("x", nil)), workflow.OnFailure(ojs.NewDraft("x", nil)))))
			b.run(time.Minute)
			s := b.want(id, workflow.StateCancelled, "a:completed b:completed c:cancelled d:cancelled "+
				"e:cancelled on_complete:cancelled on_failure:cancelled")
			if got := strings.Join(b.ran, " "); got != "a b" || s.FinishedAt.IsZero() {
				t.Errorf("%s, %v", got, s.FinishedAt)
			}
			must(t, b.Workflows().Cancel(b.ctx, id)) // again
			ended, err := b.Workflows().Wait(b.ctx, id)
			if failed := new(workflow.EndedError); !errors.As(err, &failed) ||
				ended.State != workflow.StateCancelled {
				t.Errorf("%+v, %v", ended, err)
			}
		}, engine.WithConcurrency(1))
	})
	for _, method := range []string{"Get", "Unclaim"} { // before the engine looks at the workflow, and after
		t.Run("W050 W051 steps that were claimed ahead do not start: "+method, func(t *testing.T) {
			const steps, workers = 200, 2
			store := &storagetest.Faulty{Storage: memory.New()}
			eng, err := engine.New[any](store.Stepping(), engine.WithLogger(slog.New(slog.DiscardHandler)),
				engine.WithConcurrency(workers))
			must(t, err)
			b := &rig{Engine: eng, t: t, ctx: t.Context()}
			release := make(chan struct{})
			b.handle("x", func(_ context.Context, name string) error {
				if name >= "100" { // by then some are claimed ahead, which are given back
					<-release
				}
				return nil
			})
			var parts []workflow.Part
			for i := range steps {
				parts = append(parts, step(fmt.Sprintf("%03d", i)))
			}
			id := b.start(workflow.New("", workflow.Group(parts...)))
			cancelled, given := make(chan struct{}), new(atomic.Int64)
			store.OnCall(func(c *storagetest.Call) {
				if c.Method != method || method == "Get" && c.In != id {
					return
				}
				type cancelling struct{}
				store.OnCall(func(c *storagetest.Call) {
					switch {
					case c.Method == "Unclaim":
						given.Add(int64(len(c.In.([]storage.Held))))
					case c.Method == "Get" && c.In == id && c.Context.Value(cancelling{}) == nil:
						<-cancelled // the other worker does not look at the workflow before that
					}
				})
				must(t, b.Workflows().Cancel(context.WithValue(b.ctx, cancelling{}, true), id))
				close(cancelled)
			})
			ctx, stop := context.WithCancel(b.ctx)
			ended := make(chan error, 1)
			go func() { ended <- b.Run(ctx) }()
			<-cancelled
			pace.Until(t, "all steps but the running ones have ended", func() bool {
				s := b.status(id)
				return s.State == workflow.StateCancelled && s.Count(ojs.StateActive) <= workers &&
					s.Count(ojs.StateAvailable) == 0
			})
			close(release)
			must(t, b.WaitIdle(b.ctx))
			stop()
			must(t, <-ended)
			if n := given.Load(); n > 0 && method == "Get" { // later looks at the workflow may be over, too
				t.Errorf("%d steps of the cancelled workflow became available", n)
			}
			b.mu.Lock()
			defer b.mu.Unlock()
			s := b.status(id)
			if n := s.Count(ojs.StateCompleted); n != len(b.ran) || n+s.Count(ojs.StateCancelled) != steps {
				t.Errorf("%d steps are completed, and %d cancelled; %d have run", n,
					s.Count(ojs.StateCancelled), len(b.ran))
			}
		})
	}
	t.Run("W051 the process ends between a step's attempt and its cancellation", func(t *testing.T) {
		for _, answer := range []error{errBoom, ojs.Snooze(time.Second)} {
			synctest.Test(t, func(t *testing.T) {
				store := &failingLookups{Storage: memory.New()}
				eng, err := engine.New[any](store, engine.WithLogger(slog.New(slog.DiscardHandler)),
					engine.WithConcurrency(1))
				must(t, err)
				b := &rig{Engine: eng, t: t, ctx: t.Context()}
				var id string
				b.handle("x", func(ctx context.Context, step string) error {
					must(t, b.Workflows().Cancel(ctx, id))
					store.fails.Store(true)
					return answer
				})
				id = b.start(workflow.New("", step("a")))
				b.run(0)
				if store.fails.Swap(false); store.failed.Load() == 0 {
					t.Error("no lookup has failed")
				}
				b.want(id, workflow.StateCancelled, "a:retryable")
				b.run(time.Hour)
				b.want(id, workflow.StateCancelled, "a:cancelled")
				if got := strings.Join(b.ran, " "); got != "a" {
					t.Errorf("%v: ran %s", answer, got)
				}
			})
		}
	})
	t.Run("W051 an attempt that loses its job while it looks says nothing", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			store := &failingLookups{Storage: memory.New(), waits: true}
			var log bytes.Buffer
			counted := readings{clock.New(), new(atomic.Int64)}
			eng, err := engine.New[any](store, engine.WithLogger(slog.New(slog.NewTextHandler(&log, nil))),
				engine.WithConcurrency(1), engine.WithClock(counted))
			must(t, err)
			b := &rig{Engine: eng, t: t, ctx: t.Context()}
			b.handle("x", func(context.Context, string) error {
				store.fails.Store(true)
				return errBoom
			})
			b.start(workflow.New("", step("a")))
			b.run(time.Hour)
			if store.failed.Load() == 0 {
				t.Error("no lookup has failed")
			}
			if strings.Contains(log.String(), "not cancelled") {
				t.Errorf("the log: %s", log.String())
			}
			// The job's next claim waits for the slot, and for no time of its own.
			if n := counted.n.Load(); n > 100_000 {
				t.Errorf("the clock was read %d times in an hour", n)
			}
		})
	})
	t.Run("W052 against the last end one of the two wins", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			mem := memory.New()
			store := &watched{Storage: mem}
			eng, err := engine.New[any](store, engine.WithLogger(slog.New(slog.DiscardHandler)))
			must(t, err)
			b := &rig{Engine: eng, t: t, ctx: t.Context()}
			w := b.Worker("w", fetch.Config{Types: []string{"x"}})
			batch := workflow.Batch(step("a"), workflow.OnSuccess(ojs.NewDraft("x", nil)))
			id := b.start(workflow.New("", batch))
			d, err := w.Fetch(b.ctx)
			must(t, err)
			must(t, d.Ack(b.ctx, nil))
			b.want(id, workflow.StateRunning, "a:completed on_success:available")
			d, err = w.Fetch(b.ctx)
			must(t, err)
			store.before = func() { must(t, d.Ack(b.ctx, nil)) } // after the cancel has read it
			if err := b.Workflows().Cancel(b.ctx, id); !errors.Is(err, ojs.ErrTransition) {
				t.Errorf("a cancel that comes after the last end: %v", err)
			}
			b.want(id, workflow.StateCompleted, "a:completed on_success:completed")

			id = b.start(workflow.New("", batch))
			d, err = w.Fetch(b.ctx)
			must(t, err)
			must(t, b.Workflows().Cancel(b.ctx, id))
			must(t, d.Ack(b.ctx, nil))
			b.want(id, workflow.StateCancelled, "a:completed on_success:cancelled")
		})
	})
	t.Run("W050 no call cancels the record or a join alone", func(t *testing.T) {
		inBubble(t, func(b *rig) {
			b.handle("x", func(context.Context, string) error { return nil })
			id := b.start(workflow.New("", workflow.Chain(
				workflow.Group(step("a"), step("b")), workflow.Group(step("c"), step("d")))))
			ids, err := workflow.JobIDs(b.ctx, b.Jobs().Step, id)
			must(t, err)
			refused := 0
			for _, id := range ids {
				job, err := b.Get(b.ctx, id)
				must(t, err)
				if job.Type == "x" {
					continue
				}
				refused++
				if err := b.Cancel(b.ctx, id); !errors.Is(err, ojs.ErrTransition) {
					t.Errorf("a cancel of a job of type %s: %v", job.Type, err)
				}
			}
			if refused != 3 {
				t.Errorf("%d jobs are no steps, not the record, the outcome and a join", refused)
			}
			b.run(time.Minute)
			b.want(id, workflow.StateCompleted, "a:completed b:completed c:completed d:completed")
		})
	})
	t.Run("W053 an ended or unknown one", func(t *testing.T) {
		inBubble(t, func(b *rig) {
			b.handle("x", func(context.Context, string) error { return nil })
			id := b.start(workflow.New("", step("a")))
			b.run(0)
			if err := b.Workflows().Cancel(b.ctx, id); !errors.Is(err, ojs.ErrTransition) {
				t.Errorf("%v", err)
			}
			if err := b.Workflows().Cancel(b.ctx, anyID); !errors.Is(err, ojs.ErrNotFound) {
				t.Errorf("%v", err)
			}
		})
	})
}

func TestPicture(t *testing.T) {
	inBubble(t, func(b *rig) {
		s := b.status(b.start(workflow.New("", workflow.Chain(
			step(`a "1"`), workflow.Group(step("b"), step("c")), step("d")))))
		if got, want := s.Mermaid(), `flowchart TD
    s0["a #34;1#34;: available"]
    s1["b: pending"]
    s2["c: pending"]
    s3["d: pending"]
    s0 --> s1
    s0 --> s2
    s1 --> s3
    s2 --> s3
`; got != want {
			t.Errorf("%s", got)
		}
		if got, want := s.DOT(), `digraph workflow {
  s0 [label="a \"1\": available", color=black];
  s1 [label="b: pending", color=gray];
  s2 [label="c: pending", color=gray];
  s3 [label="d: pending", color=gray];
  s0 -> s1;
  s0 -> s2;
  s1 -> s3;
  s2 -> s3;
}
`; got != want {
			t.Errorf("%s", got)
		}
	})
}

// The picture has an edge from a step to the first of the steps that it has added.
func TestPictureOfAddedSteps(t *testing.T) {
	inBubble(t, func(b *rig) {
		adder := func(name string) workflow.Part { return workflow.Adder(name, ojs.NewDraft("x", nil)) }
		b.handle("x", func(ctx context.Context, name string) (err error) {
			switch name {
			case "list":
				_, err = workflow.Add(ctx, workflow.Group(step("a"), workflow.Chain(adder("b"), step("c"))))
			case "list/b":
				_, err = workflow.Add(ctx, step("d"))
			}
			return err
		})
		id := b.start(workflow.New("", workflow.Chain(adder("list"), step("report"))))
		b.run(time.Minute)
		s := b.want(id, workflow.StateCompleted, "list:completed report:completed list/a:completed "+
			"list/b:completed list/c:completed list/b/d:completed")
		for step, adder := range map[string]string{"list": "", "list/a": "list", "list/b/d": "list/b"} {
			if got := s.Step(step).AddedBy; got != adder {
				t.Errorf("%s is added by %q", step, got)
			}
		}
		_, edges, _ := strings.Cut(s.Mermaid(), `    s5["list/b/d: completed"]`+"\n")
		want := `    s0 --> s1
    s2 --> s1
    s4 --> s1
    s0 --> s2
    s0 --> s3
    s3 --> s4
    s5 --> s4
    s3 --> s5
`
		if edges != want {
			t.Errorf("%s", s.Mermaid())
		}
		if got := strings.Count(s.DOT(), " -> "); got != 8 {
			t.Errorf("%d edges in\n%s", got, s.DOT())
		}
	})
}

// W005: the largest workflow that is allowed.
func TestLargest(t *testing.T) {
	inBubble(t, func(b *rig) {
		b.handle("x", func(context.Context, string) error { return nil })
		var parts []workflow.Part
		for range workflow.MaxSteps / 10 {
			var chain []workflow.Part
			for range 10 {
				chain = append(chain, step(""))
			}
			parts = append(parts, workflow.Chain(chain...))
		}
		id := b.start(workflow.New("", workflow.Group(parts...)))
		b.run(time.Second)
		s := b.status(id)
		if n := s.Count(ojs.StateCompleted); s.State != workflow.StateCompleted || n != workflow.MaxSteps {
			t.Errorf("%s, %d completed", s.State, n)
		}
	}, engine.WithRetention(engine.Retention{MinAge: time.Hour}))
}
