package engine

import (
	"context"
	"log/slog"
	"sync/atomic"
	"time"
)

// An outage begins with a call of the storage that fails and that the engine repeats. It
// ends with the next call that succeeds, also one of the program's.
//
//  1. Each part of a run repeats its failed calls with a backoff of its own
//     (storageBackoff). During an outage, maintenance asks for the deadlines at least
//     once a second (probeEvery).
//  2. The end of an outage ends all backoffs but the first 100 ms (run.retry), at most
//     once in probeEvery: a call that fails while others succeed waits between its tries.
//  3. The log has at most one line about failed calls in outageLines, with their number.
//     The end of an outage has a line if the outage has one.

const (
	probeEvery  = time.Second
	outageLines = time.Minute
)

// outage is what an engine knows of the calls that fail. All fields but down are guarded
// by core.mu.
type outage struct {
	down     atomic.Bool // no call has succeeded since one failed
	began    time.Time
	failures int       // since the latest line of the log
	line     time.Time // when that was; zero: there is none
	told     bool      // the log has a line of this outage
}

// failed follows a call of the storage that has failed and that the engine repeats. The
// attributes are for the log. A closed storage ends the run. core.mu is not held.
func (c *core) failed(call string, err error, attrs ...any) {
	now := c.now()
	if r := c.run.Load(); r != nil && r.closedBy(err) {
		return
	}
	c.mu.Lock()
	c.processes.failed.Store(true)
	o := &c.outage
	if !o.down.Load() {
		o.began, o.told = now, false
		o.down.Store(true)
		c.wakeAt(now.Add(storageBackoff(1)))
	}
	o.failures++
	n := o.failures
	since := now.Sub(o.line)
	tell := o.line.IsZero() || since < 0 || since >= outageLines
	if tell {
		o.line, o.told, o.failures = now, true, 0
	}
	lasts := now.Sub(o.began)
	c.mu.Unlock()
	level := slog.LevelDebug
	if tell {
		level = slog.LevelError
	}
	if c.logs(level) {
		c.log.With(attrs...).Log(context.Background(), level,
			"the storage fails; the engine repeats the call", "call", call, "error", err,
			"failures", n, "outage_seconds", lasts.Seconds())
	}
}

// answered follows a call of the storage that has succeeded. core.mu is not held.
func (c *core) answered() {
	if !c.outage.down.Load() {
		return
	}
	now := c.now()
	c.mu.Lock()
	o := &c.outage
	if !o.down.Swap(false) {
		c.mu.Unlock()
		return
	}
	told, lasted := o.told, now.Sub(o.began)
	if r := c.run.Load(); r != nil {
		soonest := later(o.began.Add(storageBackoff(1)), r.retried.Add(probeEvery))
		r.recovery.By(later(now, soonest))
	}
	c.mu.Unlock()
	if told {
		c.log.Warn("the storage answers again", "outage_seconds", lasted.Seconds())
	}
}

// retry ends all waits that failed calls of the storage have caused.
func (r *run) retry(now time.Time) {
	r.c.mu.Lock()
	defer r.c.mu.Unlock()
	r.retried = now
	r.sleeps.EndPauses()
	if r.unblocking.Armed() {
		r.unblocking.By(now)
	}
	for _, a := range r.attempts {
		if a.unrenewed && a.phase != over && !a.inTx {
			a.renew(now)
		}
		a.unrenewed = false
	}
	r.maintenance.Retry()
	select {
	case r.reportNow <- struct{}{}:
	default:
	}
}

// later returns the later of two times.
func later(a, b time.Time) time.Time {
	if a.Before(b) {
		return b
	}
	return a
}
