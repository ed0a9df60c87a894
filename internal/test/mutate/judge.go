package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/benbjohnson/clock"
)

// judge is a stage of judgement: arguments of a test binary.
type judge struct {
	pkg    string // that the binary is of, from the module's root
	args   []string
	random bool // the budget of random operations is that of the command line
	long   bool // it takes most of the time: listed mutants are spared it, its tests run together
	own    bool // tests of the package's insides, not of what it promises

	binary string
	ready  func() error // it has been tried without a mutant, and the fields below are set
	whole  trial
	trials []trial // of the tests by themselves
}

// limit is how long a judge takes, or may take: of the processor, so that a busy machine
// fails no mutant, and by the clock, for one that waits for ever.
type limit struct{ processor, clock time.Duration }

// verdict is what the judges say of a mutant.
type verdict struct {
	by      string // the first test that fails; "": it survives all
	own     bool   // that test is one of the package's own
	reached bool   // by a judge that is not the package's own
}

// survives reports whether the tests of what the package promises pass the mutant.
func (v verdict) survives() bool { return v.by == "" || v.own }

func (v verdict) String() string {
	switch {
	case v.own:
		return "survives but for " + v.by
	case v.by != "":
		return "killed by " + v.by
	case !v.reached:
		return "survives, not reached"
	}
	return "survives"
}

// build makes the binaries of judges.
func build(ctx context.Context, judges []judge, overlay, dir string) error {
	binaries := make(map[string]string) // by package
	for i := range judges {
		j := &judges[i]
		if binaries[j.pkg] == "" {
			out := filepath.Join(dir, strings.ReplaceAll(j.pkg, "/", "_")+".test")
			args := []string{"test", "-c", "-vet=off", "-overlay", overlay, "-o", out, "./" + j.pkg}
			cmd := exec.CommandContext(ctx, "go", args...)
			if msg, err := cmd.CombinedOutput(); err != nil {
				return fmt.Errorf("build %s with its mutants: %w\n%s", j.pkg, err, msg)
			}
			binaries[j.pkg] = out
		}
		j.binary = binaries[j.pkg]
	}
	return nil
}

// start runs the judge's binary with more arguments, in its package's directory. It
// returns what it printed and how much time of the processor it used.
func (j *judge) start(
	ctx context.Context, most limit, more []string, env ...string,
) ([]byte, time.Duration, error) {
	ctx, cancel := clock.New().WithTimeout(ctx, most.clock)
	defer cancel()
	// A mutant that allocates without end fails, rather than the machine.
	run := fmt.Sprintf(`ulimit -v 16000000; ulimit -t %d; exec "$0" -test.failfast "$@"`,
		int(most.processor.Seconds()))
	args := slices.Concat([]string{"-c", run, j.binary}, j.args, more)
	cmd := exec.CommandContext(ctx, "sh", args...)
	cmd.Dir, cmd.Env = j.pkg, append(os.Environ(), env...)
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	err := cmd.Run()
	var used time.Duration
	if s := cmd.ProcessState; s != nil {
		used = s.UserTime() + s.SystemTime()
	}
	if errors.Is(ctx.Err(), context.DeadlineExceeded) || used >= most.processor {
		err = errLate
	}
	return out.Bytes(), used, err
}

// upTo returns how the judge judges a mutant: by the tests that reach it, within a limit.
func (j *judge) upTo(m *mutant) (most limit, args []string, reached bool) {
	var sum limit
	var tests []string
	for _, t := range j.trials {
		if t.reached[m.id] {
			sum.processor += t.took.processor
			sum.clock += t.took.clock
			tests = append(tests, t.test)
		}
	}
	most.processor = 2*time.Second + 4*min(sum.processor, j.whole.took.processor)
	most.clock = 20*time.Second + 10*min(sum.clock, j.whole.took.clock)
	if len(tests) < len(j.trials) {
		args = []string{only(tests)}
	}
	return most, args, len(tests) > 0
}

var errLate = errors.New("takes too long")

var failed = regexp.MustCompile(`(?m)^ *--- FAIL: (\S+)|^(panic: .*|fatal error: .*)$`)

// verdictOf has a mutant judged by the judges that asked chooses.
func verdictOf(ctx context.Context, judges []judge, m *mutant, asked func(*judge) bool) error {
	m.verdict = verdict{}
	for i := range judges {
		j := &judges[i]
		if !asked(j) {
			continue
		}
		if err := j.ready(); err != nil {
			return err
		}
		most, args, reached := j.upTo(m)
		if !reached {
			continue
		}
		m.verdict.reached = m.verdict.reached || !j.own
		out, _, err := j.start(ctx, most, args, fmt.Sprintf("%s=%d", planted, m.id))
		if err == nil {
			continue
		}
		var exit *exec.ExitError
		switch {
		case ctx.Err() != nil:
			return ctx.Err()
		case errors.Is(err, errLate):
			m.verdict.by = err.Error()
		case errors.As(err, &exit):
			m.verdict.by = err.Error()
			for _, f := range failed.FindAllSubmatch(out, -1) {
				m.verdict.by = string(bytes.Join(f[1:], nil))
			}
		default:
			return err
		}
		m.verdict.own = j.own
		return nil
	}
	return nil
}
