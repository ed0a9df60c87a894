package comingfrom_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/ojsengine/ojs"
	"github.com/ojsengine/ojs/engine"
	"github.com/ojsengine/ojs/handler"
	"github.com/ojsengine/ojs/inspect"
	"github.com/ojsengine/ojs/policy"
	"github.com/ojsengine/ojs/policy/preset"
)

func Example_oban() {
	// queues: [default: 10, events: 50]
	ctx, eng := begin(
		engine.WithConcurrency(60),
		engine.WithQueueConfig("default", engine.QueueConfig{Concurrency: 10}),
		engine.WithQueueConfig("events", engine.QueueConfig{Concurrency: 50}),
	)

	// use Oban.Worker, queue: :events, max_attempts: 10,
	// unique: [period: 60, keys: [:order]]
	retries := preset.Oban()
	retries.MaxAttempts = 10
	unique := ojs.UniquePolicy{
		Keys: ojs.ByQueue | ojs.ByArgs, ArgsKeys: []string{"order"}, Period: time.Minute,
		OnConflict: ojs.ConflictIgnore,
		States: []ojs.State{ojs.StateScheduled, ojs.StateAvailable, ojs.StateActive, ojs.StateRetryable,
			ojs.StateCompleted},
	}
	charge := ojs.Define[Charge]("charge", ojs.WithQueue("events"), ojs.WithRetry(retries),
		ojs.WithUnique(unique))

	// perform/1 returning :ok, {:cancel, reason}, {:snooze, seconds} or {:error, reason}
	eng.Register(handler.For(charge, func(ctx context.Context, job *ojs.Job[Charge]) error {
		switch {
		case job.Args.Amount < 0:
			return ojs.Discard(errors.New("a refund"))
		case job.Args.Amount == 0:
			return ojs.Snooze(time.Minute)
		case job.Args.Amount > 100:
			return errors.New("limit reached")
		}
		return nil
	}))

	// %{order: "A-1", amount: 5} |> Charge.new(schedule_in: 60) |> Oban.insert()
	must(charge.Enqueue(ctx, eng, Charge{Order: "A-1", Amount: 5}, ojs.WithDelay(time.Minute)))
	same := must(charge.Enqueue(ctx, eng, Charge{Order: "A-1", Amount: 6}))
	must(charge.Enqueue(ctx, eng, Charge{Order: "A-2", Amount: 500}))
	must(charge.Enqueue(ctx, eng, Charge{Order: "A-3", Amount: -1}))

	work(ctx, eng)
	for job, err := range eng.Jobs().List(ctx, inspect.Filter{Types: []string{"charge"}}) {
		check(err)
		fmt.Println(job.State, job.Attempt)
	}
	fmt.Println(same.Deduplicated, policy.Delays(retries)[:4])
	// Output:
	// scheduled 0
	// retryable 1
	// discarded 1
	// true [17s 19s 23s 31s]
}
