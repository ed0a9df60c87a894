package main

import (
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
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

// The files of share are what the verbs print.
//
//	go test ./cmd/ojs -run TestShare -update
func TestShare(t *testing.T) {
	sh := newShell(t, onMemory, false)
	for path, line := range map[string]string{"man/man1/ojs.1": "ojs man",
		"bash-completion/completions/ojs":    "ojs completion bash",
		"zsh/site-functions/_ojs":            "ojs completion zsh",
		"fish/vendor_completions.d/ojs.fish": "ojs completion fish"} {
		path = filepath.Join("share", path)
		want := sh.run(line)
		if *update {
			sh.shop.must(os.MkdirAll(filepath.Dir(path), 0o755))
			sh.shop.must(os.WriteFile(path, []byte(want), 0o644))
		}
		if got, err := os.ReadFile(path); err != nil || string(got) != want {
			t.Errorf("%s is not what %s prints: run go generate; %v", path, line, err)
		}
	}
}

// The manual page has each verb, and roff reads it.
func TestMan(t *testing.T) {
	sh := newShell(t, onMemory, false)
	page := sh.run("ojs man")
	for _, want := range []string{`.SS "ojs queues pause [<queue> ...]"`, ".B \\-\\-concurrency N",
		".B OJS_KEY\n", ".B 130\n", "postgres://\\[u2026]"} {
		if !strings.Contains(page, want) {
			t.Errorf("no %q", want)
		}
	}
	groff, err := exec.LookPath("groff")
	if err != nil {
		t.Skip(err)
	}
	call := exec.Command(groff, "-man", "-Tutf8", "-ww", "-z")
	call.Stdin = strings.NewReader(page)
	if out, err := call.CombinedOutput(); err != nil || len(out) > 0 {
		t.Errorf("%v %s", err, out)
	}
}

// serve tells systemd when it is ready and when it stops. SIGTERM stops it with 0.
func TestServeNotifies(t *testing.T) {
	path, _ := file(t)
	socket := filepath.Join(t.TempDir(), "notify")
	conn, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: socket, Net: "unixgram"})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close() }()
	cmd := exec.Command(os.Args[0], "serve", "--listen", "127.0.0.1:0", "--binding")
	cmd.Env = append(os.Environ(), asCommand+"=0", "OJS_STORAGE="+path, "NOTIFY_SOCKET="+socket)
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = cmd.Process.Kill() }()
	for _, want := range []string{"READY=1", "STOPPING=1"} {
		said := make([]byte, 100)
		n, err := conn.Read(said)
		if err != nil || string(said[:n]) != want {
			t.Errorf("%q %v, want %s", said[:n], err, want)
		}
		if want == "READY=1" {
			if err := cmd.Process.Signal(syscall.SIGTERM); err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := cmd.Wait(); err != nil {
		t.Error(err)
	}
}
