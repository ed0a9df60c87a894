package main

import (
	"bytes"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

func TestMain(m *testing.M) {
	if err := toRoot(); err != nil {
		panic(err)
	}
	os.Exit(m.Run())
}

const sampleDir = "internal/test/mutate/testdata/sample"

var sample = target{
	name: "sample", dir: sampleDir,
	judges: []judge{
		{pkg: sampleDir, args: []string{"-test.run=TestSample|TestLocks"}},
		{pkg: sampleDir, args: []string{"-test.run=TestInside"}, own: true},
	},
	guards: []guard{{"enter", "leave", "mu"}},
}

// The survivors of the sample, and why.
const sampleSurvivors = `# The sample's.

sample.go: New: most: most in Log -> zero  # chance: never, and that is not compared
sample.go: Log.Add: case "secret" -> never  # own: TestInside
sample.go: Log.Since: s.mu -> not locked  # chance: no mutant, and that is told
sample.go: Log.Since: l.mu -> not locked  # equivalent: no test reads while others write
sample.go: Log.Since: return l.last.kind -> zero  # equivalent: listed, and it is killed
sample.go: Log.Sum: len(kinds) > 0 -> len(kinds) >= 0  # equivalent: there is one
sample.go: Log.Sum: len(kinds) > 0 -> true  # own: it survives both judges, and that is told
`

func TestSample(t *testing.T) {
	file := filepath.Join(t.TempDir(), "sample.survivors")
	if err := os.WriteFile(file, []byte(sampleSurvivors), 0o600); err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	r := run{target: sample, match: regexp.MustCompile(""), parallel: 2, out: &out}
	clean, err := r.run(t.Context(), file)
	if err != nil || clean {
		t.Fatalf("clean: %v, %v", clean, err)
	}
	lines := strings.Split(strings.TrimSpace(out.String()), "\n")
	tally := lines[len(lines)-1]
	lines = lines[:len(lines)-1]
	for i, l := range lines { // without the place
		if _, rest, ok := strings.Cut(l, ".go:"); ok && strings.HasPrefix(l, "/") {
			_, lines[i], _ = strings.Cut(rest, ": ")
		}
	}
	slices.Sort(lines)
	want := []string{
		"listed as own, and survives: sample.go: Log.Sum: len(kinds) > 0 -> true",
		"listed, and killed by TestSample: sample.go: Log.Since: return l.last.kind -> zero",
		"listed, and no mutant: sample.go: Log.Since: s.mu -> not locked",
		"sample.go: Abs: 0 -> 0+1 in if n < 0 {: survives",
		"sample.go: Abs: n < 0 -> n <= 0: survives",
		"sample.go: Log.Add: l.added(); l.kinds[k]++ -> swapped: survives",
		`sample.go: Log.Sum: 0 -> 0+1 in if k == "debug" && len(kinds) > 0 {: survives`,
		"sample.go: unused: 3 -> 3+1 in func unused() int { return 3 }: survives, not reached",
		"sample.go: unused: return 3 -> zero: survives, not reached",
	}
	if !slices.Equal(lines, want) {
		t.Errorf("told:\n%s\nwant:\n%s", strings.Join(lines, "\n"), strings.Join(want, "\n"))
	}
	t.Log(tally)
}

// A mutant meets the tests that reach it.
func TestOnly(t *testing.T) {
	out := "=== RUN   TestA\n=== RUN   TestA/One\n=== RUN   TestA/One/x.y\n=== RUN   TestB\n"
	names := leaves([]byte(out))
	if want := []string{"TestA/One/x.y", "TestB"}; !slices.Equal(names, want) {
		t.Errorf("leaves %q, want %q", names, want)
	}
	if got, want := only(names), `-test.run=^(TestA|TestB)$/^(One)$/^(x\.y)$`; got != want {
		t.Errorf("argument %s, want %s", got, want)
	}
}

// The code of each target can be read, and the listed survivors are mutants of it.
func TestTargets(t *testing.T) {
	for _, target := range targets {
		file := "internal/test/mutate/" + target.name + ".survivors"
		var out bytes.Buffer
		r := run{target: target, match: regexp.MustCompile(""), list: true, out: &out}
		if _, err := r.run(t.Context(), file); err != nil {
			t.Fatalf("%s: %v", target.name, err)
		}
		mutants := strings.Split(out.String(), "\n")
		listed, err := readSurvivors(file)
		if err != nil || len(listed) == 0 {
			t.Fatalf("%s: %d lines, %v", file, len(listed), err)
		}
		for key := range listed {
			if !slices.Contains(mutants, key) {
				t.Errorf("%s lists %q, which is no mutant: the code has changed", file, key)
			}
		}
	}
}

// A sample of a seed is the same each time.
func TestDrawnSample(t *testing.T) {
	file := filepath.Join(t.TempDir(), "sample.survivors")
	chosen := func(r run) (keys []string) {
		t.Helper()
		var out bytes.Buffer
		r.target, r.match, r.list, r.out = sample, regexp.MustCompile(""), true, &out
		if _, err := r.run(t.Context(), file); err != nil {
			t.Fatal(err)
		}
		return strings.Split(strings.TrimSuffix(out.String(), "\n"), "\n")
	}
	if all := chosen(run{}); len(all) < 20 {
		t.Errorf("chose %q of all", all)
	}
	some, same := chosen(run{sample: 5, seed: 1}), chosen(run{sample: 5, seed: 1})
	other := chosen(run{sample: 5, seed: 2})
	if len(some) != 5 || !slices.Equal(some, same) || slices.Equal(some, other) {
		t.Errorf("samples of one seed: %q, %q; of another: %q", some, same, other)
	}
}

// A line that says too little is refused.
func TestSurvivorsLines(t *testing.T) {
	bad := filepath.Join(t.TempDir(), "bad.survivors")
	for _, line := range []string{
		"a.go: f: x -> true", "a.go: f: x -> true  # odd: why", "a.go: f: x -> true  # cost: ",
	} {
		if err := os.WriteFile(bad, []byte(line), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := readSurvivors(bad); err == nil {
			t.Errorf("%q is read", line)
		}
	}
}
