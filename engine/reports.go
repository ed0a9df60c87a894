package engine

import (
	"runtime/debug"
	"slices"
	"sync"
	"time"

	"github.com/ojsengine/ojs/internal/document"
)

// Reports say how an engine reports on itself to the others on its storage.
type Reports struct {
	// Every is how often: 100 ms to 1 min; 0: 5 s. A node that has not reported for three
	// times as long is taken for gone.
	Every time.Duration

	// DeadAfter is how long the process may be silent: then the other engines that report
	// count it as dead, and its attempts as failed, as if their leases had ended. Time in
	// which the storage does not answer is no silence. At least three times Every; 0: 30
	// s, or three times Every if that is more.
	DeadAfter time.Duration

	// Version is that of the program, for Node.Version; "": that of its main module, or
	// of its version control, as the Go toolchain has stored it.
	Version string
}

// WithReports has the engine report on itself while Run works: as a node (Workers.List),
// and what it has counted (Engine.History). It takes orders from other processes at the
// same times (Workers.Quiet), and looks for processes that are dead (Reports.DeadAfter).
// Each report is some calls of the storage, of some kilobytes.
//
// Engines on a storage that several processes may share report by default
// (storage.Capabilities.Shared: SQLite and PostgreSQL), except under a virtual clock
// (WithClock). WithoutReports ends that.
func WithReports(r Reports) Option {
	return func(c *config) error {
		if r.Every == 0 {
			r.Every = 5 * time.Second
		}
		if r.Every < 100*time.Millisecond || r.Every > time.Minute {
			return invalid("reports.every", "%v is not from 100ms to 1m", r.Every)
		}
		if r.DeadAfter == 0 {
			r.DeadAfter = max(30*time.Second, 3*r.Every)
		}
		if r.DeadAfter < 3*r.Every {
			return invalid("reports.dead_after", "%v is less than three times %v", r.DeadAfter, r.Every)
		}
		if r.Version == "" {
			r.Version = builtVersion()
		}
		c.reports, c.noReports = &r, false
		return nil
	}
}

// WithoutReports has the engine not report on itself. If its process dies, its jobs wait
// until their leases end (WithClaimLease). It does not look for other processes that are
// dead either.
func WithoutReports() Option {
	return func(c *config) error {
		c.reports, c.noReports = nil, true
		return nil
	}
}

// builtVersion is the version that the toolchain has stored in the program.
func builtVersion() string {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return ""
	}
	if v := info.Main.Version; v != "" && v != "(devel)" {
		return v
	}
	for _, s := range info.Settings {
		if s.Key == "vcs.revision" {
			return s.Value[:min(len(s.Value), 12)]
		}
	}
	return ""
}

// reporter reports on an engine, on a goroutine of its own, while it runs.
type reporter struct {
	r          *run
	quit, done chan struct{}
	failed     bool             // the last report was not stored
	beat       uint64           // how many reports were made
	unstored   []document.Value // counts whose report has failed

	burying sync.Mutex // held while the attempts of dead processes are ended
	burials sync.WaitGroup
}

// report starts the reports of a run; nil: there are none.
func (r *run) report() *reporter {
	if r.c.reports == nil {
		return nil
	}
	p := &reporter{r: r, quit: make(chan struct{}), done: make(chan struct{})}
	go p.loop()
	return p
}

func (p *reporter) loop() {
	defer close(p.done)
	c := p.r.c
	tick := c.clock.Ticker(c.reports.Every)
	defer tick.Stop()
	p.tick(false)
	for {
		select {
		case <-tick.C:
			p.tick(false)
		case <-p.r.reportNow:
			if p.failed {
				p.tick(false)
			}
		case <-p.quit:
			p.burials.Wait()
			p.tick(true)
			return
		}
	}
}

// stop makes the last report. It waits for it no longer than for other last calls.
func (p *reporter) stop() {
	if p != nil {
		close(p.quit)
		p.r.wait(p.done, lastCall)
	}
}

// tick stores a report, and does what others have ordered. The last report of a run takes
// its node away.
func (p *reporter) tick(last bool) {
	c := p.r.c
	ctx := p.r.base
	p.beat++
	counts := c.history.Record(c.meter.Snapshot(), c.now(), c.worker)
	for _, v := range p.unstored { // counts of buckets that have been closed since
		if !slices.ContainsFunc(counts, func(c document.Value) bool { return c.Key == v.Key }) {
			counts = append(counts, v)
		}
	}
	p.unstored = counts
	values := append(slices.Clone(counts), c.nodeValue(last), c.aliveValue(p.beat, last))
	err := document.Of(c.store).PutValues(ctx, c.now(), values)
	if err == nil {
		p.unstored = nil
	}
	if err == nil && !last {
		err = p.obey(ctx)
	}
	if err == nil && !last {
		err = p.lookAtProcesses(ctx)
	}
	if p.failed = err != nil; p.failed {
		c.failed("report", err)
	} else {
		c.answered()
	}
}
