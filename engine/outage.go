package engine

import (
	"context"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/ojsengine/ojs/policy"
	"github.com/ojsengine/ojs/storage"
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

// outage is what an engine knows of the calls that fail.
type outage struct {
	down atomic.Bool // no call has succeeded since one failed

	mu       sync.Mutex // guards the fields below
	began    time.Time
	failures int       // since the latest line of the log
	line     time.Time // when that was; zero: there is none
	told     bool      // the log has a line of this outage
	retried  time.Time // when run.retry was called last
}

// failed follows a call of the storage that has failed and that the engine repeats. The
// attributes are for the log. A closed storage ends the run.
func (c *core) failed(call string, err error, attrs ...any) {
	now := c.now()
	if r := c.run.Load(); r != nil && r.closedBy(err) {
		return
	}
	c.processes.failed.Store(true)
	o := &c.outage
	o.mu.Lock()
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
	o.mu.Unlock()
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

// answered follows a call of the storage that has succeeded.
func (c *core) answered() {
	o := &c.outage
	if !o.down.Load() {
		return
	}
	now := c.now()
	o.mu.Lock()
	if !o.down.Swap(false) {
		o.mu.Unlock()
		return
	}
	told, lasted := o.told, now.Sub(o.began)
	if r := c.run.Load(); r != nil {
		soonest := later(o.began.Add(storageBackoff(1)), o.retried.Add(probeEvery))
		r.recovery.By(later(now, soonest))
	}
	o.mu.Unlock()
	if told {
		c.log.Warn("the storage answers again", "outage_seconds", lasted.Seconds())
	}
}

// retry ends all waits that failed calls of the storage have caused.
func (r *run) retry(now time.Time) {
	r.c.outage.mu.Lock()
	r.c.outage.retried = now
	r.c.outage.mu.Unlock()
	r.c.mu.Lock()
	defer r.c.mu.Unlock()
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

// Claims whose answer was lost.
//
// A call that claims may fail after the storage has taken jobs, or before: a server may
// still commit what its client has given up. The jobs are active then, and no attempt of
// the engine has them. So the engine looks for them:
//
//  1. core.asking has the time of each claim of a run from before the call until its jobs
//     are in run.attempts. core.unanswered has the times of claims that have failed.
//  2. Maintenance asks for the active jobs of the engine at once, and again after 1 s, 10
//     s and 60 s. A look that fails is made again.
//  3. A job is given back unspent if it was claimed at the time of a failed claim, no
//     attempt has it, has lost its lease or has given up its outcome, and no claim under
//     way has that time. The books are read after the
//     storage has answered, so a claim that has returned meanwhile is in them.
//
// Only this engine claims under its worker id. Unclaim and Settle are fenced.

// asked are the times of the claims of one step, one past the gate and one through it.
type asked struct {
	at [2]int64
	n  int
}

// ask says that a claim at now is under way, which endAsk ends. mu is held.
func (c *core) ask(a *asked, now time.Time) {
	a.at[a.n] = now.UnixNano()
	c.asking = append(c.asking, a.at[a.n])
	a.n++
}

// endAsk ends the claims of a step: its jobs are in run.attempts. mu is held.
func (c *core) endAsk(a *asked) {
	for _, at := range a.at[:a.n] {
		i := slices.Index(c.asking, at)
		last := len(c.asking) - 1
		c.asking[i] = c.asking[last]
		c.asking = c.asking[:last]
	}
}

// unanswered is a claim that has failed.
type unanswered struct {
	at    int64
	looks int       // that the storage has answered
	next  time.Time // when to look next
}

// looksAfter are the pauses between the looks for the jobs of a failed claim.
var looksAfter = [...]time.Duration{time.Second, 10 * time.Second, time.Minute}

// maxUnanswered bounds the failed claims that are looked for: jobs of the oldest wait for
// their leases.
const maxUnanswered = 1000

// unanswer has maintenance look for what a failed claim at now has taken. mu is held.
func (c *core) unanswer(now time.Time, err error) {
	if saysNo(err) {
		return
	}
	if len(c.unanswered) == maxUnanswered {
		c.unanswered = slices.Delete(c.unanswered, 0, 1)
	}
	c.unanswered = append(c.unanswered, unanswered{at: now.UnixNano(), next: c.now()})
	if r := c.run.Load(); r != nil {
		r.maintenance.claims.Poke()
	}
}

// findClaims gives back the jobs of claims whose answer was lost. It returns when to look
// again.
func (k *maintenance) findClaims(ctx context.Context, now time.Time) (next time.Time, err error) {
	c := k.r.c
	c.mu.Lock()
	none := len(c.unanswered) == 0
	c.mu.Unlock()
	if none {
		return next, nil
	}
	recs, err := c.store.ClaimedBy(ctx, c.worker)
	waits := false
	if err == nil {
		c.mu.Lock()
		recs, waits = k.r.unknown(recs)
		c.mu.Unlock()
		err = k.r.unclaim(recs)
		c.available(len(recs)) // also if that failed: the storage may have done it
		for i := range recs {
			recs[i].Unclaim()
			c.wakeAt(recs[i].WakeAt())
		}
	}
	if err != nil {
		return next, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.unanswered = slices.DeleteFunc(c.unanswered, func(u unanswered) bool {
		return !waits && u.looks == len(looksAfter) && !u.next.After(now)
	})
	for i := range c.unanswered {
		u := &c.unanswered[i]
		if !u.next.After(now) {
			if u.looks < len(looksAfter) {
				u.next = now.Add(looksAfter[u.looks])
				u.looks++
			} else {
				u.next = now.Add(time.Second)
			}
		}
		next = earliest(next, u.next)
	}
	return next, nil
}

// unknown leaves those of the active jobs of this engine that a failed claim has taken
// and that no attempt has. waits: a claim under way may have others. core.mu is held.
func (r *run) unknown(recs []storage.Record) (lost []storage.Record, waits bool) {
	c := r.c
	precision := max(int64(c.store.Capabilities().Precision), 1)
	near := func(rec *storage.Record, at int64) bool {
		d := rec.StartedAt.UnixNano() - at
		return -precision < d && d < precision
	}
	lost = slices.DeleteFunc(recs, func(rec storage.Record) bool {
		failed := slices.ContainsFunc(c.unanswered, func(u unanswered) bool { return near(&rec, u.at) })
		// By the id: an attempt that has lost its lease may have an earlier version.
		known := func(a *attempt) bool { return a.rec.ID == rec.ID }
		if !failed || slices.ContainsFunc(r.attempts, known) {
			return true
		}
		if at, had := c.handedOn[rec.ID]; had && near(&rec, at) {
			return true
		}
		busy := slices.ContainsFunc(c.asking, func(at int64) bool { return near(&rec, at) })
		waits = waits || busy
		return busy
	})
	return lost, waits
}

// unclaim gives back jobs whose attempts have not begun.
func (r *run) unclaim(recs []storage.Record) error {
	if len(recs) == 0 {
		return nil
	}
	c := r.c
	c.log.Warn("claims whose answer was lost are given back", "jobs", len(recs))
	now := c.now()
	if c.stepper != nil {
		var held []storage.Held
		recs = slices.DeleteFunc(slices.Clone(recs), func(rec storage.Record) bool {
			undoes := rec.EnqueueTTL == 0 // Unclaim would have it count again
			if undoes {
				held = append(held, storage.Held{ID: rec.ID, Version: rec.Version})
			}
			return undoes
		})
		if len(held) > 0 {
			if _, err := c.stepper.Unclaim(r.base, now, held); err != nil {
				return err
			}
		}
	}
	for i := range recs {
		f := newSettlement(&recs[i], c.worker)
		c.decide(f, policy.Outcome{Kind: policy.Interrupted}, now, now, nil)
		if _, err := c.settleOne(r.base, f); err != nil {
			return err
		}
	}
	return nil
}
