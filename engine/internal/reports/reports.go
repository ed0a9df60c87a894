// Package reports tells the processes on a storage of each other: an engine reports on
// itself, takes orders, and ends the attempts of processes that are dead.
//
// # Invariants
//
//  1. The first report of a run is made before its first claim. The last comes after its
//     chores, and is made also if one of them hangs.
//  2. The reports of a run come one after another, and wait for no other chore.
//  3. Time in which the storage does not answer is no silence of a process.
package reports

import (
	"context"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/ojsengine/ojs/engine/internal/attempts"
	"github.com/ojsengine/ojs/engine/internal/chores"
	"github.com/ojsengine/ojs/engine/internal/env"
	"github.com/ojsengine/ojs/engine/internal/idle"
	"github.com/ojsengine/ojs/engine/internal/settle"
	"github.com/ojsengine/ojs/internal/document"
	"github.com/ojsengine/ojs/internal/stored"
	"github.com/ojsengine/ojs/scheduler"
	"github.com/ojsengine/ojs/telemetry"
)

// Engine is what the package needs of an engine.
type Engine struct {
	*env.Env
	Settle   *settle.Settler
	Attempts *attempts.Attempts
	Peers    *ReportConfig // nil: it does not report
	Watches  bool          // other processes may report on the storage

	history  telemetry.Recorder // the reporter's, and so are the next three
	failures telemetry.FailureRecorder
	unstored []document.Value    // of the history, whose report has failed
	seen     map[string]*process // other engines on the storage, by the ids of their workers
	looked   atomic.Int64        // when the storage answered the last look at these, in ns
	over     <-chan struct{}     // closed after the last report of the latest run; nil: there was none
}

// ReportConfig is how an engine reports on itself. See engine.Reports.
type ReportConfig struct {
	Every, DeadAfter time.Duration
	Version          string
}

// Reporter reports on an engine while it runs, on a goroutine and timers of its own.
type Reporter struct {
	c         *Engine
	base      context.Context // of its calls
	started   time.Time
	Set       chores.Set // of the one chore
	chore     chores.Chore
	sched     *scheduler.Scheduler
	busy      idle.Counter  // for the set: an engine that reports may be idle
	First     chan struct{} // closed after the first report
	terminate func()        // has Run return

	failed bool   // the latest report was not stored
	beat   uint64 // how many reports were made

	burying sync.Mutex // held while the attempts of dead processes are ended
	burials sync.WaitGroup
}

// Start starts the reports of a run, whose calls have the context base.
func (c *Engine) Start(base context.Context, terminate func()) *Reporter {
	p := &Reporter{c: c, base: base, started: c.Now(), terminate: terminate,
		sched: scheduler.New(c.Clock), First: make(chan struct{})}
	first := sync.OnceFunc(func() { close(p.First) })
	before := c.over
	p.chore.Name = "report"
	p.chore.Run = func(_ context.Context, now time.Time) (time.Time, error) {
		defer first()
		if before != nil {
			<-before // its last report takes the node away
		}
		return now.Add(c.Peers.Every), p.report(false)
	}
	p.Set.Start(base, chores.Config{Sched: p.sched, Busy: &p.busy, Now: c.Now, Failed: c.Failed,
		Wait: func(int) time.Duration { return c.Peers.Every }}, &p.chore)
	p.chore.Poke()
	return p
}

// Stop makes the last report, which takes the node of the run away. It returns a channel
// that is closed after that.
func (p *Reporter) Stop() (done <-chan struct{}) {
	over := make(chan struct{})
	p.c.over = over
	reported := p.Set.Stop()
	p.sched.Stop()
	go func() {
		defer close(over)
		<-reported
		p.burials.Wait()
		if err := p.report(true); err != nil {
			p.c.Failed("report", err)
		}
	}()
	return over
}

// report stores a report, and carries out orders.
func (p *Reporter) report(last bool) (err error) {
	c, ctx := p.c, p.base
	p.beat++
	var values []document.Value
	c.history.Record(c.Meter.Snapshot(), c.Now(), c.Worker, stored.Into(&values))
	for _, v := range c.unstored { // of buckets that have been closed since
		if !slices.ContainsFunc(values, func(c document.Value) bool { return c.Key == v.Key }) {
			values = append(values, v)
		}
	}
	c.unstored = slices.Clip(values)
	failed := c.failures.Record(ctx, &c.Meter, c.Store, c.Now(), c.Worker, c.Peers.Version,
		stored.Into(&values))
	values = append(values, p.node(last), c.aliveValue(p.beat, last))
	err = document.Of(c.Store).PutValues(ctx, c.Now(), values)
	if err == nil {
		c.failures.Stored()
		c.unstored, err = nil, failed
	}
	if err == nil && !last {
		err = c.failures.Merge(ctx, c.Store, c.Now(), c.Worker)
	}
	if err == nil && !last {
		err = p.obey(ctx)
	}
	if err == nil && !last {
		err = p.lookAtProcesses(ctx)
	}
	if p.failed = err != nil; !p.failed {
		c.Answered()
	}
	return err
}
