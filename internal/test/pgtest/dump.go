package pgtest

import (
	"bytes"
	"fmt"
)

// CopyTo copies a schema to another server by pg_dump and psql, as a backup is restored.
func (s *Server) CopyTo(other *Server, schema string) error {
	dump := s.command("pg_dump", "--host", s.dir, "--username", "postgres", "--schema", schema, "postgres")
	text, err := dump.Output()
	if err != nil {
		return fmt.Errorf("pgtest: pg_dump: %w", err)
	}
	load := other.command("psql", "--no-psqlrc", "--quiet", "--set", "ON_ERROR_STOP=1", "--host", other.dir,
		"--username", "postgres", "postgres")
	load.Stdin = bytes.NewReader(text)
	if out, err := load.CombinedOutput(); err != nil {
		return fmt.Errorf("pgtest: psql: %w\n%s", err, out)
	}
	return nil
}
