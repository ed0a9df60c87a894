package plain_test

import (
	"reflect"
	"testing"
	"time"

	"github.com/ojsengine/ojs/internal/plain"
)

type inner struct{ A, B int }

// A plain type shows in the cost only, so this list says which types are plain.
func TestOf(t *testing.T) {
	type recursive struct{ Next *recursive }
	for _, tt := range []struct {
		v    any
		want bool
	}{
		{1, true}, {"x", true}, {1.5, true}, {true, true}, {time.Second, true}, {inner{}, true},
		{struct{}{}, true},
		{struct {
			inner
			C string `json:"c,omitempty"`
		}{}, false}, // an unexported embedded struct
		{struct {
			I inner
			C string `json:"c-d,omitempty"`
		}{}, true},
		{struct{ At time.Time }{}, false}, {recursive{}, false}, {[]int{}, false}, {map[string]int{}, false},
		{new(int), false},
		{struct{ V any }{}, false}, {[2]int{}, false}, {struct{ a int }{}, false}, {complex(1, 1), false},
		{struct {
			A int `json:"-"`
		}{}, false},
	} {
		if got := plain.Of(reflect.TypeOf(tt.v)) != nil; got != tt.want {
			t.Errorf("%T: %t", tt.v, got)
		}
	}
}

func TestFitsCostsNoAllocation(t *testing.T) {
	var v any = struct {
		N    int
		Name string
		F    float64
	}{1, "Ada Lovelace", 2}
	p := plain.Of(reflect.TypeOf(v))
	if n := testing.AllocsPerRun(100, func() { p.Fits(v) }); n != 0 {
		t.Errorf("%v allocations", n)
	}
}
