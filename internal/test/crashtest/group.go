package crashtest

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// group is the processes of a test.
type group struct {
	t         *testing.T
	cfg       *Config
	dir       string // of their journals and of their log
	processes []*process
	started   int
}

// process is a child of this one. It ends when it is killed, or this one ends, which
// closes its standard input.
type process struct {
	role    string
	journal string
	cmd     *exec.Cmd
	stdin   io.WriteCloser
}

// begun reports whether a process has done anything yet.
func (p *process) begun() bool {
	info, err := os.Stat(p.journal)
	return err == nil && info.Size() > 0
}

func (g *group) log() string { return filepath.Join(g.dir, "log") }

func (g *group) start(role string) {
	g.t.Helper()
	g.started++
	log, err := os.OpenFile(g.log(), os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		g.t.Fatal(err)
	}
	defer log.Close()
	journal := filepath.Join(g.dir, fmt.Sprintf("%s-%d.journal", role, g.started))
	cmd := exec.Command(os.Args[0])
	cmd.Stderr = log
	cmd.Env = append(os.Environ(), "GORACE=halt_on_error=1",
		envRole+"="+role, envAt+"="+g.cfg.At, envJournal+"="+journal)
	if g.cfg.Disturb != nil {
		cmd.Env = append(cmd.Env, envDisturbed+"=1")
	}
	if g.cfg.Faults > 0 {
		cmd.Env = append(cmd.Env, envFaults+"=1")
	}
	stdin, err := cmd.StdinPipe()
	if err != nil {
		g.t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		g.t.Fatal(err)
	}
	g.processes = append(g.processes, &process{role, journal, cmd, stdin})
}

// stopProducing has the processes that do both only work from now on.
func (g *group) stopProducing() {
	for _, p := range g.processes {
		if p.role == both {
			if _, err := p.stdin.Write([]byte{'\n'}); err != nil {
				g.t.Error(err)
			}
		}
	}
}

// kill ends a process as nothing else does: it has no chance to do anything more.
func (g *group) kill(p *process) {
	_ = p.cmd.Process.Kill()
	_ = p.cmd.Wait()
	if code := p.cmd.ProcessState.ExitCode(); code != -1 { // -1: by a signal
		g.t.Errorf("a %s ended by itself, with %d", p.role, code)
	}
	g.processes = slices.DeleteFunc(g.processes, func(q *process) bool { return q == p })
}

// killAll kills the processes of some roles, or all.
func (g *group) killAll(roles ...string) {
	for _, p := range slices.Clone(g.processes) {
		if len(roles) == 0 || slices.Contains(roles, p.role) {
			g.kill(p)
		}
	}
}

// checkLog wants that no process had anything to report, unless they were disturbed, of
// which they may tell.
func (g *group) checkLog() {
	log, err := os.ReadFile(g.log())
	if err != nil {
		g.t.Fatal(err)
	}
	for _, bad := range []string{"panic:", "fatal error:", "DATA RACE", unexpected} {
		if bytes.Contains(log, []byte(bad)) {
			g.t.Errorf("the log has %q", bad)
		}
	}
	if g.cfg.Disturb == nil && len(log) > 0 {
		g.t.Error("the storage failed processes that were alive")
	}
	if g.t.Failed() {
		lines := strings.SplitAfter(string(log), "\n")
		g.t.Logf("the log:\n%s", strings.Join(lines[:min(len(lines), 100)], ""))
	}
}
