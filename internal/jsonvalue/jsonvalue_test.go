package jsonvalue_test

import (
	"encoding/json"
	"math"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/ojsengine/ojs/internal/jsonvalue"
)

func TestDecode(t *testing.T) {
	for raw, want := range map[string]any{
		`1`: 1.0, `-1.5`: -1.5, `1e3`: 1000.0, `9007199254740991`: 9007199254740991.0,
		`-9007199254740991`:              -9007199254740991.0,
		`9007199254740992`:               json.Number("9007199254740992"),
		`-9007199254740993`:              json.Number("-9007199254740993"),
		`123456789012345678901234567890`: json.Number("123456789012345678901234567890"),
		`9007199254740993.0`:             9007199254740992.0,
		`null`:                           nil, `true`: true, `"x"`: "x",
		`[1,[9007199254740993]]`: []any{1.0, []any{json.Number("9007199254740993")}},
		`{"a":{"b":2}}`:          map[string]any{"a": map[string]any{"b": 2.0}},
	} {
		if got, err := jsonvalue.Decode([]byte(raw)); err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("%s is %#v, %v, want %#v", raw, got, err, want)
		}
	}
	for _, raw := range []string{``, `{`, `1 2`, `[1e400]`, `{"a":-1e400}`} {
		if got, err := jsonvalue.Decode([]byte(raw)); err == nil {
			t.Errorf("%s is %v", raw, got)
		}
	}
}

type panics struct{}

func (panics) MarshalJSON() ([]byte, error) { panic("no") }

// The short ways give what encoding and decoding give.
func TestNormalizeIsARoundTrip(t *testing.T) {
	values := []any{
		nil, true, "x", "bad \xff utf8", "", 0, 1, -1, math.MaxInt, math.MinInt, 1<<53 - 1, 1 << 53,
		-(1<<53 - 1), -(1 << 53),
		int8(1), uint64(math.MaxUint64), float32(0.1), 0.1, math.Copysign(0, -1), math.MaxFloat64,
		time.Unix(0, 0).UTC(), time.Second,
		[]string{"a"}, []byte("abc"), map[string]int{"n": 1}, map[string]any{"l": []any{1, nil}},
		struct{ A, b int }{1, 2},
		json.Number("12"), json.RawMessage(`{"a": 1}`), new(int), (*int)(nil), [2]bool{true},
	}
	for _, v := range values {
		got, err := jsonvalue.Normalize(map[string]any{"k": v})
		if err != nil {
			t.Errorf("%#v: %v", v, err)
			continue
		}
		raw, err := json.Marshal(map[string]any{"k": v})
		if err != nil {
			t.Fatal(err)
		}
		if want, err := jsonvalue.Decode(raw); err != nil || !reflect.DeepEqual(any(got), want) {
			t.Errorf("%#v becomes %#v, want %#v", v, got, want)
		}
		if again, err := jsonvalue.Normalize(got); err != nil || !reflect.DeepEqual(again, got) {
			t.Errorf("%#v changes the second time: %#v, %v", v, again, err)
		}
	}
	cycle := map[string]any{}
	cycle["self"] = cycle
	for _, v := range []any{math.NaN(), math.Inf(1), func() {}, make(chan int), panics{}, cycle,
		map[bool]int{true: 1}, 1i} {
		if _, err := jsonvalue.Normalize(map[string]any{"fine": 1, "bad": v}); err == nil ||
			!strings.Contains(err.Error(), `"bad"`) {
			t.Errorf("%T: %v", v, err)
		}
	}
	for _, m := range []map[string]any{nil, {}} {
		if got, err := jsonvalue.Normalize(m); got != nil || err != nil {
			t.Errorf("%v, %v", got, err)
		}
	}
}

func TestNothingShared(t *testing.T) {
	in := map[string]any{"m": map[string]any{"l": []any{map[string]any{"x": "kept"}}}}
	normal, err := jsonvalue.Normalize(in)
	if err != nil {
		t.Fatal(err)
	}
	cloned := jsonvalue.Clone(normal)
	in["m"].(map[string]any)["l"].([]any)[0].(map[string]any)["x"] = "changed"
	in["m"].(map[string]any)["new"] = true
	want := map[string]any{"m": map[string]any{"l": []any{map[string]any{"x": "kept"}}}}
	if !reflect.DeepEqual(normal, want) {
		t.Errorf("Normalize shares: %v", normal)
	}
	normal["m"].(map[string]any)["l"].([]any)[0].(map[string]any)["x"] = "changed"
	if !reflect.DeepEqual(cloned, want) {
		t.Errorf("Clone shares: %v", cloned)
	}
	if jsonvalue.Clone(nil) != nil {
		t.Error("a clone of nil")
	}
}
