// Package fields fills, compares, copies and overwrites values field by field. It finds
// the fields by reflection, so that a test that uses it covers a new field from the day
// on which it is there.
//
// A field is an exported field of a struct that can be reached from a value through
// structs, pointers, slices, maps and interfaces. A struct without exported fields is one
// value: time.Time, ojs.Args.
package fields

import (
	"bytes"
	"cmp"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/ojsengine/ojs"
)

// opaque reports whether a type is a struct without exported fields.
func opaque(t reflect.Type) bool {
	return t.Kind() == reflect.Struct && t.NumField() > 0 && len(exported(t)) == 0
}

// known are the exported fields of struct types: []int by reflect.Type.
var known sync.Map

func exported(t reflect.Type) (list []int) {
	if list, ok := known.Load(t); ok {
		return list.([]int)
	}
	for i := range t.NumField() {
		if t.Field(i).IsExported() {
			list = append(list, i)
		}
	}
	known.Store(t, list)
	return list
}

// flats tells of types whether they are flat: bool by reflect.Type.
var flats sync.Map

// flat reports whether an assignment makes a full copy of a value, as Clone sees it.
func flat(t reflect.Type) (yes bool) {
	if yes, ok := flats.Load(t); ok {
		return yes.(bool)
	}
	switch t.Kind() {
	case reflect.Struct:
		yes = !slices.ContainsFunc(exported(t), func(i int) bool { return !flat(t.Field(i).Type) })
	case reflect.Pointer:
		yes = opaque(t.Elem())
	case reflect.Interface, reflect.Slice, reflect.Map:
	default:
		yes = true
	}
	flats.Store(t, yes)
	return yes
}

// join returns the path of a field. An embedded struct is not part of it:
// JobInfo.JobHeader.ID is ID.
func join(path string, f reflect.StructField) string {
	switch {
	case f.Anonymous:
		return path
	case path == "":
		return f.Name
	}
	return path + "." + f.Name
}

// Diff returns the fields in which two values of a type differ, each as
// "Retry.MaxInterval: 5m0s, want 7s". A nil slice or map differs from an empty one. Times
// are equal if they are the same instant, args if they are the same JSON.
func Diff(got, want any) []string {
	a, b := reflect.ValueOf(got), reflect.ValueOf(want)
	if !a.IsValid() || !b.IsValid() || a.Type() != b.Type() {
		if !a.IsValid() && !b.IsValid() {
			return nil
		}
		return []string{say("value", a, b)}
	}
	if reflect.DeepEqual(got, want) {
		return nil
	}
	var d differ
	d.compare("", a, b)
	return d.list
}

type differ struct{ list []string }

func (d *differ) add(path string, a, b reflect.Value) {
	if path == "" {
		path = "value"
	}
	d.list = append(d.list, say(path, a, b))
}

func (d *differ) compare(path string, a, b reflect.Value) {
	switch a.Kind() {
	case reflect.Struct:
		if opaque(a.Type()) {
			if !sameValue(a, b) {
				d.add(path, a, b)
			}
			return
		}
		for _, i := range exported(a.Type()) {
			d.compare(join(path, a.Type().Field(i)), a.Field(i), b.Field(i))
		}
	case reflect.Pointer, reflect.Interface:
		switch {
		case a.IsNil() && b.IsNil():
		case a.IsNil() || b.IsNil() || a.Elem().Type() != b.Elem().Type():
			d.add(path, a, b)
		case opaque(a.Elem().Type()) && a.Pointer() == b.Pointer():
		default:
			d.compare(path, a.Elem(), b.Elem())
		}
	case reflect.Slice:
		if a.Type().Elem().Kind() == reflect.Uint8 {
			if a.IsNil() != b.IsNil() || !bytes.Equal(a.Bytes(), b.Bytes()) {
				d.add(path, a, b)
			}
			return
		}
		if a.IsNil() != b.IsNil() || a.Len() != b.Len() {
			if a.Len() != b.Len() {
				difference := fmt.Sprintf("%s: %d elements, want %d", cmp.Or(path, "value"), a.Len(), b.Len())
				d.list = append(d.list, difference)
			} else {
				d.add(path, a, b)
			}
			return
		}
		for i := range a.Len() {
			d.compare(fmt.Sprintf("%s[%d]", path, i), a.Index(i), b.Index(i))
		}
	case reflect.Map:
		if a.IsNil() != b.IsNil() {
			d.add(path, a, b)
			return
		}
		for _, k := range keys(a, b) {
			at := path + "[" + show(k) + "]"
			if x, y := a.MapIndex(k), b.MapIndex(k); x.IsValid() && y.IsValid() {
				d.compare(at, x, y)
			} else {
				d.add(at, x, y)
			}
		}
	default:
		if !a.Equal(b) {
			d.add(path, a, b)
		}
	}
}

