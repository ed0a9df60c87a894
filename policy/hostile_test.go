package policy_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"pgregory.net/rapid"

	"github.com/ojsengine/ojs"
	"github.com/ojsengine/ojs/policy"
)

// panics is an error with one method that panics.
type panics struct{ method string }

func (p panics) call(method string) {
	if p.method == method {
		panic(method)
	}
}

func (p panics) Error() string     { p.call("Error"); return "hostile" }
func (p panics) Unwrap() error     { p.call("Unwrap"); return nil }
func (p panics) ErrorType() string { p.call("ErrorType"); return "" }
func (p panics) DoNotRetry() bool  { p.call("DoNotRetry"); return false }
func (p panics) Is(error) bool     { p.call("Is"); return false }
func (p panics) As(any) bool       { p.call("As"); return false }

type wraps struct{ err error }

func (w *wraps) Error() string { return "wraps" }
func (w *wraps) Unwrap() error { return w.err }

type wrapsMany struct{ errs []error }

func (w *wrapsMany) Error() string   { return "wraps many" }
func (w *wrapsMany) Unwrap() []error { return w.errs }

type (
	mapError   map[string]int
	sliceError []string
	funcError  func()
	chanError  chan int
)

func (m mapError) Error() string   { return fmt.Sprint(len(m)) }
func (s sliceError) Error() string { return s[0] }
func (f funcError) Error() string  { f(); return "func" }
func (c chanError) Error() string  { close(c); return "chan" }

type badJSON struct{}

func (badJSON) MarshalJSON() ([]byte, error) { panic("MarshalJSON") }

func hostileErrors() map[string]error {
	cycle := &wraps{}
	cycle.err = &wraps{cycle}
	flood := &wrapsMany{}
	flood.errs = []error{flood, flood, nil, flood, cycle}
	ownCycle := &ojs.Error{Message: "m"}
	ownCycle.Err = ownCycle
	silentCycle := &ojs.Error{}
	silentCycle.Err = ojs.RetryAfter(time.Second, silentCycle)
	joinedCycle := &ojs.Error{}
	joinedCycle.Err = errors.Join(errBoom, joinedCycle)
	var nilError *ojs.Error
	var nilTyped *typed
	deep := errBoom
	for range 10_000 {
		deep = &wraps{deep}
	}
	self := map[string]any{}
	self["self"] = self
	return map[string]error{
		"nil *ojs.Error": nilError, "nil pointer": nilTyped, "nil map": mapError(nil),
		"nil slice": sliceError(nil), "nil func": funcError(nil),
		"nil chan": chanError(nil), "nil RetryAfterError": (*ojs.RetryAfterError)(nil),
		"nil SnoozeError":            (*ojs.SnoozeError)(nil),
		"RetryAfterError of nothing": &ojs.RetryAfterError{After: time.Second},
		"wrapped nil":                &wraps{nilTyped}, "wraps nothing": &wraps{},
		"formatted nil": fmt.Errorf("x: %w", nilTyped), "nil inside Discard": ojs.Permanent(nilTyped),
		"not comparable": sliceError{"slice"},
		"Error panics":   panics{"Error"}, "Unwrap panics": panics{"Unwrap"},
		"ErrorType panics":  panics{"ErrorType"},
		"DoNotRetry panics": panics{"DoNotRetry"}, "Is panics": panics{"Is"}, "As panics": panics{"As"},
		"cycle": cycle, "joined cycles": errors.Join(cycle, cycle), "flood": flood,
		"cycle of ojs.Error":      ownCycle,
		"cycle without a message": silentCycle, "cycle through errors.Join": joinedCycle, "deep": deep,
		"empty": errors.New(""), "zero ojs.Error": &ojs.Error{},
		"func in details":       &ojs.Error{Details: map[string]any{"f": func() {}}},
		"details in themselves": &ojs.Error{Details: self},
		"NaN in details":        &ojs.Error{Details: map[string]any{"n": math.NaN()}},
		"panic in details":      &ojs.Error{Details: map[string]any{"p": badJSON{}}},
	}
}

