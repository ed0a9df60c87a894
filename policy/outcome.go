package policy

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/ojsengine/ojs"
	"github.com/ojsengine/ojs/internal/foreign"
	"github.com/ojsengine/ojs/internal/jsonvalue"
)

// Outcome is the end of an attempt.
type Outcome struct {
	Kind      OutcomeKind
	Err       error         // the handler's error, or the reason that it returned none
	Backtrace []string      // Panicked: innermost frame first
	Limit     time.Duration // TimedOut, TotalTimedOut, LeaseExpired, WorkerDied: the exceeded limit
	Elapsed   time.Duration // the same: the time that it took
	Ended     bool          // LeaseExpired: the process that held the job has ended
	Silent    time.Duration // LeaseExpired: of the process that held the job; 0: its lease is over
}

// OutcomeKind is the way an attempt ended.
type OutcomeKind uint8

const (
	Returned OutcomeKind = iota // the handler returned Err; nil completes the job
	Panicked                    // the handler panicked
	Exited                      // the handler called runtime.Goexit
	// the args did not decode into the handler's type: no later attempt of this program
	// can
	Undecodable
	TimedOut      // the attempt's timeout passed and the handler did not complete the job
	TotalTimedOut // the job's total timeout passed and the handler did not complete the job
	LeaseExpired  // the lease expired: the process died or lost its storage
	WorkerDied    // the worker outside of the engine was silent for too long
	Interrupted   // the engine's stop ended the attempt: it is returned unspent
)

// Timed applies the timeouts of a job to the outcome of its attempt, which began and
// ended at the given times. If the attempt reached the timeout, or the job's total
// timeout, without completing the job, it failed by that timeout. The handler's later
// answer and an interruption by a stop do not change that. A panic, undecodable args and
// a lost lease stay failures of their own.
func Timed(job *ojs.JobInfo, o Outcome, began, ended time.Time) Outcome {
	late := false
	switch {
	case o.Kind == Returned && o.Err != nil, o.Kind == Interrupted:
	case o.Kind == TimedOut && o.Limit == 0: // a timer noticed it
		late = true
	case o.Kind == TimedOut: // a limit other than the job's
		o.Elapsed = ended.Sub(began)
		return o
	default:
		return o
	}
	end := began.Add(job.Timeout)
	if total := job.TotalTimeout; total > 0 && !job.CreatedAt.Add(total).After(end) {
		if late || ended.Sub(job.CreatedAt) >= total {
			return Outcome{Kind: TotalTimedOut, Err: o.Err, Limit: total, Elapsed: ended.Sub(job.CreatedAt)}
		}
	} else if late || !ended.Before(end) {
		return Outcome{Kind: TimedOut, Err: o.Err, Limit: job.Timeout, Elapsed: ended.Sub(began)}
	}
	return o
}

// Limits of a handler's error in the history (OJS errors, section 6). A message has at
// most foreign.MaxText bytes.
const maxBacktrace = 50 // frames

// signals are the answers in the chain of a handler's error.
type signals struct {
	code       ojs.Code // outermost
	errorType  string   // first
	details    map[string]any
	retryAfter *ojs.RetryAfterError
	snooze     *ojs.SnoozeError
	marked     bool // DoNotRetry
	ended      bool // the context's own error: it is no answer of the handler
	message    string
}

// inspect reads the chain. The methods of a handler's error are foreign code. If one
// panics or calls runtime.Goexit, the reading ends, and the answers read until then hold.
func inspect(err error) (s signals) {
	if err == nil {
		return s
	}
	if foreign.IsNil(err) {
		s.message = fmt.Sprintf("handler returned a nil %T as its error", err)
		return s
	}
	s.message = foreign.ErrorText(err)
	foreign.Walk(err, s.read)
	return s
}

// read reads one error of the chain.
func (s *signals) read(err error) bool {
	switch e := err.(type) {
	case *ojs.Error:
		if s.code == "" && s.snooze == nil && e.Code.Valid() {
			s.code = e.Code
		}
		if s.errorType == "" {
			s.errorType = e.Type
		}
		if s.details == nil && len(e.Details) > 0 {
			s.details = storable(e.Details)
		}
	case *ojs.RetryAfterError:
		if s.retryAfter == nil {
			s.retryAfter = e
		}
	case *ojs.SnoozeError:
		if s.code == "" && s.snooze == nil {
			s.snooze = e
		}
	}
	if err == context.Canceled || err == context.DeadlineExceeded || err == ojs.ErrTimeout ||
		err == ojs.ErrShutdown {
		s.ended = true
	}
	if e, ok := err.(interface{ ErrorType() string }); ok && s.errorType == "" {
		s.errorType = e.ErrorType()
	}
	if e, ok := err.(interface{ DoNotRetry() bool }); ok && !s.marked {
		s.marked = e.DoNotRetry()
	}
	return true
}

// clip makes a message or an error type storable: valid UTF-8 of bounded length.
func clip(m string) string { return foreign.Clip(m, foreign.MaxText) }

// storable returns details as every storage gives them back, or the reason why they
// cannot be stored.
func storable(details map[string]any) map[string]any {
	refused := func(why string) map[string]any { return map[string]any{"details_error": why} }
	if jsonvalue.LargerThan(details, jsonvalue.MaxDetails) {
		return refused(fmt.Sprintf("more than %d bytes of JSON", jsonvalue.MaxDetails))
	}
	m, err := jsonvalue.Normalize(details)
	if err != nil {
		return refused(foreign.ErrorText(err))
	}
	if jsonvalue.SizeBound(m) > jsonvalue.MaxDetails {
		if raw, err := json.Marshal(m); err != nil || len(raw) > jsonvalue.MaxDetails {
			return refused(fmt.Sprintf("%d bytes of JSON, more than %d", len(raw), jsonvalue.MaxDetails))
		}
	}
	return m
}
