package simulation

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/benbjohnson/clock"

	"github.com/ojsengine/ojs/storage"
	"github.com/ojsengine/ojs/storage/memory"
)

// Config is what a run needs beside its seed.
type Config struct {
	// Open opens an empty storage, on which the engines of a run work together. nil: the
	// memory storage.
	Open func() storage.Storage
}

// wall is the system's clock, which is the bubble's inside of one.
var wall = clock.New()

// Run runs the program of a seed in a testing/synctest bubble of its own, and fails the
// test with the history of the job that broke an invariant.
func Run(t *testing.T, seed uint64, cfg Config) {
	t.Helper()
	if w := simulate(t, seed, cfg); len(w.violations) > 0 {
		t.Error(w.report())
	}
}

// simulate is Run, but leaves it to the caller to look at the violations.
func simulate(t *testing.T, seed uint64, cfg Config) (w *world) {
	t.Helper()
	hangs := wall.AfterFunc(patience,
		func() { panic(fmt.Sprintf("simulation: seed %d hangs, or spins without time passing", seed)) })
	defer hangs.Stop()
	synctest.Test(t, func(t *testing.T) {
		w = newWorld(t, seed, cfg)
		w.play()
	})
	return w
}

// patience is how long, in real time, one seed may take.
const patience = 2 * time.Minute

// world is one run of the simulation.
type world struct {
	t      *testing.T
	seed   uint64
	start  time.Time
	prog   *program
	ledger *ledger
	offset atomic.Int64    // of the engines' clock from the wall's, in ns
	over   chan struct{}   // closed at the end: everything that waits stops waiting
	busy   sync.WaitGroup  // goroutines of the program
	ctx    context.Context // of its calls; it ends with over
	looks  int             // of the driver

	// The driver's goroutine only.
	nodes  []*node
	remote int // remote workers that have been started

	mu         sync.Mutex // guards the fields below
	history    []entry
	violations []violation
	disturbed  time.Time // from when on the latest fault has no effect
	calm       bool      // the injection of faults has ended
	attempts   []*attempt
	waits      []*wait
	faults     int
	numbers    int           // drawn by number
	fetching   map[*node]int // remote workers that wait for a job
}

// entry is a line of the history.
type entry struct {
	at   time.Duration
	node string
	job  string // its id, "queue " and a queue's name, or "fault"; "": the line is about an engine
	what string
}

// violation is an invariant that does not hold.
type violation struct {
	number int
	job    string
	what   string
}

// maxViolations bounds how many are collected: the first tells most.
const maxViolations = 20

func newWorld(t *testing.T, seed uint64, cfg Config) *world {
	w := &world{t: t, seed: seed, start: wall.Now(), over: make(chan struct{}),
		fetching: make(map[*node]int)}
	w.prog = newProgram(seed)
	if w.prog.ahead {
		w.offset.Store(int64(today))
	}
	var inner storage.Storage
	if cfg.Open != nil {
		inner = cfg.Open()
	} else {
		inner = memory.New()
	}
	w.ledger = newLedger(w, inner)
	return w
}

// today is from the year 2000, in which a bubble begins, to after the birth of the
// program: engines claim nothing ahead before.
const today = 100 * 365 * 24 * time.Hour

// stream is a source of random numbers that nothing else of the seed shares.
func stream(seed uint64, name string, n int) *rand.Rand {
	h := uint64(14695981039346656037)
	for _, b := range []byte(name) {
		h = (h ^ uint64(b)) * 1099511628211
	}
	return rand.New(rand.NewPCG(seed, h+uint64(n)*0x9e3779b97f4a7c15))
}

// now is the time by the clock of the engines.
func (w *world) now() time.Time { return wall.Now().Add(time.Duration(w.offset.Load())) }

func (w *world) elapsed() time.Duration { return wall.Now().Sub(w.start) }

// note writes a line of the history.
func (w *world) note(node, job, format string, args ...any) {
	e := entry{w.elapsed(), node, job, fmt.Sprintf(format, args...)}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.history = append(w.history, e)
}

