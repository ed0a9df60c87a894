package env

import (
	"context"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/ojsengine/ojs/engine/internal/idle"
	"github.com/ojsengine/ojs/internal/locks"
	"github.com/ojsengine/ojs/internal/times"
)

// An outage begins with a call of the storage that fails and that the engine repeats. It
// ends with the next call that succeeds, also one of the program's.
//
//  1. Each part of a run repeats its failed calls with a backoff of its own
//     (StorageBackoff). During an outage, a chore asks for the deadlines at least
//     once a second (ProbeEvery).
//  2. The end of an outage ends all backoffs but the first 100 ms (Run.Retry), at most
//     once in ProbeEvery: a call that fails while others succeed waits between its tries.
//  3. The log has at most one line about failed calls in outageLines, with their number.
//     The end of an outage has a line if the outage has one.

const (
	ProbeEvery  = time.Second
	outageLines = time.Minute
)

// outage is what an engine knows of the calls that fail.
type outage struct {
	down atomic.Bool // no call has succeeded since one failed

	mu       locks.Mutex // guards the fields below
	began    time.Time
	failures int       // since the latest line of the log
	line     time.Time // when that was; zero: there is none
	told     bool      // the log has a line of this outage
	retried  time.Time // when Run.Retry was called last
}

// Failed follows a call of the storage that has failed and that the engine repeats. The
// attributes are for the log. A closed storage ends the run.
func (c *Env) Failed(call string, err error, attrs ...any) {
	if c.ClosedBy(err) {
		return
	}
	c.Unanswers.Store(true)
	o := &c.outage
	o.mu.Lock()
	now := c.Now() // not before: another call may have begun the outage meanwhile
	if !o.down.Load() {
		o.began, o.told = now, false
		o.down.Store(true)
		c.WakeAt(now.Add(StorageBackoff(1)))
	}
	o.failures++
	n := o.failures
	since := now.Sub(o.line)
	tell := o.line.IsZero() || since < 0 || since >= outageLines
	if tell {
		o.line, o.told, o.failures = now, true, 0
	}
	lasts := max(now.Sub(o.began), 0) // the clock may have been set back
	o.mu.Unlock()
	level := slog.LevelDebug
	if tell {
		level = slog.LevelError
	}
	if c.Logs(level) {
		c.Log.With(attrs...).Log(context.Background(), level,
			"the storage fails; the engine repeats the call", "call", call, "error", err,
			"failures", n, "outage_seconds", lasts.Seconds())
	}
}

// Answered follows a call of the storage that has succeeded.
func (c *Env) Answered() {
	o := &c.outage
	if !o.down.Load() {
		return
	}
	o.mu.Lock()
	if !o.down.Swap(false) {
		o.mu.Unlock()
		return
	}
	now := c.Now()
	told, lasted := o.told, max(now.Sub(o.began), 0)
	c.RecoverAt(times.Latest(now, times.Latest(o.began.Add(StorageBackoff(1)), o.retried.Add(ProbeEvery))))
	o.mu.Unlock()
	if told {
		c.Log.Warn("the storage answers again", "outage_seconds", lasted.Seconds())
	}
}

// Recovers says that the end of an outage ends all waits now.
func (c *Env) Recovers(now time.Time) {
	c.outage.mu.Lock()
	defer c.outage.mu.Unlock()
	c.outage.retried = now
}

// Failing says that calls fail which look for jobs, or do so no more; was is what the
// call before has said. Under a clock that moves by itself a run is busy meanwhile, since
// jobs may be due.
func (c *Env) Failing(busy *idle.Counter, was, fails bool) {
	switch {
	case c.Mocked || was == fails:
	case fails:
		busy.Add(1)
	default:
		busy.Add(-1)
	}
}

// StorageBackoff is the wait after the n-th failure of a storage in a row: 100 ms
// doubling to 30 s. It ends early when the storage answers again.
func StorageBackoff(n int) time.Duration {
	return min(100*time.Millisecond<<min(n-1, 16), 30*time.Second)
}
