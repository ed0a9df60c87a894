package foreign_test

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"strings"
	"testing"

	"github.com/ojsengine/ojs/internal/foreign"
)

// circle is an error that wraps itself, as one and as several.
type circle struct{}

func (c circle) Error() string { return "circle" }

type one struct{ circle }

func (o one) Unwrap() error { return o }

type several struct{ circle }

func (s several) Unwrap() []error { return []error{errors.New("a"), s, s} }

// endless wraps another one each time.
type endless int

func (e endless) Error() string { return "endless" }
func (e endless) Unwrap() error { return e + 1 }

type stops struct{ stop func() }

func (stops) Error() string   { return "stops" }
func (s stops) Unwrap() error { s.stop(); return nil }

type stopsToCompare struct{ stop func() }

func (*stopsToCompare) Error() string       { return "stops" }
func (s *stopsToCompare) Is(error) bool     { s.stop(); return false }
func (s *stopsToCompare) As(any) bool       { s.stop(); return false }
func (s *stopsToCompare) ErrorType() string { return "stops" }

type uncomparable []int

func (uncomparable) Error() string { return "uncomparable" }

var errWanted = errors.New("wanted")

// The walk returns for every error, and finds those before the one that does harm.
func TestWalkReturns(t *testing.T) {
	var null *stopsToCompare
	for name, err := range map[string]error{
		"a circle":                 one{},
		"a circle of several":      several{},
		"a circle below":           fmt.Errorf("%w", fmt.Errorf("%w %w", several{}, one{})),
		"an endless chain":         endless(0),
		"a panic":                  stops{func() { panic("no") }},
		"Goexit":                   stops{runtime.Goexit},
		"a panic of Is and As":     &stopsToCompare{func() { panic("no") }},
		"Goexit of Is and As":      &stopsToCompare{runtime.Goexit},
		"a nil pointer":            null,
		"a value without equality": uncomparable{},
	} {
		for _, err := range []error{err, fmt.Errorf("wraps %w", err), errors.Join(errors.New("x"), err)} {
			var as *fs.PathError
			if foreign.Is(err, errWanted) || foreign.As(err, &as) {
				t.Errorf("%s is what it is not", name)
			}
			if e := foreign.Ending(err); e == nil || !foreign.Walk(e, func(error) bool { return true }) {
				t.Errorf("%s ends in %v", name, e)
			}
			err = errors.Join(errWanted, &fs.PathError{Op: "x", Err: errWanted}, err)
			if !foreign.Is(err, errWanted) || !foreign.As(err, &as) || as.Op != "x" {
				t.Errorf("%s hides what comes before it", name)
			}
		}
	}
}

// Is and As find what errors.Is and errors.As find.
func TestIsAndAs(t *testing.T) {
	path := &fs.PathError{Op: "open", Err: fs.ErrNotExist}
	for _, err := range []error{nil, errWanted, fmt.Errorf("%w", errWanted),
		errors.Join(path, errWanted), path,
		fmt.Errorf("%w and %w", path, errWanted), os.ErrNotExist, fmt.Errorf("%w", fmt.Errorf("%w", path))} {
		for _, target := range []error{errWanted, fs.ErrNotExist, fs.ErrExist} {
			if got := foreign.Is(err, target); got != errors.Is(err, target) {
				t.Errorf("Is(%v, %v) is %v", err, target, got)
			}
		}
		var got, want *fs.PathError
		if foreign.As(err, &got) != errors.As(err, &want) || got != want {
			t.Errorf("As(%v) gives %v, not %v", err, got, want)
		}
		if foreign.Ending(err) != err {
			t.Errorf("%v is replaced", err)
		}
	}
	if n := testing.AllocsPerRun(10, func() { foreign.Is(errWanted, fs.ErrExist) }); n > 3 {
		t.Errorf("looking at a plain error takes %v allocations", n)
	}
}

// Packages that meet errors of foreign code walk them by this package only: errors.Is and
// errors.As do not return from a circle, and call methods that may panic.
func TestErrorsAreWalkedHere(t *testing.T) {
	bad := regexp.MustCompile(`\berrors\.(Is|As|AsType|Unwrap)\(|\bUnwrap\(\)(\) != nil| error \}:)`)
	for _, dir := range []string{"engine", "policy", "handler", "workflow", "codec", "dashboard", "otel",
		"prometheus",
		"storage/insert", "enginetest"} {
		err := filepath.WalkDir("../../"+dir, func(path string, d fs.DirEntry, err error) error {
			skip := strings.HasSuffix(path, "_test.go") || strings.Contains(path, "/example/") ||
				strings.Contains(path, "/browsertest/")
			if err != nil || d.IsDir() || skip || !strings.HasSuffix(path, ".go") {
				return err
			}
			text, err := os.ReadFile(path)
			for i, line := range strings.Split(string(text), "\n") {
				if code, _, _ := strings.Cut(line, "//"); bad.MatchString(code) {
					t.Errorf("%s:%d: %s", path, i+1, strings.TrimSpace(line))
				}
			}
			return err
		})
		if err != nil {
			t.Error(err)
		}
	}
}
