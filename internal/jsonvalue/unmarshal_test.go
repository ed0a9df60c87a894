package jsonvalue

import (
	"encoding/json"
	"fmt"
	"reflect"
	"strings"
	"testing"
)

const beyond = "3889108265204450030"

type own struct{ V any }

func (o *own) UnmarshalJSON(b []byte) error { return json.Unmarshal(b, &o.V) }

type inner struct{ V any }

type below struct{ W any }

type target struct {
	inner
	*below
	A      any
	List   []any
	Map    map[string]inner
	Ptr    *inner
	Exact  int64
	Float  float64
	Number json.Number
	Own    own
	Next   *target
}

// Every any that a value has keeps the digits, and nothing else differs from
// encoding/json.
func TestUnmarshalKeepsDigits(t *testing.T) {
	var got target
	got.below, got.Next = new(below), &got // a circle of the caller's
	raw := fmt.Sprintf(`{"V": %[1]s, "W": %[1]s, "A": {"n": [%[1]s, 1, 9007199254740991]}, "List": [-%[1]s, 2.5, 1e20],
		"Map": {"k": {"V": %[1]s}}, "Ptr": {"V": %[1]s}, "Exact": %[1]s, "Float": 2, "Number": 7,
		"Own": %[1]s}`, beyond)
	if err := Unmarshal([]byte(raw), &got); err != nil {
		t.Fatal(err)
	}
	big := json.Number(beyond)
	for name, pair := range map[string][2]any{
		"an embedded struct": {got.inner.V, big},
		"a pointer below":    {got.W, big},
		"an object":          {got.A, map[string]any{"n": []any{big, 1.0, 9007199254740991.0}}},
		"a list":             {got.List, []any{"-" + big, 2.5, 1e20}},
		"a map of structs":   {got.Map["k"].V, big},
		"a pointer":          {got.Ptr.V, big},
		"an int64":           {got.Exact, int64(3889108265204450030)},
		"a float64":          {got.Float, 2.0},
		"a json.Number":      {got.Number, json.Number("7")},
		"a method":           {got.Own.V, 3889108265204450030.0},
	} {
		if !reflect.DeepEqual(pair[0], pair[1]) {
			t.Errorf("%s has %#v, not %#v", name, pair[0], pair[1])
		}
	}
	for _, raw := range []string{``, `{`, beyond + ` 1`, `"` + beyond, `[` + beyond + `,1e999]`} {
		var v, w any
		err, want := Unmarshal([]byte(raw), &v), json.Unmarshal([]byte(raw), &w)
		if (err == nil) != (want == nil) {
			t.Errorf("%s: %v, but json.Unmarshal: %v", raw, err, want)
		}
	}
	for _, v := range []any{nil, 5, (*any)(nil)} {
		if Unmarshal([]byte(beyond), v) == nil {
			t.Errorf("decoded into %T", v)
		}
	}
}

func TestLong(t *testing.T) {
	for at := range 40 {
		for n := range 40 {
			raw := strings.Repeat("x", at) + strings.Repeat("9", n) + "," + strings.Repeat("1", n%7)
			if got := long([]byte(raw)); got != (n >= 16) {
				t.Errorf("%s is long: %v", raw, got)
			}
		}
	}
}
