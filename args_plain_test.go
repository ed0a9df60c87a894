package ojs_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"reflect"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/ojsengine/ojs"
	"github.com/ojsengine/ojs/internal/bridge"
)

var inside = bridge.Take[bridge.Args[ojs.Args]]()

type (
	named string
	flat  struct{ X, Y int }
	mixed struct {
		B bool
		I int64
		U uint64
		F float64
		G float32
		S string
		N named
		D time.Duration
		P flat
	}
	tagged struct {
		A int     `json:"a"`
		B string  `json:"b,omitempty"`
		C float64 `json:"c,omitempty"`
		D flat    `json:"d,omitempty"`
	}
	embeds struct {
		flat2
		Z int
	}
	flat2  struct{ X, Y int }
	Public struct{ X, Y int }
	outer  struct {
		Public
		Z string
	}
	shadows struct {
		Public
		X string
	}
	clash struct {
		A int `json:"n"`
		B int `json:"N"`
	}
	hides struct {
		A int
		B int `json:"-"`
	}
	private struct {
		A int
		b int
	}
	quoted struct {
		A int    `json:",string"`
		B string `json:",string"`
	}
	zeroes struct {
		A int       `json:",omitzero"`
		T time.Time `json:",omitzero"`
	}
	moment  struct{ At time.Time }
	points  struct{ P *int }
	lists   struct{ L []string }
	mapped  struct{ M map[string]int }
	open    struct{ A any }
	array   struct{ A [2]int }
	number  struct{ N json.Number }
	upper   string
	shouts  struct{ U upper }
	inherit struct{ temperature }
	nothing struct{}
)

func (u upper) MarshalText() ([]byte, error)  { return []byte(strings.ToUpper(string(u))), nil }
func (u *upper) UnmarshalText(b []byte) error { *u = upper(b); return nil }

// bothWays makes args of a value and of a pointer to it, which always takes the way
// through JSON, and compares all that can be seen of them.
func bothWays(t interface{ Errorf(string, ...any) }, v any) {
	typ := reflect.TypeOf(v)
	ptr := reflect.New(typ)
	ptr.Elem().Set(reflect.ValueOf(v))
	got, err := ojs.NewArgs(v)
	want, wantErr := ojs.NewArgs(ptr.Interface())
	if (err == nil) != (wantErr == nil) {
		t.Errorf("%#v: error %v, by JSON %v", v, err, wantErr)
		return
	}
	if err != nil {
		// The one names a type, the other a pointer to it.
		if strings.ReplaceAll(wantErr.Error(), "*", "") != strings.ReplaceAll(err.Error(), "*", "") {
			t.Errorf("%#v: error %q, by JSON %q", v, err, wantErr)
		}
		return
	}
	gotWire, gotErr := json.Marshal(got)
	wantWire, wantErr := json.Marshal(want)
	if got.String() != want.String() || string(got.JSON()) != string(want.JSON()) ||
		string(gotWire) != string(wantWire) ||
		gotErr != nil || wantErr != nil ||
		got.Len() != want.Len() || inside.Lossy(got) != inside.Lossy(want) {
		t.Errorf("%#v: %s %s %d %t, by JSON %s %s %d %t", v, got, gotWire, got.Len(), inside.Lossy(got), want,
			wantWire, want.Len(), inside.Lossy(want))
	}
	if inside.SizeBound(got) < got.Len() {
		t.Errorf("%#v: bound %d is less than %d", v, inside.SizeBound(got), got.Len())
	}
	// Into a new value of the type, one that is not zero, and other types.
	filled := ptr
	if raw, err := json.Marshal(v); err == nil {
		filled = reflect.New(typ)
		_ = json.Unmarshal(raw, filled.Interface())
		fill(filled.Elem())
	}
	for _, to := range []reflect.Value{
		reflect.New(typ), filled, reflect.New(reflect.PointerTo(typ)), reflect.New(reflect.TypeFor[any]()),
		reflect.New(reflect.TypeFor[map[string]any]()),
		reflect.New(reflect.TypeFor[flat]()), reflect.New(reflect.TypeFor[string]()),
		reflect.New(reflect.TypeFor[int8]()),
		reflect.New(reflect.TypeFor[temperature]()), reflect.New(reflect.TypeFor[[]json.RawMessage]()),
	} {
		other := reflect.New(to.Type().Elem())
		other.Elem().Set(to.Elem())
		err, wantErr := got.Decode(to.Interface()), want.Decode(other.Interface())
		if fmt.Sprint(err) != fmt.Sprint(wantErr) || !reflect.DeepEqual(to.Interface(), other.Interface()) {
			t.Errorf("%#v into %v: %+v, %v; by JSON %+v, %v", v, to.Type(), to.Elem(), err,
				other.Elem(), wantErr)
		}
		// -0 equals 0
		if a, b := fmt.Sprint(to.Elem()), fmt.Sprint(other.Elem()); to.Kind() != reflect.Pointer && a != b {
			t.Errorf("%#v into %v: %s, by JSON %s", v, to.Type(), a, b)
		}
	}
	for _, to := range []any{nil, 1, (*flat)(nil)} {
		if err, wantErr := got.Decode(to), want.Decode(to); (err == nil) != (wantErr == nil) {
			t.Errorf("%#v into %T: %v, by JSON %v", v, to, err, wantErr)
		}
	}
}

