package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"strconv"
	"syscall"
	"time"

	"github.com/benbjohnson/clock"
)

// wall is the clock on the wall, which benchmarks go by.
var wall = clock.New()

// errNoServer says why nothing can be measured on PostgreSQL.
var errNoServer = errors.New("no PostgreSQL server: OJS_TEST_POSTGRES names none, and there is no /usr/lib/postgresql/*/bin/postgres")

// server is a private PostgreSQL in a temporary directory, on a socket there, with the settings that it comes with: a commit
// is on the disk. That is why it is not the one of the tests, which saves the time.
type server struct {
	dsn    string
	dir    string // "": somebody else's server
	cmd    *exec.Cmd
	log    bytes.Buffer
	exited chan error
}

// startServer takes the server that OJS_TEST_POSTGRES names, or starts one beneath dir ("": the system's directory for
// temporary files).
func startServer(ctx context.Context, dir string) (*server, error) {
	if dsn := os.Getenv("OJS_TEST_POSTGRES"); dsn != "" {
		return &server{dsn: dsn}, nil
	}
	found, err := filepath.Glob("/usr/lib/postgresql/*/bin/postgres")
	if err != nil || len(found) == 0 {
		return nil, errNoServer
	}
	bin := filepath.Dir(found[len(found)-1])
	s := &server{exited: make(chan error, 1)}
	if s.dir, err = os.MkdirTemp(dir, "pg"); err != nil { // short: the path of a socket has to be
		return nil, err
	}
	if err := s.start(ctx, bin); err != nil {
		return nil, errors.Join(err, s.Close())
	}
	return s, nil
}

func (s *server) start(ctx context.Context, bin string) error {
	attr := &syscall.SysProcAttr{Pdeathsig: syscall.SIGQUIT}
	if os.Getuid() == 0 { // the server refuses to run as root
		as, err := account()
		if err != nil {
			return err
		}
		if err := os.Chown(s.dir, int(as.Uid), int(as.Gid)); err != nil {
			return err
		}
		attr.Credential = as
	}
	command := func(name string, args ...string) *exec.Cmd {
		cmd := exec.Command(filepath.Join(bin, name), args...)
		cmd.Dir, cmd.SysProcAttr = s.dir, attr
		return cmd
	}
	data := filepath.Join(s.dir, "data")
	if out, err := command("initdb", "--pgdata", data, "--username", "postgres", "--auth", "trust", "--encoding", "UTF8", "--locale", "C").CombinedOutput(); err != nil {
		return fmt.Errorf("initdb: %w\n%s", err, out)
	}
	s.cmd = command("postgres", "-D", data, "-k", s.dir, "-c", "listen_addresses=")
	s.cmd.Stdout, s.cmd.Stderr = &s.log, &s.log
	if err := s.cmd.Start(); err != nil {
		s.cmd = nil
		return err
	}
	go func() { s.exited <- s.cmd.Wait() }()
	s.dsn = "host=" + s.dir + " user=postgres dbname=postgres"
	for range 600 {
		if command("pg_isready", "--quiet", "--host", s.dir).Run() == nil {
			return nil
		}
		select {
		case err := <-s.exited:
			s.cmd = nil
			return fmt.Errorf("postgres has ended: %w\n%s", err, s.log.String())
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-wall.After(50 * time.Millisecond):
		}
	}
	return errors.New("postgres does not answer")
}

// account is whom the server may run as when root has started this program.
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
	return nil, errors.New("running as root, and there is no other user to run a server as")
}

// Close stops a server that startServer has started, and removes it.
func (s *server) Close() error {
	if s.dir == "" {
		return nil
	}
	if s.cmd != nil {
		if err := s.cmd.Process.Signal(syscall.SIGINT); err != nil { // cut the clients off and end in order
			return err
		}
		<-s.exited
	}
	return os.RemoveAll(s.dir)
}