func TestHostileErrors(t *testing.T) {
	for name, err := range hostileErrors() {
		t.Run("A093 A095 "+name, func(t *testing.T) {
			for _, kind := range kinds {
				for _, err := range []error{err, &wraps{err}, &wrapsMany{[]error{errBoom, err}}} {
					d := policy.Decide(job(1, ojs.RetryPolicy{}),
						policy.Outcome{Kind: kind, Err: err, Limit: time.Second}, now, 0, nil)
					if d.State == "" || d.State == ojs.StateCompleted || d.Failure == nil && !d.Refunded {
						t.Errorf("kind %d: %+v", kind, d)
					}
					if d.Failure != nil {
						checkStorable(t, d.Failure)
					}
				}
			}
			f := failureOf(t, &ojs.Error{Type: "a.b", Message: "m", Code: ojs.CodeDeadLetter, Err: err})
			if f.Code != ojs.CodeDeadLetter || f.Type != "a.b" {
				t.Errorf("what was said around it is lost: %+v", f)
			}
		})
	}
	t.Run("A092 a typed nil is a failure, not success", func(t *testing.T) {
		var err *ojs.Error
		d := policy.Decide(job(1, ojs.RetryPolicy{}), policy.Outcome{Err: err}, now, 0, nil)
		if d.State != ojs.StateRetryable || !strings.Contains(d.Failure.Message, "nil *ojs.Error") {
			t.Errorf("%+v, %+v", d, d.Failure)
		}
	})
	t.Run("A095 an Error method that panics is named", func(t *testing.T) {
		if f := failureOf(t, panics{"Error"}); !strings.Contains(f.Message, "policy_test.panics") {
			t.Errorf("%q", f.Message)
		}
	})
}

// checkStorable checks what every storage needs of a failure.
func checkStorable(t interface{ Errorf(string, ...any) }, f *ojs.Failure) {
	for _, s := range []string{f.Type, f.Message} {
		if len(s) > 10_000 || !utf8.ValidString(s) {
			t.Errorf("%d bytes, valid %v: %.100q", len(s), utf8.ValidString(s), s)
		}
	}
	if _, err := json.Marshal(f.Details); err != nil || f.Type == "" {
		t.Errorf("type %q, details: %v", f.Type, err)
	}
}

func TestMessages(t *testing.T) {
	for _, tt := range []struct{ name, said, want string }{
		{"as it is", "ünï\x00", "ünï\x00"},
		{"invalid bytes", "a\xffb", "a\uFFFDb"},
		{"10,000 bytes", strings.Repeat("x", 10_000), strings.Repeat("x", 10_000)},
		{"10,001 bytes", strings.Repeat("x", 10_001), strings.Repeat("x", 10_000)},
		{"no half character", "x" + strings.Repeat("ü", 100_000), "x" + strings.Repeat("ü", 4999)},
		{"replacements count", strings.Repeat("a\xff", 10_000), strings.Repeat("a\uFFFD", 2500)},
		{"nothing but continuation bytes", strings.Repeat("\x80", 20_000), "\uFFFD"},
	} {
		t.Run("A095 "+tt.name, func(t *testing.T) {
			if f := failureOf(t, errors.New(tt.said)); f.Message != tt.want {
				t.Errorf("%d bytes, %.40q; want %d, %.40q", len(f.Message), f.Message, len(tt.want), tt.want)
			}
		})
	}
	t.Run("A094 an error type is storable, too", func(t *testing.T) {
		typ := failureOf(t, ojs.Errorf("a\xff"+strings.Repeat("\xfe.", 10_000), "x")).Type
		if !utf8.ValidString(typ) || len(typ) > 10_000 || !strings.HasPrefix(typ, "a\ufffd") {
			t.Errorf("%d bytes, valid %v", len(typ), utf8.ValidString(typ))
		}
	})
	t.Run("A094 A095 any bytes, as message and type", rapid.MakeCheck(func(t *rapid.T) {
		b := rapid.SliceOfN(rapid.SampledFrom([]byte{'a', 0x80, 0xc3, 0xbc, 0xe2, 0xff}), 1,
			6).Draw(t, "bytes")
		s := strings.Repeat(string(b), rapid.IntRange(1, 5000).Draw(t, "times"))
		for _, kind := range kinds {
			o := policy.Outcome{Kind: kind, Err: &ojs.Error{Type: s, Message: s, Code: ojs.CodeFail},
				Limit: time.Second}
			f := policy.Decide(job(1, ojs.RetryPolicy{}), o, now, 0, nil).Failure
			checkStorable(t, f)
			if f.Message == "" {
				t.Fatalf("kind %d: the message is lost", kind)
			}
		}
	}))
}
