package ojs

import (
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"github.com/ojsengine/ojs/internal/iso8601"
)

// MarshalJSON encodes the standard's object. A policy with all seven fields of the
// standard and the exponential strategy is written without backoff_strategy, since the
// standard does not have that member.
func (p RetryPolicy) MarshalJSON() ([]byte, error) {
	if err := p.Validate(); err != nil {
		return nil, err
	}
	var w struct {
		MaxAttempts        *int       `json:"max_attempts,omitempty"`
		InitialInterval    string     `json:"initial_interval,omitempty"`
		BackoffCoefficient float64    `json:"backoff_coefficient,omitempty"`
		MaxInterval        string     `json:"max_interval,omitempty"`
		Jitter             any        `json:"jitter,omitempty"` // a bool, or "full"
		NonRetryableErrors *[]string  `json:"non_retryable_errors,omitempty"`
		OnExhaustion       Exhaustion `json:"on_exhaustion,omitempty"`
		BackoffStrategy    Backoff    `json:"backoff_strategy,omitempty"`
	}
	if p.MaxAttempts != 0 {
		n := max(p.MaxAttempts, 0) // NoRetry is the standard's 0
		w.MaxAttempts = &n
	}
	if p.InitialInterval != 0 {
		w.InitialInterval = iso8601.Format(p.InitialInterval)
	}
	w.BackoffCoefficient = p.BackoffCoefficient
	if p.MaxInterval != 0 {
		w.MaxInterval = iso8601.Format(p.MaxInterval)
	}
	switch p.Jitter {
	case JitterOn:
		w.Jitter = true
	case JitterOff:
		w.Jitter = false
	case JitterFull:
		w.Jitter = JitterFull
	}
	if p.NonRetryableErrors != nil {
		w.NonRetryableErrors = &p.NonRetryableErrors
	}
	w.OnExhaustion = p.OnExhaustion
	if p.BackoffStrategy != BackoffExponential || !p.sevenFields() {
		w.BackoffStrategy = p.BackoffStrategy
	}
	return json.Marshal(w)
}

// sevenFields reports whether all fields but the strategy are set.
func (p RetryPolicy) sevenFields() bool {
	return p.MaxAttempts != 0 && p.InitialInterval != 0 && p.BackoffCoefficient != 0 && p.MaxInterval != 0 &&
		p.Jitter != "" && p.NonRetryableErrors != nil && p.OnExhaustion != ""
}

// UnmarshalJSON decodes the standard's object (OJS retry, section 14). Absent and null
// fields inherit, and a null policy leaves p alone. Unknown fields, wrong types and
// values out of range are refused with an *InvalidError, and p is left as it was.
// "constant" is another name for BackoffNone. A repeated entry of non_retryable_errors
// counts once. The standard's seven fields make a whole policy, whose strategy is
// exponential.
//
// The program need not know a qualified strategy name, so that a storage can read the
// jobs of another program.
func (p *RetryPolicy) UnmarshalJSON(b []byte) error {
	if isNull(b) {
		return nil
	}
	fields, err := decodeObject(b)
	if err != nil {
		return &InvalidError{Code: InvalidCodeRetry, Field: "retry", Reason: err.Error()}
	}
	var q RetryPolicy
	for _, f := range fields {
		decode, known := retryFields[f.name]
		if !known {
			return retryError(f.name, "unknown field")
		}
		if isNull(f.value) {
			continue
		}
		if err := decode(&q, f.value); err != nil {
			return retryError(f.name, err.Error())
		}
	}
	if err := q.Validate(); err != nil {
		return err
	}
	if q.BackoffStrategy == "" && q.sevenFields() {
		q.BackoffStrategy = BackoffExponential
	}
	*p = q
	return nil
}

var retryFields = map[string]func(*RetryPolicy, json.RawMessage) error{
	"max_attempts": func(p *RetryPolicy, v json.RawMessage) error {
		n, err := decodeInt(v)
		switch {
		case err != nil:
			return err
		case n < 0:
			return fmt.Errorf("%d is negative", n)
		case n == 0:
			p.MaxAttempts = NoRetry
		default:
			p.MaxAttempts = n
		}
		return nil
	},
	"initial_interval": func(p *RetryPolicy, v json.RawMessage) error {
		return decodeInterval(v, &p.InitialInterval)
	},
	"max_interval": func(p *RetryPolicy, v json.RawMessage) error {
		return decodeInterval(v, &p.MaxInterval)
	},
	"backoff_coefficient": func(p *RetryPolicy, v json.RawMessage) error {
		var c float64
		if json.Unmarshal(v, &c) != nil {
			return fmt.Errorf("%s is not a number", clip(v))
		}
		// rounding to a float64 may hide this
		if d, ok := parseDecimal(v); !ok || d.negative || d.lessThanOne() {
			return fmt.Errorf("%s is less than 1", clip(v))
		}
		p.BackoffCoefficient = c
		return nil
	},
	"jitter": func(p *RetryPolicy, v json.RawMessage) error {
		switch string(v) {
		case "true":
			p.Jitter = JitterOn
		case "false":
			p.Jitter = JitterOff
		case `"full"`:
			p.Jitter = JitterFull
		default:
			return fmt.Errorf("%s is neither a boolean nor \"full\"", clip(v))
		}
		return nil
	},
	"non_retryable_errors": func(p *RetryPolicy, v json.RawMessage) error {
		var types []*string // pointers: a null entry is no string
		if json.Unmarshal(v, &types) != nil || slices.Contains(types, nil) {
			return fmt.Errorf("%s is not an array of strings", clip(v))
		}
		p.NonRetryableErrors = make([]string, len(types))
		for i, t := range types {
			p.NonRetryableErrors[i] = *t
		}
		p.NonRetryableErrors = distinct(p.NonRetryableErrors)
		return nil
	},
	"on_exhaustion": func(p *RetryPolicy, v json.RawMessage) error {
		s, err := decodeName(v)
		p.OnExhaustion = Exhaustion(s)
		return err
	},
	"backoff_strategy": func(p *RetryPolicy, v json.RawMessage) error {
		s, err := decodeName(v)
		if s == "constant" { // its name in the retry guide
			s = string(BackoffNone)
		}
		p.BackoffStrategy = Backoff(s)
		return err
	},
}

func decodeInterval(v json.RawMessage, into *time.Duration) error {
	var s string
	if json.Unmarshal(v, &s) != nil {
		return fmt.Errorf("%s is not an ISO 8601 duration string", clip(v))
	}
	d, err := iso8601.Parse(s)
	if err != nil {
		return err
	}
	if d <= 0 {
		return fmt.Errorf("%q is not positive", s)
	}
	*into = d
	return nil
}
