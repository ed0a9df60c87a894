package engine_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/ojsengine/ojs"
	"github.com/ojsengine/ojs/engine"
)

var errLogin = errors.New("login refused")

// logins is a rule for all jobs: a refused login does not become right by trying again.
type logins struct{}

func (logins) ShouldRetry(_ *ojs.JobInfo, err error) bool { return !errors.Is(err, errLogin) }

func (logins) Delay(*ojs.JobInfo, error) time.Duration { return 0 } // the job's own

// A rule of the program's own for the retries of all jobs.
func ExampleWithRetryHook() {
	ctx, eng := begin(engine.WithRetryHook(logins{}))
	eng.Handle("mail.fetch", func(ctx context.Context, job *ojs.Job[any]) error {
		return fmt.Errorf("imap: %w", errLogin)
	})
	ticket := enqueue(ctx, eng, "mail.fetch", nil, ojs.WithMaxAttempts(5))
	work(ctx, eng)
	info, _ := eng.Get(ctx, ticket.ID)
	fmt.Println(info.State, "after", info.Attempt, "attempt:", info.Error.Message)
	// Output: discarded after 1 attempt: imap: login refused
}
