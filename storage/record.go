package storage

import (
	"bytes"
	"encoding/json"
	"maps"
	"slices"
	"time"

	"github.com/ojsengine/ojs"
	"github.com/ojsengine/ojs/internal/times"
	"github.com/ojsengine/ojs/policy"
)

// Record is a stored job: what lookups show, and what only storage and engine know. Its
// methods are the transitions that a storage makes by itself; each changes the record in
// place and raises its version.
type Record struct {
	ojs.JobInfo
	Version    uint64    // raised by each transition; 0: not stored yet [insert-1, settle-1]
	Worker     string    // who claimed it last [claim-1]
	LeaseUntil time.Time // active: when the claim lapses unless it is renewed; else zero [lease-1]

	// Fingerprint is what makes the job equal to others; "": it was enqueued without a
	// unique policy [unique-11].
	Fingerprint string

	// Checkpoint is what an attempt has saved for the attempts after it [lease-5]. It
	// goes when the job ends [due-3].
	Checkpoint json.RawMessage
}

// Deadline is when the job ends if it is still waiting: the earliest of ExpiresAt, the
// end of its total timeout, and, until its first attempt has started, the end of its
// enqueue TTL [claim-9, due-3, due-8]. Zero: never. A storage that keeps it apart writes
// it with every Change, one with AttemptFieldsOnly too, since StartedAt is among what
// attempts change [due-8].
func (r *Record) Deadline() time.Time {
	d := r.ExpiresAt
	if r.TotalTimeout > 0 {
		d = earlier(r.CreatedAt.Add(r.TotalTimeout), d)
	}
	if r.EnqueueTTL > 0 && r.StartedAt.IsZero() {
		d = earlier(r.CreatedAt.Add(r.EnqueueTTL), d)
	}
	return d
}

// WakeAt is when Due has to look at the job next, given the state it is in [due-1, due-3,
// due-5]. Zero: never. A storage that keeps its jobs in the order of this time finds in
// one place everything that comes due.
func (r *Record) WakeAt() time.Time {
	switch r.State {
	case ojs.StateScheduled:
		return earlier(r.ScheduledAt, r.Deadline())
	case ojs.StateRetryable:
		return earlier(r.NextRetryAt, r.Deadline())
	case ojs.StateAvailable, ojs.StatePending:
		return r.Deadline()
	case ojs.StateActive:
		return r.LeaseUntil
	}
	return time.Time{}
}

func earlier(t, deadline time.Time) time.Time {
	if deadline.IsZero() || t.Before(deadline) {
		return t
	}
	return deadline
}

// Expired reports whether the job is waiting and its deadline has come [claim-9, due-3].
func (r *Record) Expired(now time.Time) bool {
	d := r.Deadline()
	return r.State.Waiting() && !d.IsZero() && !now.Before(d)
}

// KeptUntil is until when the job, once it has ended, is not pruned [prune-5, prune-6].
// It is the later of the end of its ResultTTL and the end of its unique policy's period,
// if that counts ended jobs: without the job, an equal one would be let in [prune-5,
// prune-6]. Zero: it may be pruned at once. It is not zero for an ended job with a Keeper
// [prune-10]. Before the job's end only the policy counts.
func (r *Record) KeptUntil() time.Time {
	until := r.countedUntil()
	if r.State.Terminal() {
		until = times.Latest(until, r.ResultKeptUntil())
		if r.Keeper() != "" && until.IsZero() {
			until = r.FinishedAt
		}
	}
	return until
}

// Keeper is the id of the workflow that keeps the job [prune-10]: its meta value
// workflow_id. "" if it belongs to none.
func (r *Record) Keeper() string {
	id, _ := r.Meta[metaWorkflow].(string)
	return id
}

// Keeps reports whether the job still keeps the jobs of which it is the Keeper: until it
// has ended and its own KeptUntil is over [prune-10].
func (r *Record) Keeps(now time.Time) bool {
	return !r.State.Terminal() || r.KeptUntil().After(now)
}

const metaWorkflow = "workflow_id"

// stepMeta are the entries of meta that package workflow gives its steps.
var stepMeta = []string{metaWorkflow, "step_id", "workflow_name", "workflow_type", "workflow_part",
	"workflow_callback", "workflow_member", "step_index", "workflow_steps", "steps_remaining"}

// KeptOn is until when Prune keeps a job on that has ended, each time that KeptUntil is
// over and the Keeper keeps the job: for as long again as since its end, but for a second
// at least and an hour at most [prune-10].
func KeptOn(now, finished time.Time) time.Time {
	return now.Add(min(max(now.Sub(finished), time.Second), time.Hour))
}

