// Package storage is the contract between an engine and the place where its jobs live.
//
// A storage keeps records and makes their transitions atomic. It decides nothing: it reads no clock, since every call says
// what time it is, draws no random number and knows no retry policy. What a transition does to the fields of a record is
// written down once, in the methods of Record; a storage supplies atomicity, order and lookup.
//
// # Fencing
//
// Every transition raises the record's Version by one, and nothing else does. The version that Claim or Due hands out with
// an active job is the claim token of whoever got it: Settle and Extend apply only to the version they name, so the late
// result of an attempt whose job has been cancelled, reaped or handed on is refused. Version never falls, and never comes again
// for an id: a job that is stored under the id of a deleted one begins at a version that the deleted one never had, so that a token of
// that one does not fit. This holds for as long as the storage does. The attempt number falls, when a snooze gives an attempt back and
// when a replay by hand begins anew; so it cannot fence.
//
// # Time
//
// A storage compares the times in its records with the now of the call and with nothing else. now may go backwards between
// calls, as wall clocks do; a storage then hands out less, never more, and fails nothing.
//
// # Copies
//
// What a call returns shares no memory with what is stored, nor what it stores with what it was given. ojs.JobInfo.Detach
// makes such copies.
//
// # Errors
//
// A call that returns an error has changed nothing, unless it documents otherwise or the storage cannot know. After Close
// every call fails with ojs.ErrClosed. A context that has ended before the call fails it with the context's error.
package storage

import (
	"context"
	"encoding/json"
	"errors"
	"time"

	"github.com/ojsengine/ojs"
)

// Storage holds jobs. Its methods are safe for concurrent use. Engines do not close it: whoever opened it does.
type Storage interface {
	// Capabilities says what the storage is. It is constant and cheap.
	Capabilities() Capabilities

	// Insert stores the batch, all of it or none, in order: of jobs that become available at the same priority the earlier
	// ones are claimed first. An id that is stored already fails the call with an *ojs.DuplicateError that has the stored job's
	// state; an id that is twice in the batch, with one that has the later record's state. Records come with State available,
	// scheduled or pending, or the call fails with an error that is ojs.ErrInvalid, and with Version 0. They are stored under a
	// version above 0 and above every one that a job with their id has had. The results are appended to dst, one for each of the
	// batch, in order.
	//
	// A queue that would come to have more than Insert.MaxDepth jobs that have not ended fails the call with an *ojs.QueueError of
	// ojs.ErrQueueFull, unless Insert.DropOldest is set and dropping makes room: then, in the same step, the jobs of the queue that
	// have been available longest end by Record.Drop, whatever their priority, but no jobs of the batch and none whose deadline has
	// come. A record counts the records before it in the batch, and not those after it. Jobs that are replaced do not count. What
	// a queue drops is in the result of its last record that did not fit. A queue that is draining fails the call with an
	// *ojs.QueueError of ojs.ErrQueueDraining (QueueStore), also if no record of the batch for it is stored.
	//
	// A record with a Fingerprint and a Unique policy is checked, in the same atomic step, against the stored jobs with that
	// fingerprint, and against those before it in the batch. Those for which Unique.Counts holds, by their state and their
	// CreatedAt, are in its way. If there are any, the policy's strategy decides:
	//
	//   - reject: the call fails with an *ojs.DuplicateError that names the newest, by CreatedAt and then by insertion.
	//   - ignore: the record is not stored, and Inserted.Existing is the newest.
	//   - replace: those of them that have not ended end by Record.Cancel, and the record is stored. If Insert.KeepActive is
	//     set and some of them are active, the call fails with the *ojs.DuplicateError of the newest active one instead.
	//   - replace_except_schedule: if any of them is scheduled, the newest of the scheduled ones takes over by Record.Update
	//     and is Inserted.Existing, the record is not stored, and the others are cancelled, or KeepActive fails the call.
	//     Otherwise it is replace. The job that takes over keeps its place among those that wait for the same time.
	//
	// No other call checks uniqueness.
	//
	// If several things are wrong with a batch, the error is that of the first of these checks that fails, each made for the whole
	// batch in its order: states and ids, unique jobs, draining queues, full queues.
	//
	// The jobs that the call ends do so in the order in which it returns them, first all that are replaced and then all that
	// are dropped.
	Insert(ctx context.Context, now time.Time, batch []Insert, dst []Inserted) ([]Inserted, error)

	// Claim takes up to c.Max available jobs and appends them to dst as Record.Claim leaves them. Each goes to exactly one
	// caller. It takes from the queues in the order given, each until nothing is left in it; within a queue, or among all of
	// them if none is given, the highest priority first, and at equal priority the one that became available first. It
	// takes only the given types, if any are given. It passes over jobs whose deadline (Record.Deadline) has come, those
	// whose rate limit has one of the keys in c.SkipKeys or the key of a job that this call has taken before, and those of
	// paused queues (QueueStore).
	Claim(ctx context.Context, now time.Time, c Claim, dst []Record) ([]Record, error)

	// Settle applies each change by itself, atomically, in order, and appends one result for each to dst. A change is
	// applied if the stored record still has the Version that Change.Record has, and if its state can become Change.Record's
	// by the transition table or is waiting and stays as it is; the stored record is then Change.Record with its Version
	// raised by one. Otherwise Settled.Err says why not, and nothing changed. An available job that stays available keeps
	// its place unless its queue or priority changes. Any other change has the job begin anew to wait for its time (Due). The
	// call fails as a whole only if the storage does; it may then have applied some.
	Settle(ctx context.Context, now time.Time, changes []Change, dst []Settled) ([]Settled, error)

	// Extend renews leases: an active job that has the version named is held until now plus its Lease, and keeps what the
	// extension says of its attempt (Record.Extend). It does not raise the version. It returns the ids that it could not
	// extend, since the claim has been lost. An id is in a call once.
	Extend(ctx context.Context, now time.Time, extensions []Extension) (lost []string, err error)

	// Due does what time has brought about until now, for up to max jobs in the order of their due times (Record.WakeAt), and
	// for the same time in that in which they began to wait for it: a lease, with the claim or with its latest renewal.
	//
	//   - scheduled and retryable jobs whose time has come are promoted (Record.Promote) and enter their queue in that order;
	//   - waiting jobs whose deadline has come end (Record.Expire);
	//   - active jobs whose lease has run out are handed over to this caller alone (Record.Reclaim), who decides their fate
	//     and settles it. A caller that dies before loses the new lease in turn.
	//
	// Next is when Due next has something to do: a time not after now if max cut the call short, zero if there is nothing
	// to wait for. It takes every stored job into account, whoever inserted it.
	//
	// Due.Promoted may use the memory of buf, whose contents are lost.
	Due(ctx context.Context, now time.Time, max int, buf []Record) (Due, error)

	// Get returns the job with the id, or ojs.ErrNotFound.
	Get(ctx context.Context, id string) (Record, error)

	// List returns a page of the jobs that match q. A cursor that is none of the storage's fails the call with an error that is
	// ojs.ErrInvalid.
	List(ctx context.Context, q Query) (Page, error)

	// Counts returns how many jobs each queue has in each state, without zeros and in no order. It must not scan the jobs.
	Counts(ctx context.Context) ([]Count, error)

	// Delete removes jobs that are in a terminal state and returns how many; ids that are not stored count for nothing. A
	// job in any other state fails the call with an *ojs.TransitionError, and nothing is deleted.
	Delete(ctx context.Context, ids []string) (int, error)

	// Prune deletes up to p.Max of the finished jobs that p selects, those that finished first before the others: in the order of
	// FinishedAt, and of the same FinishedAt in that of the calls that ended them, or in which one call did. Clocks differ, and go
	// back: that a job is too young says nothing of the jobs that ended after it. What a call costs does not grow with the number of
	// finished jobs that it leaves.
	Prune(ctx context.Context, p Prune) (Pruned, error)

	// Close releases what the storage holds. Closing twice is no error.
	Close() error
}

