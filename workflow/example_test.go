package workflow_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"strings"

	"github.com/ojsengine/ojs"
	"github.com/ojsengine/ojs/engine"
	"github.com/ojsengine/ojs/handler"
	"github.com/ojsengine/ojs/storage/memory"
	"github.com/ojsengine/ojs/workflow"
)

// finish runs an engine until a workflow has ended.
func finish(eng *engine.Engine[string], w *workflow.Workflow) *workflow.Status {
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- eng.Run(ctx) }()
	ticket, err := eng.Workflows().Start(ctx, w)
	if err != nil {
		log.Fatal(err)
	}
	s, err := eng.Workflows().Wait(ctx, ticket.ID)
	if failed := new(workflow.EndedError); err != nil && !errors.As(err, &failed) {
		log.Fatal(err)
	}
	stop()
	if err := <-ended; err != nil {
		log.Fatal(err)
	}
	return s
}

func newEngine() *engine.Engine[string] {
	eng, err := engine.New[string](memory.New())
	if err != nil {
		log.Fatal(err)
	}
	return eng
}

// Each step begins when the one before it has completed.
func ExampleChain() {
	eng := newEngine()
	eng.Handle("say", func(_ context.Context, job *ojs.Job[string]) error {
		fmt.Println(job.Args)
		return nil
	})
	w := workflow.New("greeting", workflow.Chain(
		workflow.Step("hello", ojs.NewDraft("say", "hello")),
		workflow.Step("goodbye", ojs.NewDraft("say", "goodbye")),
	))
	fmt.Println(finish(eng, w).State)
	// Output:
	// hello
	// goodbye
	// completed
}

// Steps run side by side, and the step after them has their results.
func ExampleGroup() {
	eng := newEngine()
	eng.Handle("count", func(ctx context.Context, job *ojs.Job[string]) error {
		return handler.SetResult(ctx, len(strings.Fields(job.Args)))
	})
	eng.Handle("sum", func(ctx context.Context, _ *ojs.Job[string]) error {
		sum := 0
		for _, step := range []string{"first", "second"} {
			n, err := workflow.Result[int](ctx, step)
			if err != nil {
				return err
			}
			sum += n
		}
		fmt.Println(sum, "words")
		return nil
	})
	finish(eng, workflow.New("words", workflow.Chain(
		workflow.Group(
			workflow.Step("first", ojs.NewDraft("count", "the quick brown fox")),
			workflow.Step("second", ojs.NewDraft("count", "jumps over the lazy dog")),
		),
		workflow.Step("sum", ojs.NewDraft("sum", "")),
	)))
	// Output: 9 words
}

// A callback follows the jobs of a batch, however they end.
func ExampleBatch() {
	eng := newEngine()
	eng.Handle("send", func(_ context.Context, job *ojs.Job[string]) error {
		if job.Args == "bob" {
			return ojs.Discard(fmt.Errorf("%s has no address", job.Args))
		}
		return nil
	})
	eng.Handle("report", func(ctx context.Context, _ *ojs.Job[string]) error {
		w, err := workflow.Current(ctx)
		if err != nil {
			return err
		}
		fmt.Println(w.Count(ojs.StateCompleted), "sent")
		fmt.Println(w.Step("bob").Job.Error.Message)
		return nil
	})
	w := workflow.New("newsletter", workflow.Batch(
		workflow.Group(
			workflow.Step("ann", ojs.NewDraft("send", "ann")),
			workflow.Step("bob", ojs.NewDraft("send", "bob")),
		),
		workflow.OnFailure(ojs.NewDraft("report", "")),
	))
	fmt.Println(finish(eng, w).State)
	// Output:
	// 1 sent
	// bob has no address
	// completed
}

// Named steps wait for the steps that they name.
func ExampleGraph() {
	eng := newEngine()
	eng.Handle("build", func(context.Context, *ojs.Job[string]) error { return nil })
	w := workflow.New("release", workflow.Graph(
		workflow.Node{Name: "compile", Job: ojs.NewDraft("build", "compile")},
		workflow.Node{Name: "test", Job: ojs.NewDraft("build", "test"), After: []string{"compile"}},
		workflow.Node{Name: "docs", Job: ojs.NewDraft("build", "docs")},
		workflow.Node{Name: "publish", Job: ojs.NewDraft("build", "all"), After: []string{"test", "docs"}},
	))
	fmt.Print(finish(eng, w).Mermaid())
	// Output:
	// flowchart TD
	//     s0["compile: completed"]
	//     s1["docs: completed"]
	//     s2["test: completed"]
	//     s3["publish: completed"]
	//     s0 --> s2
	//     s2 --> s3
	//     s1 --> s3
}

// The steps that have completed are undone when a later one fails.
func ExampleSaga() {
	eng := newEngine()
	eng.Handle("book", func(ctx context.Context, job *ojs.Job[string]) error {
		if job.Args == "car" {
			return fmt.Errorf("no %s is left", job.Args)
		}
		return handler.SetResult(ctx, "booking of a "+job.Args)
	})
	eng.Handle("cancel", func(ctx context.Context, _ *ojs.Job[string]) error {
		booking, err := workflow.UndoneResult[string](ctx)
		fmt.Println("cancel the", booking)
		return err
	})
	book := func(what string) workflow.Part {
		return workflow.Undoable(what, ojs.NewDraft("book", what), ojs.NewDraft("cancel", what))
	}
	w := workflow.New("trip", workflow.Saga(workflow.Compensate, book("flight"), book("hotel"), book("car")))
	fmt.Println(finish(eng, w).State)
	// Output:
	// cancel the booking of a hotel
	// cancel the booking of a flight
	// compensated
}

// A step adds a step for each line that it finds. The step after it waits for all.
func ExampleAdd() {
	eng := newEngine()
	eng.Handle("split", func(ctx context.Context, job *ojs.Job[string]) error {
		var parts []workflow.Part
		for i, line := range strings.Split(job.Args, "\n") {
			parts = append(parts, workflow.Step(fmt.Sprint(i+1), ojs.NewDraft("count", line)))
		}
		_, err := workflow.Add(ctx, workflow.Group(parts...))
		return err
	})
	eng.Handle("count", func(ctx context.Context, job *ojs.Job[string]) error {
		return handler.SetResult(ctx, len(strings.Fields(job.Args)))
	})
	eng.Handle("print", func(ctx context.Context, _ *ojs.Job[string]) error {
		n, err := workflow.Result[int](ctx, "lines/2")
		fmt.Println("line 2 has", n, "words")
		return err
	})
	finish(eng, workflow.New("words", workflow.Chain(
		workflow.Adder("lines", ojs.NewDraft("split", "one\ntwo words\n")),
		workflow.Step("print", ojs.NewDraft("print", "")),
	)))
	// Output: line 2 has 2 words
}
