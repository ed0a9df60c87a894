package main

import (
	"os"
	"runtime"

	"github.com/benbjohnson/clock"

	"github.com/ojsengine/ojs/internal/test/pgtest"
)

// wall is the clock on the wall, which benchmarks go by.
var wall = clock.New()

// server is a PostgreSQL to measure on.
type server struct {
	dsn     string
	private *pgtest.Server // nil: the server of OJS_TEST_POSTGRES
}

// startServer takes the server that OJS_TEST_POSTGRES names, or starts one beneath dir
// ("": the system's directory for temporary files) that waits for the disk with each
// commit, as servers do and those of tests do not.
func startServer(dir string) (*server, error) {
	if dsn := os.Getenv("OJS_TEST_POSTGRES"); dsn != "" {
		return &server{dsn: dsn}, nil
	}
	s, err := pgtest.StartIn(dir, "fsync=on")
	if err != nil {
		return nil, err
	}
	return &server{s.DSN(), s}, nil
}

// meter measures the server, if the system tells the time of its processes.
func (s *server) meter() meter {
	if s.private == nil || runtime.GOOS != "linux" {
		return meter{dsn: s.dsn}
	}
	return meter{s.dsn, s.private.PID()}
}

// Close stops a server that startServer has started, and removes it.
func (s *server) Close() error {
	if s.private == nil {
		return nil
	}
	return s.private.Close()
}
