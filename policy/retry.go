package policy

import (
	"strings"
	"time"

	"github.com/ojsengine/ojs"
	"github.com/ojsengine/ojs/internal/backoff"
	"github.com/ojsengine/ojs/internal/iso8601"
)

// Default returns the standard's retry policy (OJS retry, section 8): 3 attempts, 1 s
// doubling to at most 5 min, jitter, every error retryable, discard on exhaustion.
func Default() ojs.RetryPolicy {
	return ojs.RetryPolicy{
		MaxAttempts:        3,
		InitialInterval:    time.Second,
		BackoffCoefficient: 2,
		MaxInterval:        5 * time.Minute,
		Jitter:             ojs.JitterOn,
		BackoffStrategy:    ojs.BackoffExponential,
		NonRetryableErrors: []string{},
		OnExhaustion:       ojs.ExhaustionDiscard,
	}
}

// Resolve returns the policy in force for a job with the policy p: zero fields come from
// Default, and the result is validated (OJS retry, sections 8.1 and 11). A backoff
// strategy that this program does not know is refused. Its error is an *ojs.InvalidError
// with ojs.InvalidCodeRetry.
func Resolve(p ojs.RetryPolicy) (ojs.RetryPolicy, error) {
	p = p.Inherit(Default())
	if err := p.Validate(); err != nil {
		return ojs.RetryPolicy{}, err
	}
	if why := backoff.Unknown(string(p.BackoffStrategy)); why != "" {
		return ojs.RetryPolicy{}, &ojs.InvalidError{Code: ojs.InvalidCodeRetry,
			Field: "retry.backoff_strategy", Reason: why}
	}
	return p, nil
}

// NonRetryable reports whether an error of the type matches the list (OJS retry, section
// 6.2): an entry that ends in ".*" matches every type that starts with what precedes the
// '*', any other entry only itself. Case counts.
func NonRetryable(list []string, errorType string) bool {
	for _, entry := range list {
		if prefix, ok := strings.CutSuffix(entry, ".*"); ok && prefix != "" {
			if strings.HasPrefix(errorType, prefix+".") {
				return true
			}
			continue
		}
		if entry == errorType {
			return true
		}
	}
	return false
}

// ParseDuration parses an ISO 8601 duration such as "PT1M30S" (OJS retry, section 4), by
// strict syntax: components in order, at least one, none after a bare T, a fraction on
// the seconds only, no sign. A year is 365 days, a month 30, a week 7, a day 24 hours. A
// duration longer than 2^63-1 ns, about 292 years, is refused.
func ParseDuration(s string) (time.Duration, error) { return iso8601.Parse(s) }

// FormatDuration writes a duration in hours, minutes and seconds of ISO 8601: "PT1H30M",
// "PT0.5S". ParseDuration reads it back exactly.
func FormatDuration(d time.Duration) string { return iso8601.Format(d) }
