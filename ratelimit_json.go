package ojs

import (
	"encoding/json"
	"fmt"

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
		Local       bool    `json:"local,omitempty"`
	}{l.Key, concurrency, l.Rate, l.Throttle, l.OnLimit, l.Local})
}

// UnmarshalJSON decodes the standard's object, and "local". A concurrency of 0 is
// NoneAtOnce. It refuses unknown members with an *InvalidError.
func (l *RateLimit) UnmarshalJSON(b []byte) error {
	members, err := decodeObject(b)
	if err != nil {
		return optionError("rate_limit", err.Error())
	}
	var d RateLimit
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
			err = d.Rate.UnmarshalJSON(m.value)
		case "throttle":
			err = d.Throttle.UnmarshalJSON(m.value)
		case "on_limit":
			var what string
			what, err = decodeName(m.value)
			d.OnLimit = OnLimit(what)
		case "local":
			err = json.Unmarshal(m.value, &d.Local)
		default:
			err = fmt.Errorf("unknown member")
		}
		if err != nil {
			return optionError("rate_limit."+m.name, err.Error())
		}
	}
	if err := d.Validate(); err != nil {
		return err
	}
	*l = d
	return nil
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