// keys returns the keys of two maps, in the order in which they are shown.
func keys(a, b reflect.Value) []reflect.Value {
	list := a.MapKeys()
	for _, k := range b.MapKeys() {
		if !a.MapIndex(k).IsValid() {
			list = append(list, k)
		}
	}
	slices.SortFunc(list, func(x, y reflect.Value) int { return strings.Compare(show(x), show(y)) })
	return list
}

func sameValue(a, b reflect.Value) bool {
	switch x := a.Interface().(type) {
	case time.Time:
		return x.Equal(b.Interface().(time.Time))
	case ojs.Args:
		y := b.Interface().(ojs.Args)
		return x.String() == y.String()
	}
	return reflect.DeepEqual(a.Interface(), b.Interface())
}

// say says how a value differs from the one that was wanted.
func say(path string, got, want reflect.Value) string {
	return path + ": " + show(got) + ", want " + show(want)
}

// most is how much of a value a difference shows.
const most = 200

// Text shows a value as Diff does: the fields that are not zero, and no pointers.
func Text(v any) string { return text(reflect.ValueOf(v)) }

// show is text, and of a long one the beginning.
func show(v reflect.Value) string {
	s := text(v)
	if len(s) > most {
		s = s[:most] + "..."
	}
	return s
}

func text(v reflect.Value) string {
	if !v.IsValid() || v.Kind() == reflect.Interface && v.IsNil() {
		return "none"
	}
	if nillable(v.Kind()) && v.IsNil() {
		return "nil"
	}
	switch x := v.Interface().(type) {
	case time.Time:
		if x.IsZero() {
			return "no time"
		}
		return x.Format(time.RFC3339Nano)
	case error:
		return x.Error()
	case fmt.Stringer:
		return x.String()
	}
	switch v.Kind() {
	case reflect.Pointer, reflect.Interface:
		return text(v.Elem())
	case reflect.String:
		return fmt.Sprintf("%q", v)
	case reflect.Struct:
		return structText(v)
	case reflect.Slice:
		if v.Type().Elem().Kind() == reflect.Uint8 {
			return fmt.Sprintf("%q", v)
		}
		parts := make([]string, v.Len())
		for i := range parts {
			parts[i] = text(v.Index(i))
		}
		return "[" + strings.Join(parts, ", ") + "]"
	}
	return fmt.Sprint(v)
}

func nillable(k reflect.Kind) bool {
	return k == reflect.Pointer || k == reflect.Slice || k == reflect.Map
}

// structText shows the fields of a struct that are not zero.
func structText(v reflect.Value) string {
	var parts []string
	for _, i := range exported(v.Type()) {
		if f := v.Field(i); !f.IsZero() {
			parts = append(parts, v.Type().Field(i).Name+": "+show(f))
		}
	}
	return "{" + strings.Join(parts, ", ") + "}"
}

// Clone returns a copy of v whose fields share no memory with v's. Opaque values stay
// shared.
func Clone[T any](v T) T {
	var c T
	copyTo(reflect.ValueOf(&c).Elem(), reflect.ValueOf(&v).Elem())
	return c
}

func copyTo(to, from reflect.Value) {
	to.Set(from)
	if !flat(from.Type()) {
		copyShared(to, from)
	}
}

// copyShared copies what to, an assigned copy of from, shares with it.
func copyShared(to, from reflect.Value) {
	switch from.Kind() {
	case reflect.Struct:
		for _, i := range exported(from.Type()) {
			if f := from.Field(i); !flat(f.Type()) {
				copyShared(to.Field(i), f)
			}
		}
	case reflect.Pointer:
		if !from.IsNil() {
			to.Set(reflect.New(from.Type().Elem()))
			copyTo(to.Elem(), from.Elem())
		}
	case reflect.Interface:
		if !from.IsNil() && from.Elem().Kind() != reflect.Pointer {
			c := reflect.New(from.Elem().Type()).Elem()
			copyTo(c, from.Elem())
			to.Set(c)
		}
	case reflect.Slice:
		if !from.IsNil() {
			to.Set(reflect.MakeSlice(from.Type(), from.Len(), from.Len()))
			reflect.Copy(to, from)
			if flat(from.Type().Elem()) {
				return
			}
			for i := range from.Len() {
				copyShared(to.Index(i), from.Index(i))
			}
		}
	case reflect.Map:
		if !from.IsNil() {
			to.Set(reflect.MakeMapWithSize(from.Type(), from.Len()))
			for it := from.MapRange(); it.Next(); {
				c := reflect.New(from.Type().Elem()).Elem()
				copyTo(c, it.Value())
				to.SetMapIndex(it.Key(), c)
			}
		}
	}
}

