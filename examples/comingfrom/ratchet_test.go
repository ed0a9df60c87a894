package comingfrom_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/ojsengine/ojs"
	"github.com/ojsengine/ojs/cron"
	"github.com/ojsengine/ojs/engine"
	"github.com/ojsengine/ojs/policy/preset"
)

// LoginError says itself that it is not worth a retry: Ratchet's @DoNotRetry.
type LoginError struct{ User string }

func (e LoginError) Error() string    { return "no login for " + e.User }
func (e LoginError) DoNotRetry() bool { return true }

// SmartRetryPolicy is the RetryPolicy of Ratchet's document.
type SmartRetryPolicy struct{}

func (SmartRetryPolicy) ShouldRetry(job *ojs.JobInfo, err error) bool {
	if errors.Is(err, io.ErrUnexpectedEOF) {
		return job.Attempt <= 10
	}
	return true // as the job says
}

func (SmartRetryPolicy) Delay(job *ojs.JobInfo, err error) time.Duration {
	return 0 // the job's own backoff
}

func Example_ratchet() {
	ctx, eng := begin(
		engine.WithRetryHook(SmartRetryPolicy{}),
		engine.WithDefaults(ojs.WithRetry(preset.RatchetNone(0))), // Ratchet's default: no retries
	)
	eng.Handle("fetch", func(ctx context.Context, job *ojs.Job[any]) error {
		if job.Args == "secret" {
			return LoginError{"guest"}
		}
		return fmt.Errorf("fetch %v: %w", job.Args, io.ErrUnexpectedEOF)
	})

	// scheduler.enqueue(...).withMaxRetries(5)
	// .withBackoff(BackoffPolicy.EXPONENTIAL, Duration.ofSeconds(1)).submit()
	page := must(eng.Enqueue(ctx, "fetch", "page", ojs.WithRetry(preset.RatchetExponential(5, time.Second))))
	secret := must(eng.Enqueue(ctx, "fetch", "secret", ojs.WithRetry(preset.RatchetFixed(5, 10*time.Second))))
	once := must(eng.Enqueue(ctx, "fetch", "once"))

	// scheduleRecurring("0 0 * * * ?", ZoneId.of("UTC"), ...).withOptions(...)
	check(eng.Cron().Set(ctx, cron.Entry{Name: "hourly", Schedule: "0 0 * * * ?", TimeZone: "UTC",
		Job: ojs.NewDraft("fetch", "index", ojs.WithRetry(preset.RatchetExponential(3, 5*time.Second)))}))

	work(ctx, eng)
	for _, ticket := range []ojs.Ticket{page, secret, once} {
		job := must(eng.Get(ctx, ticket.ID))
		fmt.Println(job.Args, job.State, job.DeadLettered())
	}
	// Output:
	// "page" retryable false
	// "secret" discarded true
	// "once" discarded true
}
