// Package preset has the retry policies of other systems, for ojs.WithRetry: FullJitter,
// Sidekiq and the like. Each is a whole policy, except that NonRetryableErrors inherits,
// and each call returns a new value, whose fields you may change, such as MaxAttempts.
//
// A formula that the standard's fields cannot express is a strategy with a qualified
// name, such as "ojs:sidekiq", which package policy computes. It draws its own jitter, so
// Jitter is off. Unless its preset says otherwise, it ignores InitialInterval and
// BackoffCoefficient, which are for programs that do not know it. MaxInterval holds for
// every strategy, and for the delays of handlers and hooks.
//
// OnExhaustion is dead_letter if the system keeps jobs without retries left apart for a
// person, and otherwise discard. A discarded job can be run again, too
// (operate.Jobs.Retry), as long as it is retained.
package preset

import (
	"math"
	"time"

	"github.com/ojsengine/ojs"
)

// NoCap is the MaxInterval of presets of systems without a cap: 100 years of 365 days.
// Storages keep times as nanoseconds since 1970 in an int64, which ends in the year 2262.
const NoCap = 36500 * 24 * time.Hour

// FullJitter returns the policy of the Go job queue whose document "Retry and Backoff
// Policy" is a source of this engine: 3 retries, so 4 attempts; a ceiling of 500 ms
// before the first, doubling, at most 30 s; and a random delay from nothing to the
// ceiling.
//
// Its options are fields: MaxRetries is MaxAttempts-1 (ojs.NoRetry for 0),
// RetryBackoffBaseMS is InitialInterval, RetryBackoffMaxMS is MaxInterval.
func FullJitter() ojs.RetryPolicy {
	return ojs.RetryPolicy{
		MaxAttempts:        4,
		InitialInterval:    500 * time.Millisecond,
		BackoffCoefficient: 2,
		MaxInterval:        30 * time.Second,
		Jitter:             ojs.JitterFull,
		BackoffStrategy:    ojs.BackoffExponential,
		OnExhaustion:       ojs.ExhaustionDiscard,
	}
}

// Sidekiq returns Sidekiq's default policy: 25 retries, count^4 + 15 + rand(10)*(count+1)
// seconds apart, where count is 0 for the first, about 20 days in all; then the dead set.
// The formula is the one of its wiki, "Error Handling", which OJS retry, section 13.2,
// quotes.
func Sidekiq() ojs.RetryPolicy {
	return ownStrategy("ojs:sidekiq", 26, 15*time.Second, ojs.ExhaustionDeadLetter)
}

// Faktory returns Faktory's default policy: 25 retries, count^4 + 15 + rand(30)*(count+1)
// seconds apart, where count is 0 for the first; then the dead set (Faktory v1.9.0,
// nextRetry in manager/retry.go). Its retry numbers 0 and -1, which discard a job or bury
// it at its first failure, are ojs.NoRetry with one OnExhaustion or the other.
func Faktory() ojs.RetryPolicy {
	return ownStrategy("ojs:faktory", 26, 15*time.Second, ojs.ExhaustionDeadLetter)
}

// Asynq returns asynq's default policy: 25 retries, n^4 + 15 + rand(30)*(n+1) seconds
// apart, where n is 0 for the first; then archived (asynq v0.26.0, DefaultRetryDelayFunc
// in server.go).
func Asynq() ojs.RetryPolicy {
	return ownStrategy("ojs:asynq", 26, 15*time.Second, ojs.ExhaustionDeadLetter)
}

// River returns River's default policy: 25 attempts, attempt^4 seconds apart, 10 % more
// or less; then discarded (River v0.51.0, retry_policy.go). River's cap of 292 years is
// NoCap here.
func River() ojs.RetryPolicy {
	return ownStrategy("ojs:river", 25, time.Second, ojs.ExhaustionDiscard)
}

// Oban returns the default policy of an Oban worker: 20 attempts, 15 + 2^attempt seconds
// apart and up to 10 % more, in whole seconds; then discarded (Oban 2, Oban.Worker and
// Oban.Backoff). With a MaxAttempts of more than 20 the attempts are spread over the same
// 20 powers: the exponent is round(attempt / MaxAttempts * 20).
func Oban() ojs.RetryPolicy {
	return ownStrategy("ojs:oban", 20, 15*time.Second, ojs.ExhaustionDiscard)
}

// GraphileWorker returns the policy of Graphile Worker: 25 attempts, exp(least(10,
// attempt)) seconds apart, in PostgreSQL's microseconds; from the tenth on some 6 h 7 min
// (Graphile Worker 0.17.3, sql/failJobs). A job that has failed for good stays in its
// table, so it becomes a dead letter.
func GraphileWorker() ojs.RetryPolicy {
	return ownStrategy("ojs:graphile", 25, time.Second, ojs.ExhaustionDeadLetter)
}

