package ojs

import (
	"fmt"
	"time"
)

// RateLimit bounds how often jobs of a key start, and how many run at once (OJS rate limiting). Jobs that it holds back are
// passed over: others run meanwhile. Every bound that is set has to hold. Each attempt counts, retries included.
//
// A key has the bounds of the job that last started with it. An engine counts what it starts itself, attempts and
// deliveries to its workers; several engines on one storage count separately.
type RateLimit struct {
	Key         string // what shares the limit: letters, digits and ".", "_", ":", "-", the first a letter or digit, at most 255
	Concurrency int    // attempts at once; 0: any number
	Rate        Rate   // at most Rate.Limit starts in any period of Rate.Per
	Throttle    Rate   // starts at least Throttle.Per / Throttle.Limit apart
}

// Rate is a number of starts in a period. The zero Rate bounds nothing. A rate costs 8 bytes for each start that it
// remembers, at most Limit of them; a throttle remembers one.
type Rate struct {
	Limit int
	Per   time.Duration
}

const maxRateLimitKeyLen = 255

// Validate checks the key and the bounds. Its error is an *InvalidError.
func (l *RateLimit) Validate() error {
	if !validName(l.Key, maxRateLimitKeyLen, func(c, before byte) bool {
		return 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9' ||
			before != 0 && (c == '.' || c == '_' || c == ':' || c == '-')
	}) {
		return optionError("rate_limit.key", fmt.Sprintf("%q does not match [a-zA-Z0-9][a-zA-Z0-9._:-]* in at most %d characters",
			clip([]byte(l.Key)), maxRateLimitKeyLen))
	}
	return l.ValidateBounds()
}

// ValidateBounds is Validate for the limit of a queue, which needs no key.
func (l *RateLimit) ValidateBounds() error {
	if l.Concurrency < 0 {
		return optionError("rate_limit.concurrency", fmt.Sprintf("%d is negative", l.Concurrency))
	}
	if err := l.Rate.validate("rate_limit.rate"); err != nil {
		return err
	}
	return l.Throttle.validate("rate_limit.throttle")
}

func (r Rate) validate(field string) error {
	switch {
	case r == Rate{}:
		return nil
	case r.Limit <= 0:
		return optionError(field+".limit", fmt.Sprintf("%d is not positive", r.Limit))
	case r.Per <= 0:
		return optionError(field+".period", fmt.Sprintf("%v is not positive", r.Per))
	}
	return nil
}

// Bounds reports whether l bounds anything.
func (l *RateLimit) Bounds() bool {
	return l != nil && (l.Concurrency > 0 || l.Rate.Limit > 0 || l.Throttle.Limit > 0)
}

// WithRateLimit bounds the jobs that name the same key. What l leaves zero is not bounded.
func WithRateLimit(l RateLimit) Option {
	return func(o *Options) {
		if err := l.Validate(); err != nil {
			o.fail(err)
			return
		}
		c := l
		o.RateLimit = &c
	}
}
