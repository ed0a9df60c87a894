package policy

import (
	"errors"
	"time"

	"github.com/ojsengine/ojs"
	"github.com/ojsengine/ojs/internal/foreign"
)

// Hook lets a program decide on retries: by type of error, or by rules for all jobs (the
// RetryPolicy SPI of Ratchet). It can veto a retry but never force one, and it can choose
// its time. engine.WithRetryHook sets it for all jobs of an engine, handler.WithRetryHook
// for the jobs of a type.
//
// It is asked after the rules that end a job in any case (response code, do-not-retry
// marker, args that do not decode, non-retryable errors), and before the checks of
// attempts and time left. Each method is called at most once for a failure, and again if
// the decision could not be stored. Methods may be called concurrently, and must be
// quick, since the job waits for them. If a method panics, the engine logs it and decides
// without it.
//
// job is a copy of the job during the attempt that failed: job.Attempt counts its
// failures so far, this one included. err is the handler's error. If the attempt ended
// otherwise, err wraps ojs.ErrTimeout or ojs.ErrLeaseLost, or describes a panic. It is
// never nil.
type Hook interface {
	// ShouldRetry reports whether the job may be retried. If false, the job ends by its
	// policy's OnExhaustion. If true, the job's policy decides.
	ShouldRetry(job *ojs.JobInfo, err error) bool

	// Delay returns the delay between the failure and the retry: at most the policy's
	// MaxInterval, without jitter. Zero or less means the delay of the job's policy. It
	// is called only if an attempt is left and the handler did not ask for a delay.
	Delay(job *ojs.JobInfo, err error) time.Duration
}

// hookError is the error for a hook if the handler's error alone does not describe the
// attempt.
type hookError struct {
	message string
	causes  []error
}

func (e *hookError) Error() string   { return e.message }
func (e *hookError) Unwrap() []error { return e.causes }

// forHook makes the error for a hook.
func forHook(o Outcome, f *ojs.Failure) error {
	e := &hookError{message: f.Message}
	switch o.Kind {
	case TimedOut, TotalTimedOut:
		e.causes = append(e.causes, ojs.ErrTimeout)
	case LeaseExpired, WorkerDied:
		e.causes = append(e.causes, ojs.ErrLeaseLost)
	default:
		if o.Err == nil {
			return errors.New(f.Message)
		}
		return foreign.Ending(o.Err)
	}
	if o.Err != nil {
		e.causes = append(e.causes, foreign.Ending(o.Err))
	}
	return e
}
