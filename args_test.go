package ojs_test

import (
	"encoding/json"
	"errors"
	"math"
	"reflect"
	"strings"
	"testing"

	"github.com/ojsengine/ojs"
)

type point struct{ X, Y int }

// pair encodes to an array, though it is none.
type pair struct{ a, b int }

func (p pair) MarshalJSON() ([]byte, error) { return json.Marshal([]int{p.a, p.b}) }

func (p *pair) UnmarshalJSON(b []byte) error {
	var l []int
	if err := json.Unmarshal(b, &l); err != nil {
		return err
	}
	if len(l) != 2 {
		return errors.New("not two")
	}
	p.a, p.b = l[0], l[1]
	return nil
}

// temperature encodes to a string.
type temperature struct{ c float64 }

func (t temperature) MarshalJSON() ([]byte, error) { return json.Marshal("warm") }
func (t *temperature) UnmarshalJSON(b []byte) error {
	var s string
	if err := json.Unmarshal(b, &s); err != nil {
		return err
	}
	t.c = 25
	return nil
}

func TestArgsRoundTrip(t *testing.T) {
	tests := []struct {
		name   string
		v      any
		stored string
		wire   string
	}{
		{"struct", point{1, 2}, `{"X":1,"Y":2}`, `[{"X":1,"Y":2}]`},
		{"pointer", &point{1, 2}, `{"X":1,"Y":2}`, `[{"X":1,"Y":2}]`},
		{"string", "hi", `"hi"`, `["hi"]`},
		{"number", 7, `7`, `[7]`},
		{"slice", []int{1, 2}, `[1,2]`, `[1,2]`},
		{"one-element slice", []int{1}, `[1]`, `[1]`},
		{"empty slice", []int{}, `[]`, `[]`},
		{"array", [2]string{"a", "b"}, `["a","b"]`, `["a","b"]`},
		{"bytes", []byte("abc"), `"YWJj"`, `["YWJj"]`},
		{"map", map[string]int{"a": 1}, `{"a":1}`, `[{"a":1}]`},
		{"map of any", map[string]any{"a": []any{1.5, nil, true}}, `{"a":[1.5,null,true]}`,
			`[{"a":[1.5,null,true]}]`},
		{"list of any", []any{"a", 1.0, nil}, `["a",1,null]`, `["a",1,null]`},
		{"list of a struct", []point{{1, 2}}, `[{"X":1,"Y":2}]`, `[{"X":1,"Y":2}]`},
		{"list of a list", [][]int{{1, 2}}, `[[1,2]]`, `[[1,2]]`},
		{"empty string", "", `""`, `[""]`},
		{"boolean", false, `false`, `[false]`},
		{"own array", pair{1, 2}, `[1,2]`, `[1,2]`},
		{"own string", temperature{25}, `"warm"`, `["warm"]`},
		{"big integer", json.RawMessage(`{"id":9007199254740993}`), `{"id":9007199254740993}`,
			`[{"id":9007199254740993}]`},
	}
	for _, tt := range tests {
		t.Run("P0.1 reading 24 "+tt.name, func(t *testing.T) {
			a, err := ojs.NewArgs(tt.v)
			if err != nil || a.String() != tt.stored || string(a.JSON()) != tt.stored {
				t.Fatalf("%s, %v, want %s", a, err, tt.stored)
			}
			wire, err := json.Marshal(a)
			if err != nil || string(wire) != tt.wire {
				t.Errorf("on the wire %s, %v, want %s", wire, err, tt.wire)
			}
			var back ojs.Args
			if err := json.Unmarshal(wire, &back); err != nil {
				t.Fatal(err)
			}
			for from, a := range map[string]ojs.Args{"stored": a, "wire": back} {
				got := reflect.New(reflect.TypeOf(tt.v))
				if err := a.Decode(got.Interface()); err != nil || !reflect.DeepEqual(got.Elem().Interface(),
					tt.v) && tt.name != "big integer" {
					t.Errorf("%s decodes to %+v, %v", from, got.Elem(), err)
				}
			}
		})
	}
}

