package comingfrom_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/ojsengine/ojs"
	"github.com/ojsengine/ojs/handler"
	"github.com/ojsengine/ojs/inspect"
	"github.com/ojsengine/ojs/policy"
	"github.com/ojsengine/ojs/policy/preset"
)

func Example_sidekiq() {
	ctx, eng := begin()

	// sidekiq_options queue: "mailers", retry: 5
	retries := preset.Sidekiq()
	retries.MaxAttempts = 1 + 5
	sendEmail := ojs.Define[Email]("email.send", ojs.WithQueue("mailers"), ojs.WithRetry(retries))

	// def perform; sidekiq_retry_in returning 10, :discard or :kill
	eng.Register(handler.For(sendEmail, func(ctx context.Context, job *ojs.Job[Email]) error {
		err := errors.New("mail server says no")
		switch job.Args.User {
		case 1:
			return ojs.RetryAfter(10*time.Second, err)
		case 2:
			return ojs.Discard(err)
		case 3:
			return ojs.DeadLetter(err)
		}
		return nil
	}))

	// perform_async, perform_in(1.hour), perform_bulk
	must(sendEmail.Enqueue(ctx, eng, Email{User: 1}))
	must(sendEmail.Enqueue(ctx, eng, Email{User: 4}, ojs.WithDelay(time.Hour)))
	must(eng.EnqueueMany(ctx, sendEmail.New(Email{User: 2}), sendEmail.New(Email{User: 3})))

	work(ctx, eng)
	for job, err := range eng.Jobs().List(ctx, inspect.Filter{Queues: []string{"mailers"}}) {
		check(err)
		fmt.Println(job.State, job.DeadLettered(), job.MaxAttempts)
	}
	fmt.Println(policy.Delays(retries)) // without the random part
	// Output:
	// retryable false 6
	// scheduled false 6
	// discarded false 6
	// discarded true 6
	// [15s 16s 31s 1m36s 4m31s]
}
