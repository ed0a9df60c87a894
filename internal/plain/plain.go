// Package plain tells the values that a trip through encoding/json gives back as they
// were, so that one which stays in the process need not make it.
package plain

import (
	"encoding"
	"encoding/json"
	"math"
	"reflect"
	"strings"
	"sync"
	"sync/atomic"
	"unicode/utf8"
)

// Type is what is known of a plain type: bool, numbers and strings, and structs all of
// whose fields are exported and plain. A type that has a say in its encoding is not
// plain, nor is one whose encoding leaves something out that decoding does not bring
// back, or may be read in two ways.
type Type struct {
	bound  int    // of the JSON of a value, without what strings add
	leaves []leaf // fields that have to be looked at in each value
	omits  bool   // a zero field may be left out of the JSON
}

// leaf is a string or a float somewhere in a value.
type leaf struct {
	path  []int
	float bool
	omits bool // a zero is left out
}

// known is a type and what is known of it: nil if it is not plain.
type known struct {
	of    reflect.Type
	plain *Type
}

var (
	types sync.Map // of reflect.Type to *known
	// recent has some of them where they are found sooner: each job asks a few times.
	recent [64]atomic.Pointer[known]
)

// Of returns what is known of t, nil if t is not plain.
func Of(t reflect.Type) *Type {
	place := &recent[reflect.ValueOf(t).Pointer()>>6%uintptr(len(recent))]
	if k := place.Load(); k != nil && k.of == t {
		return k.plain
	}
	k := find(t)
	place.Store(k)
	return k.plain
}

func find(t reflect.Type) *known {
	if k, ok := types.Load(t); ok {
		return k.(*known)
	}
	p := new(Type)
	if !p.add(t, nil, false, 0) {
		p = nil
	}
	k, _ := types.LoadOrStore(t, &known{t, p})
	return k.(*known)
}

// Omits reports whether the JSON of a value may lack a field.
func (p *Type) Omits() bool { return p.omits }

// maxDepth bounds how deep structs are looked into. Deeper types are encoded as JSON.
const maxDepth = 16

const (
	numberBound = 26 // "-2.2250738585072014e-308", and -2^63
	nameBound   = 6  // quotes, colon, comma, braces
)

var custom = []reflect.Type{
	reflect.TypeFor[json.Marshaler](), reflect.TypeFor[json.Unmarshaler](),
	reflect.TypeFor[encoding.TextMarshaler](), reflect.TypeFor[encoding.TextUnmarshaler](),
}

func (p *Type) add(t reflect.Type, path []int, omits bool, depth int) bool {
	for _, c := range custom {
		if t.Implements(c) || reflect.PointerTo(t).Implements(c) {
			return false
		}
	}
	if depth > maxDepth || t == reflect.TypeFor[json.Number]() {
		return false
	}
	switch t.Kind() {
	case reflect.Bool, reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64,
		reflect.Uint, reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64, reflect.Uintptr:
		p.bound += numberBound
		return true
	case reflect.Float32, reflect.Float64:
		p.bound += numberBound
		p.leaves = append(p.leaves, leaf{path: path, float: true, omits: omits})
		return true
	case reflect.String:
		p.bound += len(`""`)
		p.leaves = append(p.leaves, leaf{path: path})
		return true
	case reflect.Struct:
		p.bound += nameBound
		return p.fields(t, path, depth, make(map[string]bool))
	}
	return false
}

// fields adds those of a struct. Names has those of the JSON object so far, in lower
// case: decoding does not mind case, and of two fields with one name encoding leaves out
// one or both.
func (p *Type) fields(t reflect.Type, path []int, depth int, names map[string]bool) bool {
	for i := range t.NumField() {
		f := t.Field(i)
		if !f.IsExported() {
			return false
		}
		name, options, _ := strings.Cut(f.Tag.Get("json"), ",")
		at := append(path[:len(path):len(path)], i)
		if f.Anonymous && name == "" && f.Type.Kind() == reflect.Struct {
			if options != "" || depth > maxDepth || !p.promoted(f.Type, at, depth+1, names) {
				return false
			}
			continue
		}
		omits := options == "omitempty"
		if options != "" && !omits {
			return false
		}
		if name == "" {
			name = f.Name
		}
		if name == "-" { // left out, or named so
			return false
		}
		// others may be no name to encoding/json, or equal to one with other letters
		for _, c := range []byte(name) {
			if !('a' <= c|0x20 && c|0x20 <= 'z' || '0' <= c && c <= '9' || c == '_' || c == '-' || c == '.') {
				return false
			}
		}
		folded := strings.ToLower(name)
		if names[folded] {
			return false
		}
		names[folded] = true
		p.bound += len(name) + nameBound
		p.omits = p.omits || omits
		if !p.add(f.Type, at, omits, depth+1) {
			return false
		}
	}
	return true
}

// promoted adds the fields of an embedded struct, which stand among those of the outer
// one.
func (p *Type) promoted(t reflect.Type, path []int, depth int, names map[string]bool) bool {
	for _, c := range custom {
		if t.Implements(c) || reflect.PointerTo(t).Implements(c) {
			return false
		}
	}
	return p.fields(t, path, depth, names)
}

// Fits reports whether JSON holds v, a value of the type, without loss: no string has
// bytes that are not UTF-8, no float is infinite or no number, and no negative zero is
// left out. Bound is not less than the bytes of its JSON.
func (p *Type) Fits(v any) (bound int, ok bool) {
	bound = p.bound
	if len(p.leaves) == 0 {
		return bound, true
	}
	all := reflect.ValueOf(v)
	for i := range p.leaves {
		l := &p.leaves[i]
		f := l.of(all)
		if !l.float {
			s := f.String()
			if !utf8.ValidString(s) {
				return 0, false
			}
			bound += 6 * len(s)
			continue
		}
		switch x := f.Float(); {
		case math.IsNaN(x), math.IsInf(x, 0), l.omits && x == 0 && math.Signbit(x):
			return 0, false
		}
	}
	return bound, true
}

// of is the leaf of a value of the type.
func (l *leaf) of(v reflect.Value) reflect.Value {
	for _, n := range l.path {
		v = v.Field(n)
	}
	return v
}

// Bound is not less than the bytes of the JSON of a value that fits. Its strings count as
// they are if they are long.
func (p *Type) Bound(v any) int {
	const long = 64 << 10
	bound, _ := p.Fits(v)
	if bound < long {
		return bound
	}
	bound = p.bound
	all := reflect.ValueOf(v)
	for i := range p.leaves {
		if l := &p.leaves[i]; !l.float {
			bound += escaped(l.of(all).String())
		}
	}
	return bound
}

// escaped is not less than the bytes of a string in JSON, without the quotes.
func escaped(s string) int {
	n := len(s)
	for i := range len(s) {
		switch c := s[i]; {
		case c == '"' || c == '\\' || c == '\n' || c == '\r' || c == '\t':
			n++
		case c < ' ' || c == '<' || c == '>' || c == '&':
			n += len(`\u0000`) - 1
		case c == 0xe2: // of U+2028 and U+2029, three bytes
			n += len(`\u0000`) - 3
		}
	}
	return n
}
