package ojs

import (
	"bytes"
	"encoding/json"
	"fmt"
	"reflect"

	"github.com/ojsengine/ojs/internal/bridge"
	internalencoded "github.com/ojsengine/ojs/internal/encoded"
	"github.com/ojsengine/ojs/internal/foreign"
	"github.com/ojsengine/ojs/internal/jsonvalue"
	"github.com/ojsengine/ojs/internal/plain"
)

// Args is a job's args as stored. They are immutable. The zero Args is null.
//
// Its own JSON is the wire form, an array (OJS core, section 5.6). Args that encode to an
// array are that array. Other args are its only element. Null is an empty array.
//
// Args of a plain type stay a Go value, and are encoded when JSON is needed: bool,
// numbers, strings, and structs whose fields are all exported and plain, without methods
// or tags that change the JSON. Other args are encoded once, when they are made. The
// difference shows in cost and reflection only. A string that stays a Go value keeps
// alive the string it was sliced from.
type Args struct {
	_ [0]func() // not comparable: equal args may be held in different ways
	v any       // nil: null; *encoded; or a value of a plain type that JSON holds without loss
}

// encoded is args as JSON.
type encoded struct {
	raw   json.RawMessage // valid non-null JSON, never modified
	lossy bool
}

var null = json.RawMessage("null")

// NewArgs makes args of v, as encoding/json encodes it. An Args is returned as it is.
// If a MarshalJSON panics, the error says so. If one calls runtime.Goexit, that ends the
// goroutine that called NewArgs or the enqueue.
func NewArgs(v any) (a Args, err error) {
	switch v := v.(type) {
	case Args:
		return v, nil
	case nil:
		return Args{}, nil
	}
	if p := plain.Of(reflect.TypeOf(v)); p != nil {
		if _, ok := p.Fits(v); ok {
			return Args{v: v}, nil
		}
	}
	return encodeArgs(v)
}

func encodeArgs(v any) (a Args, err error) {
	defer func() {
		if r := recover(); r != nil { // a MarshalJSON of the caller's
			a, err = Args{}, argsError(fmt.Sprintf("encoding %T panicked: %s", v, foreign.Text(r)))
		}
	}()
	if jsonvalue.DeeperThan(v, jsonvalue.MaxDepth) {
		return Args{}, errDeepArgs
	}
	raw, err := json.Marshal(v)
	if err != nil {
		return Args{}, argsError(fmt.Sprintf("encoding %T: %s", v, foreign.ErrorText(err)))
	}
	if !jsonvalue.Bounded(v, jsonvalue.MaxDepth) && jsonvalue.Depth(raw) > jsonvalue.MaxDepth {
		return Args{}, errDeepArgs
	}
	if string(raw) == "null" {
		return Args{}, nil
	}
	return Args{v: &encoded{raw: raw, lossy: replaces(v, raw)}}, nil
}

// json returns the args as JSON, not to be modified.
func (a Args) json() json.RawMessage {
	switch v := a.v.(type) {
	case nil:
		return null
	case *encoded:
		return v.raw
	}
	raw, err := json.Marshal(a.v)
	if err != nil {
		panic(err) // a value that fits encodes
	}
	return raw
}

// replaces reports whether encoding a value has replaced bytes that are not UTF-8:
// encoding/json writes the escape only for these, not for a U+FFFD in the input.
func replaces(v any, raw []byte) bool {
	if _, given := v.(json.RawMessage); given || !bytes.Contains(raw, []byte(`\ufffd`)) {
		return false
	}
	for i := 0; i < len(raw); i++ {
		if raw[i] == '\\' {
			if bytes.HasPrefix(raw[i:], []byte(`\ufffd`)) {
				return true
			}
			i++ // the escaped character
		}
	}
	return false
}

func init() {
	bridge.Give(bridge.Args[Args]{Lossy: Args.lossy, SizeBound: Args.sizeBound, LargerThan: Args.largerThan,
		OfJSON: func(raw []byte) Args { return Args{v: &encoded{raw: raw}} }})
}

// lossy: see package bridge.
func (a Args) lossy() bool {
	e, ok := a.v.(*encoded)
	return ok && e.lossy
}

var errDeepArgs = argsError(fmt.Sprintf("are nested deeper than %d", jsonvalue.MaxDepth))

func argsError(reason string) error {
	return &InvalidError{Code: InvalidCodeArgs, Field: "args", Reason: reason}
}

// Len returns the number of bytes of the args as JSON.
func (a Args) Len() int { return len(a.json()) }

// sizeBound: see package bridge.
func (a Args) sizeBound() int {
	switch v := a.v.(type) {
	case nil:
		return len(null)
	case *encoded:
		return len(v.raw)
	}
	return plain.Of(reflect.TypeOf(a.v)).Bound(a.v)
}

