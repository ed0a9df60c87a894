package policy

import (
	"errors"
	"time"

	"github.com/ojsengine/ojs"
)

// Hook is a program's own say in the fate of failed attempts: by type of error, or by rules for all jobs (the RetryPolicy
// SPI of Ratchet). It can veto a retry but never force one, and it can choose the time of one. engine.WithRetryHook sets it
// for all jobs of an engine, handler.WithRetryHook for those of a type.
//
// It is asked after the rules that end a job whatever it says (response code, do-not-retry marker, args that do not decode,
// non-retryable errors) and before attempts and time left are looked at. Each method is called once for a failure at most,
// and again if the decision could not be stored. They may be called concurrently, and must be quick: what they decide on
// waits. One that panics has no opinion; the engine logs it.
//
// job is a copy of the job during the attempt that failed: job.Attempt counts its failures so far, this one included. err is
// what the handler returned; if the attempt ended otherwise it wraps ojs.ErrTimeout or ojs.ErrLeaseLost, or tells of a panic.
// It is never nil.
type Hook interface {
	// ShouldRetry reports whether the job may be retried. If not the job ends as its policy's OnExhaustion says. True leaves
	// it to the job's policy.
	ShouldRetry(job *ojs.JobInfo, err error) bool

	// Delay returns how long after the failure to retry: at most the policy's MaxInterval, without jitter. Zero or less leaves
	// it to the job's policy. It is asked only about a job that has an attempt left and whose handler did not ask for a time
	// itself.
	Delay(job *ojs.JobInfo, err error) time.Duration
}

// hookError is what a hook sees of an attempt that its handler's error alone does not describe.
type hookError struct {
	message string
	causes  []error
}

func (e *hookError) Error() string   { return e.message }
func (e *hookError) Unwrap() []error { return e.causes }

// forHook makes the error that a hook is asked about.
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
		return o.Err
	}
	if o.Err != nil {
		e.causes = append(e.causes, o.Err)
	}
	return e
}