func TestArgs(t *testing.T) {
	t.Run("null", func(t *testing.T) {
		for _, v := range []any{nil, (*point)(nil), json.RawMessage("null"), ojs.Args{}} {
			a, err := ojs.NewArgs(v)
			if wire, _ := json.Marshal(a); err != nil || a.String() != "null" || string(a.JSON()) != "null" ||
				string(wire) != "[]" {
				t.Errorf("%#v: %s, %v", v, a, err)
			}
			p := point{1, 2}
			if err := a.Decode(&p); err != nil {
				t.Error(err)
			}
		}
	})
	t.Run("an empty array leaves the value alone", func(t *testing.T) {
		var a ojs.Args
		p := point{1, 2}
		if err := json.Unmarshal([]byte("[]"), &a); err != nil || a.Decode(&p) != nil || p != (point{1, 2}) {
			t.Errorf("%v, %v", p, err)
		}
	})
	t.Run("into any: the array", func(t *testing.T) {
		var a ojs.Args
		var v any
		if err := json.Unmarshal([]byte(` [ {"a": 1} ] `), &a); err != nil || a.Decode(&v) != nil ||
			!reflect.DeepEqual(v, []any{map[string]any{"a": 1.0}}) {
			t.Errorf("%v, %v", v, err)
		}
	})
	t.Run("P0.1 integers beyond 2^53 stay as they are", func(t *testing.T) {
		const in = `[9007199254740993,-18446744073709551617,1.10,1e400]`
		var a ojs.Args
		if err := json.Unmarshal([]byte(in), &a); err != nil {
			t.Fatal(err)
		}
		if wire, err := json.Marshal(a); err != nil || string(wire) != in {
			t.Errorf("%s, %v", wire, err)
		}
		var raw []json.Number
		if err := a.Decode(&raw); err != nil || len(raw) != 4 || raw[0] != "9007199254740993" {
			t.Errorf("%v, %v", raw, err)
		}
	})
	t.Run("P0.1 several args are no single value", func(t *testing.T) {
		var a ojs.Args
		var p point
		if err := json.Unmarshal([]byte(`[{"X":1},{"X":2}]`), &a); err != nil ||
			!errors.Is(a.Decode(&p), ojs.ErrInvalid) {
			t.Errorf("%+v, %v", p, err)
		}
	})
	t.Run("P0.1 the wire form is an array", func(t *testing.T) {
		for _, in := range []string{`{}`, `null1`, `"x"`, `1`} {
			var a ojs.Args
			if err := json.Unmarshal([]byte(in), &a); err == nil {
				t.Errorf("%s is %s", in, a)
			}
		}
	})
	t.Run("refusals are typed and never panic", func(t *testing.T) {
		for _, v := range []any{math.NaN(), make(chan int), panicky{}, json.RawMessage("{")} {
			if _, err := ojs.NewArgs(v); !errors.Is(err, ojs.ErrInvalid) ||
				!strings.HasPrefix(err.Error(), "ojs: ") {
				t.Errorf("%T: %v", v, err)
			}
		}
		a, err := ojs.NewArgs([]int{1, 2})
		if err != nil {
			t.Fatal(err)
		}
		for _, into := range []any{new(point), new(string), new(panicky), nil, point{}, (*point)(nil)} {
			if err := a.Decode(into); !errors.Is(err, ojs.ErrInvalid) {
				t.Errorf("into %T: %v", into, err)
			}
		}
	})
	t.Run("copies", func(t *testing.T) {
		in := json.RawMessage(`{"a":1}`)
		a, err := ojs.NewArgs(in)
		if err != nil {
			t.Fatal(err)
		}
		copy(in, "xxxxxxx")
		copy(a.JSON(), "yyyyyyy")
		if a.String() != `{"a":1}` {
			t.Errorf("%s", a)
		}
		in = json.RawMessage(`[1,2]`)
		if err := a.UnmarshalJSON(in); err != nil {
			t.Fatal(err)
		}
		copy(in, "xxxxx")
		wire, err := a.MarshalJSON()
		if err != nil {
			t.Fatal(err)
		}
		copy(wire, "yyyyy")
		if a.String() != `[1,2]` {
			t.Errorf("%s", a)
		}
	})
}

type panicky struct{}

func (panicky) MarshalJSON() ([]byte, error)  { panic("in MarshalJSON") }
func (*panicky) UnmarshalJSON(b []byte) error { panic("in UnmarshalJSON") }
