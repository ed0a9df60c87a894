package comingfrom_test

import (
	"context"
	"fmt"
	"time"

	"github.com/ojsengine/ojs"
	"github.com/ojsengine/ojs/cron"
	"github.com/ojsengine/ojs/handler"
	"github.com/ojsengine/ojs/policy/preset"
)

func Example_celery() {
	ctx, eng := begin()

	// @app.task(max_retries=5, retry_backoff=2, retry_backoff_max=120,
	// soft_time_limit=60, dont_autoretry_for=(Declined,))
	retries := preset.CeleryBackoff()
	retries.MaxAttempts = 1 + 5
	retries.InitialInterval = 2 * time.Second
	retries.MaxInterval = 120 * time.Second
	retries.NonRetryableErrors = []string{"payment.declined"}
	charge := ojs.Define[Charge]("charge", ojs.WithRetry(retries), ojs.WithTimeout(time.Minute))

	// the task's return value, in the result backend
	pay := func(ctx context.Context, job *ojs.Job[Charge]) (int, error) {
		if job.Args.Amount > 100 {
			return 0, ojs.Errorf("payment.declined", "%d is too much", job.Args.Amount)
		}
		return job.Args.Amount, nil
	}
	eng.Register(handler.For(charge, handler.Returning(pay)))

	// charge.apply_async((...), countdown=10, expires=3600);
	// beat_schedule with crontab(hour=3, minute=0)
	must(charge.Enqueue(ctx, eng, Charge{Order: "A-1"},
		ojs.WithDelay(10*time.Second), ojs.WithTTL(time.Hour)))
	nightly := charge.New(Charge{Order: "nightly"})
	check(eng.Cron().Set(ctx, cron.Entry{Name: "nightly", Schedule: "0 3 * * *", Job: nightly}))

	paid := must(charge.Enqueue(ctx, eng, Charge{Order: "A-2", Amount: 50}))
	declined := must(charge.Enqueue(ctx, eng, Charge{Order: "A-3", Amount: 500}))
	work(ctx, eng)

	// AsyncResult.get()
	var amount int
	check(paid.Result(ctx, &amount))

	job := must(eng.Get(ctx, declined.ID))
	fmt.Println(amount, job.State, job.Attempt, "of", job.MaxAttempts)
	// Output: 50 discarded 1 of 6
}
