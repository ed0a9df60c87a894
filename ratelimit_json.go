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
	return json.Marshal(struct {
		Key         string `json:"key"`
		Concurrency int    `json:"concurrency,omitempty"`
		Rate        Rate   `json:"rate,omitzero"`
		Throttle    Rate   `json:"throttle,omitzero"`
	}{l.Key, l.Concurrency, l.Rate, l.Throttle})
}

// UnmarshalJSON decodes the standard's object. It refuses with an *InvalidError an
// on_limit other than "wait", a concurrency of 0, which would pause the key, and unknown
// members.
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
			if d.Concurrency, err = decodeInt(m.value); err == nil && d.Concurrency < 1 {
				err = fmt.Errorf("%d is less than 1", d.Concurrency)
			}
		case "rate":
			err = d.Rate.UnmarshalJSON(m.value)
		case "throttle":
			err = d.Throttle.UnmarshalJSON(m.value)
		case "on_limit":
			var what string
			if what, err = decodeName(m.value); err == nil && what != "wait" {
				err = fmt.Errorf("%q is not supported, only \"wait\"", clip([]byte(what)))
			}
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