// Temporal returns the default policy of a Temporal activity: 1 s, doubling to at most
// 100 s, without end and without jitter (Temporal's documentation, "Retry Policies"). Its
// maximum interval is 100 times the initial one: change MaxInterval along with
// InitialInterval. MaxAttempts is math.MaxInt32. ojs.WithTotalTimeout, its
// schedule-to-close timeout, ends the retries of an activity that fails for good.
func Temporal() ojs.RetryPolicy {
	return ojs.RetryPolicy{
		MaxAttempts:        math.MaxInt32,
		InitialInterval:    time.Second,
		BackoffCoefficient: 2,
		MaxInterval:        100 * time.Second,
		Jitter:             ojs.JitterOff,
		BackoffStrategy:    ojs.BackoffExponential,
		OnExhaustion:       ojs.ExhaustionDiscard,
	}
}

// Celery returns the default policy of a Celery task that retries: 3 retries, 180 s
// apart, without jitter (Celery 5, Task.max_retries and Task.default_retry_delay).
// max_retries is MaxAttempts-1, default_retry_delay is InitialInterval.
func Celery() ojs.RetryPolicy {
	return fixed(4, 180*time.Second, NoCap, ojs.ExhaustionDiscard)
}

// CeleryBackoff returns the policy of a Celery task with retry_backoff=True: 3 retries
// after a random whole number of seconds from nothing to 2^retries, at most 600, where
// retries is 0 for the first (Celery 5, get_exponential_backoff_interval).
//
// InitialInterval is retry_backoff and MaxInterval is retry_backoff_max, of which the
// whole seconds count, at least one. retry_jitter=False is ojs.BackoffExponential as
// BackoffStrategy.
func CeleryBackoff() ojs.RetryPolicy {
	return ojs.RetryPolicy{
		MaxAttempts:        4,
		InitialInterval:    time.Second,
		BackoffCoefficient: 2,
		MaxInterval:        600 * time.Second,
		Jitter:             ojs.JitterOff,
		BackoffStrategy:    "ojs:celery",
		OnExhaustion:       ojs.ExhaustionDiscard,
	}
}

// BullMQ returns the policy of a BullMQ job with attempts and no backoff: it is retried
// at once. attempts counts the first one, as in BullMQ, where it is 1 by default; less
// than 1 is 1. A job that has failed for good is kept, so it becomes a dead letter; with
// removeOnFail it is ojs.ExhaustionDiscard.
func BullMQ(attempts int) ojs.RetryPolicy {
	return immediate(max(attempts, 1), NoCap, ojs.ExhaustionDeadLetter)
}

// BullMQFixed returns the policy of a BullMQ job with backoff {type: "fixed", delay}: as
// BullMQ, the delay apart.
func BullMQFixed(attempts int, delay time.Duration) ojs.RetryPolicy {
	return fixed(max(attempts, 1), delay, NoCap, ojs.ExhaustionDeadLetter)
}

// BullMQExponential returns the policy of a BullMQ job with backoff {type: "exponential",
// delay}: as BullMQ, 2^(n-1) times the delay after the n-th failure (BullMQ 6.7.0,
// classes/backoffs).
func BullMQExponential(attempts int, delay time.Duration) ojs.RetryPolicy {
	p := fixed(max(attempts, 1), delay, NoCap, ojs.ExhaustionDeadLetter)
	if p.BackoffStrategy == ojs.BackoffNone {
		p.BackoffStrategy, p.BackoffCoefficient = ojs.BackoffExponential, 2
	}
	return p
}

// ownStrategy is a policy whose delays are its strategy's. In a program that does not
// know the strategy, the interval doubles.
func ownStrategy(s ojs.Backoff, attempts int, interval time.Duration, end ojs.Exhaustion) ojs.RetryPolicy {
	return ojs.RetryPolicy{
		MaxAttempts:        attempts,
		InitialInterval:    interval,
		BackoffCoefficient: 2,
		MaxInterval:        NoCap,
		Jitter:             ojs.JitterOff,
		BackoffStrategy:    s,
		OnExhaustion:       end,
	}
}

// immediate is a policy without delays. Its interval must be positive, and is for
// programs that do not know its strategy.
func immediate(attempts int, most time.Duration, end ojs.Exhaustion) ojs.RetryPolicy {
	p := fixed(attempts, time.Millisecond, most, end)
	p.BackoffStrategy = "ojs:immediate"
	return p
}

// fixed is a policy with a constant delay, which may be longer than the cap.
func fixed(attempts int, delay, most time.Duration, end ojs.Exhaustion) ojs.RetryPolicy {
	if delay <= 0 {
		return immediate(attempts, most, end)
	}
	return ojs.RetryPolicy{
		MaxAttempts:        attempts,
		InitialInterval:    delay,
		BackoffCoefficient: 1,
		MaxInterval:        max(delay, most),
		Jitter:             ojs.JitterOff,
		BackoffStrategy:    ojs.BackoffNone,
		OnExhaustion:       end,
	}
}