// Scribble overwrites every field that can be reached from the value that p points to,
// and adds an entry to each map. Of opaque values it overwrites times; errors are left
// alone, since they may be shared constants.
func Scribble(p any) {
	scribble(reflect.ValueOf(p).Elem())
}

var (
	errorType = reflect.TypeFor[error]()
	timeType  = reflect.TypeFor[time.Time]()
)

// scribbled is what Scribble leaves behind.
const scribbled = "scribbled"

func scribble(v reflect.Value) {
	switch v.Kind() {
	case reflect.Struct:
		if v.Type() == timeType {
			v.Set(reflect.ValueOf(time.Unix(-1e9, 0).UTC()))
		}
		for _, i := range exported(v.Type()) {
			scribble(v.Field(i))
		}
	case reflect.Pointer:
		if !v.IsNil() && !opaque(v.Type().Elem()) {
			scribble(v.Elem())
		}
	case reflect.Interface:
		if v.IsNil() || v.Type() == errorType {
			return
		}
		switch v.Elem().Kind() {
		case reflect.Map, reflect.Slice:
			scribble(v.Elem())
		}
	case reflect.Slice:
		if v.Type().Elem().Kind() == reflect.Uint8 {
			for i, b := range v.Bytes() {
				v.Bytes()[i] = b ^ 0x55
			}
			return
		}
		for i := range v.Len() {
			scribble(v.Index(i))
		}
	case reflect.Map:
		if v.IsNil() {
			return
		}
		for it := v.MapRange(); it.Next(); {
			c := reflect.New(v.Type().Elem()).Elem()
			c.Set(it.Value())
			scribble(c) // what the value refers to
			if c.Kind() == reflect.Interface {
				c.Set(reflect.ValueOf(scribbled))
			}
			v.SetMapIndex(it.Key(), c)
		}
		c := reflect.New(v.Type().Elem()).Elem()
		if c.Kind() == reflect.Interface {
			c.Set(reflect.ValueOf(scribbled))
		}
		v.SetMapIndex(reflect.ValueOf(scribbled).Convert(v.Type().Key()), c)
	case reflect.String:
		v.SetString(scribbled)
	case reflect.Bool:
		v.SetBool(!v.Bool())
	case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64:
		v.SetInt(^v.Int())
	case reflect.Uint, reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64:
		v.SetUint(v.Uint() ^ 0x55)
	case reflect.Float32, reflect.Float64:
		if v.Float() == 77 {
			v.SetFloat(78)
		} else {
			v.SetFloat(77)
		}
	}
}

// Leaf is a place in a struct: a field that is no struct with fields of its own.
type Leaf struct {
	Path  string
	index [][]int // of the fields on the way; each but the last leads to a struct or a pointer to one
}

// Leaves returns the fields of a struct type and of the structs in it, through pointers,
// but not those in slices and maps. Where a pointer leads to a struct, both the pointer
// and the fields behind it are leaves.
func Leaves(t reflect.Type) []Leaf { return leaves(t, "", nil) }

func leaves(t reflect.Type, path string, way [][]int) (list []Leaf) {
	for _, i := range exported(t) {
		f := t.Field(i)
		here, at := append(slices.Clone(way), f.Index), join(path, f)
		switch {
		case f.Type.Kind() == reflect.Struct && !opaque(f.Type):
			list = append(list, leaves(f.Type, at, here)...)
		case f.Type.Kind() == reflect.Pointer && f.Type.Elem().Kind() == reflect.Struct &&
			!opaque(f.Type.Elem()):
			list = append(append(list, Leaf{at, here}), leaves(f.Type.Elem(), at, here)...)
		default:
			list = append(list, Leaf{at, here})
		}
	}
	return list
}

// In returns the leaf's field in the struct v. It reports false if a pointer on the way
// is nil.
func (l Leaf) In(v reflect.Value) (reflect.Value, bool) {
	for _, i := range l.index {
		if v.Kind() == reflect.Pointer {
			if v.IsNil() {
				return v, false
			}
			v = v.Elem()
		}
		v = v.FieldByIndex(i)
	}
	return v, true
}
