package comingfrom_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/ojsengine/ojs"
	"github.com/ojsengine/ojs/engine"
	"github.com/ojsengine/ojs/inspect"
	"github.com/ojsengine/ojs/policy/preset"
)

func Example_faktory() {
	// mgr.ProcessStrictPriorityQueues("critical", "default"); mgr.Concurrency = 20
	ctx, eng := begin(
		engine.WithConcurrency(20),
		engine.WithQueueConfig("critical", engine.QueueConfig{}),
		engine.WithQueueConfig("default", engine.QueueConfig{}),
		engine.WithDefaults(ojs.WithRetry(preset.Faktory())),
	)

	// mgr.Register
	eng.Handle("report.build", func(ctx context.Context, job *ojs.Job[any]) error {
		return errors.New("no data yet")
	})

	// "retry": 0 and "retry": -1
	gone := ojs.RetryPolicy{MaxAttempts: ojs.NoRetry, OnExhaustion: ojs.ExhaustionDiscard}
	buried := ojs.RetryPolicy{MaxAttempts: ojs.NoRetry, OnExhaustion: ojs.ExhaustionDeadLetter}
	must(eng.Enqueue(ctx, "report.build", "May", ojs.WithRetry(gone)))
	must(eng.Enqueue(ctx, "report.build", "June", ojs.WithRetry(buried)))

	// "retry": 25, "queue": "critical", "reserve_for": 600,
	// "custom": {"unique_for": 3600}
	must(eng.Enqueue(ctx, "report.build", "July", ojs.WithQueue("critical"), ojs.WithTimeout(10*time.Minute),
		ojs.WithUnique(ojs.UniquePolicy{Keys: ojs.ByQueue | ojs.ByArgs, Period: time.Hour})))

	work(ctx, eng)
	for job, err := range eng.Jobs().List(ctx, inspect.Filter{}) {
		check(err)
		fmt.Println(job.Args, job.State, job.DeadLettered(), job.MaxAttempts)
	}
	// Output:
	// "May" discarded false 1
	// "June" discarded true 1
	// "July" retryable false 26
}
