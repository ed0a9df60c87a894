// Command mutate asks whether the tests of a package notice when its code is wrong. It
// plants small faults, mutants, one at a time, and runs a judge, which is a test binary.
// A mutant that the judge passes survives. Each survivor is either a hole in the tests or
// listed, with the reason why the contract does not tell it from the code, in the
// target's survivors file.
//
//	go run ./internal/test/mutate
//	go run ./internal/test/mutate -sample 200 -seed 7
//	go run ./internal/test/mutate -run 'ready.go: ready.moveUp' memory
//
// The run fails if a survivor is not listed, or if a listed one is killed or is no mutant
// of the code.
//
// The protocol:
//
//  1. plant rewrites the target's files once, so that each mutant stands behind a test of
//     an integer (plant.go).
//  2. go test -c -overlay builds each judge's binary once, with these files
//     replacing the target's.
//  3. Each test of a quick judge runs by itself without a mutant. This measures its time
//     and notes which mutants it reaches (reach.go). A long judge runs as a whole. A
//     mutant that no test reaches survives at once.
//  4. Each mutant is judged by processes of its own, which read the mutant's number from
//     the environment: by the quick tests that reach it, then by the whole suite, and
//     then by the tests of the target's package, unless the mutant is listed as one that
//     these pass, too. The first failed test ends the process. So does a panic in a
//     function that locks a mutex, which other calls would wait for. A process that takes
//     much longer than without the mutant has failed. A listed mutant skips the whole
//     suite, which takes the most time, unless -again is given.
//
// Random operations begin with the same seed in each run. Mutants whose end depends on
// the schedule of goroutines are listed as "chance" and may survive or not.
package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/benbjohnson/clock"
)

// target is code to mutate, and who judges it.
type target struct {
	name   string
	dir    string   // of the package, from the module's root
	files  []string // of the package; empty: all
	judges []judge  // in order
	guards []guard
}

// guard is a pair of methods that lock and unlock a mutex of their receiver.
type guard struct{ enter, leave, mutex string }

// seeded are arguments for random operations: the same in each run, and not reduced to
// the shortest that fail.
func seeded(args ...string) []string {
	return append([]string{"-rapid.seed=1", "-rapid.nofailfile", "-rapid.shrinktime=1ns"}, args...)
}

// The first two stages kill most mutants in a twentieth of the suite's time.
var (
	light   = seeded("-test.run=^TestStorage$", "-test.skip=/Random|/Histories|"+slowCases)
	quick   = seeded("-test.run=^TestStorage$/^Random$", "-rapid.checks=5")
	suite   = seeded("-test.run=^TestStorage$")
	private = seeded("-test.skip=^TestStorage$", "-rapid.checks=10")
)

const slowCases = "/Conformance/(Fields|Scale|Race)|/Conformance/General/Payloads"

// The reference is judged by what the suite compares with it, on the memory storage, and
// by the cases, which it has to pass itself. Its own random operations are left out: they
// compare it with itself.
var (
	cases    = seeded("-test.run=^TestReferenceInOneStep$/^Conformance$", "-test.skip="+slowCases)
	searches = seeded("-test.run=^TestStorage$/^(Random|Histories)$")
	itself   = seeded("-test.run=^TestReference", "-test.skip=/Random")
)

var targets = []target{
	{
		name: "memory", dir: "storage/memory",
		judges: []judge{
			{pkg: "storage/memory", args: light},
			{pkg: "storage/memory", args: quick},
			{pkg: "storage/memory", args: suite, random: true, long: true},
			{pkg: "storage/memory", args: private, own: true},
		},
		guards: []guard{{"enter", "leave", "mu"}, {"enterAhead", "leave", "mu"}},
	},
	{
		name: "reference", dir: "storage/storagetest",
		files: []string{"reference.go", "reference_fair.go", "reference_limits.go"},
		judges: []judge{
			{pkg: "storage/storagetest", args: cases},
			{pkg: "storage/memory", args: quick},
			{pkg: "storage/memory", args: searches, random: true, long: true},
			{pkg: "storage/storagetest", args: itself, long: true},
		},
		guards: []guard{{"enter", "Unlock", "mu"}},
	},
	{
		name: "depend", dir: "storage/depend",
		judges: []judge{
			{pkg: "storage/memory", args: light},
			{pkg: "storage/memory", args: quick},
			{pkg: "storage/memory", args: suite, random: true, long: true},
		},
	},
	{
		name: "rule", dir: "storage/rule",
		judges: []judge{
			{pkg: "storage/rule", args: []string{"-test.run=."}},
			{pkg: "storage/memory", args: light},
			{pkg: "storage/memory", args: quick},
			{pkg: "storage/memory", args: suite, random: true, long: true},
		},
	},
}

