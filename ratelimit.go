package ojs

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"slices"
	"strings"
	"time"
	"unicode/utf8"
)

// RateLimit bounds how often jobs of a key start, and how many run at once (OJS rate
// limiting). A job held back by a limit is skipped; the jobs behind it run. Every bound
// that is set must hold. Each attempt counts, retries included.
//
// The storage counts, in the step in which it hands a job out: a bound of 5 is 5 over all
// engines and processes on the storage. Jobs that name the same key with different bounds
// share the counts, and each is held to its own.
type RateLimit struct {
	// Key names the jobs that share the limit: letters, digits and ".", "_", ":", "-",
	// the first a letter or digit, at most 255 (OJS rate limiting). RateLimitKey makes a
	// key of any text, such as an e-mail address.
	Key string

	Concurrency int  // attempts at once; 0: any number; NoneAtOnce: none
	Rate        Rate // at most Rate.Limit starts in any period of Rate.Per
	Throttle    Rate // starts at least Throttle.Per / Throttle.Limit apart

	OnLimit OnLimit // what happens to a job that is next and may not start; "": OnLimitWait
}

// NoneAtOnce is a Concurrency that lets no job start. In JSON it is a concurrency of 0.
const NoneAtOnce = -1

// OnLimit is what happens to a job that would be handed out and may not start because of
// its limit.
type OnLimit string

// The ways to treat such a job.
const (
	OnLimitWait       OnLimit = "wait"       // it stays available, and the jobs behind it run
	OnLimitReschedule OnLimit = "reschedule" // it is scheduled for when the limit should let it start
	OnLimitDrop       OnLimit = "drop"       // it is discarded with policy.ErrorTypeRateLimited
)

// Rate is a number of starts in a period. The zero Rate bounds nothing. A rate costs 8
// bytes for each start that it remembers, at most Limit. A throttle remembers one start.
type Rate struct {
	Limit int
	Per   time.Duration
}

const maxRateLimitKeyLen = 255

// Validate checks the key and the bounds. Its error is an *InvalidError.
func (l *RateLimit) Validate() error {
	if !validRateLimitKey(l.Key) {
		return optionError("rate_limit.key", nameReason(l.Key, maxRateLimitKeyLen,
			"letters, digits, ., _, : and -, beginning with a letter or digit; RateLimitKey makes a key of any other text"))
	}
	return l.ValidateBounds()
}

// ValidateBounds is Validate for the limit of a queue, which needs no key.
func (l *RateLimit) ValidateBounds() error {
	if l.Concurrency < NoneAtOnce {
		return optionError("rate_limit.concurrency", fmt.Sprintf("%d is negative", l.Concurrency))
	}
	switch l.OnLimit {
	case "", OnLimitWait, OnLimitReschedule, OnLimitDrop:
	default:
		return optionError("rate_limit.on_limit",
			fmt.Sprintf("%q is none of wait, reschedule and drop", clip([]byte(l.OnLimit))))
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
	return l != nil && (l.Concurrency != 0 || l.Rate.Limit > 0 || l.Throttle.Limit > 0)
}

func validRateLimitKey(key string) bool {
	return validName(key, maxRateLimitKeyLen, func(c, before byte) bool {
		return 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9' ||
			before != 0 && (c == '.' || c == '_' || c == ':' || c == '-')
	})
}

// RateLimitKey makes a key for RateLimit.Key of any text: an e-mail address, a URL, a
// name in any script. The key is "scope:text" if that is a valid key, and otherwise
// "scope::" and the SHA-256 of the text in hexadecimal. Different texts have different
// keys. The scope must be a valid key of at most 189 characters without ":".
//
//	ojs.WithRateLimit(ojs.RateLimit{Key: ojs.RateLimitKey("mail", "a@example.com"), Concurrency: 1})
func RateLimitKey(scope, text string) string {
	if key := scope + ":" + text; validRateLimitKey(key) && !strings.HasPrefix(text, ":") {
		return key
	}
	sum := sha256.Sum256([]byte(text))
	return scope + "::" + hex.EncodeToString(sum[:])
}

// WithRateLimit bounds the jobs that name the same key. A zero field of l bounds nothing;
// a limit that bounds nothing is refused.
func WithRateLimit(l RateLimit) Option {
	return func(o *Options) {
		err := l.Validate()
		if err == nil && !l.Bounds() {
			err = optionError("rate_limit",
				fmt.Sprintf("of key %q bounds nothing: set Concurrency, Rate or Throttle", l.Key))
		}
		if err != nil {
			o.fail(err)
			return
		}
		c := l
		o.RateLimit, o.RateLimitBy = &c, ""
	}
}

// WithRateLimitBy bounds the jobs that have the same value of a member of their args or
// meta, each value by itself. The member is "args." or "meta." and its name, and names of
// nested members follow after dots: "args.customer_id", "meta.tenant.id". Write it once,
// as an option of the job type:
//
//	var SendMail = ojs.Define[Mail]("mail.send",
//		ojs.WithRateLimitBy("args.customer_id", ojs.RateLimit{Key: "mail", Concurrency: 2}))
//
// The key of a job is made when the job is enqueued, after the enqueue hooks and before a
// codec encodes the args: RateLimitKey(l.Key, value), "mail:7" for the customer 7. It
// stays when meta or args change later. Types that name the same l.Key and value share
// the limit. A string counts as its text and any other value as its JSON, so that 7 and
// "7" are the same. Args that are a list of one object count as that object. Jobs without
// the member, or with null in it, share l.Key itself.
//
// l.Key must be a valid scope of RateLimitKey. Args that come encoded are refused at the
// enqueue if the member is one of args. A dead letter that is retried keeps its key;
// WithRateLimit gives it another.
func WithRateLimitBy(member string, l RateLimit) Option {
	return func(o *Options) {
		switch {
		case !validMember(member):
			o.fail(optionError("rate_limit_by", fmt.Sprintf(
				"%q is no member: use \"args.\" or \"meta.\" and its name, such as args.customer_id", member)))
		case len(l.Key) > maxRateLimitScope || strings.Contains(l.Key, ":"):
			o.fail(optionError("rate_limit.key", fmt.Sprintf(
				"%q is no scope: use at most %d characters without \":\"", l.Key, maxRateLimitScope)))
		default:
			WithRateLimit(l)(o)
			o.RateLimitBy = member
		}
	}
}

// maxRateLimitScope leaves room for "::" and a SHA-256 in hexadecimal.
const maxRateLimitScope = maxRateLimitKeyLen - len("::") - 2*sha256.Size

func validMember(path string) bool {
	in, names, _ := strings.Cut(path, ".")
	return (in == "args" || in == "meta") && utf8.ValidString(names) && !strings.ContainsRune(names, 0) &&
		!slices.Contains(strings.Split(names, "."), "")
}
