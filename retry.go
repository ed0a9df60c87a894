package ojs

import (
	"cmp"
	"fmt"
	"math"
	"time"

	"github.com/ojsengine/ojs/internal/backoff"
)

// RetryPolicy decides how often and when a failed job runs again (OJS retry, section 2).
// A literal is a partial policy: a zero field inherits from the nearest of call, job
// type, queue, engine and standard that sets it. The standard's policy is 3 attempts, 1 s
// doubling to at most 5 min, jitter on, no non-retryable errors, discard.
//
// Its JSON is the standard's object, without the inherited fields. Two things are not of
// the standard: the member "backoff_strategy", and "full" as a "jitter".
type RetryPolicy struct {
	MaxAttempts        int           // all runs, the first included; NoRetry: one; 0 inherits
	InitialInterval    time.Duration // before the second attempt; > 0
	BackoffCoefficient float64       // >= 1
	MaxInterval        time.Duration // between two attempts, jitter included; >= InitialInterval
	Jitter             Jitter
	BackoffStrategy    Backoff
	NonRetryableErrors []string // error types; "auth.*" matches a prefix. Non-nil and empty: none
	OnExhaustion       Exhaustion
}

// NoRetry as MaxAttempts, or in WithMaxAttempts, is the standard's "max_attempts": 0. The
// job runs once and is never retried. A policy cannot say so by 0, which inherits.
const NoRetry = -1

// Jitter spreads the attempts of jobs that failed together (OJS retry, section 5).
type Jitter string

const (
	JitterOn  Jitter = "on"  // the delay times a random number in [0.5, 1.5), at most MaxInterval
	JitterOff Jitter = "off" // the delay as computed

	// JitterFull is a random time from zero to the delay. It is not of the standard.
	// preset.FullJitter uses it, and its JSON is "jitter": "full".
	JitterFull Jitter = "full"
)

// Backoff is how the delay before retry n = 1, 2, ... grows (OJS retry, section 3), from
// the initial interval I and the coefficient C.
//
// Any other strategy has a qualified name, "vendor:name". The names of package policy
// begin with "ojs:". A program adds its own with policy.RegisterBackoff. Both parts of
// the name are lower-case letters, digits, '.', '_' and '-', the first a letter; the
// whole has at most 64 bytes.
//
// An enqueue and ParseDraft refuse a name that the program does not know. A job of
// another program keeps such a name, and policy.Delay retries it by the fallback.
type Backoff string

const (
	BackoffNone        Backoff = "none"        // I
	BackoffLinear      Backoff = "linear"      // I * n
	BackoffExponential Backoff = "exponential" // I * C^(n-1)
	BackoffPolynomial  Backoff = "polynomial"  // I * n^C
)

// Exhaustion is what happens to a job without attempts left (OJS retry, section 2.2). Its
// state is discarded in both cases.
type Exhaustion string

const (
	ExhaustionDiscard    Exhaustion = "discard"     // the job ends
	ExhaustionDeadLetter Exhaustion = "dead_letter" // the job ends and is kept among the dead letters
)

// Runs returns the number of attempts of a job with this policy: 1 for NoRetry, 0 if
// MaxAttempts is inherited.
func (p RetryPolicy) Runs() int {
	if p.MaxAttempts == NoRetry {
		return 1
	}
	return p.MaxAttempts
}

// Inherit returns p with its zero fields taken from base (OJS retry, section 8.1).
func (p RetryPolicy) Inherit(base RetryPolicy) RetryPolicy {
	p.MaxAttempts = cmp.Or(p.MaxAttempts, base.MaxAttempts)
	p.InitialInterval = cmp.Or(p.InitialInterval, base.InitialInterval)
	p.BackoffCoefficient = cmp.Or(p.BackoffCoefficient, base.BackoffCoefficient)
	p.MaxInterval = cmp.Or(p.MaxInterval, base.MaxInterval)
	p.Jitter = cmp.Or(p.Jitter, base.Jitter)
	p.BackoffStrategy = cmp.Or(p.BackoffStrategy, base.BackoffStrategy)
	p.OnExhaustion = cmp.Or(p.OnExhaustion, base.OnExhaustion)
	if p.NonRetryableErrors == nil {
		p.NonRetryableErrors = base.NonRetryableErrors
	}
	return p
}

