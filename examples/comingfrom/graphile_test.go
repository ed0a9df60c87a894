package comingfrom_test

import (
	"context"
	"fmt"
	"time"

	"github.com/ojsengine/ojs"
	"github.com/ojsengine/ojs/engine"
	"github.com/ojsengine/ojs/policy/preset"
)

func Example_graphileWorker() {
	ctx, eng := begin(engine.WithDefaults(ojs.WithRetry(preset.GraphileWorker())))

	eng.Handle("email.send", func(ctx context.Context, job *ojs.Job[any]) error {
		fmt.Println("sent", job.Args)
		return nil
	})

	// addJob("email.send", payload, {queueName: "user-7", maxAttempts: 5}):
	// jobs of a queue run one after the other
	must(eng.Enqueue(ctx, "email.send", "welcome", ojs.WithMaxAttempts(5),
		ojs.WithRateLimit(ojs.RateLimit{Key: "user-7", Concurrency: 1})))

	// jobKey: "digest-7", with jobKeyMode "replace", "preserve_run_at", "unsafe_dedupe"
	waiting := []ojs.State{ojs.StateScheduled, ojs.StateAvailable, ojs.StatePending, ojs.StateRetryable}
	replace := ojs.UniquePolicy{Key: "digest-7", States: waiting, OnConflict: ojs.ConflictReplace}
	preserveRunAt := replace
	preserveRunAt.OnConflict = ojs.ConflictReplaceExceptSchedule
	unsafeDedupe := ojs.UniquePolicy{Key: "digest-7", OnConflict: ojs.ConflictIgnore}

	must(eng.Enqueue(ctx, "email.send", "1 item", ojs.WithDelay(time.Hour), ojs.WithUnique(replace)))
	must(eng.Enqueue(ctx, "email.send", "2 items", ojs.WithDelay(time.Hour), ojs.WithUnique(replace)))
	kept := must(eng.Enqueue(ctx, "email.send", "3 items", ojs.WithUnique(preserveRunAt)))
	must(eng.Enqueue(ctx, "email.send", "4 items", ojs.WithUnique(unsafeDedupe)))
	work(ctx, eng)
	job := must(eng.Get(ctx, kept.ID))
	fmt.Println(job.Args, job.State)
	// Output:
	// sent welcome
	// "3 items" scheduled
}