// broken notes that an invariant does not hold.
func (w *world) broken(number int, job, format string, args ...any) {
	what := fmt.Sprintf(format, args...)
	w.note("", job, "INVARIANT %d (%s): %s", number, invariants[number], what)
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.violations) < maxViolations {
		w.violations = append(w.violations, violation{number, job, what})
	}
}

func (w *world) failed() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.violations) > 0
}

// disturb notes that what a fault does may last for d.
func (w *world) disturb(d time.Duration) {
	until := wall.Now().Add(d)
	w.mu.Lock()
	defer w.mu.Unlock()
	w.faults++
	if until.After(w.disturbed) {
		w.disturbed = until
	}
}

// recovery is how long after a failed call an engine may be late. The longest backoff
// between two calls of a storage is 30 s.
const recovery = 45 * time.Second

// undisturbed reports whether everything has to happen in time.
func (w *world) undisturbed() bool {
	now := wall.Now()
	w.mu.Lock()
	defer w.mu.Unlock()
	return !w.prog.jumps && (w.disturbed.IsZero() || now.After(w.disturbed))
}

var errOver = errors.New("simulation: it is over")

// sleep waits for d, unless ctx or the world ends before.
func (w *world) sleep(ctx context.Context, d time.Duration) error {
	t := wall.Timer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-w.over:
		return errOver
	}
}

// sleepThrough waits for d, even if the context of the handler ends.
func (w *world) sleepThrough(d time.Duration, until ...<-chan struct{}) {
	t := wall.Timer(d)
	defer t.Stop()
	var gone <-chan struct{}
	if len(until) > 0 {
		gone = until[0]
	}
	select {
	case <-t.C:
	case <-gone:
	case <-w.over:
	}
}

// report tells of the first invariant that was broken, with what is known of its job.
func (w *world) report() string {
	var b strings.Builder
	first := w.violations[0]
	fmt.Fprintf(&b, "seed %d: invariant %d (%s) is broken: %s\n",
		w.seed, first.number, invariants[first.number], first.what)
	said := map[int]bool{first.number: true}
	for _, v := range w.violations[1:] {
		if !said[v.number] {
			said[v.number] = true
			fmt.Fprintf(&b, "then: invariant %d (%s): job %s: %s\n",
				v.number, invariants[v.number], v.job, v.what)
		}
	}
	fmt.Fprintf(&b, "%s\n", w.prog)
	for _, job := range append([]string{first.job}, w.others(first)...) {
		fmt.Fprintf(&b, "the history of job %s:\n", job)
		for _, e := range w.concerning(job) {
			fmt.Fprintf(&b, "  %16v  %-4s %s\n", e.at, e.node, e.what)
		}
	}
	return b.String()
}

// others are the jobs, beside its own, that a violation names.
func (w *world) others(v violation) (ids []string) {
	for _, j := range w.ledger.order {
		if id := j.rec.ID; id != v.job && strings.Contains(v.what, id) {
			ids = append(ids, id)
		}
	}
	return ids
}

// near is how long before something happens to a job the faults of its engines are of
// interest.
const near = time.Second

// most is how many lines of the history are printed: the last ones.
const most = 120

// concerning selects from the history what explains a job: its own lines, the lives of
// the engines, and the faults around its lines.
func (w *world) concerning(job string) (lines []entry) {
	var own []time.Duration
	queue := ""
	for _, e := range w.history {
		if e.job == job && job != "" {
			own = append(own, e.at)
		}
	}
	if j := w.ledger.jobs[job]; j != nil {
		queue = j.rec.Queue
	}
	for _, e := range w.history {
		switch e.job {
		case job:
		case "": // of an engine
			if len(own) > 0 && e.at > own[len(own)-1] {
				continue
			}
		case "queue " + queue:
		case "fault":
			explains := func(at time.Duration) bool { return e.at <= at && at-e.at < near }
			if !slices.ContainsFunc(own, explains) {
				continue
			}
		default:
			continue
		}
		lines = append(lines, e)
	}
	return lines[max(0, len(lines)-most):]
}
