package main

import (
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/benbjohnson/clock"
)

// A bench measures a storage of each kind, and leaves nothing behind.
func TestBench(t *testing.T) {
	dir := t.TempDir()
	for _, address := range []string{"memory", filepath.Join(dir, "jobs.db"), "postgres"} {
		t.Run(filepath.Base(address), func(t *testing.T) {
			sh := &shell{t: t, shop: &shop{clock: clock.NewMock()}, address: address}
			if address == "postgres" {
				sh.address = newDatabase(t, "template1")
			}
			out, errs := new(output), new(output)
			args := []string{"bench", "--jobs", "200", "-o", "ndjson", "--storage", sh.address}
			for range 2 { // the second finds nothing of the first
				code := runWith(args, environment(), out, errs)
				if code != 0 || !strings.Contains(out.String(), `"jobs":200`) ||
					strings.Contains(out.String(), ":0,") {
					t.Fatalf("%d %s%s", code, out, errs)
				}
			}
		})
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) > 0 {
		t.Error(left, err)
	}
}

// The completion of bash offers verbs, those below a verb, and flags.
func TestCompletion(t *testing.T) {
	bash, err := exec.LookPath("bash")
	if err != nil {
		t.Skip(err)
	}
	sh := newShell(t, onMemory, false)
	script := sh.run("ojs completion bash")
	for line, want := range map[string]string{"que": "queues", "queues res": "resume",
		"jobs --cu":        "--cursor",
		"jobs state : act": "active", "-s x.db queues pau": "pause", "queues pause --rea": "--reason"} {
		words := strings.Fields(line)
		call := exec.Command(bash, "-c", fmt.Sprintf(`%s COMP_WORDBREAKS=: COMP_WORDS=(ojs %s) COMP_LINE="ojs %s"
COMP_POINT=${#COMP_LINE} COMP_CWORD=%d; _ojs; echo ${COMPREPLY[@]}`,
			script, line, strings.ReplaceAll(line, " : ", ":"), len(words)))
		got, err := call.CombinedOutput()
		if err != nil || strings.TrimSpace(string(got)) != want {
			t.Errorf("%s: %s %v, want %s", line, got, err, want)
		}
	}
	for _, shell := range []string{"zsh", "fish"} {
		if out := sh.run("ojs completion " + shell); !strings.Contains(out, "queues") {
			t.Error(out)
		}
	}
}

// serve tells systemd when it is ready.
func TestServeNotifies(t *testing.T) {
	path, _ := file(t)
	socket := filepath.Join(t.TempDir(), "notify")
	conn, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: socket, Net: "unixgram"})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close() }()
	s := start(t, environment("NOTIFY_SOCKET", socket), "--storage", path)
	said := make([]byte, 100)
	n, err := conn.Read(said)
	if err != nil || string(said[:n]) != "READY=1" {
		t.Errorf("%q %v", said[:n], err)
	}
	s.end()
}
