package handler_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"time"

	"github.com/ojsengine/ojs"
	"github.com/ojsengine/ojs/engine"
	"github.com/ojsengine/ojs/handler"
	"github.com/ojsengine/ojs/storage/memory"
)

// One call stores many rows. A row that is refused fails alone.
func ExampleForBatch() {
	ctx := context.Background()
	eng, err := engine.New[any](memory.New())
	if err != nil {
		log.Fatal(err)
	}
	row := ojs.Define[string]("row.store")
	eng.Register(handler.ForBatch(row, func(_ context.Context, jobs []*ojs.Job[string]) []error {
		fmt.Println(len(jobs), "rows in one call")
		errs := make([]error, len(jobs))
		for i, job := range jobs {
			if job.Args == "" {
				errs[i] = ojs.Discard(errors.New("empty"))
			}
		}
		return errs
	}, handler.WithBatch(3, time.Minute))) // 3 rows, or those of a minute
	go eng.Run(ctx)

	tickets, err := eng.EnqueueMany(ctx, row.New("signup"), row.New(""), row.New("login"))
	if err != nil {
		log.Fatal(err)
	}
	for _, ticket := range tickets {
		job, _ := ticket.Wait(ctx) // with an error if the job has not completed
		fmt.Println(job.State)
	}
	// Output:
	// 3 rows in one call
	// completed
	// discarded
	// completed
}

// The receipt is stored when the order completes, and only then.
func ExampleThen() {
	ctx := context.Background()
	eng, err := engine.New[any](memory.New())
	if err != nil {
		log.Fatal(err)
	}
	receipt := ojs.Define[string]("receipt.send")
	order := ojs.Define[string]("order.book", ojs.WithMaxAttempts(1))
	sent := make(chan string, 2)
	eng.Register(
		handler.For(order, func(ctx context.Context, job *ojs.Job[string]) error {
			if err := handler.Then(ctx, receipt.New("receipt of "+job.Args)); err != nil {
				return err
			}
			if job.Args == "order 1" {
				return errors.New("sold out")
			}
			return nil
		}),
		handler.For(receipt, func(_ context.Context, job *ojs.Job[string]) error {
			sent <- job.Args
			return nil
		}),
	)
	go eng.Run(ctx)

	tickets, err := eng.EnqueueMany(ctx, order.New("order 1"), order.New("order 2"))
	if err != nil {
		log.Fatal(err)
	}
	for _, ticket := range tickets {
		job, _ := ticket.Wait(ctx)
		fmt.Println(job.State)
	}
	fmt.Println(<-sent)
	// Output:
	// discarded
	// completed
	// receipt of order 2
}
