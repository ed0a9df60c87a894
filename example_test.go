package ojs_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"time"

	"github.com/ojsengine/ojs"
	"github.com/ojsengine/ojs/engine"
	"github.com/ojsengine/ojs/handler"
	"github.com/ojsengine/ojs/inspect"
	"github.com/ojsengine/ojs/storage/memory"
)

// A program with one job type: a handler, a running engine, a job, its end.
func Example() {
	ctx, stop := context.WithCancel(context.Background())
	defer stop()

	eng, err := engine.New[string](memory.New())
	if err != nil {
		log.Fatal(err)
	}
	eng.Handle("greet", func(ctx context.Context, job *ojs.Job[string]) error {
		fmt.Println("hello,", job.Args)
		return nil
	})
	go eng.Run(ctx)

	ticket, err := eng.Enqueue(ctx, "greet", "world")
	if err != nil {
		log.Fatal(err)
	}
	job, err := ticket.Wait(ctx)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(job.State)
	// Output:
	// hello, world
	// completed
}

// start makes an engine for jobs of any type and runs it until the example ends.
func start(opts ...engine.Option) (context.Context, *engine.Engine[any], func()) {
	ctx, cancel := context.WithCancel(context.Background())
	eng, err := engine.New[any](memory.New(), opts...)
	if err != nil {
		log.Fatal(err)
	}
	stopped := make(chan error)
	go func() { stopped <- eng.Run(ctx) }()
	return ctx, eng, func() {
		cancel()
		if err := <-stopped; err != nil {
			log.Fatal(err)
		}
	}
}

type (
	Email  struct{ To, Subject string }
	Report struct{ Month string }
)

// Declare each type once, as a package variable that producers and handlers share.
var (
	SendEmail   = ojs.Define[Email]("email.send", ojs.WithQueue("mail"), ojs.WithMaxAttempts(8))
	BuildReport = ojs.Define[Report]("report.build", ojs.WithTimeout(10*time.Minute))
)

// Several job types in one engine, each with args of its own, and one of them with a
// result.
func ExampleDefine() {
	ctx, eng, stop := start()
	defer stop()
	eng.Register(
		handler.For(SendEmail, func(_ context.Context, job *ojs.Job[Email]) error {
			fmt.Println("to", job.Args.To, "on queue", job.Queue)
			return nil
		}),
		handler.For(BuildReport, handler.Returning(func(_ context.Context,
			job *ojs.Job[Report]) (string, error) {
			return "https://reports.example/" + job.Args.Month, nil
		})),
	)

	mail, err := SendEmail.Enqueue(ctx, eng, Email{To: "a@b.c", Subject: "Welcome"})
	if err != nil {
		log.Fatal(err)
	}
	report, err := BuildReport.Enqueue(ctx, eng, Report{Month: "2026-03"})
	if err != nil {
		log.Fatal(err)
	}
	if _, err := mail.Wait(ctx); err != nil {
		log.Fatal(err)
	}
	var url string
	if err := report.Result(ctx, &url); err != nil {
		log.Fatal(err)
	}
	fmt.Println(url)
	// Output:
	// to a@b.c on queue mail
	// https://reports.example/2026-03
}

// A job that keeps failing is retried with growing delays. When its attempts are used up
// it becomes a dead letter, which a person can look at and send back to work.
func ExampleWithRetry() {
	ctx, eng, stop := start()
	defer stop()
	down := true
	eng.Handle("payment.charge", func(_ context.Context, job *ojs.Job[any]) error {
		if down {
			return ojs.Errorf("payment.gateway_down", "attempt %d: no answer", job.Attempt)
		}
		return nil
	})

	ticket, err := eng.Enqueue(ctx, "payment.charge", "card 7", ojs.WithRetry(ojs.RetryPolicy{
		MaxAttempts:     3,
		InitialInterval: 10 * time.Millisecond,
		OnExhaustion:    ojs.ExhaustionDeadLetter,
	}))
	if err != nil {
		log.Fatal(err)
	}
	var ended *ojs.EndedError
	if _, err := ticket.Wait(ctx); errors.As(err, &ended) {
		fmt.Println(ended.State, "dead letter:", ended.DeadLettered)
	}

	down = false
	dead := eng.DeadLetters()
	for job, err := range dead.List(ctx, inspect.Filter{Types: []string{"payment.charge"}}) {
		if err != nil {
			log.Fatal(err)
		}
		fmt.Println(job.Error.Type, "-", job.Error.Message)
		if err := dead.Retry(ctx, job.ID); err != nil {
			log.Fatal(err)
		}
	}
	job, err := ticket.Wait(ctx)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(job.State, "after", len(job.Errors), "failures")
	// Output:
	// discarded dead letter: true
	// payment.gateway_down - attempt 3: no answer
	// completed after 3 failures
}

