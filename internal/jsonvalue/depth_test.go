package jsonvalue_test

import (
	"encoding/json"
	"reflect"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/ojsengine/ojs/internal/jsonvalue"
)

type list struct{ Next *list }

type shallow struct {
	N int
	M map[string][]string
	T time.Time
	B []byte
}

type loud struct{ Inside any }

func (loud) MarshalJSON() ([]byte, error) { return []byte(`[[1]]`), nil }

type loudPointer struct{ Inside any }

func (*loudPointer) MarshalJSON() ([]byte, error) { return []byte(`1`), nil }

func chain(n int) *list {
	var l *list
	for range n {
		l = &list{l}
	}
	return l
}

func nested(n int) any {
	var v any = "]"
	for range n {
		v = []any{v}
	}
	return v
}

func TestDeeperThan(t *testing.T) {
	self := &list{}
	self.Next = self
	var loop any
	loop = &loop
	for name, tt := range map[string]struct {
		v       any
		deepest int // -1: without end
	}{
		"nil": {nil, 0}, "scalar": {1, 0}, "string": {"[[", 0}, "empty list": {[]int{}, 1},
		"nil list": {[]int(nil), 0},
		"bytes":    {[]byte("x"), 1}, "struct": {struct{ A int }{}, 1},
		"plain": {shallow{M: map[string][]string{"a": {}}}, 3}, "pointer": {new(shallow), 1},
		"any": {nested(7), 7}, "map": {map[string]any{"a": nested(3), "b": 1}, 4},
		"array":       {[1]any{nested(2)}, 3},
		"linked list": {chain(5), 5}, "a million deep": {nested(1_000_000), -1},
		"a list of a million": {chain(1_000_000), -1},
		"a pointer to itself": {self, -1}, "an interface to itself": {loop, -1},
		"a marshaller": {loud{nested(50)}, 0}, "a pointer's marshaller": {&loudPointer{nested(50)}, 0},
		"a marshaller that JSON cannot call": {loudPointer{nested(5)}, 6},
		"a list of marshallers":              {[]loud{{nested(9)}}, 1},
	} {
		t.Run(name, func(t *testing.T) {
			for most := range 60 {
				want := tt.deepest < 0 || most < tt.deepest
				if got := jsonvalue.DeeperThan(tt.v, most); got != want {
					t.Fatalf("deeper than %d: %v", most, got)
				}
			}
		})
	}
	if !jsonvalue.Bounded(shallow{}, 3) || jsonvalue.Bounded(shallow{}, 2) || jsonvalue.Bounded(list{}, 99) ||
		jsonvalue.Bounded([]any{}, 99) {
		t.Error("Bounded")
	}
}

func TestDepth(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		v := value(t, rapid.IntRange(0, 6).Draw(t, "depth"))
		raw, err := json.Marshal(v)
		if err != nil {
			t.Fatal(err)
		}
		depth := jsonvalue.Depth(raw)
		for most := range 9 {
			if got := jsonvalue.DeeperThan(v, most); got != (depth > most) {
				t.Fatalf("%s has depth %d; deeper than %d: %v", raw, depth, most, got)
			}
		}
		if m, ok := v.(map[string]any); ok && len(m) > 0 {
			norm, err := jsonvalue.Normalize(m)
			if err != nil {
				t.Fatal(err)
			}
			raw, err := json.Marshal(norm)
			if err != nil || jsonvalue.SizeBound(norm) < len(raw) {
				t.Fatalf("bound %d of %s, %v", jsonvalue.SizeBound(norm), raw, err)
			}
		}
	})
}

func value(t *rapid.T, depth int) any {
	scalar := []any{nil, true, 1.5, `"]}[{\"`, "\x00<>&\xff\u2028", json.Number("123456789012345678901")}
	if depth == 0 {
		return rapid.SampledFrom(scalar).Draw(t, "scalar")
	}
	if rapid.Bool().Draw(t, "list") {
		l := make([]any, rapid.IntRange(0, 3).Draw(t, "n"))
		for i := range l {
			l[i] = value(t, depth-1)
		}
		return l
	}
	m := make(map[string]any)
	for range rapid.IntRange(0, 3).Draw(t, "n") {
		m[rapid.SampledFrom([]string{"a", `"{`, "\\", "\xff\xfe"}).Draw(t, "key")] = value(t, depth-1)
	}
	return m
}

func TestNormalizeRefusesDepth(t *testing.T) {
	if _, err := jsonvalue.Normalize(map[string]any{"k": nested(jsonvalue.MaxDepth - 1)}); err != nil {
		t.Error(err)
	}
	for name, v := range map[string]any{
		"one too deep": nested(jsonvalue.MaxDepth), "a million": nested(1_000_000),
		"raw": json.RawMessage(strings.Repeat("[", 32) + strings.Repeat("]", 32)),
	} {
		if _, err := jsonvalue.Normalize(map[string]any{"k": v}); err == nil ||
			!strings.Contains(err.Error(), `"k"`) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestNormalizeKeysAsJSONWritesThem(t *testing.T) {
	m := map[string]any{"a\xff\xfe\xfdb": 1.0, "ok": 2.0}
	raw, err := json.Marshal(m)
	if err != nil {
		t.Fatal(err)
	}
	var want map[string]any
	if err := json.Unmarshal(raw, &want); err != nil {
		t.Fatal(err)
	}
	if got, err := jsonvalue.Normalize(m); err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("%v, %v, want %v", got, err, want)
	}
}
