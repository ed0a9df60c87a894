package server

import (
	"encoding/json"
	"strconv"
	"time"
	"unicode/utf8"
)

// obj is a JSON object under construction: names and values by turns, in the order in
// which they are written.
type obj []any

// raw is JSON that is written as it is.
type raw []byte

// null is written as null. A nil in an obj is, too.
var null = raw("null")

// opt adds a member unless its value is empty: "", 0, false, a zero time, no raw JSON, a
// nil list.
func (o obj) opt(name string, value any) obj {
	switch v := value.(type) {
	case nil:
		return o
	case string:
		if v == "" {
			return o
		}
	case int:
		if v == 0 {
			return o
		}
	case bool:
		if !v {
			return o
		}
	case time.Time:
		if v.IsZero() {
			return o
		}
	case raw:
		if len(v) == 0 {
			return o
		}
	case obj:
		if v == nil {
			return o
		}
	case []string:
		if v == nil {
			return o
		}
	}
	return append(o, name, value)
}

// MarshalJSON encodes the object.
func (o obj) MarshalJSON() ([]byte, error) { return appendValue(nil, o), nil }

// appendValue writes a value. A time is written by appendTime, the zero time as null, a
// nil list as an empty one.
func appendValue(b []byte, value any) []byte {
	switch v := value.(type) {
	case nil:
		return append(b, "null"...)
	case raw:
		return append(b, v...)
	case json.RawMessage:
		return append(b, v...)
	case string:
		return appendString(b, v)
	case bool:
		return strconv.AppendBool(b, v)
	case int:
		return strconv.AppendInt(b, int64(v), 10)
	case int64:
		return strconv.AppendInt(b, v, 10)
	case time.Time:
		if v.IsZero() {
			return append(b, "null"...)
		}
		return appendTime(b, v)
	case obj:
		b = append(b, '{')
		for i := 0; i+1 < len(v); i += 2 {
			if i > 0 {
				b = append(b, ',')
			}
			b = append(appendString(b, v[i].(string)), ':')
			b = appendValue(b, v[i+1])
		}
		return append(b, '}')
	case []obj:
		return appendList(b, v)
	case []raw:
		return appendList(b, v)
	case []string:
		return appendList(b, v)
	case []any:
		return appendList(b, v)
	}
	encoded, err := json.Marshal(value)
	if err != nil { // no value of this package: a test would have found it
		return append(b, "null"...)
	}
	return append(b, encoded...)
}

func appendList[E any](b []byte, list []E) []byte {
	b = append(b, '[')
	for i := range list {
		if i > 0 {
			b = append(b, ',')
		}
		b = appendValue(b, list[i])
	}
	return append(b, ']')
}

const timeLayout = "2006-01-02T15:04:05.000Z"

// appendTime writes a time in UTC with milliseconds (F009).
func appendTime(b []byte, t time.Time) []byte {
	b = t.UTC().AppendFormat(append(b, '"'), time.RFC3339) // which package time is fast at
	ms := t.Nanosecond() / int(time.Millisecond)
	return append(b[:len(b)-1], '.', '0'+byte(ms/100), '0'+byte(ms/10%10), '0'+byte(ms%10), 'Z', '"')
}

// appendString writes a text.
func appendString(b []byte, s string) []byte {
	for i := range len(s) {
		if c := s[i]; c < ' ' || c == '"' || c == '\\' || c >= utf8.RuneSelf {
			encoded, _ := json.Marshal(s) // a string encodes
			return append(b, encoded...)
		}
	}
	b = append(b, '"')
	b = append(b, s...)
	return append(b, '"')
}