// A job that is not needed yet waits for its time: never early, and late by milliseconds.
func ExampleWithDelay() {
	ctx, eng, stop := start()
	defer stop()
	eng.Handle("trial.ends", func(_ context.Context, job *ojs.Job[any]) error {
		fmt.Println("in time:", time.Since(job.CreatedAt) >= 20*time.Millisecond)
		return nil
	})
	ticket, err := eng.Enqueue(ctx, "trial.ends", nil, ojs.WithDelay(20*time.Millisecond))
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(ticket.State)
	if _, err := ticket.Wait(ctx); err != nil {
		log.Fatal(err)
	}
	// Output:
	// scheduled
	// in time: true
}

// A confirmation code that waits for longer than a minute is of no use. A job that
// started in time and failed is retried.
func ExampleWithEnqueueTTL() {
	ctx, eng, stop := start()
	defer stop()
	// no worker sends codes here
	ticket, err := eng.Enqueue(ctx, "code.send", nil, ojs.WithEnqueueTTL(20*time.Millisecond))
	if err != nil {
		log.Fatal(err)
	}
	job, err := ticket.Wait(ctx)
	var ended *ojs.EndedError
	if !errors.As(err, &ended) {
		log.Fatal(err)
	}
	fmt.Println(job.State, job.Error.Type)
	// Output: discarded enqueue_ttl_expired
}

// Within a queue the highest priority runs first, and equal ones in the order in which
// they came.
func ExampleWithPriority() {
	eng, err := engine.New[string](memory.New(), engine.WithConcurrency(1))
	if err != nil {
		log.Fatal(err)
	}
	eng.Handle("say", func(_ context.Context, job *ojs.Job[string]) error {
		fmt.Println(job.Args)
		return nil
	})
	ctx, cancel := context.WithCancel(context.Background())
	for _, d := range []ojs.Draft{
		ojs.NewDraft("say", "first of the normal ones"),
		ojs.NewDraft("say", "last", ojs.WithPriority(-10)),
		ojs.NewDraft("say", "second of the normal ones"),
		ojs.NewDraft("say", "urgent", ojs.WithPriority(10)),
	} {
		if _, err := eng.EnqueueMany(ctx, d); err != nil {
			log.Fatal(err)
		}
	}
	stopped := make(chan error)
	go func() { stopped <- eng.Run(ctx) }()
	if err := eng.WaitIdle(ctx); err != nil {
		log.Fatal(err)
	}
	cancel()
	if err := <-stopped; err != nil {
		log.Fatal(err)
	}
	// Output:
	// urgent
	// first of the normal ones
	// second of the normal ones
	// last
}

// Cancelling a running job ends its handler's context. The handler's result is then
// dropped.
func ExampleErrCancelled() {
	ctx, eng, stop := start()
	defer stop()
	started := make(chan struct{})
	eng.Handle("video.encode", func(ctx context.Context, _ *ojs.Job[any]) error {
		close(started)
		<-ctx.Done()
		fmt.Println("stopped:", context.Cause(ctx))
		return nil
	})
	ticket, err := eng.Enqueue(ctx, "video.encode", nil)
	if err != nil {
		log.Fatal(err)
	}
	<-started
	if err := eng.Cancel(ctx, ticket.ID); err != nil {
		log.Fatal(err)
	}
	job, _ := ticket.Wait(ctx)
	if err := eng.WaitIdle(ctx); err != nil {
		log.Fatal(err)
	}
	fmt.Println(job.State)
	// Output:
	// stopped: ojs: cancelled
	// cancelled
}

// A handler that finds it is too early comes back later, without spending an attempt.
func ExampleSnooze() {
	ctx, eng, stop := start()
	defer stop()
	ready := false
	eng.Handle("export.fetch", func(_ context.Context, job *ojs.Job[any]) error {
		if !ready {
			ready = true
			return ojs.Snooze(10 * time.Millisecond)
		}
		fmt.Println("attempt", job.Attempt)
		return nil
	})
	ticket, err := eng.Enqueue(ctx, "export.fetch", nil, ojs.WithMaxAttempts(1))
	if err != nil {
		log.Fatal(err)
	}
	if _, err := ticket.Wait(ctx); err != nil {
		log.Fatal(err)
	}
	// Output: attempt 1
}

// The end of Run's context is a graceful stop: nothing new starts, and running handlers
// get the grace period to finish. Jobs in memory are lost with the program, so WaitIdle
// comes first where they matter.
func ExampleErrShutdown() {
	eng, err := engine.New[int](memory.New(), engine.WithGracePeriod(20*time.Second))
	if err != nil {
		log.Fatal(err)
	}
	eng.Handle("step", func(_ context.Context, job *ojs.Job[int]) error {
		return nil
	})
	running, stop := context.WithCancel(context.Background()) // in a server: its signal context
	stopped := make(chan error)
	go func() { stopped <- eng.Run(running) }()

	var last ojs.Ticket
	for i := range 20 {
		if last, err = eng.Enqueue(running, "step", i); err != nil {
			log.Fatal(err)
		}
	}
	grace, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	if err := eng.WaitIdle(grace); err != nil { // what is due has run
		log.Print(err)
	}
	stop()
	fmt.Println("Run returned", <-stopped)
	job, err := eng.Get(grace, last.ID) // looking up needs no Run
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println("the last job is", job.State)
	// Output:
	// Run returned <nil>
	// the last job is completed
}