// Equal reports whether two policies are equal. An empty list of non-retryable errors
// differs from nil, which inherits.
func (p RetryPolicy) Equal(q RetryPolicy) bool {
	return p.MaxAttempts == q.MaxAttempts && p.InitialInterval == q.InitialInterval &&
		p.BackoffCoefficient == q.BackoffCoefficient &&
		p.MaxInterval == q.MaxInterval && p.Jitter == q.Jitter && p.BackoffStrategy == q.BackoffStrategy &&
		p.OnExhaustion == q.OnExhaustion &&
		sameList(p.NonRetryableErrors, q.NonRetryableErrors)
}

// Validate checks the fields that are set, and MaxInterval against InitialInterval if
// both are (OJS retry, section 11). Of a qualified name in BackoffStrategy it checks only
// the form, since another program may know the name. policy.Resolve refuses an unknown
// name. Its error is an *InvalidError with InvalidCodeRetry.
func (p RetryPolicy) Validate() error {
	switch {
	case p.MaxAttempts < 0 && p.MaxAttempts != NoRetry:
		return retryError("max_attempts", attemptsReason(p.MaxAttempts))
	case p.InitialInterval < 0:
		return retryError("initial_interval", fmt.Sprintf("%v is not positive", p.InitialInterval))
	case p.BackoffCoefficient != 0 && !(p.BackoffCoefficient >= 1) || math.IsInf(p.BackoffCoefficient, 0):
		return retryError("backoff_coefficient",
			fmt.Sprintf("%v is not a number of at least 1", p.BackoffCoefficient))
	case p.MaxInterval < 0:
		return retryError("max_interval", fmt.Sprintf("%v is not positive", p.MaxInterval))
	case p.MaxInterval != 0 && p.MaxInterval < p.InitialInterval:
		return retryError("max_interval", fmt.Sprintf("max_interval %v is less than initial_interval %v",
			p.MaxInterval, p.InitialInterval))
	}
	switch p.Jitter {
	case "", JitterOn, JitterOff, JitterFull:
	default:
		return retryError("jitter", fmt.Sprintf("%q is not on, off or full", clip([]byte(p.Jitter))))
	}
	switch p.BackoffStrategy {
	case "", BackoffNone, BackoffLinear, BackoffExponential, BackoffPolynomial:
	default:
		if !backoff.Qualified(string(p.BackoffStrategy)) {
			return retryError("backoff_strategy",
				fmt.Sprintf("%q is not none, linear, exponential, polynomial or of the form vendor:name",
					clip([]byte(p.BackoffStrategy))))
		}
	}
	switch p.OnExhaustion {
	case "", ExhaustionDiscard, ExhaustionDeadLetter:
	default:
		return retryError("on_exhaustion", fmt.Sprintf("%q is neither discard nor dead_letter",
			p.OnExhaustion))
	}
	for i, t := range p.NonRetryableErrors {
		if t == "" {
			return retryError("non_retryable_errors", fmt.Sprintf("entry %d is empty", i))
		}
	}
	return nil
}

// distinct returns a copy of a list without repetitions, nil for nil. A repeated error
// type counts once (reading 22).
func distinct(list []string) []string {
	if list == nil {
		return nil
	}
	out := make([]string, 0, len(list))
	seen := make(map[string]struct{}, len(list))
	for _, s := range list {
		if _, twice := seen[s]; !twice {
			seen[s] = struct{}{}
			out = append(out, s)
		}
	}
	return out
}

// known refuses a strategy that this program cannot compute.
func (p RetryPolicy) known() error {
	if why := backoff.Unknown(string(p.BackoffStrategy)); why != "" {
		return retryError("backoff_strategy", why)
	}
	return nil
}

// attemptsReason says what is wrong with a negative number of attempts.
func attemptsReason(n int) string {
	return fmt.Sprintf("%d is negative: use ojs.NoRetry for a job that is never retried", n)
}

func retryError(field, reason string) error {
	return &InvalidError{Code: InvalidCodeRetry, Field: "retry." + field, Reason: reason}
}
