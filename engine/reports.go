package engine

import (
	"cmp"
	"runtime/debug"
	"time"
)

// Reports say how an engine reports on itself to the others on its storage.
type Reports struct {
	// Every is how often: 1 s to 1 min; 0: 5 s. A node that has not reported for three
	// times as long is taken for gone.
	Every time.Duration

	// Version is that of the program, for Node.Version and Nodes.Deploys; "": that of
	// its main module, or of its version control, as the Go toolchain has stored it.
	Version string
}

// WithReports has the engine report on itself while Run works: as a node (Engine.Nodes),
// and what it has counted (Engine.History). It takes orders from other processes at the
// same times (Nodes.Quiet). Each report is one or two calls of the storage, of some
// kilobytes. A storage that keeps no values (storage.ValueStore) gives ojs.ErrUnsupported
// from New.
func WithReports(r Reports) Option {
	return func(c *config) error {
		if r.Every == 0 {
			r.Every = 5 * time.Second
		}
		if r.Every < time.Second || r.Every > time.Minute {
			return invalid("reports.every", "%v is not from 1s to 1m", r.Every)
		}
		if r.Version == "" {
			r.Version = builtVersion()
		}
		c.reports = &r
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
	failed     bool      // the last report was not stored
	deploy     time.Time // when the version was stored last
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
	vs, err := c.values()
	if err != nil {
		return
	}
	ctx := p.r.base
	deployed, err := p.deployed(ctx, vs)
	values := append(c.history.collect(c, c.now()), c.nodeValue(last))
	stored := vs.PutValues(ctx, c.now(), append(values, deployed...))
	if stored == nil && len(deployed) > 0 {
		p.deploy = c.now()
	}
	if stored == nil && !last {
		stored = p.obey(ctx, vs)
	}
	err = cmp.Or(stored, err)
	if p.failed = err != nil; p.failed {
		c.failed("report", err)
	} else {
		c.answered()
	}
}
