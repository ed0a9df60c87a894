package engine

import (
	"errors"
	"log/slog"
	"time"

	"github.com/ojsengine/ojs"
	"github.com/ojsengine/ojs/policy"
	"github.com/ojsengine/ojs/storage"
)

// finish settles an attempt whose handler has returned, unless its job is not its own any more.
func (r *run) finish(a *attempt, o policy.Outcome) {
	c := r.c
	c.mu.Lock()
	mine := a.phase == running
	if mine {
		a.phase = settling
	}
	cause := a.cause
	c.mu.Unlock()
	if !mine {
		c.jobLog(&a.rec.JobHeader).Debug("late result dropped", "cause", cause)
		return
	}
	if o.Kind == policy.Returned && o.Err != nil {
		switch cause {
		case causeTimeout:
			o.Kind = policy.TimedOut
		case causeShutdown:
			o.Kind = policy.Interrupted
		}
	}
	r.settleAttempt(a, o)
}

// settleAttempt decides and stores the fate of an attempt that the caller has taken from running.
func (r *run) settleAttempt(a *attempt, o policy.Outcome) {
	rec := r.decide(a, o)
	err := r.store(&rec)
	r.c.mu.Lock()
	a.phase = over
	r.c.mu.Unlock()
	r.settled(&rec, err)
}

// decide returns the job as an attempt of it leaves it.
func (r *run) decide(a *attempt, o policy.Outcome) storage.Record {
	now := r.c.now()
	if o.Kind == policy.TimedOut {
		o.Limit, o.Elapsed = a.limit, now.Sub(a.rec.StartedAt)
		if a.total {
			o.Kind, o.Elapsed = policy.TotalTimedOut, now.Sub(a.rec.CreatedAt)
		}
	}
	rec := a.rec
	d := policy.Decide(&rec.JobInfo, o, now, r.c.rnd.float())
	d.Apply(&rec.JobInfo, now)
	if d.State == ojs.StateCompleted {
		r.c.mu.Lock()
		rec.Result = a.result
		r.c.mu.Unlock()
	}
	r.logOutcome(&rec, d, now)
	return rec
}

// settleOverrun settles an attempt whose handler has not returned in the grace period after its timeout. It is the
// keeper's, which does not wait for a storage that fails: the attempt's timer asks it again.
func (r *run) settleOverrun(a *attempt) {
	rec := r.decide(a, policy.Outcome{Kind: policy.TimedOut})
	s, err := r.settleOnce(&rec)
	r.c.mu.Lock()
	if err != nil && r.attempts[a.held()] == a && a.phase == settling {
		a.phase = running
		a.forceAt = r.c.now().Add(storageBackoff(1))
		r.sched.Set(&a.timer, a.next())
		r.c.mu.Unlock()
		return
	}
	a.phase = over
	r.c.mu.Unlock()
	if err == nil {
		err = s.Err
	}
	r.settled(&rec, err)
}

// settleStalled decides and stores the fate of a job whose lease ran out and that was handed to this engine. If it cannot
// be stored now the new lease runs out in its turn.
func (r *run) settleStalled(rec storage.Record) {
	now := r.c.now()
	o := policy.Outcome{Kind: policy.LeaseExpired, Limit: rec.Lease, Elapsed: now.Sub(rec.StartedAt)}
	d := policy.Decide(&rec.JobInfo, o, now, r.c.rnd.float())
	d.Apply(&rec.JobInfo, now)
	r.logOutcome(&rec, d, now)
	s, err := r.settleOnce(&rec)
	if err == nil {
		err = s.Err
	}
	r.settled(&rec, err)
}

// settled tells the engine what has been stored, or why nothing was.
func (r *run) settled(rec *storage.Record, err error) {
	switch {
	case errors.Is(err, storage.ErrFenced):
		r.c.jobLog(&rec.JobHeader).Debug("late result refused")
		return
	case err != nil:
		r.c.jobLog(&rec.JobHeader).Error("outcome not stored; the job runs again when its lease has run out", "error", err)
		return
	}
	if rec.State.Terminal() {
		r.c.waiters.ended(rec.ID)
		return
	}
	r.c.mu.Lock()
	defer r.c.mu.Unlock()
	r.wakeAt(rec.WakeAt())
}

// store settles rec, again and again while the storage fails, until the engine stops.
func (r *run) store(rec *storage.Record) error {
	for n := 1; ; n++ {
		s, err := r.settleOnce(rec)
		if err == nil {
			if n > 1 && r.storedBefore(rec, s) {
				return nil
			}
			return s.Err
		}
		if errors.Is(err, ojs.ErrClosed) || !r.pause(storageBackoff(n)) {
			return err
		}
	}
}

func (r *run) settleOnce(rec *storage.Record) (storage.Settled, error) {
	s, err := r.c.store.Settle(r.base, r.c.now(), []storage.Change{{Record: *rec}}, make([]storage.Settled, 0, 1))
	if err != nil {
		r.c.jobLog(&rec.JobHeader).Error("settle failed", "error", err)
		r.c.uncertain(err)
		return storage.Settled{}, err
	}
	return s[0], nil
}

// storedBefore reports whether a Settle that failed had stored rec all the same: the next try then finds the job one
// version on, and as rec would have it.
func (r *run) storedBefore(rec *storage.Record, s storage.Settled) bool {
	if !errors.Is(s.Err, storage.ErrFenced) || s.Version != rec.Version+1 {
		return false
	}
	there, err := r.c.store.Get(r.base, rec.ID)
	return err == nil && there.Version == s.Version && there.State == rec.State &&
		there.FinishedAt.Equal(rec.FinishedAt) && there.NextRetryAt.Equal(rec.NextRetryAt)
}

// pause waits on the engine's clock. It reports false if the engine's stop ends the wait.
func (r *run) pause(d time.Duration) bool {
	r.c.mu.Lock()
	s := r.newSleep(d, true)
	r.c.mu.Unlock()
	select {
	case <-s.over:
		return true
	case <-r.closing:
	}
	r.sched.Cancel(&s.timer)
	r.c.mu.Lock()
	s.wake()
	r.c.mu.Unlock()
	return false
}

// logOutcome writes the line of a failed attempt.
func (r *run) logOutcome(rec *storage.Record, d policy.Decision, now time.Time) {
	f := d.Failure
	if f == nil {
		return
	}
	level, what := slog.LevelError, "job discarded"
	switch {
	case d.DeadLetter:
		what = "job dead-lettered"
	case d.State == ojs.StateRetryable:
		level, what = slog.LevelWarn, "attempt failed"
	}
	if !r.c.log.Enabled(r.base, level) {
		return
	}
	l := r.c.jobLog(&rec.JobHeader).With("error_type", f.Type, "error", f.Message, "why", string(d.Why))
	if d.State == ojs.StateRetryable {
		l = l.With("retry_in", d.RunAt.Sub(now))
	}
	if f.Backtrace != nil {
		l = l.With("backtrace", f.Backtrace)
	}
	l.Log(r.base, level, what)
}
