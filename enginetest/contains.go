package enginetest

import (
	"bytes"
	"encoding/json"
	"math/big"
	"reflect"
	"strings"
)

// decode decodes JSON into what can be compared: its numbers are of type number.
func decode(raw []byte) (v any, err error) {
	dec := json.NewDecoder(bytes.NewReader(raw))
	dec.UseNumber()
	if err := dec.Decode(&v); err != nil {
		return nil, err
	}
	return numbers(v), nil
}

func throughJSON(v any) (any, error) {
	raw, err := json.Marshal(v)
	if err != nil {
		return nil, err
	}
	return decode(raw)
}

// number is the value of a JSON number, in any spelling: 1, 1.0 and 10e-1 are the same,
// and two that a float64 cannot tell apart are not. It is the digits, without zeros at
// either end, times ten to the power of exp. Zero has neither digits nor sign.
type number struct {
	minus       bool
	digits, exp string
}

func parse(n json.Number) number {
	s, minus := strings.CutPrefix(string(n), "-")
	exp := new(big.Int) // of any size, as JSON has it
	if i := strings.IndexAny(s, "eE"); i >= 0 {
		exp.SetString(s[i+1:], 10)
		s = s[:i]
	}
	whole, fraction, _ := strings.Cut(s, ".")
	all := strings.TrimLeft(whole+fraction, "0")
	digits := strings.TrimRight(all, "0")
	if digits == "" {
		return number{}
	}
	exp.Add(exp, big.NewInt(int64(len(all)-len(digits)-len(fraction))))
	return number{minus, digits, exp.String()}
}

// numbers replaces every json.Number in v.
func numbers(v any) any {
	switch v := v.(type) {
	case json.Number:
		return parse(v)
	case map[string]any:
		for k := range v {
			v[k] = numbers(v[k])
		}
	case []any:
		for i := range v {
			v[i] = numbers(v[i])
		}
	}
	return v
}

// contains reports whether have has every member of part, at every level. Lists are equal
// or not.
func contains(have, part any) bool {
	p, ok := part.(map[string]any)
	if !ok {
		return reflect.DeepEqual(have, part)
	}
	h, ok := have.(map[string]any)
	if !ok {
		return false
	}
	for name, v := range p {
		member, there := h[name]
		if !there || !contains(member, v) {
			return false
		}
	}
	return true
}

// argsContain is contains for args, which may be in their wire form: a list of a single
// object.
func argsContain(have, part any) bool {
	list, ok := have.([]any)
	if _, object := part.(map[string]any); ok && object && len(list) == 1 {
		have = list[0]
	}
	return contains(have, part)
}
