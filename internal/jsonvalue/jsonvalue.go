// Package jsonvalue converts a job's metadata to the values that JSON gives back, so that
// a job looks the same from every storage.
package jsonvalue

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/ojsengine/ojs/internal/foreign"
)

// maxExact is the greatest integer up to which every integer is a float64.
const maxExact = 1<<53 - 1

// Limits of what is stored, in bytes of its JSON (OJS payload limits).
const (
	MaxEnvelope   = 1 << 20  // a job as it is enqueued
	MaxMeta       = 64 << 10 // its meta
	MaxResult     = 1 << 20
	MaxCheckpoint = 1 << 20
	// the details of an error; "details_error" with their size replaces larger ones
	MaxDetails = 64 << 10
)

// MaxDepth is the nesting of args, meta, results and checkpoints: a scalar is 0 deep, a
// list of scalars 1.
const MaxDepth = 32

var errDeep = fmt.Errorf("nested deeper than %d", MaxDepth)

// Decode decodes JSON as encoding/json does into an any, but for integers beyond 2^53-1:
// they stay a json.Number, with the digits that a float64 would lose.
func Decode(raw []byte) (any, error) {
	dec := json.NewDecoder(bytes.NewReader(raw))
	dec.UseNumber()
	var v any
	if err := dec.Decode(&v); err != nil {
		return nil, err
	}
	if _, err := dec.Token(); err != io.EOF {
		return nil, errors.New("something follows the value")
	}
	return numbers(v)
}

// Strict refuses JSON that readers take in several ways: with a name that an object has
// twice, or a text that is not Unicode (RFC 7493).
func Strict(raw []byte) error {
	_, err := jsontext.NewDecoder(bytes.NewReader(raw)).ReadValue()
	return err
}

// numbers replaces every json.Number in v that a float64 can hold.
func numbers(v any) (any, error) {
	var err error
	switch v := v.(type) {
	case json.Number:
		if !strings.ContainsAny(string(v), ".eE") {
			if n, err := strconv.ParseInt(string(v), 10, 64); err != nil || n > maxExact || n < -maxExact {
				return v, nil
			}
		}
		f, err := v.Float64()
		if err != nil {
			return nil, fmt.Errorf("number %s is out of range", v)
		}
		return f, nil
	case map[string]any:
		for k := range v {
			if v[k], err = numbers(v[k]); err != nil {
				return nil, err
			}
		}
	case []any:
		for i := range v {
			if v[i], err = numbers(v[i]); err != nil {
				return nil, err
			}
		}
	}
	return v, nil
}

// Normalize returns what m becomes by way of JSON. The result shares nothing with m; it
// is nil if m is empty. A value that does not encode is an error that names its key.
func Normalize(m map[string]any) (map[string]any, error) {
	if len(m) == 0 {
		return nil, nil
	}
	n := make(map[string]any, len(m))
	for _, k := range slices.Sorted(maps.Keys(m)) {
		v, err := normalize(m[k])
		if err != nil {
			return nil, fmt.Errorf("%q: %w", k, err)
		}
		n[validKey(k)] = v
	}
	return n, nil
}

// validKey is a key as encoding/json writes it: each byte that is not UTF-8 becomes a
// replacement character.
func validKey(k string) string {
	if utf8.ValidString(k) {
		return k
	}
	return string([]rune(k))
}

func normalize(v any) (n any, err error) {
	switch v := v.(type) { // what most metadata is needs no encoding
	case nil, bool:
		return v, nil
	case string:
		if utf8.ValidString(v) {
			return v, nil
		}
	case int:
		if -maxExact <= v && v <= maxExact {
			return float64(v), nil
		}
	}
	defer func() {
		if r := recover(); r != nil { // a MarshalJSON of the caller's
			n, err = nil, fmt.Errorf("encoding %T panicked: %s", v, foreign.Text(r))
		}
	}()
	if DeeperThan(v, MaxDepth-1) {
		return nil, errDeep
	}
	raw, err := json.Marshal(v)
	if err != nil {
		return nil, err
	}
	if !Bounded(v, MaxDepth-1) && Depth(raw) > MaxDepth-1 {
		return nil, errDeep
	}
	return Decode(raw)
}

// Clone returns a deep copy of what Normalize or Decode has made.
func Clone(m map[string]any) map[string]any {
	if m == nil {
		return nil
	}
	c := make(map[string]any, len(m))
	for k, v := range m {
		c[k] = clone(v)
	}
	return c
}

func clone(v any) any {
	switch v := v.(type) {
	case map[string]any:
		return Clone(v)
	case []any:
		c := make([]any, len(v))
		for i := range v {
			c[i] = clone(v[i])
		}
		return c
	}
	return v
}
