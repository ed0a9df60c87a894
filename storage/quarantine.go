package storage

import (
	"context"
	"time"

	"github.com/ojsengine/ojs"
)

// Quarantiner is the ability to set aside stored records that do not decode: somebody has edited them, a disk has damaged them, a
// later version has written them. It is optional, for storages that decode what they have stored; see As.
//
// Whatever call meets such a record moves it to the quarantine, in the same step or right after it, and goes on without it: no other
// record is changed for it, no attempt of any job is spent, and Claim and Due bring what they would bring without it. The first that
// set it aside tells everybody who listens in its process, itself included (Notice.Quarantined).
//
// A record in the quarantine takes part in nothing. A job there is in no List, Counts, depth of a queue, and no Prune; it is equal to
// no other job, so that an equal one, or one with its id, may be enqueued. Get of its id, unless another job has that now, gives an
// *ojs.QuarantinedError, and a Settle of it ojs.ErrNotFound. A recurring entry there does not exist for CronStore, a state of a queue
// not for QueueStore.
type Quarantiner interface {
	// Quarantined returns up to limit of the records in the quarantine, in the order in which they were set aside, after the one
	// with the key; "": from the first on. A limit of 0 or more than 1000 is 1000. None are left when it returns none.
	Quarantined(ctx context.Context, after string, limit int) ([]Quarantined, error)

	// CountQuarantined returns how many records are in the quarantine. It is cheap.
	CountQuarantined(ctx context.Context) (int, error)

	// ReleaseQuarantined puts a record back where it was, once somebody has mended it: a job has its state, its attempts and its
	// place again. One that does not decode yet stays, and the call fails with an *ojs.QuarantinedError. If there is another job
	// with its id, another entry of its name or another state of its queue meanwhile, it stays too, and the call fails with an
	// *ojs.DuplicateError. Uniqueness is not checked. An unknown key gives ojs.ErrNotFound.
	ReleaseQuarantined(ctx context.Context, key string) error

	// DeleteQuarantined deletes a record from the quarantine. An unknown key gives ojs.ErrNotFound.
	DeleteQuarantined(ctx context.Context, key string) error
}

// Quarantined is a record that was set aside.
type Quarantined struct {
	Key    string // names it in the quarantine
	Kind   Kind
	Name   string    // a job's id, a recurring entry's or a queue's name
	Reason string    // why it does not decode, for a person
	At     time.Time // when it was set aside, by the clock of the storage

	// Of a job, as far as they can be read.
	Queue, Type string
	State       ojs.State // "": unknown
}

// Kind says what a record in the quarantine is.
type Kind string

// The kinds.
const (
	KindJob   Kind = "job"
	KindCron  Kind = "cron"  // a recurring entry
	KindQueue Kind = "queue" // the state of a queue
)
