package engine

import (
	"context"
	"errors"
	"reflect"
	"time"

	"github.com/ojsengine/ojs"
	"github.com/ojsengine/ojs/event"
	"github.com/ojsengine/ojs/internal/foreign"
	"github.com/ojsengine/ojs/policy"
	"github.com/ojsengine/ojs/storage"
)

// Timeouts and deaths of workers that fetch jobs.
//
// The engine that a worker calls knows what the worker holds (workers). One timer of
// maintenance stands for the earliest timeout of a held job and the earliest end of a
// worker's patience. When it fires, the storage is asked before anything is decided:
//
//  1. A job that the worker has lost is only forgotten.
//  2. A lease that was renewed through another engine is a sign of life: LeaseUntil less
//     Lease is when.
//  3. The remaining attempts fail through the same decision and the same fenced settle as
//     the worker's own answer would.
//
// An engine that was started anew knows nothing of a worker until that calls. Until then
// only the lease bounds its attempts.

// Reasons of a worker's stop (OJS events).
const (
	stoppedShutdown = "shutdown"
	stoppedSignal   = "signal"
	stoppedError    = "error"
)

// stopReason says why a Run has stopped: signal if its context was signal.NotifyContext's
// and a signal ended it.
func stopReason(ctx context.Context, stuck bool) string {
	if stuck {
		return stoppedError
	}
	if t := reflect.TypeOf(context.Cause(ctx)); t != nil && t.PkgPath() == "os/signal" {
		return stoppedSignal
	}
	return stoppedShutdown
}

// timesOut is when an attempt of the job that began then exceeds its timeout, or the job
// its total timeout.
func timesOut(rec *storage.Record, began time.Time) time.Time {
	end := began.Add(rec.Timeout)
	if rec.TotalTimeout > 0 {
		if total := rec.CreatedAt.Add(rec.TotalTimeout); total.Before(end) {
			return total
		}
	}
	return end
}

// workerLost takes a job from the worker that holds it, if any. With a cause, the
// worker's next heartbeat names the job.
func (c *core) workerLost(held storage.Held, cause error) {
	c.workers.drop(held, cause)
	c.letIn(held)
}

// watchWorkers has maintenance look at the workers at t, if it is not zero.
func (c *core) watchWorkers(t time.Time) {
	if r := c.run.Load(); r != nil {
		r.maintenance.workers.By(t)
	}
}

// heldRecord looks up a job that a worker holds. If the worker has lost the job, cause
// says why.
func (c *core) heldRecord(
	ctx context.Context, worker string, held storage.Held,
) (rec storage.Record, cause, err error) {
	rec, err = c.store.Get(ctx, held.ID)
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

// lookAtWorkers fails what workers hold beyond its time, and what dead workers hold. It
// returns when to look again. Maintenance calls it.
func (r *run) lookAtWorkers(_ context.Context, now time.Time) (next time.Time, err error) {
	late, dead, next := r.c.workers.due(now)
	for _, claim := range late {
		err = errors.Join(err, r.failClaim(claim, policy.Outcome{Kind: policy.TimedOut}, ojs.ErrTimeout))
	}
	for _, s := range dead {
		at, failed := r.mourn(s, now)
		next, err = earliest(next, at), errors.Join(err, failed)
	}
	if err != nil {
		next = earliest(next, now.Add(storageBackoff(1)))
	}
	return next, err
}

// mourn fails the attempts of a silent worker, unless one of its leases shows that it
// lives. It returns when to look again.
func (r *run) mourn(s silent, now time.Time) (next time.Time, err error) {
	c := r.c
	claims := c.workers.heldBy(s.worker)
	last := s.since
	for _, held := range claims {
		rec, cause, err := c.heldRecord(r.base, s.worker, held)
		if err != nil {
			return time.Time{}, err
		}
		if renewed := rec.LeaseUntil.Add(-rec.Lease); cause == nil && renewed.After(last) {
			last = renewed
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
		err = errors.Join(err, r.failClaim(claimOf{s.worker, held}, o, ojs.ErrLeaseLost))
	}
	if err != nil {
		c.workers.exhume(s)
		return time.Time{}, err
	}
	c.log.Warn("worker is silent: its attempts have failed", "component", "worker", "category", "error",
		"worker_id", s.worker,
		"silent_seconds", now.Sub(last).Seconds(), "jobs", len(claims))
	if running {
		c.emit(event.Event{Type: event.WorkerStopped, Subject: s.worker, WorkerID: s.worker,
			Reason: stoppedError})
	}
	return time.Time{}, nil
}

// failClaim ends an attempt of a worker with an outcome that the worker did not report.
// The worker's next heartbeat names the job as lost by cause. The error is the storage's.
func (r *run) failClaim(claim claimOf, o policy.Outcome, cause error) error {
	c := r.c
	rec, lost, err := c.heldRecord(r.base, claim.worker, claim.held)
	if err != nil {
		return err
	}
	if lost != nil {
		c.workerLost(claim.held, lost)
		return nil
	}
	switch err := c.delivery(&rec, nil).end(r.base, o, nil, nil); {
	case err == nil, foreign.Is(err, ojs.ErrLeaseLost):
		c.workers.tell(claim.worker, claim.held, cause)
		return nil
	default:
		return err
	}
}
