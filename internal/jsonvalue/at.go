package jsonvalue

import (
	"bytes"
	"encoding/json"
	"iter"
	"reflect"
	"strconv"
	"strings"
)

// At yields the values at a path below v, which are several if names have dots: a dot of
// the path may be between two names, or in one. A name is that of a member, or the index
// of an element.
func At(v any, path string) iter.Seq[any] {
	return func(yield func(any) bool) { at(v, path, yield) }
}

func at(v any, path string, yield func(any) bool) bool {
	for end := 0; end <= len(path); end++ {
		if end < len(path) && path[end] != '.' {
			continue
		}
		var below any
		there := false
		switch v := v.(type) {
		case map[string]any:
			below, there = v[path[:end]]
		case []any:
			i, err := strconv.Atoi(path[:end])
			if there = err == nil && i >= 0 && i < len(v); there {
				below = v[i]
			}
		}
		if there && (end == len(path) && !yield(below) ||
			end < len(path) && !at(below, path[end+1:], yield)) {
			return false
		}
	}
	return true
}

// Has reports whether one of the values at a path is a value: the text of a string, or
// the JSON of any value.
func Has(v any, path, value string) bool {
	for below := range At(v, path) {
		if isValue(below, value) {
			return true
		}
	}
	return false
}

// isValue reports whether v is the text of a string, or a value as its JSON.
func isValue(v any, text string) bool {
	if s, ok := v.(string); ok && s == text {
		return true
	}
	want, err := Decode([]byte(text))
	return err == nil && reflect.DeepEqual(v, want)
}

// Lacks reports whether it can be seen without decoding that some JSON does not have a
// value: a text or an integer stands in JSON as it is, unless it is escaped or has an
// exponent.
func Lacks(raw []byte, value string) bool {
	if bytes.Contains(raw, []byte(value)) || bytes.IndexByte(raw, '\\') >= 0 || strings.ContainsAny(value,
		`{["`) {
		return false
	}
	if _, err := strconv.ParseInt(value, 10, 64); err == nil {
		for i := 1; i < len(raw); i++ {
			if (raw[i] == 'e' || raw[i] == 'E') && '0' <= raw[i-1] && raw[i-1] <= '9' {
				return false
			}
		}
		return true
	}
	_, err := strconv.ParseFloat(value, 64)
	return err != nil
}

// ContainsText reports whether JSON contains a text as it is if nothing is escaped that
// JSON does not demand.
func ContainsText(raw []byte, text string) bool {
	if bytes.Contains(raw, []byte(text)) {
		return true
	}
	// encoding/json writes it for < > &, other encoders for any character
	if !bytes.Contains(raw, []byte(`\u`)) {
		return false
	}
	v, err := Decode(raw)
	if err != nil {
		return false
	}
	var plain bytes.Buffer
	enc := json.NewEncoder(&plain)
	enc.SetEscapeHTML(false)
	return enc.Encode(v) == nil && bytes.Contains(plain.Bytes(), []byte(text))
}
