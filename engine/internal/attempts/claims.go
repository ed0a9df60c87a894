package attempts

import (
	"context"
	"slices"
	"time"

	"github.com/ojsengine/ojs/engine/internal/env"
	"github.com/ojsengine/ojs/engine/internal/settle"
	"github.com/ojsengine/ojs/policy"
	"github.com/ojsengine/ojs/storage"
)

// Retry ends all waits of a run that failed calls of the storage have caused.
func (r *Run) Retry(now time.Time) {
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
//     attempt of the run has it, has lost its lease or has left its outcome to
//     maintenance, and no claim under way has that time. The books are read after the
//     storage has answered, so a claim that has returned meanwhile is in them.
//
// Only this engine claims under its worker id. Unclaim and Settle are fenced.

// asked are the times of the claims of one step, one past the gate and one through it.
type asked struct {
	r  *Run
	at [2]int64
	n  int
}

// Asks is add for a claim through the gate.
func (a *asked) Asks(now time.Time) {
	a.r.c.mu.Lock()
	defer a.r.c.mu.Unlock()
	a.add(now)
}

func (a *asked) Stopping() bool { return a.r.Stopping.Load() }

func (a *asked) Failed(now time.Time, err error) { a.r.claimFailed("claim", now, err) }

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

// findClaims gives back the jobs of claims whose answer was lost. It returns when to look
// again.
func (r *Run) findClaims(ctx context.Context, now time.Time) (next time.Time, err error) {
	c := r.c
	c.mu.Lock()
	none := len(c.unanswered) == 0
	c.mu.Unlock()
	if none {
		return next, nil
	}
	recs, err := c.Store.ClaimedBy(ctx, c.Worker)
	waits := false
	if err == nil {
		c.mu.Lock()
		recs, waits = r.unknown(recs)
		c.mu.Unlock()
		err = r.unclaim(recs)
		c.Available(len(recs)) // also if that failed: the storage may have done it
		for i := range recs {
			recs[i].Unclaim()
			c.WakeAt(recs[i].WakeAt())
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
		next = env.Earliest(next, u.next)
	}
	return next, nil
}

// unclaim gives back jobs whose attempts have not begun.
func (r *Run) unclaim(recs []storage.Record) error {
	if len(recs) == 0 {
		return nil
	}
	c := r.c
	c.Log.Warn("claims whose answer was lost are given back", "jobs", len(recs))
	now := c.Now()
	if c.Stepper != nil {
		var held []storage.Held
		recs = slices.DeleteFunc(slices.Clone(recs), func(rec storage.Record) bool {
			undoes := rec.EnqueueTTL == 0 // Unclaim would have it count again
			if undoes {
				held = append(held, storage.Held{ID: rec.ID, Version: rec.Version})
			}
			return undoes
		})
		if len(held) > 0 {
			if _, err := c.Stepper.Unclaim(r.Base, now, held); err != nil {
				return err
			}
		}
	}
	for i := range recs {
		f := settle.NewSettlement(&recs[i], c.Worker)
		c.Settle.Decide(f, policy.Outcome{Kind: policy.Interrupted}, now, now, nil)
		if _, err := c.Settle.SettleOne(r.Base, f); err != nil {
			return err
		}
	}
	return nil
}

// TakenAway follows a transition that has ended a claim. It ends the attempt of this
// engine, if there is one, or drops the claim of a remote worker. A step may be claiming
// the job right now, of a run that has ended too: enter then drops the attempt.
func (c *Attempts) TakenAway(held storage.Held, cause error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if r := c.Run.Load(); r != nil && r.lose(held, cause) {
		return
	}
	if c.claiming > 0 {
		c.lostEarly[held] = true
	}
	c.WorkerLost(held, cause)
}

// mu is held in the rest.

// begin begins a step that claims, which enter ends.
func (a *asked) begin(now time.Time) {
	a.r.claiming++
	a.r.c.claiming++
	a.add(now)
}

// add says that a claim at now is under way.
func (a *asked) add(now time.Time) {
	c := a.r.c
	a.at[a.n] = now.UnixNano()
	c.asking = append(c.asking, a.at[a.n])
	a.n++
}

// end ends the claims of a step: its jobs are in run.attempts.
func (a *asked) end() {
	c := a.r.c
	for _, at := range a.at[:a.n] {
		i := slices.Index(c.asking, at)
		last := len(c.asking) - 1
		c.asking[i] = c.asking[last]
		c.asking = c.asking[:last]
	}
}

// unanswer has maintenance look for what a failed claim at now has taken.
func (c *Attempts) unanswer(now time.Time, err error) {
	if env.SaysNo(err) {
		return
	}
	if len(c.unanswered) == maxUnanswered {
		c.unanswered = slices.Delete(c.unanswered, 0, 1)
	}
	c.unanswered = append(c.unanswered, unanswered{at: now.UnixNano(), next: c.Now()})
	if r := c.Run.Load(); r != nil {
		r.Claims.Poke()
	}
}

// unknown leaves those of the active jobs of this engine that a failed claim has taken
// and that no attempt has. waits: a claim under way may have others.
func (r *Run) unknown(recs []storage.Record) (lost []storage.Record, waits bool) {
	c := r.c
	precision := max(int64(c.Store.Capabilities().Precision), 1)
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