// fill makes the settable scalars of a value not zero.
func fill(v reflect.Value) {
	switch {
	case !v.CanSet():
	case v.Kind() == reflect.Struct:
		for i := range v.NumField() {
			fill(v.Field(i))
		}
	case v.CanInt():
		v.SetInt(77)
	case v.CanUint():
		v.SetUint(77)
	case v.CanFloat():
		v.SetFloat(7.5)
	case v.Kind() == reflect.String:
		v.SetString("77")
	case v.Kind() == reflect.Bool:
		v.SetBool(true)
	}
}

func TestArgsByValue(t *testing.T) {
	n := 3
	huge := mixed{I: math.MinInt64, U: math.MaxUint64, F: math.MaxFloat64, G: math.SmallestNonzeroFloat32,
		D: math.MaxInt64}
	for _, v := range []any{
		true, 0, -1, int8(5), uint64(math.MaxUint64), int64(math.MaxInt64), uintptr(9), 1.5, float32(0.1),
		math.Copysign(0, -1), 1e300, -1e-300,
		"", "x", "quote \" <&> \u2028 \x00 \U0001F600 \ufffd", "bad \xff\xfe", strings.Repeat("\x01", 100),
		named("n"), named("\xc0"),
		math.NaN(), math.Inf(1), float32(math.Inf(-1)),
		flat{}, flat{1, -2}, mixed{}, huge, mixed{F: math.NaN()}, mixed{S: "\xff"}, mixed{N: "\xff"},
		mixed{G: float32(math.Inf(1))},
		tagged{}, tagged{A: 1}, tagged{B: "b", C: 2, D: flat{1, 2}}, tagged{C: math.Copysign(0, -1)},
		embeds{}, embeds{flat2{1, 2}, 3}, outer{}, outer{Public{1, 2}, "z"}, shadows{Public{1, 2}, "x"},
		clash{1, 2},
		hides{1, 2}, private{1, 2}, quoted{1, "q"}, zeroes{}, zeroes{1, time.Unix(1, 2)},
		moment{time.Unix(1e9, 5)}, time.Now(), time.Hour, points{}, points{&n}, lists{}, lists{[]string{"a"}},
		mapped{map[string]int{"a": 1}},
		open{}, open{1}, array{[2]int{1, 2}}, [2]string{"a", "b"}, number{"12"}, json.Number("1e3"),
		upper("u"), shouts{"u"}, temperature{3},
		inherit{temperature{3}}, pair{1, 2}, nothing{}, struct{ A, B struct{ C float64 } }{},
		struct {
			Ä int
			B string `json:"größe"`
		}{1, "b"},
		struct {
			A int `json:"a b"`
			B int `json:"user-id"`
			C int `json:"x.y,unknown"`
		}{1, 2, 3},
	} {
		t.Run(fmt.Sprintf("%T", v), func(t *testing.T) { bothWays(t, v) })
	}
}