// ResultKeptUntil is when the ResultTTL of a job that has ended is over [prune-6]. Zero:
// it has none.
func (r *Record) ResultKeptUntil() time.Time {
	switch {
	case r.ResultTTL == ojs.KeepForever:
		return forever
	case r.ResultTTL <= 0:
		return time.Time{}
	}
	return r.FinishedAt.Add(r.ResultTTL)
}

// forever is the last second that RFC 3339 has a word for.
var forever = time.Date(9999, 12, 31, 23, 59, 59, 0, time.UTC)

// countedUntil is until when the unique policy of the job counts it after its end. Zero:
// it does not.
func (r *Record) countedUntil() time.Time {
	p := r.Unique
	if p == nil || p.Period <= 0 && p.PeriodMonths <= 0 ||
		!slices.ContainsFunc(p.States, ojs.State.Terminal) {
		return time.Time{}
	}
	return p.PeriodEnd(r.CreatedAt)
}

// LeaseFor is how long a claim or a renewal with this Lease holds the job: its own lease,
// unless that is ojs.DefaultLease and the Lease is set [claim-18, lease-6]. A negative
// Lease holds any job, for -Lease [claim-18, lease-6].
func (r *Record) LeaseFor(lease time.Duration) time.Duration {
	if lease == 0 || lease > 0 && r.Lease != ojs.DefaultLease {
		return r.Lease
	}
	return max(lease, -lease)
}

// Claim makes an available job active: one more attempt, held by worker for the lease
// (LeaseFor) [claim-1, claim-18]. It begins at no progress, and with the checkpoint of
// the attempts before [lease-5].
func (r *Record) Claim(now time.Time, worker string, lease time.Duration) {
	r.State = ojs.StateActive
	r.Attempt++
	r.StartedAt = now
	r.Worker = worker
	r.LeaseUntil = now.Add(r.LeaseFor(lease))
	r.Progress = 0
	r.Version++
}

// Extend renews the lease of an active job and keeps what the extension says [lease-1,
// lease-5].
func (r *Record) Extend(now time.Time, x Extension) {
	r.LeaseUntil = now.Add(r.LeaseFor(x.Lease))
	r.Progress = max(r.Progress, x.Progress)
	if x.Checkpoint != nil {
		r.Checkpoint = bytes.Clone(x.Checkpoint)
	}
}

// Unclaim takes back what Claim has done to a job that no handler has begun to work on
// [unclaim-1]. The traces of an attempt before it (when it began, its worker, its
// progress) are lost [unclaim-1]. A job that Settle made active without an attempt has
// none afterwards either [unclaim-1].
func (r *Record) Unclaim() {
	r.State = ojs.StateAvailable
	r.Attempt = max(r.Attempt-1, 0)
	if r.Attempt == 0 {
		r.StartedAt = time.Time{}
	}
	r.Worker, r.LeaseUntil = "", time.Time{}
	r.Version++
}

// Promote makes a scheduled or retryable job available [due-1].
func (r *Record) Promote(now time.Time) {
	r.State = ojs.StateAvailable
	r.NextRetryAt = time.Time{}
	if r.EnqueuedAt.IsZero() {
		r.EnqueuedAt = now
	}
	r.Version++
}

// TakeOverLease bounds how long a job is held that Due hands over [lease-7]. Its new
// holder settles it at once.
const TakeOverLease = 90 * time.Second

// TakeOver hands an active job whose lease has run out to a new holder, who settles it
// [lease-3]. The attempt stays the same [lease-3]. The job is held for its own lease, but
// for TakeOverLease at most [lease-7].
func (r *Record) TakeOver(now time.Time) {
	r.LeaseUntil = now.Add(min(r.Lease, TakeOverLease))
	r.Version++
}

