package storage

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/ojsengine/ojs"
)

// GroupStore changes many jobs that depend on one another in one step: workflows that are
// cancelled or retried.
type GroupStore interface {
	// CancelAll cancels jobs, in one atomic step [group-8]: those that wait
	// (ojs.State.Waiting) end by Record.Cancel, in the order given, and the others stay
	// as they are [group-1]. It returns the cancelled ones, and those that waited for
	// them and have moved, as Settled.Moved [group-1]. If the first of the jobs does not
	// wait, the call fails with an *ojs.TransitionError, or ojs.ErrNotFound, and changes
	// nothing [group-2]. An id is in a call once.
	CancelAll(ctx context.Context, now time.Time, ids []string) (cancelled, moved []Record, err error)

	// Revive brings back jobs that have ended, all or none, in one atomic step [group-4,
	// group-8]. Each stored job becomes the record that the batch has for it, under its
	// version raised by one, and keeps its place in the order of insertion [group-3].
	// Records come as for Insert, but with the Version of the stored job [group-3,
	// group-4]. A job with DependsOn waits for jobs as a new one does, also for others of
	// the batch [group-3, group-5]. Jobs that it waited for before its end are not
	// counted [group-5]. A job with an OrderingKey waits for its turn as a new one does,
	// at the place of its insertion [order-8]. A job with neither keeps its Dependencies
	// as Settle does [group-3]. The call returns the jobs that move by it, as
	// Inserted.Moved [group-5]. Jobs become available in the order of the batch
	// [group-3]. Neither uniqueness nor queues are asked [group-3].
	//
	// A job that is not stored fails the call with ojs.ErrNotFound, one with another
	// version with ErrFenced, and one that has not ended with an *ojs.TransitionError
	// [group-4, each-4]. A state or a DependsOn that fails Insert fails it in the same
	// way [group-4]. An id is in a call once.
	Revive(ctx context.Context, now time.Time, batch []Insert) (moved []Record, err error)
}

// CheckRevive refuses a batch for Revive whose states or DependsOn are not as Insert
// wants them [group-4].
func CheckRevive(batch []Insert) error {
	if err := CheckBegin(batch); err != nil {
		return err
	}
	return checkDependsOn(batch, false) // each has the place in line of its insertion
}

// CheckBegin refuses a batch with a job whose state is not one to begin in [insert-5].
func CheckBegin(batch []Insert) error {
	for i := range batch {
		switch state := batch[i].Record.State; state {
		case ojs.StateAvailable, ojs.StateScheduled, ojs.StatePending:
		default:
			return &ojs.InvalidError{Code: ojs.InvalidCodeEnvelope, Field: "state",
				Reason: fmt.Sprintf("%q is no state to begin in", state)}
		}
	}
	return nil
}

// CheckRevived refuses a batch for Revive with a job that is not stored or may not be
// revived, or one that is to wait for a job that is not stored. was returns the version
// and the state of a stored job, "" if there is none.
func CheckRevived(batch []Insert, was func(id string) (uint64, ojs.State)) error {
	for i := range batch {
		var r Record
		r.ID = batch[i].Record.ID
		if r.Version, r.State = was(r.ID); r.State == "" {
			return fmt.Errorf("%w: job %q", ojs.ErrNotFound, r.ID)
		}
		if err := r.CanRevive(&batch[i].Record); err != nil {
			return err
		}
	}
	for i := range batch {
		for _, id := range batch[i].DependsOn {
			if _, state := was(id); state == "" {
				return &ojs.DependencyError{ID: batch[i].Record.ID, Dependency: id}
			}
		}
	}
	return nil
}

// CanRevive checks a job of Revive: r is the stored record, and to the one that it is to
// become. The error is that of Revive.
func (r *Record) CanRevive(to *Record) error {
	if r.Version != to.Version {
		return ErrFenced
	}
	if !r.State.Terminal() {
		return &ojs.TransitionError{ID: r.ID, From: r.State, To: to.State}
	}
	return nil
}

// WaitsMore makes a waiting job wait for one more [group-6]. It does not raise the
// version, and replaces Dependencies by a changed copy [group-6].
func (r *Record) WaitsMore() {
	d := *r.Dependencies
	d.Unfinished++
	r.Dependencies = &d
}

// Awaited reports whether a job of the batch has AwaitedBy.
func Awaited(batch []Insert) bool {
	return slices.ContainsFunc(batch, func(in Insert) bool { return len(in.AwaitedBy) > 0 })
}
