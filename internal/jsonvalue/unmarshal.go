package jsonvalue

import (
	"bytes"
	"encoding/json"
	"reflect"
	"sync"
)

// Unmarshal is json.Unmarshal, but for integers beyond 2^53-1 that meet an any, at any
// depth of v: they are a json.Number, as of Decode. A method UnmarshalJSON decides for
// what is below it.
func Unmarshal(raw []byte, v any) error {
	t := reflect.TypeOf(v)
	if t == nil || t.Kind() != reflect.Pointer || !long(raw) || !holdsAny(t) || !json.Valid(raw) {
		return json.Unmarshal(raw, v)
	}
	dec := json.NewDecoder(bytes.NewReader(raw))
	dec.UseNumber()
	err := dec.Decode(v)
	if bad := exact(reflect.ValueOf(v), make(map[visit]bool)); err == nil {
		err = bad
	}
	return err
}

// long reports whether JSON has a run of digits that a float64 may not hold.
func long(raw []byte) bool {
	const digits = 16 // of maxExact
	for at := digits - 1; at < len(raw); at += digits {
		// Each such run has a digit here.
		if raw[at]-'0' > 9 {
			continue
		}
		from, to := at, at+1
		for from > 0 && raw[from-1]-'0' <= 9 {
			from--
		}
		for to < len(raw) && raw[to]-'0' <= 9 {
			to++
		}
		if to-from >= digits {
			return true
		}
		at = to - 1 // the loop goes on with the digit that a run behind it has
	}
	return false
}

var (
	anyTypes    sync.Map // reflect.Type -> whether it holds an any
	unmarshaler = reflect.TypeFor[json.Unmarshaler]()
)

// holdsAny reports whether decoding into a value of the type may make an any.
func holdsAny(t reflect.Type) bool {
	if known, ok := anyTypes.Load(t); ok {
		return known.(bool)
	}
	holds := findAny(t, make(map[reflect.Type]bool))
	anyTypes.Store(t, holds)
	return holds
}

func findAny(t reflect.Type, seen map[reflect.Type]bool) bool {
	if seen[t] || decodesItself(t) {
		return false
	}
	seen[t] = true
	switch t.Kind() {
	case reflect.Interface:
		return true
	case reflect.Pointer, reflect.Slice, reflect.Array, reflect.Map:
		return findAny(t.Elem(), seen)
	case reflect.Struct:
		for i := range t.NumField() {
			if f := t.Field(i); (f.IsExported() || f.Anonymous) && findAny(f.Type, seen) {
				return true
			}
		}
	}
	return false
}

func decodesItself(t reflect.Type) bool {
	return t.Implements(unmarshaler) ||
		t.Kind() != reflect.Pointer && reflect.PointerTo(t).Implements(unmarshaler)
}

// visit is a pointer that exact has come to.
type visit struct {
	to uintptr
	as reflect.Type
}

// exact replaces every json.Number below v that a float64 holds, where the type says any.
// The pointers of a caller may be a circle.
func exact(v reflect.Value, seen map[visit]bool) error {
	if !v.IsValid() || !holdsAny(v.Type()) {
		return nil
	}
	switch v.Kind() {
	case reflect.Interface:
		return exactAny(v, seen)
	case reflect.Pointer:
		at := visit{v.Pointer(), v.Type()}
		if v.IsNil() || seen[at] {
			return nil
		}
		seen[at] = true
		return exact(v.Elem(), seen)
	case reflect.Slice, reflect.Array:
		for i := range v.Len() {
			if err := exact(v.Index(i), seen); err != nil {
				return err
			}
		}
	case reflect.Map:
		for _, k := range v.MapKeys() {
			to := reflect.New(v.Type().Elem()).Elem() // what is in a map cannot be set
			to.Set(v.MapIndex(k))
			if err := exact(to, seen); err != nil {
				return err
			}
			v.SetMapIndex(k, to)
		}
	case reflect.Struct:
		for i := range v.NumField() {
			if f := v.Field(i); f.CanSet() || v.Type().Field(i).Anonymous {
				if err := exact(f, seen); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

func exactAny(v reflect.Value, seen map[visit]bool) error {
	switch of := v.Elem(); {
	case !of.IsValid() || v.NumMethod() > 0:
		return nil
	case of.Kind() == reflect.Pointer: // a value of the caller's, which was decoded into
		return exact(of, seen)
	case !v.CanSet():
		return nil
	}
	switch v.Interface().(type) {
	case json.Number, map[string]any, []any:
		n, err := numbers(v.Interface())
		if err != nil {
			return err
		}
		v.Set(reflect.ValueOf(n))
	}
	return nil
}
