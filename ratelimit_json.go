package ojs

import (
	"encoding/json"
	"fmt"
	"time"

	"github.com/ojsengine/ojs/internal/iso8601"
)

// MarshalJSON encodes the standard's object: a limit and an ISO 8601 period.
func (r Rate) MarshalJSON() ([]byte, error) {
	return json.Marshal(struct {
		Limit  int    `json:"limit"`
		Period string `json:"period"`
	}{r.Limit, iso8601.Format(r.Per)})
}

// MarshalJSON encodes the standard's object.
func (l RateLimit) MarshalJSON() ([]byte, error) {
	var concurrency *int
	if n := max(l.Concurrency, 0); l.Concurrency != 0 {
		concurrency = &n
	}
	return json.Marshal(struct {
		Key         string  `json:"key"`
		Concurrency *int    `json:"concurrency,omitempty"`
		Rate        Rate    `json:"rate,omitzero"`
		Throttle    Rate    `json:"throttle,omitzero"`
		OnLimit     OnLimit `json:"on_limit,omitempty"`
	}{l.Key, concurrency, l.Rate, l.Throttle, l.OnLimit})
}

// UnmarshalJSON decodes the standard's object. A concurrency of 0 is NoneAtOnce. It
// refuses unknown members with an *InvalidError. A member "local", which stored jobs may
// have, has no effect.
//
// It also decodes other forms of a rate: "max_per_second" with a number; "rate" with a
// number, or "limit", and "period". A period is an ISO 8601 duration, or one of "second",
// "minute", "hour" and "day". With max_per_second the key may be absent: Key is then ""
// here, and in a job "queue:" and the name of its queue.
func (l *RateLimit) UnmarshalJSON(b []byte) error {
	d, err := decodeRateLimit(b)
	if err != nil {
		return err
	}
	*l = d
	return nil
}

func decodeRateLimit(b []byte) (RateLimit, error) {
	members, err := decodeObject(b)
	if err != nil {
		return RateLimit{}, optionError("rate_limit", err.Error())
	}
	var d RateLimit
	var f flatRate
	for _, m := range members {
		if isNull(m.value) {
			continue
		}
		var err error
		switch m.name {
		case "key":
			d.Key, err = decodeName(m.value)
		case "concurrency":
			switch d.Concurrency, err = decodeInt(m.value); {
			case err != nil:
			case d.Concurrency < 0:
				err = fmt.Errorf("%d is negative", d.Concurrency)
			case d.Concurrency == 0:
				d.Concurrency = NoneAtOnce
			}
		case "rate":
			if m.value[0] == '{' {
				err = d.Rate.UnmarshalJSON(m.value)
			} else {
				err = f.setLimit(m)
			}
		case "limit", "max_per_second":
			err = f.setLimit(m)
		case "period":
			f.period, err = decodePeriod(m.value)
		case "throttle":
			err = d.Throttle.UnmarshalJSON(m.value)
		case "on_limit":
			var what string
			what, err = decodeName(m.value)
			d.OnLimit = OnLimit(what)
		case "local":
		default:
			err = fmt.Errorf("unknown member")
		}
		if err != nil {
			return RateLimit{}, optionError("rate_limit."+m.name, err.Error())
		}
	}
	if err := f.into(&d); err != nil {
		return RateLimit{}, err
	}
	if f.name == "max_per_second" && d.Key == "" {
		return d, d.ValidateBounds()
	}
	return d, d.Validate()
}

// flatRate is a rate whose members stand in the limit itself.
type flatRate struct {
	name   string // of the member with the limit; "": there is none
	limit  int
	period time.Duration // 0: there is none
}

func (f *flatRate) setLimit(m member) (err error) {
	if f.name != "" {
		return fmt.Errorf("is set beside %s: use one of them", f.name)
	}
	f.name = m.name
	if f.limit, err = decodeInt(m.value); err == nil && f.limit <= 0 {
		err = fmt.Errorf("%d is not positive", f.limit)
	}
	return err
}

// into makes the rate the limit's.
func (f *flatRate) into(l *RateLimit) error {
	switch perSecond := f.name == "max_per_second"; {
	case f.name == "" && f.period == 0:
		return nil
	case l.Rate != Rate{}:
		return optionError("rate_limit.rate", "is set twice: as an object and in members of the limit")
	case f.name == "":
		return optionError("rate_limit.period", `needs the number of starts in it: "limit"`)
	case perSecond && f.period > 0:
		return optionError("rate_limit.period", "is set beside max_per_second, whose period is a second")
	case perSecond:
		f.period = time.Second
	case f.period == 0:
		return optionError("rate_limit."+f.name, `needs a "period", such as "minute" or "PT10S"`)
	}
	l.Rate = Rate{f.limit, f.period}
	return nil
}

var periods = map[string]time.Duration{
	"second": time.Second, "minute": time.Minute, "hour": time.Hour, "day": 24 * time.Hour,
}

// decodePeriod decodes a period that is a word or a duration, and positive.
func decodePeriod(v json.RawMessage) (time.Duration, error) {
	s, err := decodeName(v)
	if d := periods[s]; err != nil || d > 0 {
		return d, err
	}
	d, err := iso8601.Parse(s)
	if err == nil && d <= 0 {
		err = fmt.Errorf("%q is not positive", s)
	}
	return d, err
}

// UnmarshalJSON decodes the standard's object.
func (r *Rate) UnmarshalJSON(b []byte) error {
	members, err := decodeObject(b)
	if err != nil {
		return err
	}
	var d Rate
	for _, m := range members {
		var err error
		switch m.name {
		case "limit":
			d.Limit, err = decodeInt(m.value)
		case "period":
			var s string
			if s, err = decodeName(m.value); err == nil {
				d.Per, err = iso8601.Parse(s)
			}
		default:
			err = fmt.Errorf("unknown member")
		}
		if err != nil {
			return fmt.Errorf("%s: %w", m.name, err)
		}
	}
	if d.Limit <= 0 || d.Per <= 0 {
		return fmt.Errorf("limit and period must be positive")
	}
	*r = d
	return nil
}
