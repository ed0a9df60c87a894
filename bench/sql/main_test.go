package main

import (
	"bytes"
	"errors"
	"os"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/ojsengine/ojs/bench/internal/report"
	"github.com/ojsengine/ojs/internal/test/pgtest"
)

func TestMain(m *testing.M) {
	workIfTold()
	os.Exit(m.Run())
}

// Processes that share a backlog run every job once.
func TestProcesses(t *testing.T) {
	on := serverOrSkip(t)
	cfg := small(t)
	cfg.processes = []int{1, 3}
	r := &report.Report{}
	err := errors.Join(sharedOnPostgres(t.Context(), cfg, r, on), sharedOnSQLite(t.Context(), cfg, r))
	if err != nil {
		t.Fatal(err)
	}
	expect(t, r, 6, "goqite", "river", "ojs")
	for _, bad := range []string{"", "0", "1,x"} {
		if _, err := processCounts(bad); err == nil {
			t.Errorf("%q is no list of processes", bad)
		}
	}
}

// small is a config that runs everything, once.
func small(tb testing.TB) config {
	return config{
		jobs: 40, sqliteJobs: 40, rounds: 1, batch: 10, producers: 3, workers: 5, conns: 8,
		sync: []synchronous{full, normal}, dir: tb.TempDir(), only: regexp.MustCompile(""),
		timeout: time.Minute,
	}
}

func TestSQLite(t *testing.T) {
	cfg := small(t)
	r := &report.Report{}
	if err := sqliteSections(t.Context(), cfg, r); err != nil {
		t.Fatal(err)
	}
	expect(t, r, 4, "goqite", "backlite")
}

func TestPostgres(t *testing.T) {
	on := serverOrSkip(t)
	r := &report.Report{}
	if err := postgresSections(t.Context(), small(t), r, on); err != nil {
		t.Fatal(err)
	}
	expect(t, r, 2, "river", "river InsertManyFast", "river, default fetch")
}

// Finished jobs that were there before stay there.
func TestFinished(t *testing.T) {
	on := serverOrSkip(t)
	cfg := small(t)
	cfg.finished = 30
	r := &report.Report{}
	if err := postgresSections(t.Context(), cfg, r, on); err != nil {
		t.Fatal(err)
	}
	expect(t, r, 2, "40 jobs behind 30 finished", "ojs", "river", "river InsertManyFast")
}

// The latency is that of each contender that enqueues single jobs.
func TestLatency(t *testing.T) {
	on := serverOrSkip(t)
	cfg := small(t)
	cfg.samples = 3
	r := &report.Report{}
	if err := postgresSections(t.Context(), cfg, r, on); err != nil {
		t.Fatal(err)
	}
	expect(t, r, 1, "latency of 3 jobs", "ojs", "river", "river, default fetch")
	for _, row := range r.Sections[0].Rows {
		if p := row.Rounds[0]; p[0] <= 0 || p[1] < p[0] {
			t.Errorf("%s: %v", row.Name, p)
		}
	}
}

// expect checks that a report has so many sections, names contenders, and has no failure.
func expect(t *testing.T, r *report.Report, sections int, names ...string) {
	t.Helper()
	var text bytes.Buffer
	if err := errors.Join(r.Write(&text, false), r.Err()); err != nil {
		t.Fatal(err)
	}
	if len(r.Sections) != sections {
		t.Errorf("%d sections", len(r.Sections))
	}
	for _, name := range names {
		if !strings.Contains(text.String(), name) {
			t.Errorf("no %q in\n%s", name, text.String())
		}
	}
}

func serverOrSkip(tb testing.TB) *server {
	s, err := startServer("")
	if errors.Is(err, pgtest.ErrNotInstalled) {
		tb.Skip(err)
	}
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() {
		if err := s.Close(); err != nil {
			tb.Error(err)
		}
	})
	return s
}

// BenchmarkPostgres is what the program measures, for benchstat: 16 producers, job by
// job.
func BenchmarkPostgres(b *testing.B) {
	dsn := serverOrSkip(b).dsn
	for _, newContender := range onPostgres {
		b.Run(newContender(nil, 1).Name(), func(b *testing.B) {
			pool, remove, err := database(b.Context(), dsn, 32)
			if err != nil {
				b.Fatal(err)
			}
			defer func() {
				if err := remove(); err != nil {
					b.Error(err)
				}
			}()
			benchmark(b, newContender(pool, 100))
		})
	}
}

// BenchmarkSQLite is what the program measures, for benchstat: 16 producers, job by job,
// synchronous=FULL.
func BenchmarkSQLite(b *testing.B) {
	for _, newContender := range onSQLite {
		b.Run(newContender("", full, 1).Name(), func(b *testing.B) {
			benchmark(b, newContender(b.TempDir()+"/jobs.db", full, 100))
		})
	}
}

func benchmark(b *testing.B, c Contender) {
	took, _, err := endToEnd(b.Context(), c, 0, b.N, mode{producers: 16, batch: 1}, meter{})
	if errors.Is(err, errors.ErrUnsupported) {
		b.Skip("it has no enqueue of its own for single jobs")
	}
	if err != nil {
		b.Fatal(err)
	}
	b.ReportMetric(float64(took.Nanoseconds())/float64(b.N), "ns/op")
}
