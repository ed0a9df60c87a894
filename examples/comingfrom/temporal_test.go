package comingfrom_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/ojsengine/ojs"
	"github.com/ojsengine/ojs/handler"
	"github.com/ojsengine/ojs/policy"
	"github.com/ojsengine/ojs/policy/preset"
)

func Example_temporal() {
	ctx, eng := begin()

	// workflow.ActivityOptions{StartToCloseTimeout, ScheduleToCloseTimeout,
	// RetryPolicy{MaximumInterval, NonRetryableErrorTypes}}
	retries := preset.Temporal()
	retries.MaxInterval = time.Minute
	retries.NonRetryableErrors = []string{"payment.declined"}
	charge := ojs.Define[Charge]("charge", ojs.WithRetry(retries),
		ojs.WithTimeout(10*time.Second), ojs.WithTotalTimeout(time.Hour))

	// the activity; NewNonRetryableApplicationError; NextRetryDelay;
	// RecordHeartbeat with details
	eng.Register(handler.For(charge, func(ctx context.Context, job *ojs.Job[Charge]) error {
		var page int
		if _, err := handler.LoadCheckpoint(ctx, &page); err != nil {
			return err
		}
		switch {
		case job.Args.Amount < 0:
			return ojs.Permanent(errors.New("negative amount"))
		case job.Args.Amount > 100:
			return ojs.RetryAfter(30*time.Second, errors.New("limit reached"))
		}
		return handler.SaveCheckpoint(ctx, page+1)
	}))

	tickets := must(eng.EnqueueMany(ctx, charge.New(Charge{Amount: -1}), charge.New(Charge{Amount: 500}),
		charge.New(Charge{Amount: 5})))
	work(ctx, eng)
	for _, ticket := range tickets {
		job := must(eng.Get(ctx, ticket.ID))
		fmt.Println(job.State, job.Attempt)
	}
	fmt.Println(policy.Delays(retries)[:8])
	// Output:
	// discarded 1
	// retryable 1
	// completed 1
	// [1s 2s 4s 8s 16s 32s 1m0s 1m0s]
}
