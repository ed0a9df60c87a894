package jsonvalue

import (
	"encoding"
	"encoding/json"
	"reflect"
	"sync"
	"time"
)

// Depth returns how deep valid JSON is nested: 0 for a scalar, 1 for a list or an object
// of scalars.
func Depth(raw []byte) int {
	depth, deepest, inString := 0, 0, false
	for i := 0; i < len(raw); i++ {
		switch c := raw[i]; {
		case inString:
			switch c {
			case '\\':
				i++
			case '"':
				inString = false
			}
		case c == '"':
			inString = true
		case c == '[' || c == '{':
			depth++
			deepest = max(deepest, depth)
		case c == ']' || c == '}':
			depth--
		}
	}
	return deepest
}

// Bounded reports whether no value of v's type encodes to JSON nested deeper than max.
func Bounded(v any, max int) bool {
	if v == nil {
		return true
	}
	d := staticDepth(reflect.TypeOf(v))
	return d >= 0 && d <= max
}

// DeeperThan reports whether v would encode to JSON nested deeper than max. encoding/json
// follows a value on the stack, and a stack that overflows ends the process: so a value
// must be checked before. Depth checks the output of types with a marshaller of their own
// afterwards.
func DeeperThan(v any, max int) bool {
	return !Bounded(v, max) && deeper(reflect.ValueOf(v), max)
}

// maxIndirections is how many pointers in a row are followed; more may be a pointer to
// itself.
const maxIndirections = 100

func deeper(v reflect.Value, left int) bool {
	for range maxIndirections {
		if !v.IsValid() || opaque(v) {
			return false
		}
		switch v.Kind() {
		case reflect.Pointer, reflect.Interface:
			if v.IsNil() {
				return false
			}
			v = v.Elem()
			continue
		}
		if d := staticDepth(v.Type()); d >= 0 && d <= left {
			return false
		}
		switch v.Kind() {
		case reflect.Struct:
			if left == 0 {
				return true
			}
			for i := range v.NumField() {
				if deeper(v.Field(i), left-1) {
					return true
				}
			}
		case reflect.Map:
			if v.IsNil() {
				return false
			}
			if left == 0 {
				return true
			}
			for it := v.MapRange(); it.Next(); {
				if deeper(it.Value(), left-1) {
					return true
				}
			}
		case reflect.Slice, reflect.Array:
			if v.Kind() == reflect.Slice && v.IsNil() {
				return false
			}
			if left == 0 {
				return true
			}
			for i := range v.Len() {
				if deeper(v.Index(i), left-1) {
					return true
				}
			}
		}
		return false
	}
	return true
}

var (
	marshaler     = reflect.TypeFor[json.Marshaler]()
	textMarshaler = reflect.TypeFor[encoding.TextMarshaler]()
	timeType      = reflect.TypeFor[time.Time]()
)

// opaque reports whether encoding/json calls a method of the value.
func opaque(v reflect.Value) bool {
	t := v.Type()
	return t.Kind() != reflect.Interface && (marshals(t) || v.CanAddr() && marshals(reflect.PointerTo(t)))
}

func marshals(t reflect.Type) bool { return t.Implements(marshaler) || t.Implements(textMarshaler) }

const unbounded = -1

var staticDepths sync.Map // reflect.Type -> int

// staticDepth is the depth that no value of the type exceeds, unbounded if the type alone
// does not tell.
func staticDepth(t reflect.Type) int {
	if d, ok := staticDepths.Load(t); ok {
		return d.(int)
	}
	d := measure(t, make(map[reflect.Type]bool))
	staticDepths.Store(t, d)
	return d
}

func measure(t reflect.Type, within map[reflect.Type]bool) int {
	if t == timeType {
		return 0
	}
	if within[t] || marshals(t) || marshals(reflect.PointerTo(t)) {
		return unbounded
	}
	within[t] = true
	defer delete(within, t)
	inner := func(e reflect.Type) int {
		if d := measure(e, within); d != unbounded {
			return d + 1
		}
		return unbounded
	}
	switch t.Kind() {
	case reflect.Interface:
		return unbounded
	case reflect.Pointer:
		return measure(t.Elem(), within)
	case reflect.Slice, reflect.Array, reflect.Map:
		return inner(t.Elem())
	case reflect.Struct:
		deepest := 1
		for i := range t.NumField() {
			d := inner(t.Field(i).Type)
			if d == unbounded {
				return unbounded
			}
			deepest = max(deepest, d)
		}
		return deepest
	}
	return 0
}

// SizeBound returns a number of bytes that the JSON of m, which Normalize has made, does
// not exceed. It is cheap and generous.
func SizeBound(m map[string]any) int {
	n := 2
	for k, v := range m {
		n += stringBound(k) + 2 + sizeBound(v)
	}
	return n
}

func stringBound(s string) int { return 6*len(s) + 2 } // \u0000 for each byte

func sizeBound(v any) int {
	switch v := v.(type) {
	case string:
		return stringBound(v)
	case json.Number:
		return len(v)
	case map[string]any:
		return SizeBound(v)
	case []any:
		n := 2
		for i := range v {
			n += 1 + sizeBound(v[i])
		}
		return n
	}
	return 32 // null, a bool, a float64
}
