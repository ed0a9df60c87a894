package ojs

import (
	"encoding/json"
	"fmt"
	"math/bits"

	"github.com/ojsengine/ojs/internal/iso8601"
)

// dimensions are the names of the dimensions, in the order of their bits.
var dimensions = []string{"type", "queue", "args", "meta", "version"}

// MarshalJSON encodes the standard's object (OJS unique jobs, section 13), without Key:
// an envelope carries the key beside the policy.
func (p UniquePolicy) MarshalJSON() ([]byte, error) {
	if err := p.Validate(); err != nil {
		return nil, err
	}
	w := struct {
		Keys       []string  `json:"keys"`
		ArgsKeys   *[]string `json:"args_keys,omitempty"`
		MetaKeys   *[]string `json:"meta_keys,omitempty"`
		Period     string    `json:"period,omitempty"`
		States     []State   `json:"states,omitempty"`
		OnConflict Conflict  `json:"on_conflict,omitempty"`
		MaxWait    string    `json:"max_wait,omitempty"` // with ConflictDebounce
	}{States: p.States, OnConflict: p.OnConflict}
	for dims := p.Dimensions(); dims != 0; dims &= dims - 1 {
		w.Keys = append(w.Keys, dimensions[bits.TrailingZeros8(uint8(dims))])
	}
	if p.ArgsKeys != nil {
		w.ArgsKeys = &p.ArgsKeys // an empty list is not the same as none
	}
	if p.MetaKeys != nil {
		w.MetaKeys = &p.MetaKeys
	}
	if p.hasPeriod() {
		w.Period = iso8601.FormatCalendar(p.PeriodMonths, p.Period)
	}
	if p.MaxWait > 0 {
		w.MaxWait = iso8601.Format(p.MaxWait)
	}
	return json.Marshal(w)
}

// UnmarshalJSON decodes the standard's object. Unknown members, dimensions, states and
// strategies, repeated entries, a bad or zero period and wrong types are refused with an
// *InvalidError, and p is left as it was. null is the same as absent. Without keys, type
// alone counts. Years and months of a period are the calendar's.
func (p *UniquePolicy) UnmarshalJSON(b []byte) error {
	if isNull(b) {
		return nil
	}
	members, err := decodeObject(b)
	if err != nil {
		return &InvalidError{Code: InvalidCodeUnique, Field: "unique", Reason: err.Error()}
	}
	d := UniquePolicy{Keys: ByType}
	for _, m := range members {
		decode, known := uniqueFields[m.name]
		if !known {
			return uniqueError(clip([]byte(m.name)), "unknown field")
		}
		if isNull(m.value) {
			continue
		}
		if err := decode(&d, m.value); err != nil {
			return uniqueError(m.name, err.Error())
		}
	}
	if err := d.Validate(); err != nil {
		return err
	}
	*p = d
	return nil
}

var uniqueFields = map[string]func(p *UniquePolicy, v json.RawMessage) error{
	"keys": func(p *UniquePolicy, v json.RawMessage) error {
		names, err := decodeNames(v)
		if err != nil {
			return err
		}
		if k, twice := repeated(names); twice {
			return fmt.Errorf("%q occurs twice", clip([]byte(k)))
		}
		for _, name := range names {
			bit := UniqueKeys(0)
			for i, d := range dimensions {
				if d == name {
					bit = 1 << i
				}
			}
			if bit == 0 {
				return fmt.Errorf("%q is none of type, queue, args, meta, version", clip([]byte(name)))
			}
			p.Keys |= bit
		}
		return nil
	},
	"args_keys": func(p *UniquePolicy, v json.RawMessage) (err error) {
		p.ArgsKeys, err = decodeNames(v)
		return err
	},
	"meta_keys": func(p *UniquePolicy, v json.RawMessage) (err error) {
		p.MetaKeys, err = decodeNames(v)
		return err
	},
	"period": func(p *UniquePolicy, v json.RawMessage) error {
		s, err := decodeName(v)
		if err != nil {
			return err
		}
		if p.PeriodMonths, p.Period, err = iso8601.ParseCalendar(s); err == nil && !p.hasPeriod() {
			err = fmt.Errorf("%q is no time at all", s)
		}
		return err
	},
	"max_wait": func(p *UniquePolicy, v json.RawMessage) error {
		s, err := decodeName(v)
		if err != nil {
			return err
		}
		if p.MaxWait, err = iso8601.Parse(s); err == nil && p.MaxWait == 0 {
			err = fmt.Errorf("%q is no time at all", s)
		}
		return err
	},
	"states": func(p *UniquePolicy, v json.RawMessage) error {
		names, err := decodeNames(v)
		if err != nil {
			return err
		}
		p.States = make([]State, len(names))
		for i, name := range names {
			p.States[i] = State(name)
		}
		return nil
	},
	"on_conflict": func(p *UniquePolicy, v json.RawMessage) error {
		name, err := decodeName(v)
		if p.OnConflict = Conflict(name); err == nil && name == "" {
			err = fmt.Errorf("is empty")
		}
		return err
	},
}

// decodeNames decodes a list of strings. The result is never nil.
func decodeNames(v json.RawMessage) ([]string, error) {
	var raw []json.RawMessage
	if err := json.Unmarshal(v, &raw); err != nil {
		return nil, fmt.Errorf("%s is no list of strings", clip(v))
	}
	names := make([]string, len(raw))
	for i := range raw {
		var err error
		if names[i], err = decodeName(raw[i]); err != nil {
			return nil, err
		}
	}
	return names, nil
}
