package ojs

import (
	"fmt"
	"maps"
	"time"

	"github.com/ojsengine/ojs/internal/bridge"
	"github.com/ojsengine/ojs/internal/iso8601"
)

// Code is a handler's response code (OJS retry, section 7). It overrides the retry
// policy.
type Code string

// The four response codes. A plain error means CodeRetry.
const (
	CodeRetry      Code = "RETRY"       // the retry policy decides
	CodeDiscard    Code = "DISCARD"     // end the job, it is not needed; see Discard
	CodeDeadLetter Code = "DEAD_LETTER" // end the job, keep it for a person; see DeadLetter
	// end the job as DISCARD does, but count it as a failure; see Permanent
	CodeFail Code = "FAIL"
)

// Valid reports whether c is one of the four codes.
func (c Code) Valid() bool {
	return c == CodeRetry || c == CodeDiscard || c == CodeDeadLetter || c == CodeFail
}

// Error is a handler's error with all its fields (OJS retry, section 7.3). Most handlers
// need only Errorf, Discard, DeadLetter, Permanent, RetryAfter and Snooze, or a plain
// error. If a chain has several Errors, the outermost Code and the first Type and Details
// win.
//
// An error type of your own may have a method ErrorType() string, which gives its type.
// If it has a method DoNotRetry() bool that returns true, the job becomes a dead letter,
// even if attempts are left.
type Error struct {
	// dotted, e.g. "payment.card_declined"; RetryPolicy.NonRetryableErrors matches it.
	// "": unset
	Type    string
	Message string         // "": Err's message, or the type
	Code    Code           // "": unset, as CodeRetry
	Details map[string]any // kept in the job's error history, for debugging; at most 64 KiB of JSON
	Err     error          // the cause; not stored
}

func (e *Error) Error() string { return message(e) }

// maxChain bounds the walk along an error's causes. A longer chain is taken for a cycle,
// which has no message and would overflow the stack.
const maxChain = 100

// message is the message of err, an *Error or a *RetryAfterError: its own or that of the
// next cause that has one.
func message(err error) string {
	said := "ojs: unspecified error"
	typed := false
	link := err
	for range maxChain {
		switch e := link.(type) {
		case *Error:
			switch {
			case e == nil:
				return "ojs: nil *Error"
			case e.Message != "":
				return e.Message
			case e.Err == nil && e.Type != "":
				return e.Type
			case e.Type != "" && !typed:
				said, typed = e.Type, true
			}
			link = e.Err
		case *RetryAfterError:
			if e == nil {
				return "ojs: nil *RetryAfterError"
			}
			link = e.Err
		case nil:
			return "ojs: unspecified error"
		default:
			left := maxChain
			if leadsTo(link, err, &left) { // its message may be made from err's
				return said
			}
			return link.Error()
		}
	}
	return said
}

// leadsTo reports whether target is among the first left errors that err wraps.
func leadsTo(err, target error, left *int) bool {
	for err != nil && *left > 0 {
		*left--
		switch e := err.(type) {
		case *Error:
			if err == target {
				return true
			}
			err = e.Unwrap()
		case *RetryAfterError:
			if err == target {
				return true
			}
			err = e.Unwrap()
		case interface{ Unwrap() error }:
			err = e.Unwrap()
		case interface{ Unwrap() []error }:
			for _, wrapped := range e.Unwrap() {
				if leadsTo(wrapped, target, left) {
					return true
				}
			}
			return false
		default:
			return false
		}
	}
	return false
}

// Unwrap returns the cause.
func (e *Error) Unwrap() error {
	if e == nil {
		return nil
	}
	return e.Err
}

// Errorf gives an error a type. Format and arguments are fmt.Errorf's, %w included.
func Errorf(errorType, format string, a ...any) error {
	return &Error{Type: errorType, Err: fmt.Errorf(format, a...)}
}

// Discard ends the job, even if attempts are left: it is not needed. It does not become a
// dead letter. A nil err stays nil.
func Discard(err error) error { return withCode(CodeDiscard, err) }

// DeadLetter ends the job, even if attempts are left, and keeps it as a dead letter for a
// person. A nil err stays nil.
func DeadLetter(err error) error { return withCode(CodeDeadLetter, err) }

