package fail_test

import (
	"errors"
	"testing"

	"github.com/ojsengine/ojs/internal/fail"
)

// Caught returns the error of With, If and Must, and lets other panics pass.
func TestCaught(t *testing.T) {
	why := errors.New("why")
	for name, test := range map[string]struct {
		f    func()
		want error
	}{
		"With":           {func() { fail.With(why) }, why},
		"If":             {func() { fail.If(why) }, why},
		"If of nil":      {func() { fail.If(nil) }, nil},
		"Must":           {func() { fail.Must(1, why) }, why},
		"Must of nil":    {func() { fail.Must(1, nil) }, nil},
		"caught outside": {func() { _ = fail.Caught(func() { fail.With(why) }) }, nil},
	} {
		if err := fail.Caught(test.f); err != test.want {
			t.Errorf("%s: %v", name, err)
		}
	}
	defer func() {
		if p := recover(); p != "another" {
			t.Errorf("panicked with %v", p)
		}
	}()
	err := fail.Caught(func() { panic("another") })
	t.Errorf("a panic was swallowed: %v", err)
}
