package pgtest

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"time"
)

// ErrNoPooler says that the machine has no PgBouncer.
var ErrNoPooler = errors.New("pgtest: pgbouncer is not installed")

// Pooler is a PgBouncer before a server, which lends a connection of the server for one
// transaction at a time.
type Pooler struct {
	dir    string
	cmd    *exec.Cmd
	log    bytes.Buffer
	exited chan error
}

// StartPooler starts a pooler before the server, with that many connections to it, and
// waits until it listens.
func (s *Server) StartPooler(size int) (*Pooler, error) {
	bin, err := exec.LookPath("pgbouncer")
	if err != nil { // Debian's place, which is not in every PATH
		if bin = "/usr/sbin/pgbouncer"; !exists(bin) {
			return nil, ErrNoPooler
		}
	}
	p := &Pooler{exited: make(chan error, 1)}
	if p.dir, err = os.MkdirTemp("", "pooler"); err != nil {
		return nil, err
	}
	if err := p.start(s, bin, size); err != nil {
		return nil, errors.Join(err, os.RemoveAll(p.dir))
	}
	return p, nil
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

func (p *Pooler) start(s *Server, bin string, size int) error {
	config := filepath.Join(p.dir, "pgbouncer.ini")
	err := os.WriteFile(config, fmt.Appendf(nil, `[databases]
postgres = host=%s user=postgres
[pgbouncer]
listen_addr =
unix_socket_dir = %s
auth_type = any
pool_mode = transaction
default_pool_size = %d
max_client_conn = 1000
`, s.dir, p.dir, size), 0o644)
	if err != nil {
		return err
	}
	if s.as != nil { // it refuses to run as root, too
		if err := os.Chown(p.dir, int(s.as.Uid), int(s.as.Gid)); err != nil {
			return err
		}
	}
	p.cmd = exec.Command(bin, config)
	p.cmd.Dir = p.dir
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Credential: s.as, Pdeathsig: syscall.SIGQUIT}
	p.cmd.Stdout, p.cmd.Stderr = &p.log, &p.log
	if err := p.cmd.Start(); err != nil {
		return fmt.Errorf("pgtest: %w", err)
	}
	go func() { p.exited <- p.cmd.Wait() }()
	for range 200 {
		if exists(filepath.Join(p.dir, ".s.PGSQL.6432")) {
			return nil
		}
		select {
		case err := <-p.exited:
			return fmt.Errorf("pgtest: the pooler does not start: %w\n%s", err, p.log.String())
		case <-wall.After(50 * time.Millisecond):
		}
	}
	return errors.Join(errors.New("pgtest: the pooler does not listen"), p.kill())
}

// DSN is how to connect through the pooler. It keeps no prepared statements.
func (p *Pooler) DSN() string {
	return "host=" + p.dir + " port=6432 user=postgres dbname=postgres"
}

func (p *Pooler) kill() error {
	select {
	case err := <-p.exited:
		return fmt.Errorf("pgtest: the pooler has ended before: %w\n%s", err, p.log.String())
	default:
	}
	err := p.cmd.Process.Signal(syscall.SIGQUIT)
	<-p.exited
	return err
}

// Log is what the pooler has said. Ask when it is closed.
func (p *Pooler) Log() string { return p.log.String() }

// Close stops the pooler and cuts its clients off.
func (p *Pooler) Close() error { return errors.Join(p.kill(), os.RemoveAll(p.dir)) }
