//go:build linux

package main

import (
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/benbjohnson/clock"
	"golang.org/x/sys/unix"
)

// terminalOf starts the command in a process of its own, on a terminal of a size.
func terminalOf(t *testing.T, width, height int, address string, args ...string) (*exec.Cmd, *os.File) {
	t.Helper()
	here, err := os.OpenFile("/dev/ptmx", os.O_RDWR, 0)
	if err != nil {
		t.Skip(err)
	}
	t.Cleanup(func() { _ = here.Close() })
	fd := int(here.Fd())
	n, err := unix.IoctlGetInt(fd, unix.TIOCGPTN)
	if err == nil {
		err = unix.IoctlSetPointerInt(fd, unix.TIOCSPTLCK, 0)
	}
	if err == nil {
		size := unix.Winsize{Row: uint16(height), Col: uint16(width)}
		err = unix.IoctlSetWinsize(fd, unix.TIOCSWINSZ, &size)
	}
	if err != nil {
		t.Fatal(err)
	}
	there, err := os.OpenFile("/dev/pts/"+strconv.Itoa(n), os.O_RDWR|syscall.O_NOCTTY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = there.Close() }()
	cmd := exec.Command(os.Args[0], args...)
	cmd.Env = append(os.Environ(), "OJS_STORAGE="+address, asCommand+"=0", "TERM=xterm-256color", "COLUMNS=",
		"NO_COLOR=")
	cmd.Stdin, cmd.Stdout, cmd.Stderr = there, there, there
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	return cmd, here
}

// screen reads a terminal until its text has some words.
func screen(t *testing.T, r io.Reader, words ...string) string {
	t.Helper()
	var text strings.Builder
	b := make([]byte, 1<<16)
	for {
		n, err := r.Read(b)
		text.Write(b[:n])
		missing := ""
		for _, word := range words {
			if !strings.Contains(text.String(), word) {
				missing = word
			}
		}
		if missing == "" {
			return text.String()
		}
		if err != nil {
			t.Fatalf("%v before %q in %q", err, missing, text.String())
		}
	}
}

// top shows everything on a terminal of each size, acts by its keys, and leaves the
// terminal as it was.
func TestTopOnTerminal(t *testing.T) {
	for _, size := range [][2]int{{80, 24}, {132, 43}} {
		t.Run(strconv.Itoa(size[0]), func(t *testing.T) {
			sh := newShell(t, onSQLite, true)
			cmd, tty := terminalOf(t, size[0], size[1], sh.address, "top", "--every", "100ms")
			defer func() { _ = cmd.Process.Kill() }()
			screen(t, tty, "\x1b[?1049h", "22 jobs", "RUNNING", "FAILED", "q: quit")
			send := func(keys string) {
				_, err := tty.WriteString(keys)
				sh.shop.must(err)
			}
			send("jjp")
			screen(t, tty, "pause queue")
			send("y")
			screen(t, tty, "paused")
			send("q")
			screen(t, tty, "\x1b[?1049l")
			if err := cmd.Wait(); err != nil {
				t.Error(err)
			}
			if out := sh.run("ojs queues"); strings.Count(out, "paused") != 1 {
				t.Error(out)
			}
		})
	}
}

// A verb on a terminal has its width, colours and no question.
func TestVerbOnTerminal(t *testing.T) {
	sh := newShell(t, onSQLite, true)
	cmd, tty := terminalOf(t, 80, 24, sh.address, "retry", "state:discarded")
	defer func() { _ = cmd.Process.Kill() }()
	shown := screen(t, tty, "run it again with --yes")
	if !strings.Contains(shown, "\x1b[31mdiscarded") || !strings.Contains(shown, "4 jobs would be retried") {
		t.Errorf("%q", shown)
	}
	if err := cmd.Wait(); err != nil {
		t.Error(err)
	}
}

// enqueue shows a bar of how much of a file is read.
func TestProgressBar(t *testing.T) {
	sh := newShell(t, onMemory, false)
	path := filepath.Join(t.TempDir(), "jobs.ndjson")
	line := `{"type": "email.send", "args": []}` + "\n"
	sh.shop.must(os.WriteFile(path, []byte(strings.Repeat(line, 100_000)), 0o600))
	in, err := os.Open(path)
	sh.shop.must(err)
	defer func() { _ = in.Close() }()
	clock := clock.NewMock()
	p := progress{call: &call{program: &program{errs: new(output), clock: clock}}, live: true}
	if _, err := io.CopyN(io.Discard, p.reads(in, in), int64(len(line))*50_000); err != nil {
		t.Fatal(err)
	}
	clock.Add(time.Second)
	p.show(50_000, "enqueued")
	p.show(50_001, "enqueued")
	const want = "\r[##########          ]  50 %  50,000 jobs enqueued\x1b[K"
	if got := p.errs.(*output).String(); got != want {
		t.Errorf("%q", got)
	}
}
