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
		case ojs.ErrTimeout:
			o.Kind = policy.TimedOut
		case ojs.ErrShutdown:
			o.Kind = policy.Interrupted
		}
	}
	r.settleAttempt(a, o)
}

// settleAttempt decides and stores the fate of an attempt that the caller has taken from running.
func (r *run) settleAttempt(a *attempt, o policy.Outcome) {
	f := r.decide(a, o)
	err := r.store(f)
	r.c.mu.Lock()
	a.phase = over
	r.c.mu.Unlock()
	r.settled(&f.rec, err)
}

// fate is what becomes of a job after an attempt: the job as it shall be, and how that came about.
type fate struct {
	rec      storage.Record
	decision policy.Decision
	kind     policy.Kind
	at       time.Time
	took     time.Duration
}

// decide decides what becomes of an attempt's job.
func (r *run) decide(a *attempt, o policy.Outcome) *fate {
	now := r.c.now()
	if o.Kind == policy.TimedOut {
		o.Limit, o.Elapsed = a.limit, now.Sub(a.rec.StartedAt)
		if a.total {
			o.Kind, o.Elapsed = policy.TotalTimedOut, now.Sub(a.rec.CreatedAt)
		}
	}
	f := r.apply(&a.rec, o, now)
	if f.rec.State == ojs.StateCompleted {
		r.c.mu.Lock()
		f.rec.Result = a.result
		r.c.mu.Unlock()
	}
	return f
}

func (r *run) apply(rec *storage.Record, o policy.Outcome, now time.Time) *fate {
	f := &fate{rec: *rec, kind: o.Kind, at: now, took: now.Sub(rec.StartedAt)}
	f.decision = policy.Decide(&rec.JobInfo, o, now, r.c.rnd.float())
	f.decision.Apply(&f.rec.JobInfo, now)
	r.logOutcome(&f.rec, f.decision, now)
	return f
}

// settleOverrun settles an attempt whose handler has not returned in the grace period after its timeout. It is the
// keeper's, which does not wait for a storage that fails: the attempt's timer asks it again.
func (r *run) settleOverrun(a *attempt) {
	f := r.decide(a, policy.Outcome{Kind: policy.TimedOut})
	s, err := r.settleOnce(f)
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
	r.settled(&f.rec, err)
}

// settleStalled decides and stores the fate of a job whose lease ran out and that was handed to this engine. If it cannot
// be stored now the new lease runs out in its turn.
func (r *run) settleStalled(rec storage.Record) {
	now := r.c.now()
	o := policy.Outcome{Kind: policy.LeaseExpired, Limit: rec.Lease, Elapsed: now.Sub(rec.StartedAt)}
	f := r.apply(&rec, o, now)
	s, err := r.settleOnce(f)
	if err == nil {
		err = s.Err
	}
	r.settled(&f.rec, err)
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

// store settles a job, again and again while the storage fails, until the engine stops.
func (r *run) store(f *fate) error {
	for n := 1; ; n++ {
		s, err := r.settleOnce(f)
		if err == nil {
			if n > 1 && r.storedBefore(&f.rec, s) {
				r.c.hub.end(r.c.hub.begin(), r.endedEvents(f))
				return nil
			}
			return s.Err
		}
		if errors.Is(err, ojs.ErrClosed) || !r.pause(storageBackoff(n)) {
			return err
		}
	}
}

func (r *run) settleOnce(f *fate) (storage.Settled, error) {
	op := r.c.hub.begin()
	s, err := r.c.store.Settle(r.base, r.c.now(), []storage.Change{{Record: f.rec}}, make([]storage.Settled, 0, 1))
	switch {
	case err != nil:
		r.c.hub.end(op)
		r.c.jobLog(&f.rec.JobHeader).Error("settle failed", "error", err)
		r.c.uncertain(err)
		return storage.Settled{}, err
	case op != 0 && s[0].Err == nil:
		r.c.hub.end(op, r.endedEvents(f))
	default:
		r.c.hub.end(op)
	}
	return s[0], nil
}

func (r *run) endedEvents(f *fate) *batch {
	return r.c.batch(&f.rec, f.rec.Version+1, f.at, endedEvents(&f.rec, f.kind, f.decision, f.took)...)
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