// largerThan: see package bridge.
func (a Args) largerThan(n int) bool {
	if e, ok := a.v.(*encoded); ok {
		return len(e.raw) > n
	}
	return jsonvalue.LargerThan(a.v, n)
}

// JSON returns a copy of the args as JSON.
func (a Args) JSON() json.RawMessage {
	raw := a.json()
	if _, held := a.v.(*encoded); held || a.v == nil {
		return bytes.Clone(raw)
	}
	return raw // made just now
}

// Encoded reports whether the args are encoded by a codec (engine.WithCodec), so that
// only a program with its keys can read them.
func (a Args) Encoded() bool {
	e, ok := a.v.(*encoded)
	return ok && internalencoded.Args(e.raw)
}

// String returns the args as JSON.
func (a Args) String() string { return string(a.json()) }

// Decode decodes the args into v, a non-nil pointer, as json.Unmarshal does, but for
// integers beyond 2^53-1 that meet an any: they are a json.Number, with all digits. A
// one-element array, the wire form of a single value, decodes as its element into a v
// that is not a list; an empty one leaves v as it is. Encoded args are refused.
func (a Args) Decode(v any) (err error) {
	defer func() {
		if r := recover(); r != nil { // an UnmarshalJSON of the caller's
			err = argsError(fmt.Sprintf("decoding into %T panicked: %s", v, foreign.Text(r)))
		}
	}()
	if a.copyTo(v) {
		return nil
	}
	raw := a.json()
	if raw[0] == '[' && internalencoded.Args(raw) {
		return argsError("are encoded by a codec: decode the job first, by Jobs().Decode of an engine with it")
	}
	if raw[0] == '[' && !takesArray(v, raw) {
		var elems []json.RawMessage
		if err := json.Unmarshal(raw, &elems); err != nil {
			return argsError(foreign.ErrorText(err))
		}
		switch len(elems) {
		case 0:
			return nil
		case 1:
			raw = elems[0]
		}
	}
	if err := jsonvalue.Unmarshal(raw, v); err != nil {
		return argsError(fmt.Sprintf("decoding into %T: %s", v, foreign.ErrorText(err)))
	}
	return nil
}

// DecodeArgs is a.Decode(v). If the args hold a T, it only copies the T.
func DecodeArgs[T any](a Args, v *T) error {
	if t := reflect.TypeFor[T](); reflect.TypeOf(a.v) == t && v != nil && !plain.Of(t).Omits() {
		*v = a.v.(T)
		return nil
	}
	return a.Decode(v)
}

// copyTo does the work of Decode if the args hold a value of the type that v points to.
func (a Args) copyTo(v any) bool {
	t := reflect.TypeOf(v)
	if t == nil || t.Kind() != reflect.Pointer || a.v == nil || t.Elem() != reflect.TypeOf(a.v) {
		return false
	}
	to := reflect.ValueOf(v).Elem()
	// a field that JSON omits keeps its value
	if !to.CanSet() || plain.Of(t.Elem()).Omits() && !to.IsZero() {
		return false
	}
	to.Set(reflect.ValueOf(a.v))
	return true
}

// takesArray reports whether v, the target of raw, takes the array itself and not its
// only element.
func takesArray(v any, raw json.RawMessage) bool {
	t := reflect.TypeOf(v)
	if t == nil || t.Kind() != reflect.Pointer {
		return true // json.Unmarshal returns the right error
	}
	if _, ok := v.(json.Unmarshaler); ok {
		// Its own method decides. If it accepts the array, it gets the array, otherwise
		// the element.
		return json.Unmarshal(raw, reflect.New(t.Elem()).Interface()) == nil
	}
	t = t.Elem()
	for t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	switch t.Kind() {
	case reflect.Interface, reflect.Array:
		return true
	case reflect.Slice:
		// encoding/json writes a []byte as a string.
		return t.Elem().Kind() != reflect.Uint8 || json.Unmarshal(raw, reflect.New(t).Interface()) == nil
	}
	return false
}

// MarshalJSON encodes the wire form.
func (a Args) MarshalJSON() ([]byte, error) {
	if a.v == nil {
		return []byte("[]"), nil
	}
	raw := a.json()
	if raw[0] == '[' {
		return bytes.Clone(raw), nil
	}
	b := make([]byte, 0, len(raw)+2)
	return append(append(append(b, '['), raw...), ']'), nil
}

// UnmarshalJSON decodes the wire form: any array.
func (a *Args) UnmarshalJSON(b []byte) error {
	b = bytes.TrimSpace(b)
	if len(b) == 0 || b[0] != '[' {
		return argsError("must be an array")
	}
	buf := bytes.NewBuffer(make([]byte, 0, len(b)))
	if err := json.Compact(buf, b); err != nil {
		return argsError(foreign.ErrorText(err))
	}
	*a = Args{v: &encoded{raw: buf.Bytes()}}
	return nil
}
