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
	// A number in plain notation is the seconds part of an ISO 8601 duration, and exact as such.
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

// rfc3339 is what time.Parse does not insist on. Left alone, it and time.Time.UnmarshalJSON take a comma for the point,
// one digit for the hour and up to 24 hours for a zone.
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

// decodeName decodes a string that has to say something: Validate takes "" for inherited.
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

// decodeInt decodes an integer. As in JSON schema, 3.0 is one.
func decodeInt(v json.RawMessage) (int, error) {
	if n, err := strconv.ParseInt(string(v), 10, 0); err == nil {
		return int(n), nil
	}
	var f float64
	if json.Unmarshal(v, &f) != nil || f != float64(int64(f)) || f < -1<<53 || f > 1<<53 {
		return 0, fmt.Errorf("%s is not an integer", clip(v))
	}
	return int(f), nil
}

type member struct {
	name  string
	value json.RawMessage
}

// decodeObject splits an object into its members, in order. A name that occurs twice is refused: which of the two is
// meant would depend on who reads it.
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

func isNull(v json.RawMessage) bool { return string(v) == "null" }

// clip cuts a value of the caller's to what an error message bears.
func clip(v []byte) string {
	const most = 64
	if len(v) > most {
		return string(v[:most]) + "..."
	}
	return string(v)
}
