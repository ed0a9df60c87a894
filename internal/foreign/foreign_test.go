package foreign_test

import (
	"errors"
	"math"
	"runtime"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/ojsengine/ojs/internal/foreign"
)

type name string

type broken struct{ stop func() }

func (b broken) Error() string { b.stop(); return "" }

func TestText(t *testing.T) {
	cyclic := map[string]any{}
	cyclic["m"] = cyclic
	long := strings.Repeat("é", 20<<20)
	for _, tt := range []struct {
		v    any
		want string
	}{
		{nil, "nil"},
		{"boom", "boom"},
		{name("boom"), "boom"},
		{"\xff", "\uFFFD"},
		{errors.New("boom"), "boom"},
		{12, "12"},
		{uint8(12), "12"},
		{math.Pi, "3.141592653589793"},
		{float32(0.1), "0.1"},
		{2i, "(0+2i)"},
		{true, "true"},
		{cyclic, "a value of type map[string]interface {}"},
		{make([]byte, 20<<20), "a value of type []uint8"},
		{&long, "a value of type *string"},
		{broken{func() { panic("no") }}, "the Error method of foreign_test.broken panicked"},
		{broken{runtime.Goexit}, "the Error method of foreign_test.broken called runtime.Goexit"},
		{long, long[:foreign.MaxText]},
		{errors.New(long), long[:foreign.MaxText]},
	} {
		if got := foreign.Text(tt.v); got != tt.want {
			t.Errorf("Text of a %T is %.100q, not %.100q", tt.v, got, tt.want)
		}
	}
	if n := testing.AllocsPerRun(5, func() { foreign.Text(long) }); n > 2 {
		t.Errorf("a long string takes %v allocations", n)
	}
}

func TestClip(t *testing.T) {
	for _, text := range []string{"", "abc", strings.Repeat("é", 30), strings.Repeat("\xff", 30),
		"\xffabc\xff", strings.Repeat("a", 7) + "é"} {
		for most := range 12 {
			got := foreign.Clip(text, most)
			if len(got) > most || !utf8.ValidString(got) {
				t.Errorf("Clip(%q, %d) is %q", text, most, got)
			}
		}
	}
}

func TestCall(t *testing.T) {
	ran := false
	if stop := foreign.Call(func() { ran = true }); stop != nil || !ran {
		t.Errorf("a function that returns: %v", stop)
	}
	for _, tt := range []struct {
		f    func()
		want string
	}{
		{func() { panic("no") }, "panicked: no"},
		{func() { panic(nil) }, "panicked: " + new(runtime.PanicNilError).Error()},
		{runtime.Goexit, "called runtime.Goexit"},
		{func() { panic(broken{runtime.Goexit}) },
			"panicked: the Error method of foreign_test.broken called runtime.Goexit"},
	} {
		if stop := foreign.Call(tt.f); stop == nil || stop.Error() != tt.want {
			t.Errorf("stopped with %v, not %q", stop, tt.want)
		}
	}
}

type briefOne struct{ foreign.BriefObserver }

// An observer that wraps a brief one may keep what it sees.
func TestIsBrief(t *testing.T) {
	for _, tt := range []struct {
		observer any
		want     bool
	}{
		{briefOne{}, true}, {&briefOne{}, true}, {nil, false}, {name("x"), false},
		{struct{ briefOne }{}, false}, {&struct{ *briefOne }{&briefOne{}}, false},
		{struct{ f foreign.BriefObserver }{}, false},
	} {
		if foreign.IsBrief(tt.observer) != tt.want {
			t.Errorf("%T is brief: %v", tt.observer, !tt.want)
		}
	}
}
