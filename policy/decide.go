package policy

import (
	"fmt"
	"time"

	"github.com/ojsengine/ojs"
)

// HistoryLimit is the number of failures that a job's error history keeps; older ones are
// dropped first (OJS retry, section 10.1).
const HistoryLimit = 10

// Decision is the decision on an ended attempt.
type Decision struct {
	State      ojs.State // completed, retryable or discarded
	DeadLetter bool      // discarded, and kept as a dead letter
	Refunded   bool      // retryable without having spent the attempt: snoozed or interrupted
	RunAt      time.Time // retryable: when the next attempt is due
	// the delay that the handler or the hook asked for, if MaxInterval cut it; otherwise
	// 0
	Asked   time.Duration
	Failure *ojs.Failure // the new entry of the error history; nil if the attempt did not fail
	Rule    Rule
}

// Rule names the rule that decided.
type Rule string

// The rules, in the order in which they are asked.
const (
	RuleCompleted    Rule = "completed"
	RuleSnoozed      Rule = "snoozed"
	RuleInterrupted  Rule = "interrupted"
	RuleCode         Rule = "code"          // the handler answered DISCARD, FAIL or DEAD_LETTER
	RuleMarker       Rule = "marker"        // the error says DoNotRetry
	RuleArgs         Rule = "args"          // the args do not decode
	RuleNonRetryable Rule = "non_retryable" // the error's type is on the policy's list
	RuleHook         Rule = "hook"          // the retry hook vetoed
	RuleExhausted    Rule = "exhausted"     // no attempt is left
	RuleTotalTimeout Rule = "total_timeout" // no time is left
	RuleRetry        Rule = "retry"
)

// Decide is the only place that decides on an ended attempt. job is the job during the
// attempt, with its effective retry policy; now is the end of the attempt; r in [0, 1) is
// the draw for jitter; hook may be nil.
//
// The order: success; the handler's snooze, unless the attempt has failed otherwise, by a
// timeout for example; its response code; the error's own do-not-retry marker; args that
// do not decode; the policy's non-retryable errors; the hook's veto; attempts left; total
// timeout; then a retry after the handler's delay, the hook's, or the strategy's.
//
// The first rule that ends the job decides whether it becomes a dead letter: a code and
// the marker by themselves, args that do not decode always (reading 58), the others by
// the policy's OnExhaustion.
func Decide(job *ojs.JobInfo, o Outcome, now time.Time, r float64, hook Hook) Decision {
	if o.Kind == Returned && o.Err == nil {
		return Decision{State: ojs.StateCompleted, Rule: RuleCompleted}
	}
	s := inspect(o.Err)
	if s.snooze != nil && (o.Kind == Returned || o.Kind == Interrupted) {
		return Decision{State: ojs.StateRetryable, Refunded: true, RunAt: now.Add(s.snooze.For),
			Rule: RuleSnoozed}
	}
	ends := s.code == ojs.CodeDiscard || s.code == ojs.CodeFail || s.code == ojs.CodeDeadLetter
	f := failure(job, o, s, now)
	// At a stop the error of the ended context is no answer of the handler, as none is.
	forbids := o.Err != nil && !s.ended && (s.marked || NonRetryable(job.Retry.NonRetryableErrors, f.Type))
	if o.Kind == Interrupted && !ends && !forbids {
		return Decision{State: ojs.StateRetryable, Refunded: true, RunAt: now, Rule: RuleInterrupted}
	}
	end := func(why Rule, deadLetter bool) Decision {
		return Decision{State: ojs.StateDiscarded, DeadLetter: deadLetter, Failure: f, Rule: why}
	}
	onExhaustion := job.Retry.OnExhaustion == ojs.ExhaustionDeadLetter

	switch {
	case ends:
		return end(RuleCode, s.code == ojs.CodeDeadLetter)
	case s.marked:
		f.Reason = ojs.ReasonNonRetryable
		return end(RuleMarker, true)
	case o.Kind == Undecodable:
		return end(RuleArgs, true)
	case o.Kind != LeaseExpired && o.Kind != WorkerDied && NonRetryable(job.Retry.NonRetryableErrors, f.Type):
		if o.Kind == Returned || o.Kind == Interrupted {
			f.Reason = ojs.ReasonNonRetryable
		}
		return end(RuleNonRetryable, onExhaustion)
	}
	if hook != nil && !hook.ShouldRetry(job, forHook(o, f)) {
		if o.Kind == Returned {
			f.Reason = ojs.ReasonNonRetryable
		}
		return end(RuleHook, onExhaustion)
	}
	if o.Kind == TotalTimedOut {
		return end(RuleTotalTimeout, onExhaustion)
	}
	if job.Attempt >= job.Retry.Runs() {
		return end(RuleExhausted, onExhaustion)
	}
	var asked time.Duration
	switch {
	case s.retryAfter != nil:
		asked = max(s.retryAfter.After, 0)
	case hook != nil:
		asked = hook.Delay(job, forHook(o, f))
	}
	delay := min(asked, job.Retry.MaxInterval)
	if s.retryAfter == nil && delay <= 0 {
		delay = Delay(job.Retry, job.Attempt, r)
	}
	runAt := now.Add(delay)
	if job.TotalTimeout > 0 && !runAt.Before(job.CreatedAt.Add(job.TotalTimeout)) {
		return end(RuleTotalTimeout, onExhaustion)
	}
	d := Decision{State: ojs.StateRetryable, RunAt: runAt, Failure: f, Rule: RuleRetry}
	if asked > job.Retry.MaxInterval {
		d.Asked = asked
	}
	return d
}

