package engine_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"time"

	"github.com/ojsengine/ojs"
	"github.com/ojsengine/ojs/engine"
	"github.com/ojsengine/ojs/event"
	"github.com/ojsengine/ojs/storage/memory"
)

// Follow one job from its enqueue to its end.
func ExampleEngine_Subscribe() {
	eng, err := engine.New[string](memory.New(), quiet)
	if err != nil {
		log.Fatal(err)
	}
	eng.Handle("import", func(_ context.Context, job *ojs.Job[string]) error {
		if job.Attempt == 1 {
			return errors.New("file is locked")
		}
		return nil
	})
	sub := eng.Subscribe(engine.EventFilter{Types: []event.Type{"job.*"}})
	defer sub.Close()

	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan error)
	go func() { ended <- eng.Run(ctx) }()
	if _, err := eng.Enqueue(ctx, "import", "users.csv",
		ojs.WithRetry(ojs.RetryPolicy{InitialInterval: time.Millisecond})); err != nil {
		log.Fatal(err)
	}
	for ev := range sub.C() {
		fmt.Print(ev.Type)
		if ev.Failure != nil {
			fmt.Print(": ", ev.Failure.Message)
		}
		fmt.Println()
		if ev.Job.State.Terminal() {
			break
		}
	}
	stop()
	if err := <-ended; err != nil {
		log.Fatal(err)
	}
	// Output:
	// job.enqueued
	// job.started
	// job.failed: file is locked
	// job.retrying: file is locked
	// job.started
	// job.completed
}

// Have jobs of one key run one at a time, in the order of enqueue.
func ExampleEngine_EnqueueMany_orderingKey() {
	eng, err := engine.New[string](memory.New(), quiet, engine.WithConcurrency(8))
	if err != nil {
		log.Fatal(err)
	}
	eng.Handle("order.change", func(_ context.Context, job *ojs.Job[string]) error {
		fmt.Println(job.Args)
		return nil
	})
	ctx, stop := context.WithCancel(context.Background())
	tickets, err := eng.EnqueueMany(ctx,
		ojs.NewDraft("order.change", "placed", ojs.WithOrderingKey("order-7")),
		ojs.NewDraft("order.change", "paid", ojs.WithOrderingKey("order-7")),
		ojs.NewDraft("order.change", "sent", ojs.WithOrderingKey("order-7"), ojs.WithPriority(10)),
	)
	if err != nil {
		log.Fatal(err)
	}
	ended := make(chan error)
	go func() { ended <- eng.Run(ctx) }()
	if _, err := tickets[2].Wait(ctx); err != nil {
		log.Fatal(err)
	}
	stop()
	if err := <-ended; err != nil {
		log.Fatal(err)
	}
	// Output:
	// placed
	// paid
	// sent
}

// Have tenants take turns: a single job of one does not wait for all jobs of another.
func ExampleEngine_EnqueueMany_fairness() {
	eng, err := engine.New[string](memory.New(), quiet, engine.WithConcurrency(1))
	if err != nil {
		log.Fatal(err)
	}
	eng.Handle("report", func(_ context.Context, job *ojs.Job[string]) error {
		fmt.Println(job.Args)
		return nil
	})
	ctx, stop := context.WithCancel(context.Background())
	tickets, err := eng.EnqueueMany(ctx,
		ojs.NewDraft("report", "large 1", ojs.WithFairnessKey("large", 1)),
		ojs.NewDraft("report", "large 2", ojs.WithFairnessKey("large", 1)),
		ojs.NewDraft("report", "large 3", ojs.WithFairnessKey("large", 1)),
		ojs.NewDraft("report", "small", ojs.WithFairnessKey("small", 1)),
	)
	if err != nil {
		log.Fatal(err)
	}
	ended := make(chan error)
	go func() { ended <- eng.Run(ctx) }()
	if _, err := tickets[2].Wait(ctx); err != nil {
		log.Fatal(err)
	}
	stop()
	if err := <-ended; err != nil {
		log.Fatal(err)
	}
	// Output:
	// large 1
	// small
	// large 2
	// large 3
}

// Have jobs wait for others: a report after all imports, an alarm if one of them fails.
func ExampleEngine_EnqueueMany_dependsOn() {
	eng, err := engine.New[string](memory.New(), quiet)
	if err != nil {
		log.Fatal(err)
	}
	eng.Handle("import", func(_ context.Context, job *ojs.Job[string]) error {
		fmt.Println("import", job.Args)
		return nil
	})
	eng.Handle("report", func(context.Context, *ojs.Job[string]) error {
		fmt.Println("report")
		return nil
	})
	ctx, stop := context.WithCancel(context.Background())
	tickets, err := eng.EnqueueMany(ctx,
		ojs.NewDraft("import", "users.csv", ojs.WithDraftName("users")),
		ojs.NewDraft("import", "orders.csv", ojs.WithDraftName("orders"), ojs.WithDependsOn("users")),
		ojs.NewDraft("report", "all", ojs.WithDependsOn("users", "orders")),
		ojs.NewDraft("alarm", "all", ojs.WithDependsOn("users", "orders"), ojs.WithCondition(ojs.AnyFailed)),
	)
	if err != nil {
		log.Fatal(err)
	}
	ended := make(chan error)
	go func() { ended <- eng.Run(ctx) }()
	if _, err := tickets[2].Wait(ctx); err != nil {
		log.Fatal(err)
	}
	alarm, err := eng.Get(ctx, tickets[3].ID)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println("alarm:", alarm.State)
	stop()
	if err := <-ended; err != nil {
		log.Fatal(err)
	}
	// Output:
	// import users.csv
	// import orders.csv
	// report
	// alarm: cancelled
}
