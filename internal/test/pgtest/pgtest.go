// Package pgtest runs a private PostgreSQL for tests and benchmarks, from the binaries of
// the machine: in a temporary directory, on a socket, never as root.
package pgtest

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/benbjohnson/clock"

	"github.com/ojsengine/ojs/internal/test/memdir"
)

// Server is a running server.
type Server struct {
	dir, bin string
	settings []string // beside those of tests
	as       *syscall.Credential
	cmd      *exec.Cmd
	log      bytes.Buffer
	exited   chan error
}

// ErrNotInstalled says that the machine has no PostgreSQL server.
var ErrNotInstalled = errors.New("pgtest: no PostgreSQL server is installed")

// wall is the clock on the wall, for a server that does not come up.
var wall = clock.New()

// Main gives the tests of a package a server and runs them: the one that
// OJS_TEST_POSTGRES names, or a private one. Without either the tests run with an empty
// dsn and skip what needs it, but in CI they fail. dsn is set before they run. The
// settings, such as "wal_level=logical", are the private server's.
func Main(m *testing.M, dsn *string, settings ...string) int {
	if *dsn = os.Getenv("OJS_TEST_POSTGRES"); *dsn != "" {
		return m.Run()
	}
	s, err := StartIn(memdir.Dir(), settings...)
	switch {
	case errors.Is(err, ErrNotInstalled) && os.Getenv("CI") == "":
		fmt.Fprintln(os.Stderr, err)
		return m.Run()
	case err != nil:
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer s.Close()
	*dsn = s.DSN()
	return m.Run()
}

// Start makes a server in memory, if there is room, and waits until it answers.
func Start() (*Server, error) { return StartIn(memdir.Dir()) }

// StartIn is Start beneath a directory ("": the system's for temporary files), with
// settings such as "fsync=on" that go before those of tests.
func StartIn(dir string, settings ...string) (*Server, error) {
	bin, err := binaries()
	if err != nil {
		return nil, err
	}
	s := &Server{bin: bin, settings: settings}
	if s.dir, err = os.MkdirTemp(dir, "pgtest"); err != nil { // short: the path of a socket has to be
		return nil, err
	}
	if err := s.init(); err != nil {
		return nil, errors.Join(err, os.RemoveAll(s.dir))
	}
	if err := s.Up(); err != nil {
		return nil, errors.Join(err, os.RemoveAll(s.dir))
	}
	return s, nil
}

// binaries finds the newest server of the machine.
func binaries() (string, error) {
	found, _ := filepath.Glob("/usr/lib/postgresql/*/bin/postgres")
	slices.SortFunc(found, func(a, b string) int { return version(b) - version(a) })
	if path, err := exec.LookPath("postgres"); err == nil {
		if path, err = filepath.EvalSymlinks(path); err == nil {
			found = append(found, path)
		}
	}
	for _, path := range found {
		dir := filepath.Dir(path)
		if _, err := os.Stat(filepath.Join(dir, "initdb")); err == nil {
			return dir, nil
		}
	}
	return "", ErrNotInstalled
}

func version(path string) int {
	n, _ := strconv.Atoi(filepath.Base(filepath.Dir(filepath.Dir(path))))
	return n
}

func (s *Server) init() error {
	if err := s.own(); err != nil {
		return err
	}
	initdb := s.command("initdb", "--pgdata", s.data(), "--username", "postgres", "--auth", "trust",
		"--encoding", "UTF8", "--locale", "C", "--no-sync")
	if out, err := initdb.CombinedOutput(); err != nil {
		return fmt.Errorf("pgtest: initdb: %w\n%s", err, out)
	}
	return nil
}

// own gives the directory to the account of the server, which refuses to run as root.
func (s *Server) own() (err error) {
	if os.Getuid() != 0 {
		return nil
	}
	if s.as, err = account(); err != nil {
		return err
	}
	return os.Chown(s.dir, int(s.as.Uid), int(s.as.Gid))
}

// account is the account for a server that root has started.
func account() (*syscall.Credential, error) {
	for _, name := range []string{"postgres", "nobody"} {
		u, err := user.Lookup(name)
		if err != nil {
			continue
		}
		uid, err1 := strconv.ParseUint(u.Uid, 10, 32)
		gid, err2 := strconv.ParseUint(u.Gid, 10, 32)
		if err1 == nil && err2 == nil && uid != 0 {
			return &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}, nil
		}
	}
	return nil, errors.New("pgtest: running as root, and there is no other user to run a server as")
}

func (s *Server) command(name string, args ...string) *exec.Cmd {
	cmd := exec.Command(filepath.Join(s.bin, name), args...)
	cmd.Dir = s.dir
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: s.as, Pdeathsig: syscall.SIGQUIT}
	return cmd
}

// psql makes a statement and returns its result.
func (s *Server) psql(statement string) (string, error) {
	cmd := s.command("psql", "--no-psqlrc", "--tuples-only", "--no-align", "--host", s.dir,
		"--username", "postgres", "--command", statement, "postgres")
	out, err := cmd.CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("pgtest: %s: %w\n%s", statement, err, out)
	}
	return strings.TrimSpace(string(out)), nil
}

func (s *Server) data() string { return filepath.Join(s.dir, "data") }

// Dir is where the socket is: .s.PGSQL.5432.
func (s *Server) Dir() string { return s.dir }

// PID is the process of a server that is up, whose children serve the connections.
func (s *Server) PID() int { return s.cmd.Process.Pid }

// DSN is how to connect.
func (s *Server) DSN() string { return "host=" + s.dir + " user=postgres dbname=postgres" }

// Up starts a server that is down and waits until it answers. Unless told otherwise it
// does not wait for the disk: the machine of a test does not lose its power.
func (s *Server) Up() error {
	s.log.Reset()
	args := []string{"-D", s.data(), "-k", s.dir, "-c", "listen_addresses=", "-c", "fsync=off", "-c",
		"max_connections=200"}
	for _, setting := range s.settings {
		args = append(args, "-c", setting) // of two the later one counts
	}
	s.cmd = s.command("postgres", args...)
	s.cmd.Stdout, s.cmd.Stderr = &s.log, &s.log
	if err := s.cmd.Start(); err != nil {
		return fmt.Errorf("pgtest: %w", err)
	}
	exited := make(chan error, 1)
	s.exited = exited
	go func(cmd *exec.Cmd) { exited <- cmd.Wait() }(s.cmd)
	for range 600 {
		if s.command("pg_isready", "--quiet", "--host", s.dir).Run() == nil {
			return nil
		}
		select {
		case err := <-exited:
			s.cmd = nil // nothing is left to stop
			return fmt.Errorf("pgtest: the server does not start: %w\n%s", err, s.log.String())
		case <-wall.After(50 * time.Millisecond):
		}
	}
	return errors.Join(errors.New("pgtest: the server does not answer"), s.Crash())
}

// Down stops the server. Its clients are cut off.
func (s *Server) Down() error { return s.stop(syscall.SIGINT) }

// Crash kills the server as a loss of its machine would.
func (s *Server) Crash() error { return s.stop(syscall.SIGQUIT) }

func (s *Server) stop(sig syscall.Signal) error {
	if s.cmd == nil {
		return nil
	}
	err := s.cmd.Process.Signal(sig)
	<-s.exited
	s.cmd = nil
	return err
}

// Close stops the server and removes it.
func (s *Server) Close() error { return errors.Join(s.Crash(), os.RemoveAll(s.dir)) }
