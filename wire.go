package ojs

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/ojsengine/ojs/internal/iso8601"
)

// seconds is a duration that travels as a number of seconds.
type seconds time.Duration

func (s seconds) MarshalJSON() ([]byte, error) {
	whole, frac := s/seconds(time.Second), s%seconds(time.Second)
	if frac == 0 {
		return strconv.AppendInt(nil, int64(whole), 10), nil
	}
	return []byte(strings.TrimRight(fmt.Sprintf("%d.%09d", whole, frac), "0")), nil
}

func (s *seconds) decode(v json.RawMessage) error {
	// A number in plain notation is the seconds part of an ISO 8601 duration, and exact
	// as such.
	if d, err := iso8601.Parse("PT" + string(v) + "S"); err == nil {
		*s = seconds(d)
	} else {
		var f float64
		if json.Unmarshal(v, &f) != nil || !(f >= 0) || f >= float64(1<<63)/1e9 {
			return fmt.Errorf("%s is not a number of seconds", clip(v))
		}
		*s = seconds(f * 1e9)
	}
	if *s == 0 {
		return fmt.Errorf("%s is not positive", clip(v))
	}
	return nil
}

// resultTTL is a JobInfo.ResultTTL, which travels as a number of seconds, -1 or 0.
type resultTTL time.Duration

func (d resultTTL) MarshalJSON() ([]byte, error) {
	switch time.Duration(d) {
	case KeepForever:
		return []byte("-1"), nil
	case NoResult:
		return []byte("0"), nil
	}
	return seconds(d).MarshalJSON()
}

func (d *resultTTL) decode(v json.RawMessage) error {
	var f float64
	switch err := json.Unmarshal(v, &f); {
	case err == nil && f == -1:
		*d = resultTTL(KeepForever)
	case err == nil && f == 0:
		*d = resultTTL(NoResult)
	case (*seconds)(d).decode(v) != nil:
		return fmt.Errorf("%s is not a number of seconds, -1 (forever) or 0 (not stored)", clip(v))
	}
	return nil
}

// rfc3339 is the strict form. time.Parse and time.Time.UnmarshalJSON also accept a comma
// for the point, one digit for the hour and up to 24 hours for a zone.
var rfc3339 = regexp.MustCompile(`^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?(Z|[+-]([01]\d|2[0-3]):[0-5]\d)$`)

// wireTime is a time that travels as RFC 3339 in UTC.
type wireTime time.Time

func (t wireTime) IsZero() bool { return time.Time(t).IsZero() }

func (t wireTime) MarshalJSON() ([]byte, error) { return time.Time(t).UTC().MarshalJSON() }

func (t *wireTime) decode(v json.RawMessage) error {
	s, err := decodeName(v)
	if err != nil {
		return err
	}
	u, err := time.Parse(time.RFC3339, s)
	if err != nil || !rfc3339.MatchString(s) {
		return fmt.Errorf("%q is no RFC 3339 time with a zone", clip([]byte(s)))
	}
	if u = u.UTC(); u.IsZero() || !validTime(u) {
		return fmt.Errorf("%q is not in the years 1 to 9999", clip([]byte(s)))
	}
	*t = wireTime(u)
	return nil
}

// decodeName decodes a string that must not be empty: Validate takes "" for inherited.
func decodeName(v json.RawMessage) (string, error) {
	var s string
	if json.Unmarshal(v, &s) != nil {
		return "", fmt.Errorf("%s is not a string", clip(v))
	}
	if s == "" {
		return "", fmt.Errorf("is empty")
	}
	return s, nil
}

// decodeInt decodes an integer. As in JSON schema, 3.0 is an integer.
func decodeInt(v json.RawMessage) (int, error) {
	if n, err := strconv.ParseInt(string(v), 10, 0); err == nil {
		return int(n), nil
	}
	d, ok := parseDecimal(v)
	if !ok {
		return 0, fmt.Errorf("%s is not an integer", clip(v))
	}
	if d.digits == "" {
		return 0, nil
	}
	if d.exp < 0 {
		return 0, fmt.Errorf("%s is not an integer", clip(v))
	}
	const most = 19 // digits of an int64
	if d.exp <= most && len(d.digits)+d.exp <= most {
		text := d.digits + strings.Repeat("0", d.exp)
		if d.negative {
			text = "-" + text
		}
		if n, err := strconv.ParseInt(text, 10, 0); err == nil {
			return int(n), nil
		}
	}
	return 0, fmt.Errorf("%s is too large", clip(v))
}

// decimal is the exact value of a JSON number: digits * 10^exp. digits has no zero at
// either end, and is empty for zero.
type decimal struct {
	negative bool
	digits   string
	exp      int
}

// parseDecimal reports false if v is no number, or its exponent does not fit an int.
func parseDecimal(v json.RawMessage) (d decimal, ok bool) {
	var number json.Number
	if len(v) == 0 || v[0] == '"' || json.Unmarshal(v, &number) != nil || number == "" {
		return decimal{}, false
	}
	text := string(number)
	text, d.negative = strings.CutPrefix(text, "-")
	if i := strings.IndexAny(text, "eE"); i >= 0 {
		exp, err := strconv.ParseInt(text[i+1:], 10, 32)
		if err != nil {
			return decimal{}, false
		}
		d.exp, text = int(exp), text[:i]
	}
	whole, fraction, _ := strings.Cut(text, ".")
	digits := strings.TrimLeft(whole+fraction, "0")
	d.digits = strings.TrimRight(digits, "0")
	d.exp += len(digits) - len(d.digits) - len(fraction)
	return d, true
}

// lessThanOne reports whether the number, which is not negative, is less than 1.
func (d decimal) lessThanOne() bool { return len(d.digits)+d.exp < 1 || d.digits == "" }

type member struct {
	name  string
	value json.RawMessage
}

// decodeObject splits an object into its members, in order. A name that occurs twice is
// refused, since readers differ in which of the two they take.
func decodeObject(b []byte) ([]member, error) {
	dec := json.NewDecoder(bytes.NewReader(b))
	if tok, err := dec.Token(); err != nil || tok != json.Delim('{') {
		return nil, fmt.Errorf("%s is not an object", clip(b))
	}
	var members []member
	seen := make(map[string]bool)
	for dec.More() {
		tok, err := dec.Token()
		if err != nil {
			return nil, err
		}
		m := member{name: tok.(string)} // an object's keys are strings, or Token fails
		if seen[m.name] {
			return nil, fmt.Errorf("member %q occurs twice", m.name)
		}
		seen[m.name] = true
		if err := dec.Decode(&m.value); err != nil {
			return nil, err
		}
		members = append(members, m)
	}
	if _, err := dec.Token(); err != nil {
		return nil, err
	}
	if _, err := dec.Token(); err != io.EOF {
		return nil, fmt.Errorf("something follows the object")
	}
	return members, nil
}

// misspelt reports whether an unknown name differs from a known one only in case.
// encoding/json would accept it; other readers would not.
func misspelt[V any](name string, known map[string]V) bool {
	for k := range known {
		if strings.EqualFold(name, k) {
			return true
		}
	}
	return false
}

func isNull(v json.RawMessage) bool { return string(v) == "null" }

// clip shortens a value for an error message.
func clip(v []byte) string {
	const most = 64
	if len(v) > most {
		return string(v[:most]) + "..."
	}
	return string(v)
}
