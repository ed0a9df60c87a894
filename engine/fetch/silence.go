package fetch

import (
	"context"
	"errors"
	"time"

	"github.com/ojsengine/ojs"
	"github.com/ojsengine/ojs/engine/internal/claims"
	"github.com/ojsengine/ojs/engine/internal/env"
	"github.com/ojsengine/ojs/engine/internal/publish"
	"github.com/ojsengine/ojs/event"
	"github.com/ojsengine/ojs/internal/foreign"
	"github.com/ojsengine/ojs/internal/times"
	"github.com/ojsengine/ojs/policy"
	"github.com/ojsengine/ojs/storage"
)

// Timeouts and deaths of workers that fetch jobs.
//
// The engine that a worker calls knows what the worker holds (workers). One timer of the
// chore of workers stands for the earliest timeout of a held job and the earliest end of
// a worker's patience. When it fires, the storage is asked before anything is decided:
//
//  1. A job that the worker has lost is only forgotten.
//  2. A lease that was renewed through another engine since the last look is a sign of
//     life. The look counts as the time of it, since the engines may renew for different
//     lengths.
//  3. The remaining attempts fail through the same decision and the same fenced settle as
//     the worker's own answer would.
//
// An engine that was started anew knows nothing of a worker until that calls. Until then
// only the lease bounds its attempts.

// Lose takes a job from the worker that holds it, if any. With a cause, the
// worker's next heartbeat names the job.
func (c *Workers) Lose(held storage.Held, cause error) {
	c.workers.drop(held, cause)
	c.admission.LetIn(held)
}

// heldRecord looks up a job that a worker holds. If the worker has lost the job, cause
// says why.
func (c *Workers) heldRecord(
	ctx context.Context, worker string, held storage.Held,
) (rec storage.Record, cause, err error) {
	rec, err = c.Store.Get(ctx, held.ID)
	switch {
	case foreign.Is(err, ojs.ErrNotFound):
		return rec, ojs.ErrLeaseLost, nil
	case err != nil:
		return rec, nil, err
	case rec.State == ojs.StateActive && rec.Version == held.Version && rec.Worker == worker:
		return rec, nil, nil
	case rec.State == ojs.StateCancelled && rec.Version == held.Version+1:
		return rec, ojs.ErrCancelled, nil
	}
	return rec, ojs.ErrLeaseLost, nil
}

// LookAt fails what workers hold beyond its time, and what dead workers hold, and gives
// back what claims have taken whose answer was lost. It returns when to look again. The
// engine's chore of workers calls it.
func (c *Workers) LookAt(ctx context.Context, now time.Time) (next time.Time, err error) {
	late, dead, next := c.workers.due(now)
	for _, claim := range late {
		err = errors.Join(err, c.failClaim(ctx, claim, policy.Outcome{Kind: policy.TimedOut}, ojs.ErrTimeout))
	}
	for _, s := range dead {
		at, failed := c.mourn(ctx, s, now)
		next, err = times.Earliest(next, at), errors.Join(err, failed)
	}
	for _, w := range c.workers.unanswered() {
		at, failed := c.findClaims(ctx, w, now)
		next, err = times.Earliest(next, at), errors.Join(err, failed)
	}
	if err != nil {
		next = times.Earliest(next, now.Add(env.StorageBackoff(1)))
	}
	return next, err
}

// mourn fails the attempts of a silent worker, unless one of its leases shows that it
// lives. It returns when to look again.
func (c *Workers) mourn(ctx context.Context, s silent, now time.Time) (next time.Time, err error) {
	claims := c.workers.heldBy(s.worker)
	last := s.since
	for _, held := range claims {
		rec, cause, err := c.heldRecord(ctx, s.worker, held)
		if err != nil {
			return time.Time{}, err
		}
		if cause == nil && c.workers.renewedElsewhere(held, rec.LeaseUntil) {
			last = now
		}
	}
	if at := last.Add(s.limit); now.Before(at) {
		return c.workers.heard(s.worker, last), nil
	}
	buried, running := c.workers.bury(s)
	if !buried {
		return c.workers.heard(s.worker, last), nil
	}
	o := policy.Outcome{Kind: policy.WorkerDied, Limit: s.limit, Elapsed: now.Sub(last)}
	for _, held := range claims {
		err = errors.Join(err, c.failClaim(ctx, claimOf{s.worker, held}, o, ojs.ErrLeaseLost))
	}
	if err != nil {
		// It is found silent again.
		c.workers.with(s.worker, func(w *worker) { w.dead = w.dead && w.seen != s.since })
		return time.Time{}, err
	}
	c.Log.Warn("worker is silent: its attempts have failed", "component", "worker", "category", "error",
		"worker_id", s.worker,
		"silent_seconds", now.Sub(last).Seconds(), "jobs", len(claims))
	if running {
		c.Emit(event.Event{Type: event.WorkerStopped, Subject: s.worker, WorkerID: s.worker,
			Reason: publish.StoppedError})
	}
	return time.Time{}, nil
}

// failClaim ends an attempt of a worker with an outcome that the worker did not report.
// The worker's next heartbeat names the job as lost by cause. The error is the storage's.
func (c *Workers) failClaim(ctx context.Context, claim claimOf, o policy.Outcome, cause error) error {
	rec, lost, err := c.heldRecord(ctx, claim.worker, claim.held)
	if err != nil {
		return err
	}
	if lost != nil {
		c.Lose(claim.held, lost)
		return nil
	}
	switch err := c.delivery(&rec, nil).end(ctx, o, nil, nil); {
	case err == nil, foreign.Is(err, ojs.ErrLeaseLost):
		c.workers.tell(claim.worker, claim.held, cause)
		return nil
	default:
		return err
	}
}

// asked is a claim of a worker, in the book of the worker's claims.
type asked struct {
	claims.Step
	c *Workers
}

func (a *asked) Stopping() bool { return false }

func (a *asked) Failed(now time.Time, err error) {
	if env.SaysNo(err) {
		return
	}
	a.c.workers.mu.Lock()
	a.Book.Fail(now, a.c.Now())
	a.c.workers.mu.Unlock()
	a.c.watch(a.c.Now())
}

// end ends the claim. The worker holds its jobs.
func (a *asked) end() {
	a.c.workers.mu.Lock()
	met := a.End()
	a.c.workers.mu.Unlock()
	if met {
		a.c.watch(a.c.Now()) // for a job that was left to this claim, and may not be its own
	}
}

// unanswered returns the workers of which a claim has failed.
func (ws *book) unanswered() (list []*worker) {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	for _, w := range ws.byID {
		if w.claims.Failed() {
			list = append(list, w)
		}
	}
	return list
}

// findClaims gives back the jobs of a worker's claims whose answer was lost. It returns
// when to look again.
func (c *Workers) findClaims(ctx context.Context, w *worker, now time.Time) (next time.Time, err error) {
	// The lease is that of each job. Another one of Config.Lease is not known here.
	return c.settle.GiveBack(ctx, now, w.id, 0, &c.workers.mu, &w.claims, func(id string) bool {
		for held := range w.held {
			if held.ID == id {
				return true
			}
		}
		return false
	})
}