// Expire ends a waiting job whose deadline has come, with a failure that says which
// deadline it was [due-3, due-8]. If several end at the same time, that is the total
// timeout before the enqueue TTL, and that before ExpiresAt [due-10]. A job that has
// exceeded its total timeout has exhausted its attempts: it becomes a dead letter if its
// retry policy says so [due-10]. A job that ends by its ExpiresAt or its enqueue TTL
// never does [due-10].
func (r *Record) Expire(now time.Time) {
	total := r.TotalTimeout > 0 && r.Deadline().Equal(r.CreatedAt.Add(r.TotalTimeout))
	f := &ojs.Failure{Code: ojs.CodeRetry}
	if total {
		f.Type, f.Reason = policy.ErrorTypeTotalTimeout, ojs.ReasonHandlerTimeout
		f.Message = "the job exceeded its total timeout of " + r.TotalTimeout.String() + " while it waited"
		f.Details = map[string]any{
			"timeout_kind":    "total",
			"limit_seconds":   r.TotalTimeout.Seconds(),
			"elapsed_seconds": now.Sub(r.CreatedAt).Seconds(),
		}
	} else if r.EnqueueTTL > 0 && r.StartedAt.IsZero() && r.Deadline().Equal(r.CreatedAt.Add(r.EnqueueTTL)) {
		f.Type, f.Reason = policy.ErrorTypeEnqueueTTL, ojs.ReasonExpired
		f.Message = "the job had not started at the end of its enqueue TTL of " + r.EnqueueTTL.String()
		f.Details = map[string]any{
			"timeout_kind":    "enqueue_ttl",
			"limit_seconds":   r.EnqueueTTL.Seconds(),
			"elapsed_seconds": now.Sub(r.CreatedAt).Seconds(),
		}
	} else {
		f.Type, f.Reason = policy.ErrorTypeExpired, ojs.ReasonExpired
		f.Message = "the job was still waiting at its expires_at"
	}
	r.discard(now, f)
	r.NextRetryAt = time.Time{}
	if total && r.Retry.OnExhaustion == ojs.ExhaustionDeadLetter {
		r.DeadLetteredAt = now
	}
}

// discard ends the job with a failure of its latest attempt.
func (r *Record) discard(now time.Time, f *ojs.Failure) {
	f.Attempt, f.At = r.Attempt, now
	r.State = ojs.StateDiscarded
	r.FinishedAt = now
	r.Error = f
	r.Checkpoint = nil
	r.Version++
}

// CanSettle checks a change that Settle is asked for: r is the stored record and to the
// one given. The error is that of [Settled]: ErrFenced if the versions differ, an
// *ojs.TransitionError if no job may go from the one state to the other, or nil.
func (r *Record) CanSettle(to *Record) error { return CanSettle(r.Version, r.State, to) }

// CanSettle is Record.CanSettle of a stored record with a version and a state.
func CanSettle(version uint64, from ojs.State, to *Record) error {
	if version != to.Version {
		return ErrFenced
	}
	if stays := from == to.State && from.Waiting(); !stays && !from.CanBecome(to.State) {
		return &ojs.TransitionError{ID: to.ID, From: from, To: to.State}
	}
	return nil
}

// Cancel ends a job that has not ended [unique-3].
func (r *Record) Cancel(now time.Time) {
	r.State = ojs.StateCancelled
	r.LeaseUntil = time.Time{}
	r.NextRetryAt = time.Time{}
	r.FinishedAt = now
	r.Checkpoint = nil
	r.Version++
}

// TakenOver reports whether a scheduled job that is equal takes r over by Update, by the
// strategy of r's policy [unique-5, unique-18, unique-19].
func (r *Record) TakenOver() bool {
	switch r.Unique.Strategy() {
	case ojs.ConflictReplaceExceptSchedule:
		return true
	case ojs.ConflictDebounce:
		return r.State == ojs.StateScheduled
	}
	return false
}

// Update gives a scheduled job the args and meta of an equal one, which it takes over
// [unique-5]. A step of a workflow keeps the entries that make it one [unique-5]. With
// ojs:debounce it also gets its ScheduledAt and ExpiresAt, but no ScheduledAt later than
// the policy's MaxWait after its own CreatedAt [unique-18].
func (r *Record) Update(from *Record) {
	meta := from.Meta
	if r.Keeper() != "" {
		meta = make(map[string]any)
		maps.Copy(meta, from.Meta)
		for _, key := range stepMeta {
			if value, ok := r.Meta[key]; ok {
				meta[key] = value
			}
		}
	}
	r.Args, r.Meta = from.Args, meta
	r.Version++
	if from.Unique == nil || from.Unique.Strategy() != ojs.ConflictDebounce {
		return
	}
	r.ScheduledAt, r.ExpiresAt = from.ScheduledAt, from.ExpiresAt
	if most := from.Unique.MaxWait; most > 0 && r.ScheduledAt.Sub(r.CreatedAt) > most {
		r.ScheduledAt = r.CreatedAt.Add(most)
	}
}

// Drop ends an available job to make room in its queue [insert-8].
func (r *Record) Drop(now time.Time) {
	r.discard(now, &ojs.Failure{
		Code: ojs.CodeDiscard, Type: policy.ErrorTypeDropped, Reason: ojs.ReasonDropped,
		Message: "the queue was full and the job had been available longest",
	})
}

// Copy returns a record that shares nothing with r.
func (r *Record) Copy() Record {
	c := *r
	c.JobInfo = *r.Clone()
	c.Checkpoint = bytes.Clone(r.Checkpoint)
	return c
}
