package report

import (
	"context"
	"os"
	"os/signal"
	"syscall"
)

// Print writes what measure reports to standard output. A signal ends the context of
// measure. The error is that of measure, or of a contender that failed.
func Print(asJSON bool, measure func(context.Context) (*Report, error)) error {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	r, err := measure(ctx)
	if err != nil {
		return err
	}
	if err := r.Write(os.Stdout, asJSON); err != nil {
		return err
	}
	return r.Err()
}
