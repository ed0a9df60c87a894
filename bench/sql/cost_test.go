package main

import (
	"regexp"
	"runtime"
	"testing"
	"time"

	"github.com/ojsengine/ojs/bench/internal/report"
)

// A round on a server of the program's own says what a job cost: the time of the
// server is part of the whole, and the log holds more than the args.
func TestCosts(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("the system tells no times of processes")
	}
	on := serverOrSkip(t)
	if on.private == nil {
		t.Skip("the server is another one's")
	}
	r := &report.Report{}
	cfg := config{
		jobs: 2000, rounds: 1, batch: 100, producers: 4, workers: 10, conns: 8,
		only: regexp.MustCompile("^ojs$"), timeout: time.Minute,
	}
	if err := postgresSections(t.Context(), cfg, r, on); err != nil {
		t.Fatal(err)
	}
	for _, s := range r.Sections {
		if len(s.Rows) != 1 || s.Rows[0].Error != "" || len(s.Rows[0].Rounds) != 1 || len(s.Metrics) != 4 {
			t.Fatalf("%+v", s)
		}
		v := s.Rows[0].Rounds[0]
		cpu, server, wal := v[1], v[2], v[3]
		if server < 20 || cpu < server+10 || cpu > 100_000 || wal < 500 || wal > 100_000 {
			t.Errorf("%s: %v µs, of the server %v µs, %v bytes", s.Title, cpu, server, wal)
		}
	}
}
