// Command inmemory compares this engine on its memory storage with channels, pools and
// queues that keep jobs in the process: jobs per second and what they allocate, how long
// a job waits in an idle system, and what one that waits costs.
//
// Contenders take turns in every round, so that other work of the machine hits all of
// them alike, each turn in a process of its own, and the medians of the rounds are
// printed.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/ojsengine/ojs/bench/internal/report"
)

// config is what the flags say.
type config struct {
	jobs, rounds, samples, waiting int
	producers, workers             []int
	only                           *regexp.Regexp
	timeout                        time.Duration // of one contender in one round
}

func main() {
	if err := mainErr(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func mainErr() error {
	if took, err := takeTurn(); took {
		return err
	}
	c := config{producers: []int{1, 4}, workers: []int{2, 8, 100}, only: regexp.MustCompile("")}
	flag.IntVar(&c.jobs, "jobs", 200_000, "jobs of a round")
	flag.IntVar(&c.rounds, "rounds", 5, "rounds")
	flag.IntVar(&c.samples, "samples", 2000, "samples of the latency in a round; 0: do not measure it")
	flag.IntVar(&c.waiting, "waiting", 100_000, "waiting jobs to measure the memory of; 0: do not measure it")
	flag.DurationVar(&c.timeout, "timeout", 2*time.Minute,
		"after how long a contender that has not finished a round counts as failed")
	flag.Func("producers", "numbers of goroutines that enqueue (default 1,4)", numbers(&c.producers))
	flag.Func("workers", "numbers of jobs that run at once (default 2,8,100)", numbers(&c.workers))
	flag.Func("only", "regular expression of the contenders to measure", func(s string) (err error) {
		c.only, err = regexp.Compile(s)
		return err
	})
	asJSON := flag.Bool("json", false, "print every round as JSON")
	flag.Parse()
	if flag.NArg() > 0 || c.jobs < 1 || c.rounds < 1 || c.samples < 0 || c.waiting < 0 {
		flag.Usage()
		return fmt.Errorf("these arguments make no sense: %q", os.Args[1:])
	}
	return report.Print(*asJSON, func(ctx context.Context) (*report.Report, error) { return measure(ctx, c) })
}

// numbers parses a flag such as 1,4.
func numbers(dst *[]int) func(string) error {
	return func(s string) error {
		*dst = nil
		for field := range strings.SplitSeq(s, ",") {
			n, err := strconv.Atoi(field)
			if err != nil {
				return err
			}
			if n < 1 {
				return fmt.Errorf("%d is not positive", n)
			}
			*dst = append(*dst, n)
		}
		return nil
	}
}
