package jsonvalue

import (
	"encoding/json"
	"reflect"
	"strings"
)

// LargerThan reports whether v is sure to encode to more than max bytes of JSON, without
// encoding it: an encoder holds the whole in memory before anyone can judge its size. Its
// cost is bounded by max. If it reports false, v may still be larger: it counts nothing
// for what types with a marshaller of their own write.
func LargerThan(v any, max int) bool {
	left := max
	subtract(reflect.ValueOf(v), &left, maxIndirections)
	return left < 0
}

// subtract subtracts from left a lower bound of the bytes that v encodes to, until left
// is negative. depth bounds how deep it looks.
func subtract(v reflect.Value, left *int, depth int) {
	if depth == 0 || *left < 0 {
		return
	}
	if !v.IsValid() {
		*left -= len("null")
		return
	}
	if v.Type() == rawType {
		*left -= compactLen(v.Bytes(), *left)
		return
	}
	if opaque(v) {
		*left-- // a digit at least
		return
	}
	switch v.Kind() {
	case reflect.Pointer, reflect.Interface:
		if v.IsNil() {
			*left -= len("null")
			return
		}
		subtract(v.Elem(), left, depth-1)
	case reflect.String:
		*left -= v.Len() + 2
		if v.Type() == numberType {
			*left += 2
		}
	case reflect.Struct:
		*left -= len("{}")
		t := v.Type()
		for i := range t.NumField() {
			f := t.Field(i)
			tag := f.Tag.Get("json")
			if tag == "-" || !f.IsExported() && !f.Anonymous {
				continue
			}
			_, options, _ := strings.Cut(tag, ",")
			if v.Field(i).IsZero() || options == "" && f.Anonymous {
				// A zero field may be left out, and a field of an embedded struct may be
				// hidden by another.
				continue
			}
			if options != "" && (strings.Contains(options, "omitempty") ||
				strings.Contains(options, "omitzero")) && empty(v.Field(i)) {
				continue
			}
			subtract(v.Field(i), left, depth-1)
		}
	case reflect.Map:
		*left -= len("{}")
		for it := v.MapRange(); it.Next() && *left >= 0; {
			*left -= len(`"":`)
			if it.Key().Kind() == reflect.String && !opaque(it.Key()) {
				*left -= it.Key().Len()
			}
			subtract(it.Value(), left, depth-1)
		}
	case reflect.Slice, reflect.Array:
		if v.Kind() == reflect.Slice && v.Type().Elem().Kind() == reflect.Uint8 &&
			!marshals(v.Type().Elem()) {
			*left -= v.Len()/3*4 + 2 // base64
			return
		}
		*left -= len("[]") + max(v.Len()-1, 0) // and commas
		if fixed(v.Type().Elem().Kind()) {
			*left -= v.Len()
			return
		}
		for i := 0; i < v.Len() && *left >= 0; i++ {
			subtract(v.Index(i), left, depth-1)
		}
	default:
		*left--
	}
}

var (
	rawType    = reflect.TypeFor[json.RawMessage]()
	numberType = reflect.TypeFor[json.Number]()
)

// empty reports whether omitempty leaves a value out.
func empty(v reflect.Value) bool {
	switch v.Kind() {
	case reflect.Array, reflect.Map, reflect.Slice, reflect.String:
		return v.Len() == 0
	}
	return v.IsZero()
}

// fixed reports whether all values of a kind have almost the same size.
func fixed(k reflect.Kind) bool { return k >= reflect.Bool && k <= reflect.Complex128 }

// compactLen is how many bytes of JSON are not space, until they are more than max.
func compactLen(raw []byte, max int) (n int) {
	inString := false
	for i := 0; i < len(raw) && n <= max; i++ {
		switch c := raw[i]; {
		case inString && c == '\\':
			n++
			i++
		case c == '"':
			inString = !inString
		case !inString && (c == ' ' || c == '\n' || c == '\t' || c == '\r'):
			continue
		}
		n++
	}
	return n
}
