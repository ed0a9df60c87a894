package main

import (
	"io"
	"strings"
	"testing"
)

// The bounds hold: no measure is worse than the number written beside it.
func TestBoundsHold(t *testing.T) {
	values, err := measure("../../..")
	if err != nil {
		t.Fatal(err)
	}
	var table strings.Builder
	worse, err := report(&table, values, bounds)
	if err != nil {
		t.Fatal(err)
	}
	if len(worse) > 0 {
		t.Errorf("worse than its bound: %v\n%s", worse, table.String())
	}
}

func TestLines(t *testing.T) {
	const text = `// Package p is an example.
package p

import "fmt"

/* A comment
of two lines. */

// F prints two lines.
func F() {
	fmt.Println(` + "`one\n\ntwo`" + `) // code with a comment
}
`
	if code, comments := lines([]byte(text)); code != 7 || comments != 4 {
		t.Errorf("%d code lines and %d comment lines, want 7 and 4", code, comments)
	}
}

func TestReport(t *testing.T) {
	for name, test := range map[string]struct {
		values []value
		bounds string
		worse  string
		fails  bool
	}{
		"at the bound":    {values: []value{{name: "a", n: 3}}, bounds: "a\t3\t1\n"},
		"above the bound": {values: []value{{name: "a", n: 4}}, bounds: "a\t3\t1\n", worse: "a"},
		"too few": {
			values: []value{{name: "a", n: 2, atLeast: true}},
			bounds: "a\t3\t3\n",
			worse:  "a",
		},
		"no bound":                  {values: []value{{name: "a"}}, bounds: "", fails: true},
		"no value":                  {bounds: "a\t3\t1\n", fails: true},
		"a bound without a tab":     {values: []value{{name: "a"}}, bounds: "a 3 1\n", fails: true},
		"a bound that is no number": {values: []value{{name: "a"}}, bounds: "a\tx\t1\n", fails: true},
	} {
		t.Run(name, func(t *testing.T) {
			worse, err := report(io.Discard, test.values, test.bounds)
			if got := strings.Join(worse, " "); got != test.worse || (err != nil) != test.fails {
				t.Errorf("worse %q, error %v", got, err)
			}
		})
	}
}

func TestLockHeld(t *testing.T) {
	for text, want := range map[string]bool{
		"F does it. core.mu is held.": true,
		"The lock must be held.":      true,
		"mu guards the fields below.": false,
		"The lock is not held here.":  false,
	} {
		if lockHeld.MatchString(text) != want {
			t.Errorf("%q: want %v", text, want)
		}
	}
}
