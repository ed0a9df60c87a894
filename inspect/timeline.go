package inspect

import (
	"cmp"
	"encoding/json"
	"slices"
	"time"

	"github.com/ojsengine/ojs"
	"github.com/ojsengine/ojs/policy"
	"github.com/ojsengine/ojs/storage"
)

// Timeline is the life of a job: what has happened, and what is to come.
type Timeline struct {
	Job *ojs.JobInfo

	// Attempts are the attempts that are known, oldest first, the one that runs included:
	// the last 10 that failed, the last that did not count, and the one that ended the
	// job.
	Attempts []Attempt

	// Notes are what calls and replay rules have changed, oldest first.
	Notes []ojs.Note

	// Worker holds an active job until LeaseUntil, unless it renews its lease. Of a job
	// that is not active Worker is the last one, "" if none, and LeaseUntil is zero.
	Worker     string
	LeaseUntil time.Time

	// Next are the attempts to come, if each of them fails at once: the times of the
	// policy without jitter, at most 50. A pending job, one that has ended, and one whose
	// policy has no attempt left have none.
	Next []NextAttempt

	Deadline time.Time // when the job ends if it still waits then; zero: never

	// Checkpoint is what an attempt has saved for the attempts after it, as it is stored:
	// encoded, if the engine has a codec. nil: there is none, or the job has ended.
	Checkpoint json.RawMessage
}

// Attempt is one attempt of a job.
type Attempt struct {
	N          int       // as ojs.JobHeader.Attempt had it; a replay begins at 1 again
	Start, End time.Time // Start is zero if it is not known, End while it runs
	Worker     string    // "": not known
	Outcome    AttemptOutcome
	Failure    *ojs.Failure // of OutcomeFailed
}

// Duration is how long the attempt took, until now if it runs; 0 if that is not known.
func (a *Attempt) Duration(now time.Time) time.Duration {
	end := a.End
	if end.IsZero() {
		end = now
	}
	if a.Start.IsZero() {
		return 0
	}
	return max(end.Sub(a.Start), 0)
}

// AttemptOutcome is how an attempt ended.
type AttemptOutcome string

// The outcomes.
const (
	OutcomeRunning   AttemptOutcome = "running"
	OutcomeCompleted AttemptOutcome = "completed"
	OutcomeFailed    AttemptOutcome = "failed"
	OutcomeCancelled AttemptOutcome = "cancelled" // the job was cancelled while it ran
	OutcomeSnoozed   AttemptOutcome = "snoozed"   // the handler put the job off; it did not count
	OutcomeReturned  AttemptOutcome = "returned"  // a stop interrupted it; it did not count
)

// NextAttempt is an attempt to come.
type NextAttempt struct {
	N  int
	At time.Time
}

// maxNext bounds Timeline.Next.
const maxNext = 50

// TimelineOf returns the life of a job that has been read, as far as the record has it.
func TimelineOf(rec *storage.Record, now time.Time) *Timeline {
	t := &Timeline{Job: &rec.JobInfo, Worker: rec.Worker, LeaseUntil: rec.LeaseUntil,
		Checkpoint: rec.Checkpoint}
	if rec.State.Waiting() {
		t.Deadline = rec.Deadline()
	}
	for i := range rec.Errors {
		f := &rec.Errors[i]
		t.Attempts = append(t.Attempts, Attempt{f.Attempt, f.StartedAt, f.At, f.Worker, OutcomeFailed, f})
	}
	for _, n := range rec.History {
		a := Attempt{N: n.Attempt, Start: n.StartedAt, End: n.At, Worker: n.Worker}
		switch n.What {
		case ojs.NoteSnoozed:
			a.Outcome = OutcomeSnoozed
		case ojs.NoteReturned:
			a.Outcome = OutcomeReturned
		default:
			t.Notes = append(t.Notes, n)
			continue
		}
		t.Attempts = append(t.Attempts, a)
	}
	slices.SortStableFunc(t.Attempts, func(a, b Attempt) int { return a.End.Compare(b.End) })
	if a, ok := latest(rec, t.Attempts); ok {
		t.Attempts = append(t.Attempts, a)
	}
	t.Next = nextAttempts(rec, now)
	return t
}

// latest is the latest attempt of a job, if none of those that are noted is it: the one
// that runs, that completed the job, or during which it was cancelled.
func latest(rec *storage.Record, noted []Attempt) (a Attempt, ok bool) {
	a = Attempt{N: rec.Attempt, Start: rec.StartedAt, End: rec.FinishedAt, Worker: rec.Worker}
	switch rec.State {
	case ojs.StateActive:
		a.Outcome, a.End = OutcomeRunning, time.Time{}
		return a, true
	case ojs.StateCompleted:
		a.Outcome = OutcomeCompleted
		return a, true
	case ojs.StateCancelled:
		a.Outcome = OutcomeCancelled
		ended := !rec.StartedAt.IsZero() && slices.ContainsFunc(noted, func(b Attempt) bool {
			return !b.End.Before(rec.StartedAt)
		})
		return a, rec.Attempt > 0 && !ended
	}
	return a, false
}

// nextAttempts are the attempts to come if each of them fails at once.
func nextAttempts(rec *storage.Record, now time.Time) (next []NextAttempt) {
	at, n := now, rec.Attempt
	add := func(t time.Time) bool {
		if at = t; at.Before(now) {
			at = now
		}
		if d := rec.Deadline(); !d.IsZero() && !at.Before(d) {
			return false
		}
		n++
		next = append(next, NextAttempt{n, at})
		return len(next) < maxNext
	}
	goesOn := true
	switch rec.State {
	case ojs.StateScheduled:
		goesOn = add(rec.ScheduledAt)
	case ojs.StateAvailable:
		goesOn = add(now)
	case ojs.StateRetryable:
		goesOn = add(rec.NextRetryAt)
	case ojs.StateActive:
	default:
		return nil
	}
	nominal := rec.Retry
	nominal.Jitter = ojs.JitterOff
	for goesOn && n < cmp.Or(rec.Retry.Runs(), 1) {
		goesOn = add(at.Add(policy.Delay(nominal, max(n, 1), 0)))
	}
	return next
}