func main() {
	var (
		only     = flag.String("run", "", "only mutants whose `regexp` matches file, function and text; what is listed besides is not compared")
		parallel = flag.Int("p", 2, "judges at the same `time`")
		checks   = flag.Int("checks", 20, "`runs` of random operations for each mutant in the last stages")
		sample   = flag.Int("sample", 0, "judge `n` mutants, drawn by -seed; 0: all of them")
		seed     = flag.Uint64("seed", 1, "of -sample")
		again    = flag.Bool("again", false, "judge listed mutants by the whole suite, too")
		list     = flag.Bool("list", false, "list the mutants and judge none")
		verbose  = flag.Bool("v", false, "tell of every mutant what killed it")
	)
	flag.Parse()
	if err := toRoot(); err != nil {
		fail(err)
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	match, err := regexp.Compile(*only)
	if err != nil {
		fail(err)
	}
	ok := true
	for _, t := range targets {
		if flag.NArg() > 0 && !slices.Contains(flag.Args(), t.name) {
			continue
		}
		for i := range t.judges {
			if j := &t.judges[i]; j.random {
				j.args = append(slices.Clip(j.args), fmt.Sprintf("-rapid.checks=%d", *checks))
			}
		}
		r := run{
			target: t, match: match, parallel: *parallel, list: *list, verbose: *verbose, out: os.Stdout,
			sample: *sample, seed: *seed, again: *again,
		}
		clean, err := r.run(ctx, filepath.Join("internal", "test", "mutate", t.name+".survivors"))
		if err != nil {
			fail(fmt.Errorf("%s: %w", t.name, err))
		}
		ok = ok && clean
	}
	if !ok {
		os.Exit(1)
	}
}

// toRoot makes the module's root the working directory.
func toRoot() error {
	mod, err := exec.Command("go", "env", "GOMOD").Output()
	if err != nil {
		return err
	}
	return os.Chdir(filepath.Dir(strings.TrimSpace(string(mod))))
}

func fail(err error) {
	fmt.Fprintln(os.Stderr, "mutate:", err)
	os.Exit(2)
}

// run is a run over one target.
type run struct {
	target
	match         *regexp.Regexp
	parallel      int
	list, verbose bool
	out           io.Writer
	sample        int // how many mutants to judge; 0: all
	seed          uint64
	again         bool // judge listed mutants by every stage
}

// run judges the target's mutants and compares the survivors with a file. It reports
// whether they are those that are listed.
func (r *run) run(ctx context.Context, file string) (bool, error) {
	listed, err := readSurvivors(file)
	if err != nil {
		return false, err
	}
	dir, err := os.MkdirTemp("", "mutate")
	if err != nil {
		return false, err
	}
	defer os.RemoveAll(dir)
	mutants, overlay, err := plant(ctx, r.target, dir)
	if err != nil {
		return false, err
	}
	all := make(map[string]bool)
	var chosen []*mutant
	for _, m := range mutants {
		all[m.key] = true
		if r.match.MatchString(m.key) {
			chosen = append(chosen, m)
		}
	}
	if r.sample > 0 && r.sample < len(chosen) {
		rnd := rand.New(rand.NewPCG(r.seed, 0))
		rnd.Shuffle(len(chosen), func(i, j int) { chosen[i], chosen[j] = chosen[j], chosen[i] })
		chosen = chosen[:r.sample]
	}
	if r.list {
		for _, m := range chosen {
			fmt.Fprintln(r.out, m.key)
		}
		return true, nil
	}
	if len(chosen) == 0 {
		fmt.Fprintf(r.out, "%s: no mutants to judge\n", r.name)
		return r.compare(nil, all, listed), nil
	}
	wall := clock.New()
	start := wall.Now()
	if err := build(ctx, r.judges, overlay, dir); err != nil {
		return false, err
	}
	if err := r.judgeAll(ctx, chosen, listed); err != nil {
		return false, err
	}
	clean := r.compare(chosen, all, listed)
	fmt.Fprintf(r.out, "%s: %s in %v\n", r.name, tally(chosen), wall.Since(start).Round(time.Second))
	return clean, nil
}

// judgeAll fills in the verdict of each mutant.
func (r *run) judgeAll(ctx context.Context, mutants []*mutant, listed map[string]survivor) error {
	for i := range r.judges {
		j := &r.judges[i]
		j.ready = sync.OnceValue(func() error { return j.warmUp(ctx, r.parallel) })
	}
	var (
		wg   sync.WaitGroup
		mu   sync.Mutex // guards out and failed
		next atomic.Int64
		bad  error
	)
	for range r.parallel {
		wg.Go(func() {
			for ctx.Err() == nil {
				i := int(next.Add(1)) - 1
				if i >= len(mutants) {
					return
				}
				m := mutants[i]
				kind := listed[m.key].kind
				err := verdictOf(ctx, r.judges, m, func(j *judge) bool {
					switch {
					case j.own:
						return kind == "" || kind == "own"
					case j.long:
						return kind == "" || r.again
					}
					return true
				})
				mu.Lock()
				if err != nil && bad == nil {
					bad = err
				}
				if r.verbose {
					fmt.Fprintf(r.out, "%s: %s: %s\n", m.at, m.key, m.verdict)
				}
				mu.Unlock()
			}
		})
	}
	wg.Wait()
	if bad != nil {
		return bad
	}
	return ctx.Err()
}

// compare prints what differs between the survivors and the list.
func (r *run) compare(mutants []*mutant, all map[string]bool, listed map[string]survivor) bool {
	clean := true
	tell := func(format string, args ...any) {
		clean = false
		fmt.Fprintf(r.out, format+"\n", args...)
	}
	for _, m := range mutants {
		s, is := listed[m.key]
		switch survives := m.verdict.survives(); {
		case is && s.kind == "chance":
		case is && !survives:
			tell("listed, and killed by %s: %s", m.verdict.by, m.key)
		case is && (s.kind == "own") != m.verdict.own:
			tell("listed as %s, and %s: %s", s.kind, m.verdict, m.key)
		case survives && !is:
			tell("%s: %s: %s", m.at, m.key, m.verdict)
		}
	}
	for _, key := range slices.Sorted(maps.Keys(listed)) {
		if !all[key] {
			tell("listed, and no mutant: %s", key)
		}
	}
	return clean
}

func tally(mutants []*mutant) string {
	n := make(map[string]int)
	for _, m := range mutants {
		switch {
		case !m.verdict.survives():
			n["killed"]++
		case m.verdict.own:
			n["killed by the package's own tests"]++
		case !m.verdict.reached:
			n["not reached"]++
		default:
			n["survived"]++
		}
	}
	s := fmt.Sprintf("%d mutants", len(mutants))
	for _, word := range slices.Sorted(maps.Keys(n)) {
		s += fmt.Sprintf(", %d %s", n[word], word)
	}
	return s
}

// survivor is a line of a survivors file: why a mutant is not killed.
type survivor struct{ kind, reason string }

// kinds are what a survivors file may call a mutant.
var kinds = map[string]string{
	"equivalent": "no call of the storage can tell it from the code",
	"cost":       "it costs time or memory and nothing else",
	"unstated":   "what it changes is nothing that the contract promises",
	"own":        "the suite passes it and the package's own tests do not: it is internal",
	"chance":     "it is killed or not, as goroutines are scheduled",
}

// readSurvivors reads a list of survivors by key. Each line is "key  # kind: reason",
// empty, or a comment that begins with #.
func readSurvivors(file string) (map[string]survivor, error) {
	b, err := os.ReadFile(file)
	if os.IsNotExist(err) {
		return nil, nil
	} else if err != nil {
		return nil, err
	}
	listed := make(map[string]survivor)
	for i, line := range strings.Split(string(b), "\n") {
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		key, why, _ := strings.Cut(line, "  # ")
		kind, reason, _ := strings.Cut(why, ": ")
		switch _, twice := listed[key]; {
		case kinds[kind] == "" || reason == "":
			return nil, fmt.Errorf(
				"%s:%d: want \"file: function: mutation  # kind: reason\", kind being one of %q",
				file, i+1, slices.Sorted(maps.Keys(kinds)))
		case twice:
			return nil, fmt.Errorf("%s:%d: is there twice", file, i+1)
		}
		listed[key] = survivor{kind, reason}
	}
	return listed, nil
}
