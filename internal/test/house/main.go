// Command house measures the structure of the repository and compares it with the
// bounds in bounds.txt:
//
//	go run ./internal/test/house
//
// It prints one line for each measure: today's value, the bound, and the value aimed at.
// It fails if a value is worse than its bound, so a bound can only be tightened.
//
// A code line is neither blank nor comment only. Comment lines are counted too, since a
// file that loses its comments has not become smaller.
package main

import (
	_ "embed"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"text/tabwriter"
)

// bounds has a line for each measure: its name, the bound, and the aim or "-".
//
//go:embed bounds.txt
var bounds string

func main() {
	top, err := exec.Command("git", "rev-parse", "--show-toplevel").Output()
	if err != nil {
		fmt.Fprintln(os.Stderr, "house: run it inside the repository:", err)
		os.Exit(1)
	}
	values, err := measure(strings.TrimSpace(string(top)))
	if err != nil {
		fmt.Fprintln(os.Stderr, "house:", err)
		os.Exit(1)
	}
	worse, err := report(os.Stdout, values, bounds)
	if err != nil {
		fmt.Fprintln(os.Stderr, "house:", err)
		os.Exit(1)
	}
	if len(worse) > 0 {
		fmt.Fprintf(os.Stderr, "house: worse than its bound: %s\n", strings.Join(worse, ", "))
		os.Exit(1)
	}
}

// value is one measured number. Most numbers should be small; atLeast marks the others.
type value struct {
	name    string
	n       int
	atLeast bool
}

// report prints values beside their bounds. It returns the names of the values that are
// worse. A value without a bound, or a bound without a value, is an error.
func report(w io.Writer, values []value, bounds string) (worse []string, err error) {
	type bound struct{ most, aim string }
	known := map[string]bound{}
	for line := range strings.Lines(bounds) {
		fields := strings.Split(strings.TrimSpace(line), "\t")
		if len(fields) == 1 && fields[0] == "" {
			continue
		}
		if len(fields) != 3 {
			return nil, fmt.Errorf("bounds.txt: %q: want name, bound and aim, with tabs between", line)
		}
		known[fields[0]] = bound{fields[1], fields[2]}
	}
	table := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "measure\tvalue\tbound\taim")
	for _, v := range values {
		b, ok := known[v.name]
		if !ok {
			return nil, fmt.Errorf("bounds.txt has no line for %q", v.name)
		}
		delete(known, v.name)
		most, err := strconv.Atoi(b.most)
		if err != nil {
			return nil, fmt.Errorf("bounds.txt: %q: the bound is no number", v.name)
		}
		if v.n > most && !v.atLeast || v.n < most && v.atLeast {
			worse = append(worse, v.name)
		}
		fmt.Fprintf(table, "%s\t%d\t%s\t%s\n", v.name, v.n, b.most, b.aim)
	}
	for name := range known {
		return nil, fmt.Errorf("bounds.txt has a line for %q, which is not measured", name)
	}
	return worse, table.Flush()
}
