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
	"github.com/ojsengine/ojs/operate"
	"github.com/ojsengine/ojs/policy"
	"github.com/ojsengine/ojs/policy/preset"
)

func Example_bullMQ() {
	// new Worker(name, processor, {concurrency: 5, limiter: {max: 10, duration: 1000}})
	ctx, eng := begin(
		engine.WithConcurrency(5),
		engine.WithQueueConfig("paint",
			engine.QueueConfig{RateLimit: ojs.RateLimit{Rate: ojs.Rate{Limit: 10, Per: time.Second}}}),
	)
	eng.Handle("cars", func(ctx context.Context, job *ojs.Job[any]) error {
		handler.Progress(ctx, 0.42)
		return ojs.DeadLetter(errors.New("no such colour")) // UnrecoverableError
	})

	// queue.add("cars", data, {attempts: 3, backoff: {type: "exponential", delay: 1000},
	// deduplication: {id, ttl: 5000}})
	retries := preset.BullMQExponential(3, time.Second)
	dedup := ojs.WithUnique(ojs.UniquePolicy{
		Key: "customer-7", Period: 5 * time.Second, States: ojs.AllStates(), OnConflict: ojs.ConflictIgnore,
	})
	first := must(eng.Enqueue(ctx, "cars", "blue", ojs.WithQueue("paint"), ojs.WithRetry(retries), dedup))
	second := must(eng.Enqueue(ctx, "cars", "blue", ojs.WithQueue("paint"), ojs.WithRetry(retries), dedup))

	work(ctx, eng)
	fmt.Println(first.ID == second.ID, policy.Delays(retries))

	// queue.getFailed(), job.retry()
	failed := inspect.Filter{Queues: []string{"paint"}, DeadLettered: true}
	for p, err := range eng.Jobs().Apply(ctx, operate.Bulk{Do: operate.RetryJobs(), On: failed}) {
		fmt.Println(p.Done, "retried", p.Err, err)
	}

	// Output:
	// true [1s 2s]
	// 1 retried <nil> <nil>
}
