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
	"strconv"
	"strings"
	"time"

	"github.com/benbjohnson/clock"
)

// judge is a stage of judgement: arguments of a test binary.
type judge struct {
	pkg    string // that the binary is of, from the module's root
	args   []string
	random bool // the budget of random operations is that of the command line
	long   bool // it takes most of the time, and listed mutants are spared it
	own    bool // tests of the package's insides, not of what it promises

	binary  string
	limit   time.Duration
	reached map[int]bool // mutants, by number; nil: not known
}

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

// warmUp runs each judge without a mutant, which it has to pass, and notes how long it
// may take and what it reaches.
func warmUp(ctx context.Context, judges []judge) ([]judge, error) {
	wall := clock.New()
	for i := range judges {
		j := &judges[i]
		file := fmt.Sprintf("%s.%d.reached", j.binary, i)
		start := wall.Now()
		if out, err := j.start(ctx, 10*time.Minute, planted+"=0", planted+"_REACHED="+file); err != nil {
			return nil, fmt.Errorf("the judge fails without a mutant: %w\n%s", err, out)
		}
		j.limit = 5*wall.Since(start) + 3*time.Second
		b, err := os.ReadFile(file)
		if err != nil {
			return nil, err
		}
		j.reached = make(map[int]bool)
		for _, id := range strings.Fields(string(b)) {
			n, err := strconv.Atoi(id)
			if err != nil {
				return nil, err
			}
			j.reached[n] = true
		}
	}
	return judges, nil
}

// start runs the judge's binary, in its package's directory.
func (j *judge) start(ctx context.Context, limit time.Duration, env ...string) ([]byte, error) {
	ctx, cancel := clock.New().WithTimeout(ctx, limit)
	defer cancel()
	// A mutant that allocates without end fails, rather than the machine.
	args := append([]string{"-c", `ulimit -v 16000000; exec "$0" -test.failfast "$@"`, j.binary}, j.args...)
	cmd := exec.CommandContext(ctx, "sh", args...)
	cmd.Dir, cmd.Env = j.pkg, append(os.Environ(), env...)
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	err := cmd.Run()
	if errors.Is(ctx.Err(), context.DeadlineExceeded) {
		err = errLate
	}
	return out.Bytes(), err
}

var errLate = errors.New("takes too long")

var failed = regexp.MustCompile(`(?m)^ *--- FAIL: (\S+)|^(panic: .*|fatal error: .*)$`)

// verdictOf has a mutant judged by the judges that asked chooses.
func verdictOf(ctx context.Context, judges []judge, m *mutant, asked func(*judge) bool) error {
	m.verdict = verdict{}
	for i := range judges {
		j := &judges[i]
		if !j.reached[m.id] || !asked(j) {
			continue
		}
		m.verdict.reached = m.verdict.reached || !j.own
		out, err := j.start(ctx, j.limit, fmt.Sprintf("%s=%d", planted, m.id))
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
