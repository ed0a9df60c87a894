// Package crashtest tests storages by killing processes that work on them.
//
// Workers and producers are processes of the test's own binary. Each writes down what it
// does, in a file of its own: an attempt before its handler goes on, a job when its
// enqueue has returned. The events in these files have happened, even if the process was
// killed. So the final content of the storage can be checked against them.
package crashtest

import (
	"context"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/benbjohnson/clock"

	"github.com/ojsengine/ojs/storage"
)

// Open opens the storage at a place, which a string describes: a path, or a connection
// and a schema. The function that it returns with the storage is called after the storage
// is closed.
type Open func(ctx context.Context, at string) (s storage.Storage, release func(), err error)

// Config is what to test.
type Config struct {
	Open      Open
	At        string // for the processes
	Direct    string // for the test itself, which looks at what they do; "": At
	Workers   int
	Producers int
	Both      int // processes that work and, until Disturb returns, produce

	// Disturb does something to what is between the processes and their jobs, and puts it
	// right again before it returns. Then no process is killed, and calls may fail. Nil:
	// processes are killed at random, and the calls of the others do not fail.
	Disturb func(ctx context.Context)

	// Faults is how many faults Disturb makes. If it is not 0, jobs have the default
	// lease, which is longer than a test: a job that a fault leaves active without a
	// holder has to come back in orphanTime after Disturb. No job loses more attempts
	// than there were faults. Enqueues pause, so that Disturb has the machine for itself.
	Faults int
}

const (
	defaultTime = 5 * time.Second
	killEvery   = 200 * time.Millisecond
	drainTime   = 3 * time.Minute // without an end; more than any backoff, on a busy machine
	lookEvery   = 50 * time.Millisecond
	orphanTime  = 5 * time.Second
	pauseTime   = 200 * time.Millisecond // of an enqueuer, with Faults
	calmTime    = time.Second            // for a database to finish the calls of a killed process
)

// wall is the clock on the wall: other processes go by it.
var wall = clock.New()

// Time is for how long processes are killed: what OJS_CRASH says, or 5 s.
func Time(tb testing.TB) time.Duration {
	s := os.Getenv("OJS_CRASH")
	if s == "" {
		return defaultTime
	}
	d, err := time.ParseDuration(s)
	if err != nil {
		tb.Fatalf("OJS_CRASH: %v", err)
	}
	return d
}

// Run runs the processes while they are killed or disturbed, lets the workers finish what
// is left, and checks that nothing was lost and nothing done that should not have been.
func Run(t *testing.T, cfg Config) {
	if cfg.Direct == "" {
		cfg.Direct = cfg.At
	}
	g := &group{t: t, cfg: &cfg, dir: t.TempDir()}
	defer g.killAll()
	if s, release, err := cfg.Open(t.Context(), cfg.Direct); err != nil {
		t.Fatal(err)
	} else { // it is there now, for all the processes
		closeStorage(t, s, release)
	}
	for range cfg.Workers {
		g.start(worker)
	}
	for range cfg.Producers {
		g.start(producer)
	}
	for range cfg.Both {
		g.start(both)
	}

	watching, stopWatching := context.WithCancel(t.Context())
	watched := make(chan struct{})
	go func() { defer close(watched); watch(watching, t, &cfg) }()
	if cfg.Disturb != nil {
		cfg.Disturb(t.Context())
		g.awaitEnqueue()
	} else {
		g.killSome(Time(t))
	}
	g.killAll(producer)
	g.stopProducing()
	drained := drain(t, &cfg)
	stopWatching()
	<-watched
	g.killAll()

	g.checkLog()
	if drained {
		check(t, &cfg, readJournals(t, filepath.Join(g.dir, "*.journal")))
	}
}

// killSome kills processes at random, and puts others in their places. Most of those that
// have not begun yet it spares: on a busy machine no process would ever begin. It goes on
// until a process has enqueued a job.
func (g *group) killSome(d time.Duration) {
	end := wall.Now().Add(d)
	kills := 0
	enqueued := false
	for {
		select {
		case <-wall.After(killEvery/2 + rand.N(killEvery)):
			p := g.processes[rand.IntN(len(g.processes))]
			enqueued = enqueued || g.enqueued()
			if !p.begun() && rand.IntN(4) > 0 {
				continue
			}
			if enqueued && wall.Now().After(end) {
				g.t.Logf("%d processes were killed", kills)
				return
			}
			g.kill(p)
			g.start(p.role)
			kills++
		case <-g.t.Context().Done():
			return
		}
	}
}

// enqueued reports whether a process has enqueued a job.
func (g *group) enqueued() bool {
	return slices.ContainsFunc(g.processes, func(p *process) bool { return p.role != worker && p.begun() })
}

// awaitEnqueue waits until a process has enqueued a job: on a busy machine the
// disturbance may be over before a process begins.
func (g *group) awaitEnqueue() {
	for end := wall.Now().Add(drainTime); !g.enqueued() && wall.Now().Before(end) &&
		g.t.Context().Err() == nil; {
		Wait(g.t.Context(), lookEvery)
	}
}

// drain waits until every job has ended and no other comes. It gives up when the number
// of open jobs has not fallen below its least for drainTime: how long all of them take
// depends on how long the producers ran.
func drain(t *testing.T, cfg *Config) bool {
	s, release, err := cfg.Open(t.Context(), cfg.Direct)
	if err != nil {
		t.Error(err)
		return false
	}
	defer closeStorage(t, s, release)
	ctx, cancel := context.WithCancelCause(t.Context())
	defer cancel(nil)
	stuck := wall.AfterFunc(drainTime, func() { cancel(context.DeadlineExceeded) })
	defer stuck.Stop()
	began := wall.Now()
	calm, least, orphans := 0, math.MaxInt, cfg.Faults > 0
	look := wall.Ticker(lookEvery)
	defer look.Stop()
	for {
		counts, err := s.Counts(ctx)
		switch {
		case context.Cause(ctx) == context.DeadlineExceeded:
			t.Errorf("jobs are left, and no fewer than %v ago: %v", drainTime, describeOpen(t, s))
			return false
		case err != nil:
			t.Error(err)
			return false
		}
		open := 0
		for _, c := range counts {
			if !c.State.Terminal() {
				open += c.N
			}
		}
		if open < least {
			least = open
			stuck.Reset(drainTime)
		}
		if calm++; open > 0 {
			calm = 0
		}
		if orphans && wall.Since(began) > orphanTime {
			orphans = false
			checkOrphans(t, s, began)
		}
		if calm > int(calmTime/lookEvery) {
			t.Logf("what was left had ended after %v", wall.Since(began).Round(time.Millisecond))
			return true
		}
		select {
		case <-look.C:
		case <-ctx.Done():
		}
	}
}

func closeStorage(t *testing.T, s storage.Storage, release func()) {
	if err := s.Close(); err != nil {
		t.Error(err)
	}
	release()
}

// Wait gives the processes time to do something.
func Wait(ctx context.Context, d time.Duration) {
	select {
	case <-wall.After(d):
	case <-ctx.Done():
	}
}