// TestArgsByValueOfAnyType does the same to random types and values.
func TestArgsByValueOfAnyType(t *testing.T) {
	kinds := []reflect.Type{
		reflect.TypeFor[bool](), reflect.TypeFor[int](), reflect.TypeFor[int8](), reflect.TypeFor[uint64](),
		reflect.TypeFor[float64](),
		reflect.TypeFor[float32](), reflect.TypeFor[string](), reflect.TypeFor[flat](),
		reflect.TypeFor[tagged](), reflect.TypeFor[upper](),
		reflect.TypeFor[time.Duration](), reflect.TypeFor[[]int](), reflect.TypeFor[json.Number](),
		reflect.TypeFor[*int](),
	}
	tags := []string{"", "", "", "a", "A", "b", "-", "-,", ",omitempty", "a,omitempty", ",string",
		",omitzero", "x-y", "ſ", "k", "K"}
	rapid.Check(t, func(t *rapid.T) {
		var fields []reflect.StructField
		for i := range rapid.IntRange(0, 5).Draw(t, "fields") {
			f := reflect.StructField{Name: fmt.Sprintf("F%d", i),
				Type: rapid.SampledFrom(kinds).Draw(t, "kind")}
			if tag := rapid.SampledFrom(tags).Draw(t, "tag"); tag != "" {
				f.Tag = reflect.StructTag(fmt.Sprintf("json:%q", tag))
			}
			fields = append(fields, f)
		}
		v := reflect.New(reflect.StructOf(fields)).Elem()
		for i := range v.NumField() {
			draw(t, v.Field(i))
		}
		bothWays(t, v.Interface())
	})
}

func draw(t *rapid.T, v reflect.Value) {
	switch {
	case v.Type() == reflect.TypeFor[json.Number]():
		v.SetString(rapid.SampledFrom([]string{"", "1", "1e9", "x"}).Draw(t, "number"))
	case v.Kind() == reflect.Struct:
		for i := range v.NumField() {
			draw(t, v.Field(i))
		}
	case v.CanInt():
		v.SetInt(rapid.Int64().Draw(t, "int"))
	case v.CanUint():
		v.SetUint(rapid.Uint64().Draw(t, "uint"))
	case v.CanFloat():
		v.SetFloat(rapid.OneOf(rapid.Float64(),
			rapid.SampledFrom([]float64{0, math.Copysign(0, -1), math.NaN(), math.Inf(1)})).Draw(t, "float"))
	case v.Kind() == reflect.String:
		v.SetString(rapid.OneOf(rapid.String(),
			rapid.SampledFrom([]string{"", "\xff", "\ufffd", "<&>"})).Draw(t, "string"))
	case v.Kind() == reflect.Bool:
		v.SetBool(rapid.Bool().Draw(t, "bool"))
	}
}

// A value is held as it is, so that neither the caller's copy nor a handler's is the
// stored one.
func TestArgsHoldACopy(t *testing.T) {
	given := mixed{I: 1, S: "one", P: flat{1, 2}}
	args, err := ojs.NewArgs(given)
	if err != nil {
		t.Fatal(err)
	}
	given.I, given.P.X = 2, 3
	var first, second mixed
	if err := args.Decode(&first); err != nil {
		t.Fatal(err)
	}
	first.S, first.P.Y = "changed", 9
	if err := args.Decode(&second); err != nil || second != (mixed{I: 1, S: "one", P: flat{1, 2}}) {
		t.Errorf("%+v, %v", second, err)
	}
}

// DecodeArgs does the same as Decode for args of any type.
func TestDecodeArgs(t *testing.T) {
	type omits struct {
		A int `json:",omitempty"`
		B string
	}
	decodeArgsAlike(t, flat{}, flat{})
	decodeArgsAlike(t, omits{0, "b"}, omits{7, "kept unless it is there"})
	decodeArgsAlike(t, 7, 0)
	decodeArgsAlike(t, int8(7), int64(1))
	decodeArgsAlike(t, "x", 1)
	decodeArgsAlike(t, []int{1}, 5)
	decodeArgsAlike[any](t, 7, "before")
	decodeArgsAlike[any](t, nil, "before")
	decodeArgsAlike(t, nil, 5)
	args, err := ojs.NewArgs(7)
	if err != nil {
		t.Fatal(err)
	}
	if err := ojs.DecodeArgs[int](args, nil); !errors.Is(err, ojs.ErrInvalid) {
		t.Errorf("into nil: %v", err)
	}
}

func decodeArgsAlike[T any](t *testing.T, v any, into T) {
	t.Helper()
	args, err := ojs.NewArgs(v)
	if err != nil {
		t.Fatal(err)
	}
	got, want := into, into
	err, wantErr := ojs.DecodeArgs(args, &got), args.Decode(&want)
	if fmt.Sprint(err) != fmt.Sprint(wantErr) || !reflect.DeepEqual(got, want) {
		t.Errorf("%#v into a %T: %v, %v; Decode makes it %v, %v", v, into, got, err, want, wantErr)
	}
}