// SettleClaimer is the ability to settle attempts and to claim what their worker does next in one step, which costs less than two.
// It is optional, and for storages that are not durable. The storage itself must have it: one that it wraps is not asked. Its claims
// should cost little, since engines make one for each job, or for a few at a time.
type SettleClaimer interface {
	// SettleAndClaim is Settle of a SameJob change to every record in to, with the results appended to dst, and then, whatever
	// became of these, Claim of at most len(into) jobs, whatever c.Max is. It writes them where into points and returns how many
	// there are. It claims no job that has a rate limit, and none that Claim would have taken after one.
	SettleAndClaim(ctx context.Context, now time.Time, to []*Record, dst []Settled, c Claim, into []*Record) ([]Settled, int, error)

	// Unclaim undoes claims of jobs that nobody has begun to work at (Record.Unclaim): they are available again in the places that
	// they had. It passes over jobs whose claim is not the one named, and returns how many are available now. A call that fails has
	// undone nothing.
	Unclaim(ctx context.Context, now time.Time, held []Held) (int, error)
}

// Capabilities is what a storage says of itself.
type Capabilities struct {
	Name      string        // "memory", "postgres"
	Durable   bool          // a job survives the end of the process
	Unique    Strength      // of the guarantee that equal jobs do not coexist
	Mechanism string        // of that guarantee, for people: "mutex", "unique index"
	Precision time.Duration // of stored times; 0: nanoseconds
}

// Strength says how far unique jobs can be relied on (OJS unique jobs, section 8).
type Strength string

// The strengths. A storage that does not know uniqueness has none: engines refuse unique jobs then.
const (
	Strong     Strength = "strong"      // of equal jobs enqueued concurrently, exactly one is admitted
	BestEffort Strength = "best-effort" // rarely, more than one
)

