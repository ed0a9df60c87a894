package preset

import (
	"math"
	"time"

	"github.com/ojsengine/ojs"
)

// ratchetCap is the most that Ratchet waits, its MAX_DELAY.
const ratchetCap = 24 * time.Hour

// RatchetNone returns the policy of a job of Ratchet with BackoffPolicy.NONE: it is
// retried at once, maxRetries times, and then becomes a dead letter. Ratchet's default is
// maxRetries 0: a job that fails is a dead letter.
func RatchetNone(maxRetries int) ojs.RetryPolicy {
	return immediate(afterRetries(maxRetries), ratchetCap, ojs.ExhaustionDeadLetter)
}

// RatchetFixed returns the policy of a job of Ratchet with BackoffPolicy.FIXED: as
// RatchetNone, but the delay apart. A delay that is not positive is none.
func RatchetFixed(maxRetries int, delay time.Duration) ojs.RetryPolicy {
	return fixed(afterRetries(maxRetries), delay, ratchetCap, ojs.ExhaustionDeadLetter)
}

// RatchetExponential returns the policy of a job of Ratchet with
// BackoffPolicy.EXPONENTIAL: as RatchetFixed, but the delay after the n-th failure is
// base * 2^(n-1), with an exponent of 20 at the most and at most 24 h. It is computed in
// integers. InitialInterval is the base, MaxInterval the cap. The base is in nanoseconds
// here, where Ratchet has milliseconds.
func RatchetExponential(maxRetries int, base time.Duration) ojs.RetryPolicy {
	p := fixed(afterRetries(maxRetries), min(base, ratchetCap), ratchetCap, ojs.ExhaustionDeadLetter)
	if p.BackoffStrategy == ojs.BackoffNone {
		p.BackoffStrategy, p.BackoffCoefficient = "ojs:ratchet", 2
	}
	return p
}

// afterRetries is the MaxAttempts of a system that counts retries.
func afterRetries(n int) int {
	if n <= 0 {
		return ojs.NoRetry
	}
	return min(n, math.MaxInt-1) + 1
}
