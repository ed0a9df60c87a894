package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/ojsengine/ojs/bench/internal/load"
	"github.com/ojsengine/ojs/bench/internal/report"
)

// TestMain lets the test's program take turns as the real one does.
func TestMain(m *testing.M) {
	took, err := takeTurn()
	switch {
	case err != nil:
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	case !took:
		os.Exit(m.Run())
	}
}

// Every contender runs each job once, with the args it was given: otherwise its numbers
// would mean nothing.
func TestContenders(t *testing.T) {
	const jobs = 1000
	for _, c := range contenders {
		if !c.runs() {
			continue
		}
		t.Run(c.name, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
			defer cancel()
			var mu sync.Mutex
			seen := make(map[load.Args]int)
			left := load.NewCountdown(jobs)
			s, err := c.start(4, func(a load.Args) {
				mu.Lock()
				seen[a]++
				mu.Unlock()
				left.Done()
			})
			if err != nil {
				t.Fatal(err)
			}
			if err := run(ctx, s, left, jobs, 3, c.batch); err != nil {
				t.Fatal(err)
			}
			if err := s.close(); err != nil {
				t.Fatal(err)
			}
			for id := range jobs {
				if n := seen[load.Job(id)]; n != 1 {
					t.Errorf("job %d ran %d times", id, n)
				}
			}
		})
	}
}

func TestMeasure(t *testing.T) {
	r, err := measure(t.Context(), config{
		jobs: 300, rounds: 1, samples: 5, waiting: 300,
		producers: []int{2}, workers: []int{3}, only: regexp.MustCompile("^(channel|ojs.*)$"),
		timeout: 30 * time.Second,
	})
	if err != nil {
		t.Fatal(err)
	}
	var text bytes.Buffer
	if err := errors.Join(r.Write(&text, false), r.Err()); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"jobs/s", "p99", "bytes/job", "ojs EnqueueMany(100)", "ojs scheduled"} {
		if !strings.Contains(text.String(), want) {
			t.Errorf("no %q in\n%s", want, text.String())
		}
	}
}

// A contender that takes too long is reported, and does not keep the others from being
// measured.
func TestTimeout(t *testing.T) {
	// a process takes longer to start
	cfg := config{rounds: 2, only: regexp.MustCompile(""), timeout: time.Millisecond}
	s := &report.Section{}
	if err := rounds(t.Context(), cfg, s, contender.inLatency,
		turn{Measure: ofLatency, Jobs: 1000, Workers: 1}); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"channel", ours} {
		if !s.Failed(name) {
			t.Errorf("%s has not failed", name)
		}
	}
}

func TestBadTurns(t *testing.T) {
	for _, bad := range []turn{{Measure: ofLatency, Contender: "nobody"},
		{Measure: "luck", Contender: ours}} {
		if _, err := bad.delegate(t.Context()); err == nil || !strings.Contains(err.Error(), "there is no") {
			t.Errorf("%+v: %v", bad, err)
		}
	}
}

func TestNumbers(t *testing.T) {
	var got []int
	if err := numbers(&got)("1,4"); err != nil || len(got) != 2 || got[1] != 4 {
		t.Errorf("got %v, %v", got, err)
	}
	for _, bad := range []string{"", "0", "x", "1,"} {
		if err := numbers(&got)(bad); err == nil {
			t.Errorf("%q is accepted", bad)
		}
	}
}

// BenchmarkThroughput is what the program measures, for benchstat: one producer, 8
// workers.
func BenchmarkThroughput(b *testing.B) {
	for _, c := range contenders {
		if !c.runs() {
			continue
		}
		b.Run(c.name, func(b *testing.B) {
			b.ReportAllocs()
			left := load.NewCountdown(b.N)
			s, err := c.start(8, func(load.Args) { left.Done() })
			if err != nil {
				b.Fatal(err)
			}
			b.ResetTimer()
			if err := run(b.Context(), s, left, b.N, 1, c.batch); err != nil {
				b.Fatal(err)
			}
			b.StopTimer()
			if err := s.close(); err != nil {
				b.Fatal(err)
			}
		})
	}
}
