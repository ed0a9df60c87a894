package storage

import (
	"context"
	"time"

	"github.com/ojsengine/ojs"
)

// Quarantiner is the ability to set aside stored records that do not decode: a person has
// edited them, a disk has damaged them, a later version has written them. It is optional,
// for storages that decode what they have stored; see As.
//
// Any call that meets such a record moves it to the quarantine, in the same step or right
// after it, and goes on without it: no other record is changed for it, no attempt of any
// job is spent, and Claim and Due bring what they would bring without it [quarantine-1,
// quarantine-2]. The first that set it aside tells every listener in its process, itself
// included (Notice.Quarantined) [quarantine-8]. The quarantine lasts as long as the
// storage [quarantine-9, quarantine-11].
//
// A record in the quarantine takes part in nothing [quarantine-3]. A job there is in no
// List, Counts, depth of a queue, and no Prune; it is equal to no other job, so that an
// equal one, or one with its id, may be enqueued [quarantine-3, quarantine-7]. The end of
// a job that it waits for is not counted for it, then or later [quarantine-10]. Get of
// its id, unless another job has that now, gives an *ojs.QuarantinedError, and a Settle
// of it ojs.ErrNotFound [quarantine-3, quarantine-7]. A recurring entry there does not
// exist for DocumentStore, a state of a queue not for QueueStore.
type Quarantiner interface {
	// Quarantined returns up to limit of the records in the quarantine, in the order in
	// which they were set aside, after the one with the key; "": from the first on
	// [quarantine-4]. A limit of 0 or more than 1000 is 1000 [quarantine-4]. None are
	// left when it returns none [quarantine-4].
	Quarantined(ctx context.Context, after string, limit int) ([]Quarantined, error)

	// CountQuarantined returns how many records are in the quarantine [quarantine-4]. It
	// is cheap.
	CountQuarantined(ctx context.Context) (int, error)

	// ReleaseQuarantined puts a record back where it was, once it has been mended: a job
	// has its state, its attempts, its version and its place again [quarantine-5]. No
	// token of another job that has had its id meanwhile fits it, then or later
	// [quarantine-7]. A record that does
	// not decode yet stays, and the call fails with an *ojs.QuarantinedError
	// [quarantine-5]. If there is another job with its id, another entry of its name or
	// another state of its queue meanwhile, it stays too, and the call fails with an
	// *ojs.DuplicateError [quarantine-7, quarantine-12]. Uniqueness is not checked
	// [quarantine-7]. An unknown key gives ojs.ErrNotFound [quarantine-6].
	ReleaseQuarantined(ctx context.Context, key string) error

	// DeleteQuarantined deletes a record from the quarantine [quarantine-6]. An unknown
	// key gives ojs.ErrNotFound [quarantine-6].
	DeleteQuarantined(ctx context.Context, key string) error
}

// Quarantined is a record that was set aside.
type Quarantined struct {
	Key    string // names it in the quarantine [quarantine-4]
	Kind   Kind
	Name   string    // a job's id, a recurring entry's or a queue's name [quarantine-4]
	Reason string    // why it does not decode, for a person [quarantine-4]
	At     time.Time // when it was set aside, by the clock of the storage [quarantine-4]

	// Of a job, as far as they can be read [quarantine-4].
	Queue, Type string
	State       ojs.State // "": unknown
}

// Kind says what is stored.
type Kind string

// The kinds.
const (
	KindJob   Kind = "job"
	KindCron  Kind = "cron"  // a recurring entry
	KindQueue Kind = "queue" // the state of a queue
	KindValue Kind = "value" // what engines tell each other (Value)
)
