// Package reports tells the processes on a storage of each other: an engine reports on
// itself, takes orders, and ends the attempts of processes that are dead.
//
// # Invariants
//
//  1. The first report of a run is made before its first claim, the last after its
//     chores.
//  2. Time in which the storage does not answer is no silence of a process.
package reports

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/ojsengine/ojs/engine/internal/chores"
	"github.com/ojsengine/ojs/engine/internal/env"
	"github.com/ojsengine/ojs/engine/internal/settle"
	"github.com/ojsengine/ojs/inspect"
	"github.com/ojsengine/ojs/internal/document"
	"github.com/ojsengine/ojs/telemetry"
)

// Engine is what the package needs of an engine.
type Engine struct {
	*env.Env
	Settle  *settle.Settler
	Peers   *ReportConfig // nil: it does not report
	Watches bool          // other processes may report on the storage

	SetQuiet     func(quiet bool)
	DescribeNode func(n *inspect.Node)
	Works        func(stacks bool) []inspect.Running // the attempts of handlers

	history   telemetry.Recorder // the reporter's
	processes Processes
}

// ReportConfig is how an engine reports on itself. See engine.Reports.
type ReportConfig struct {
	Every, DeadAfter time.Duration
	Version          string
}

// Reporter reports on an engine while it runs.
type Reporter struct {
	c         *Engine
	started   time.Time
	Chore     chores.Chore
	terminate func() // has Run return

	failed   bool             // the latest report was not stored
	beat     uint64           // how many reports were made
	unstored []document.Value // counts whose report has failed

	burying sync.Mutex // held while the attempts of dead processes are ended
	burials sync.WaitGroup
}

// NewReporter makes the reporter of a run.
func (c *Engine) NewReporter(terminate func()) *Reporter {
	p := &Reporter{c: c, started: c.Now(), terminate: terminate}
	p.Chore = chores.Chore{Name: "report", Run: func(ctx context.Context, now time.Time) (time.Time, error) {
		return now.Add(c.Peers.Every), p.Report(ctx, false)
	}}
	return p
}

// Last makes the last report, which takes the node of the run away. No other report is
// under way.
func (p *Reporter) Last(ctx context.Context) {
	p.burials.Wait()
	if err := p.Report(ctx, true); err != nil {
		p.c.Failed("report", err)
	}
}

// Report stores a report, and does what others have ordered.
func (p *Reporter) Report(ctx context.Context, last bool) (err error) {
	c := p.c
	p.beat++
	counts := c.history.Record(c.Meter.Snapshot(), c.Now(), c.Worker)
	for _, v := range p.unstored { // counts of buckets that have been closed since
		if !slices.ContainsFunc(counts, func(c document.Value) bool { return c.Key == v.Key }) {
			counts = append(counts, v)
		}
	}
	p.unstored = counts
	values := append(slices.Clone(counts), p.node(last), c.aliveValue(p.beat, last))
	err = document.Of(c.Store).PutValues(ctx, c.Now(), values)
	if err == nil {
		p.unstored = nil
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
