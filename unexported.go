package ojs

import (
	"encoding"
	"encoding/json"
	"log/slog"
	"reflect"
	"strings"
	"sync"
)

// warned has the args types whose unexported fields have been logged.
var warned sync.Map // of reflect.Type

// warnUnexported logs, once for each type, the fields of args that JSON leaves out
// because they are unexported: handlers never see their values. A field with the tag "-"
// is left out on purpose and not logged.
func warnUnexported(jobType string, t reflect.Type) {
	fields := unexported(t, nil)
	if len(fields) == 0 {
		return
	}
	if _, again := warned.LoadOrStore(t, true); !again {
		slog.Warn("unexported fields of job args are not stored; export them, or tag them json:\"-\"",
			"job_type", jobType, "args", t.String(), "fields", fields)
	}
}

var encodesItself = []reflect.Type{reflect.TypeFor[json.Marshaler](),
	reflect.TypeFor[encoding.TextMarshaler]()}

// unexported returns the paths of the fields of t, and of the structs in it, that JSON
// leaves out because they are unexported. outer has the structs around t.
func unexported(t reflect.Type, outer []reflect.Type) (fields []string) {
	for t.Kind() == reflect.Pointer || t.Kind() == reflect.Slice || t.Kind() == reflect.Array ||
		t.Kind() == reflect.Map {
		t = t.Elem()
	}
	if t.Kind() != reflect.Struct {
		return nil
	}
	for _, i := range encodesItself {
		if t.Implements(i) || reflect.PointerTo(t).Implements(i) {
			return nil
		}
	}
	for _, o := range outer {
		if o == t {
			return nil
		}
	}
	for f := range t.Fields() {
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		switch {
		case f.Name == "_" || f.Tag.Get("json") == "-":
		case !f.IsExported() && !f.Anonymous:
			fields = append(fields, f.Name)
		default:
			prefix := f.Name + "."
			if f.Anonymous && name == "" {
				prefix = "" // the fields of an embedded struct are promoted
			}
			for _, inner := range unexported(f.Type, append(outer, t)) {
				fields = append(fields, prefix+inner)
			}
		}
	}
	return fields
}
