// Command scale measures what may not grow: the cost of a call on the memory storage with
// a thousand and with a million jobs in it, of an engine with a million scheduled jobs
// that has nothing to do, of timers beside those of package time, and of a unique enqueue
// beside a plain one.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"runtime"
	"runtime/debug"
	"time"

	"github.com/benbjohnson/clock"

	"github.com/ojsengine/ojs/bench/internal/report"
)

// wall is the clock on the wall, which benchmarks go by.
var wall = clock.New()

// config is what the flags say.
type config struct {
	rounds      int
	few, many   int           // jobs stored
	calls       int           // of each kind, in a round
	perSecond   int           // jobs that come due
	dueFor      time.Duration // for how long
	idleFor     time.Duration
	sections    string // the first letters of those to run
	activeShare int    // of many, active at once: one in so many
}

func main() {
	if err := mainErr(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func mainErr() error {
	c := config{activeShare: 2}
	flag.IntVar(&c.rounds, "rounds", 3, "rounds")
	flag.IntVar(&c.few, "few", 1000, "jobs stored in the small storage")
	flag.IntVar(&c.many, "many", 1_000_000, "jobs stored in the large one")
	flag.IntVar(&c.calls, "calls", 20_000, "calls of each kind in a round")
	flag.IntVar(&c.perSecond, "due", 20_000, "jobs that come due in a second")
	flag.DurationVar(&c.dueFor, "for", 3*time.Second, "for how long they do")
	flag.DurationVar(&c.idleFor, "idle", 5*time.Second, "how long an idle engine is watched")
	flag.StringVar(&c.sections, "sections", "fitu",
		"what to measure: flat costs, the idle million, timers, unique jobs")
	asJSON := flag.Bool("json", false, "print every round as JSON")
	flag.Parse()
	if flag.NArg() > 0 || c.rounds < 1 || c.few < 1 || c.many < c.few || c.calls < 1 || c.perSecond < 1 {
		flag.Usage()
		return fmt.Errorf("these arguments make no sense: %q", os.Args[1:])
	}
	return report.Print(*asJSON, func(ctx context.Context) (*report.Report, error) { return measure(ctx, c) })
}

// measure takes the measurements that the config asks for.
func measure(ctx context.Context, c config) (*report.Report, error) {
	r := &report.Report{Machine: report.ThisMachine()}
	for _, section := range c.sections {
		var err error
		switch section {
		case 'f':
			err = flat(ctx, c, r)
		case 'i':
			err = idle(ctx, c, r)
		case 't':
			err = timers(ctx, c, r)
		case 'u':
			err = unique(ctx, c, r)
		default:
			err = fmt.Errorf("there is no section %q", section)
		}
		if err != nil {
			return nil, err
		}
		debug.FreeOSMemory()
	}
	return r, nil
}

// each returns the nanoseconds that a call of f takes, and what it allocates.
func each(calls int, f func(i int) error) (ns, allocs, bytes float64, err error) {
	runtime.GC()
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	start := wall.Now()
	for i := range calls {
		if err := f(i); err != nil {
			return 0, 0, 0, err
		}
	}
	took := wall.Since(start)
	runtime.ReadMemStats(&after)
	n := float64(calls)
	return float64(took.Nanoseconds()) / n, float64(after.Mallocs-before.Mallocs) / n,
		float64(after.TotalAlloc-before.TotalAlloc) / n, nil
}

// heap returns how many bytes are in use.
func heap() uint64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc + m.StackInuse
}
