package jsonvalue_test

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/ojsengine/ojs/internal/jsonvalue"
)

type sized struct {
	A string `json:"a,omitempty"`
	B []int  `json:"-"`
	C map[string]any
	D *sized `json:",omitempty"`
	E []byte
	F any
	g string
	embedded
}

type embedded struct{ A, C string }

// A value that is reported as larger is larger when it is encoded.
func TestLargerThanIsALowerBound(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := rapid.StringN(0, 20, -1)
		v := any(sized{
			A: s.Draw(t, "A"), B: []int{1, 2}, C: map[string]any{s.Draw(t, "key"): value(t, 3)},
			D: &sized{g: s.Draw(t, "g")},
			E: rapid.SliceOf(rapid.Byte()).Draw(t, "E"), F: value(t, 3),
			embedded: embedded{s.Draw(t, "EA"), s.Draw(t, "EC")},
		})
		if rapid.Bool().Draw(t, "list") {
			v = []any{v, json.RawMessage(` [ 1,  "a \" b" , {} ] `), json.Number("12"), time.Now(),
				map[int]string{1: ""}, [3]bool{}}
		}
		raw, err := json.Marshal(v)
		if err != nil {
			t.Skip(err)
		}
		if jsonvalue.LargerThan(v, len(raw)) {
			t.Fatalf("larger than %d: %s", len(raw), raw)
		}
	})
}

func TestLargerThan(t *testing.T) {
	big := strings.Repeat("x", 10<<20)
	for name, v := range map[string]any{
		"string": big, "pointer": &big, "bytes": []byte(big), "list": []string{big},
		"numbers": make([]int, 1<<20),
		"map":     map[string]any{"k": map[string]string{"k": big}}, "key": map[string]int{big: 1},
		"struct": struct{ S any }{big},
		"raw":    json.RawMessage(`"` + big + `"`), "shared": shared(40),
	} {
		t.Run(name, func(t *testing.T) {
			var larger bool
			if n := testing.AllocsPerRun(1, func() { larger = jsonvalue.LargerThan(v, 1<<20) }); n > 20 &&
				name != "shared" && name != "map" {
				t.Errorf("%v allocations", n)
			}
			if !larger {
				t.Error("is not larger than 1 MiB")
			}
		})
	}
	type node struct{ Next *node }
	var cycle node
	cycle.Next = &cycle
	jsonvalue.LargerThan(&cycle, 1<<20) // comes to an end
	m := map[string]any{}
	m["m"] = m
	jsonvalue.LargerThan(m, 1<<20)
}

// shared is a list of lists that encodes to 2^n values.
func shared(n int) any {
	var v any = "x"
	for range n {
		v = []any{v, v}
	}
	return v
}