// failure is the attempt's entry in the error history.
func failure(job *ojs.JobInfo, o Outcome, s signals, now time.Time) *ojs.Failure {
	f := &ojs.Failure{
		Attempt: job.Attempt, At: now, Type: clip(s.errorType), Message: s.message, Code: ojs.CodeRetry,
		Reason: ojs.ReasonHandlerError, Details: s.details,
	}
	if s.code != "" {
		f.Code = s.code
	}
	switch o.Kind {
	case Returned, Interrupted:
		if f.Type == "" {
			f.Type = ErrorTypeError
		}
	case Panicked:
		f.Type, f.Reason = ErrorTypePanic, ojs.ReasonHandlerPanic
		f.Backtrace = o.Backtrace[:min(len(o.Backtrace), maxBacktrace)]
	case Exited:
		f.Type, f.Message, f.Reason = ErrorTypeGoexit, "the handler called runtime.Goexit",
			ojs.ReasonHandlerPanic
	case Undecodable:
		f.Type = ErrorTypeArgs
	case TimedOut:
		exceeded(f, o, s, ErrorTypeTimeout, ojs.ReasonHandlerTimeout, "execution",
			"the attempt exceeded its timeout")
	case TotalTimedOut:
		exceeded(f, o, s, ErrorTypeTotalTimeout, ojs.ReasonHandlerTimeout, "total",
			"the job exceeded its total timeout")
	case LeaseExpired:
		what := "the attempt was not acknowledged within its lease"
		if o.Silent > 0 {
			what = "the process that held the job was silent beyond the limit"
		}
		exceeded(f, o, s, ErrorTypeLeaseExpired, ojs.ReasonLeaseExpired, "stalled", what)
		if o.Ended {
			f.Message = fmt.Sprintf("the process that held the job has ended, %v after the attempt began",
				o.Elapsed.Round(time.Millisecond))
		}
	case WorkerDied:
		exceeded(f, o, s, ErrorTypeWorkerDeath, ojs.ReasonWorkerDeath, "stalled",
			"the worker was silent beyond the limit")
	}
	return f
}

// exceeded fills in what a timeout adds to a failure (OJS timeouts, section 7). The
// handler's own error follows in the message.
func exceeded(f *ojs.Failure, o Outcome, s signals, errorType string, reason ojs.Reason, kind, what string) {
	f.Type, f.Reason = errorType, reason
	said := s.message
	f.Message = fmt.Sprintf("%s of %v", what, o.Limit)
	if said != "" && !s.ended {
		f.Message = clip(f.Message + ": " + said)
	}
	if f.Details == nil {
		f.Details = make(map[string]any, 3)
	}
	f.Details["timeout_kind"] = kind
	f.Details["limit_seconds"] = o.Limit.Seconds()
	f.Details["elapsed_seconds"] = o.Elapsed.Seconds()
}

// Apply changes job to the result of d at now. It does not write to the values that job's
// fields point to, so copies of job stay as they are.
func (d Decision) Apply(job *ojs.JobInfo, now time.Time) {
	job.State = d.State
	job.NextRetryAt = time.Time{}
	if d.Refunded {
		job.Attempt--
	}
	if d.Failure != nil {
		keep := job.Errors[max(len(job.Errors)-HistoryLimit+1, 0):]
		history := make([]ojs.Failure, 0, len(keep)+1)
		job.Errors = append(append(history, keep...), *d.Failure)
		job.Error = d.Failure
	}
	switch d.State {
	case ojs.StateRetryable:
		job.NextRetryAt = d.RunAt
	case ojs.StateCompleted:
		job.Error = nil
		job.FinishedAt = now
	case ojs.StateDiscarded:
		job.FinishedAt = now
		if d.DeadLetter {
			job.DeadLetteredAt = now
		}
	}
}
