package ojs_test

import (
	"errors"
	"testing"
	"time"

	"github.com/ojsengine/ojs"
)

// TestMistakes makes the mistakes of a first day with options. Each error names the
// mistake and the remedy.
func TestMistakes(t *testing.T) {
	for _, tt := range []struct {
		name string
		opts []ojs.Option
		want string // "": it is none
	}{
		{"a timeout without its unit", []ojs.Option{ojs.WithTimeout(5)},
			"ojs: invalid timeout: 5ns is less than 1ms: write the unit, such as 5*time.Second"},
		{"the shortest timeout", []ojs.Option{ojs.WithTimeout(time.Millisecond)}, ""},
		{"a total timeout without its unit", []ojs.Option{ojs.WithTotalTimeout(60)},
			"ojs: invalid total_timeout: 60ns is less than 1ms: write the unit, such as 60*time.Second"},
		{"a time to live without its unit", []ojs.Option{ojs.WithTTL(5)},
			"ojs: invalid ttl: 5ns is less than 1ms: write the unit, such as 5*time.Second"},
		{"an enqueue TTL without its unit", []ojs.Option{ojs.WithEnqueueTTL(5)},
			"ojs: invalid enqueue_ttl: 5ns is less than 1ms: write the unit, such as 5*time.Second"},
		{"a time to keep the result without its unit", []ojs.Option{ojs.WithResultTTL(5)},
			"ojs: invalid result_ttl: 5ns is less than 1ms: write the unit, such as 5*time.Second"},
		{"a lease without its unit", []ojs.Option{ojs.WithLease(30)},
			"ojs: invalid visibility_timeout: 30ns is less than 100ms"},
		{"no timeout", []ojs.Option{ojs.WithTimeout(0)}, "ojs: invalid timeout: 0s is not positive"},
		{"attempts below NoRetry", []ojs.Option{ojs.WithMaxAttempts(-2)},
			"ojs: invalid retry.max_attempts: -2 is negative: use ojs.NoRetry for a job that is never retried"},
		{"the same in a policy", []ojs.Option{ojs.WithRetry(ojs.RetryPolicy{MaxAttempts: -2})},
			"ojs: invalid retry.max_attempts: -2 is negative: use ojs.NoRetry for a job that is never retried"},
		{"a backoff below 1", []ojs.Option{ojs.WithRetry(ojs.RetryPolicy{BackoffCoefficient: 0.5})},
			"ojs: invalid retry.backoff_coefficient: 0.5 is not a number of at least 1"},
		{"a queue in capitals", []ojs.Option{ojs.WithQueue("Email")},
			`ojs: invalid queue: "Email": use lower-case letters, digits, - and ., beginning with a letter ` +
				`or digit, such as email-bulk`},
		{"an empty queue", []ojs.Option{ojs.WithQueue("")},
			"ojs: invalid queue: is empty: use lower-case letters, digits, - and ., beginning with a letter " +
				"or digit, such as email-bulk"},
		{"an id that is none", []ojs.Option{ojs.WithID("42")}, `ojs: invalid id: "42" is no UUIDv7`},
		{"a delay and a time", []ojs.Option{ojs.WithDelay(time.Second), ojs.WithScheduledAt(time.Now())},
			"ojs: invalid scheduled_at: a delay and a time are given: use WithDelay or WithScheduledAt"},
		{"a nil option", []ojs.Option{nil}, "ojs: invalid option: is nil"},
		{"two unique policies", []ojs.Option{ojs.WithOneWaiting(), ojs.WithIdempotencyKey("k")},
			"ojs: invalid unique: two unique policies are given: a job has one"},
		{"a fairness weight of zero is one", []ojs.Option{ojs.WithFairnessBy("args.tenant", 0)}, ""},
		{"a negative fairness weight", []ojs.Option{ojs.WithFairnessBy("args.tenant", -1)},
			"ojs: invalid fairness.weight: -1 is not between 1 and 1000"},
		{"a zero time is at once", []ojs.Option{ojs.WithScheduledAt(time.Time{})}, ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			_, err := apply(tt.opts...)
			switch {
			case tt.want == "" && err != nil:
				t.Errorf("refused: %v", err)
			case tt.want != "" && (err == nil || err.Error() != tt.want || !errors.Is(err, ojs.ErrInvalid)):
				t.Errorf("error %q\nwant  %q", err, tt.want)
			}
		})
	}
}

// TestNoRetryEverywhere holds the ways to say that a job runs once: NoRetry in a policy,
// and NoRetry, 0 and 1 in the option. A zero of a policy inherits.
func TestNoRetryEverywhere(t *testing.T) {
	for name, tt := range map[string]struct {
		opt  ojs.Option
		runs int
	}{
		"WithMaxAttempts(NoRetry)": {ojs.WithMaxAttempts(ojs.NoRetry), 1},
		"WithMaxAttempts(0)":       {ojs.WithMaxAttempts(0), 1},
		"WithMaxAttempts(1)":       {ojs.WithMaxAttempts(1), 1},
		"a policy with NoRetry":    {ojs.WithRetry(ojs.RetryPolicy{MaxAttempts: ojs.NoRetry}), 1},
		"a policy with 0":          {ojs.WithRetry(ojs.RetryPolicy{MaxAttempts: 0}), 7},
	} {
		t.Run("A024 "+name, func(t *testing.T) {
			o, err := apply(ojs.WithMaxAttempts(7), tt.opt)
			if err != nil || o.Retry.Runs() != tt.runs {
				t.Errorf("%d runs, %v; want %d", o.Retry.Runs(), err, tt.runs)
			}
		})
	}
}
