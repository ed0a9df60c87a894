// Command sql compares durable job engines end to end, from the first enqueue until the
// last job is stored as completed: on PostgreSQL and on SQLite.
//
// Contenders take turns in every round, so that other load of the machine affects all of
// them alike. Each turn has a new database. The command prints the medians of the rounds.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"regexp"
	"time"

	"github.com/ojsengine/ojs/bench/internal/report"
)

// config is what the flags say.
type config struct {
	on                       string // "postgres", "sqlite" or "" for both
	jobs, sqliteJobs         int
	rounds, batch, producers int
	workers, conns           int
	sync                     []synchronous
	dir                      string
	only                     *regexp.Regexp
	timeout                  time.Duration // of one contender in one round
	old                      bool          // a transaction is open throughout each round on PostgreSQL
	finished                 int           // jobs in the tables before the first enqueue on PostgreSQL
	samples                  int           // of the latency in a round; 0: throughput is measured
	processes                []int         // that share a backlog; none: one process that is fed meanwhile
}

func main() {
	workIfTold()
	if err := mainErr(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func mainErr() error {
	c := config{sync: []synchronous{full, normal}, only: regexp.MustCompile("")}
	flag.StringVar(&c.on, "on", "", "postgres or sqlite (default both)")
	flag.IntVar(&c.jobs, "jobs", 20_000, "jobs of a round on PostgreSQL")
	flag.IntVar(&c.sqliteJobs, "sqlite-jobs", 5000, "jobs of a round on SQLite")
	flag.IntVar(&c.rounds, "rounds", 5, "rounds")
	flag.IntVar(&c.batch, "batch", 1000, "jobs of one enqueue, where one producer enqueues batches")
	flag.IntVar(&c.producers, "producers", 16, "producers, where several enqueue job by job")
	flag.IntVar(&c.workers, "workers", 100, "jobs that run at once")
	flag.IntVar(&c.conns, "conns", 32, "connections of a contender's pool on PostgreSQL")
	flag.StringVar(&c.dir, "dir", "",
		"where to put the files of the databases (default the system's directory for temporary files)")
	flag.DurationVar(&c.timeout, "timeout", 2*time.Minute,
		"after how long a contender that has not finished a round counts as failed")
	flag.Func("sync", "SQLite's synchronous: full or normal (default both)", func(s string) error {
		switch s {
		case "full":
			c.sync = []synchronous{full}
		case "normal":
			c.sync = []synchronous{normal}
		default:
			return errors.New("neither full nor normal")
		}
		return nil
	})
	flag.BoolVar(&c.old, "old-transaction", false,
		"keep a transaction open in each round on PostgreSQL, so that no dead row is removed")
	flag.IntVar(&c.finished, "finished", 0,
		"finished jobs in the tables of each contender on PostgreSQL before the first enqueue, which it keeps")
	flag.IntVar(&c.samples, "latency", 0,
		"jobs of a round, one at a time, whose latency is measured on PostgreSQL, and not throughput")
	flag.Func("only", "regular expression of the contenders to measure", func(s string) (err error) {
		c.only, err = regexp.Compile(s)
		return err
	})
	flag.Func("processes", "numbers of processes, such as 1,2,4, that work off a backlog that they share (default: one process, which is fed meanwhile)", func(s string) (err error) {
		c.processes, err = processCounts(s)
		return err
	})
	asJSON := flag.Bool("json", false, "print every round as JSON")
	flag.Parse()
	if flag.NArg() > 0 || min(c.jobs, c.sqliteJobs, c.rounds, c.batch, c.producers, c.workers, c.conns) < 1 ||
		min(c.finished, c.samples) < 0 || c.on != "" && c.on != "postgres" && c.on != "sqlite" {
		flag.Usage()
		return fmt.Errorf("these arguments make no sense: %q", os.Args[1:])
	}
	return report.Print(*asJSON, func(ctx context.Context) (*report.Report, error) { return measure(ctx, c) })
}
