package pgtest

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"
)

// Standby starts a server that replicates s by streaming, and waits until s counts on it:
// from then on a commit of s returns when the standby has applied it.
func (s *Server) Standby() (*Server, error) {
	b := &Server{bin: s.bin, settings: s.settings}
	var err error
	if b.dir, err = os.MkdirTemp(filepath.Dir(s.dir), "pgtest"); err != nil {
		return nil, err
	}
	if err := b.follow(s); err != nil {
		return nil, errors.Join(err, b.Crash(), os.RemoveAll(b.dir))
	}
	return b, nil
}

func (s *Server) follow(primary *Server) error {
	if err := s.own(); err != nil {
		return err
	}
	copied := s.command("pg_basebackup", "--pgdata", s.data(), "--host", primary.dir,
		"--username", "postgres", "--write-recovery-conf", "--checkpoint", "fast", "--no-sync")
	if out, err := copied.CombinedOutput(); err != nil {
		return fmt.Errorf("pgtest: pg_basebackup: %w\n%s", err, out)
	}
	if err := s.Up(); err != nil {
		return err
	}
	for _, setting := range []string{
		"ALTER SYSTEM SET synchronous_standby_names = '*'",
		"ALTER SYSTEM SET synchronous_commit = remote_apply",
		"SELECT pg_reload_conf()",
	} {
		if _, err := primary.psql(setting); err != nil {
			return err
		}
	}
	for range 600 {
		state, err := primary.psql("SELECT count(*) FROM pg_stat_replication WHERE sync_state = 'sync'")
		if err != nil {
			return err
		}
		if state == "1" {
			return nil
		}
		<-wall.After(50 * time.Millisecond)
	}
	return errors.New("pgtest: the standby does not stream")
}

// Promote makes a standby a server of its own, and waits until it takes changes.
func (s *Server) Promote() error {
	for _, statement := range []string{
		"ALTER SYSTEM RESET synchronous_standby_names", // should the copy have it, it waits for none
		"SELECT pg_reload_conf()",
		"SELECT pg_promote()",
	} {
		if _, err := s.psql(statement); err != nil {
			return err
		}
	}
	return nil
}