// Permanent ends the job, even if attempts are left, as Discard does, but counts as a
// failure. A nil err stays nil.
func Permanent(err error) error { return withCode(CodeFail, err) }

func withCode(c Code, err error) error {
	if err == nil {
		return nil
	}
	return &Error{Code: c, Err: err}
}

// RetryAfterError is the error of RetryAfter.
type RetryAfterError struct {
	After time.Duration
	Err   error
}

// RetryAfter asks for the next attempt d after this one failed, at once if d is not
// positive. d replaces the backoff: it has no jitter, and is cut to the policy's
// MaxInterval. It has no effect without attempts left. A nil err stays nil.
func RetryAfter(d time.Duration, err error) error {
	if err == nil {
		return nil
	}
	return &RetryAfterError{After: max(d, 0), Err: err}
}

func (e *RetryAfterError) Error() string { return message(e) }

// Unwrap returns the wrapped error.
func (e *RetryAfterError) Unwrap() error {
	if e == nil {
		return nil
	}
	return e.Err
}

// RateLimitedUntil fails the attempt with err and blocks the RateLimit.Key of its job: no
// job of the key starts before until, on any engine. A block that lasts longer stays. The
// failure follows the retry policy of its job. It blocks nothing if until is not in the
// future, or if the job has no such key. A nil err stays nil.
//
// The time is in the details of the error, as rate_limit_until.
func RateLimitedUntil(until time.Time, err error) error {
	return detailed(err, bridge.DetailRateLimitUntil, until.UTC().Format(time.RFC3339Nano))
}

// RateLimitedFor is RateLimitedUntil for a time from now on: d from the end of the
// attempt on the engine's clock, as a server that is too busy says in Retry-After. It
// blocks nothing if d is not positive.
func RateLimitedFor(d time.Duration, err error) error {
	return detailed(err, bridge.DetailRateLimitFor, iso8601.Format(d))
}

// detailed is err with one more of its details. A nil err stays nil.
func detailed(err error, name, text string) error {
	if err == nil {
		return nil
	}
	details := make(map[string]any)
	if e, ok := err.(*Error); ok && e != nil {
		maps.Copy(details, e.Details)
	}
	details[name] = text
	return &Error{Details: details, Err: err}
}

// SnoozeError is the error of Snooze.
type SnoozeError struct{ For time.Duration }

// Snooze runs the job again after d, at once if d is not positive. It is no failure: it
// spends no attempt and adds nothing to the error history. A total timeout still ends the
// job. After the attempt's timeout a snooze has no effect: the attempt has failed.
func Snooze(d time.Duration) error { return &SnoozeError{For: max(d, 0)} }

func (e *SnoozeError) Error() string { return fmt.Sprintf("ojs: snoozed for %v", e.For) }

// Reason is the way an attempt failed: the "error_code" of the standard (OJS errors,
// section 6.1).
type Reason string

// The reasons of a failure.
const (
	ReasonHandlerError   Reason = "HANDLER_ERROR"
	ReasonHandlerTimeout Reason = "HANDLER_TIMEOUT"
	ReasonHandlerPanic   Reason = "HANDLER_PANIC"
	ReasonNonRetryable   Reason = "NON_RETRYABLE_ERROR"
	ReasonLeaseExpired   Reason = "VISIBILITY_TIMEOUT"
	ReasonWorkerDeath    Reason = "WORKER_DEATH"
	ReasonExpired        Reason = "JOB_EXPIRED"
	ReasonDropped        Reason = "QUEUE_FULL"
	ReasonDependency     Reason = "DEPENDENCY_FAILED"
	ReasonRateLimited    Reason = "RATE_LIMITED"
)

// Failure is one failed attempt in a job's error history (OJS retry, section 10.1).
type Failure struct {
	Attempt   int // 1-based; 0 for a job that expired before its first attempt
	At        time.Time
	Type      string
	Message   string
	Code      Code
	Reason    Reason
	Details   map[string]any
	Backtrace []string // of a panic, innermost first, at most 50 frames

	// When the attempt began and the worker that made it; not part of the wire form. Zero
	// if no attempt failed: the job expired, for example.
	StartedAt time.Time
	Worker    string
}