// Insert is one job to store.
type Insert struct {
	Record     Record
	MaxDepth   int  // most jobs of its queue that have not ended, this one included; 0: any number
	DropOldest bool // make room in a full queue
	KeepActive bool // replace no equal job that is active: engines set it for storages that are not strong (Capabilities.Unique)
	// Fresh says that the id was drawn for this job and nobody else has seen it: a storage need not look for it, nor for the versions
	// that a deleted job with it had. If it is there all the same, there may be two jobs with it.
	Fresh bool
}

// Inserted is what became of an Insert.
type Inserted struct {
	Version uint64 // of the stored record; 0 if it was not

	Existing *Record  // the equal job because of which the record was not stored
	Updated  bool     // it has taken over the record's args and meta
	Replaced []Record // equal jobs that were cancelled for it, the oldest first, as they are stored now

	Depth   int      // if MaxDepth is set: how many jobs of the queue have not ended, after the call
	Dropped []Record // dropped for it and for those of its queue before it, the longest available first, as they are stored now
}

// Claim asks for jobs to run.
type Claim struct {
	Queues   []string // in order of preference; empty: all
	Types    []string // empty: all
	SkipKeys *KeySet  // keys of rate limits that admit nothing now; nil: none. What a claim costs should not depend on their number
	Max      int
	Worker   string // who asks; kept in the record
	// Remote says that the attempts may outlive this process: a worker elsewhere makes them. Others end with it, and a storage that can
	// prove that it has ended hands them over at once, as if their leases had run out.
	Remote bool
}

// Held names an active job and the version at which it was claimed.
type Held struct {
	ID      string
	Version uint64
}

// Extension renews the lease of an active job and says what its attempt has come to.
type Extension struct {
	Held
	Progress   float64         // kept if it is greater than what is stored
	Checkpoint json.RawMessage // kept if it is not nil
}

// Change replaces a record by another state of itself. Record is the job as it shall be, with the Version it had when the
// change was decided.
type Change struct {
	Record Record

	// SameJob says that nothing of the record differs from what is stored but what attempts change: State, Attempt, Progress,
	// Error, Errors, Result, Checkpoint, Worker, LeaseUntil, and the times but CreatedAt, ScheduledAt and ExpiresAt. A storage
	// may leave everything else unwritten. The job may be in any state: cancelling one that waits is such a change.
	SameJob bool
}

// Settled is what became of a Change.
type Settled struct {
	Version uint64 // the new one if the change was applied, else the stored one
	// Err is nil if the change was applied. ErrFenced: the job has moved on since. ojs.ErrNotFound: it is gone. An
	// *ojs.TransitionError: the transition table has no such transition.
	Err error
}

// ErrFenced refuses a change decided on a version of the job that is not the current one.
var ErrFenced = errors.New("ojs: fenced: the job has moved on")

// Due is what time has brought about. The records are as they are stored now.
type Due struct {
	Promoted []Record // available now
	Expired  []Record // discarded now
	Stalled  []Record // active, under a version that is the caller's
	Next     time.Time
}

// Prune selects finished jobs to delete, by age and by number. Jobs that are kept for longer than Now (Record.KeptUntil) are neither
// selected nor counted. Now may be before that of the call before: clocks differ, and go back.
type Prune struct {
	Now         time.Time
	DeadLetters bool        // dead letters only; otherwise the finished jobs that are none
	States      []ojs.State // terminal ones; empty: all
	Before      time.Time   // those that finished before; zero: age is no reason
	Beyond      int         // all but this many that finished last; 0: number is no reason
	Spare       time.Time   // number is no reason for those that finished then or later; zero: for all
	Max         int         // most to delete in this call
}

// Selects reports whether p selects the job of its states that finished first, given how many of them there are.
func (p *Prune) Selects(finished time.Time, n int) bool {
	return finished.Before(p.Before) || p.Beyond > 0 && n > p.Beyond && (p.Spare.IsZero() || finished.Before(p.Spare))
}

// Pruned is what Prune did.
type Pruned struct {
	IDs    []string  // of the jobs that it deleted, in that order
	Left   int       // how many finished jobs of Prune's states are left, but for those that are kept
	Oldest time.Time // the least FinishedAt of those that are left; zero: none is left
}

// Page is a part of a listing. It may have fewer records than the limit, or none, though more follow. A job that is
// stored throughout a listing and matches throughout is in it exactly once.
type Page struct {
	Records []Record
	Next    string // the Cursor of the next page; "": this was the last
}

// Count is how many jobs of a queue are in a state.
type Count struct {
	Queue string
	State ojs.State
	N     int
}

// As finds an optional ability of s: s itself if it is an A, or else what s wraps, as told by a method Unwrap() Storage.
func As[A any](s Storage) (A, bool) {
	for s != nil {
		if a, ok := s.(A); ok {
			return a, true
		}
		w, ok := s.(interface{ Unwrap() Storage })
		if !ok {
			break
		}
		s = w.Unwrap()
	}
	var none A
	return none, false
}
