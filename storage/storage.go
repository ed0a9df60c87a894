// Package storage is the contract between an engine and the place where its jobs live.
//
// A storage keeps records and makes their transitions atomic. It decides nothing: it
// reads no clock, since every call says what time it is, draws no random number and knows
// no retry policy. The methods of Record define the effect of each transition on the
// fields of a record; a storage supplies atomicity, order and lookup.
//
// A tag such as [claim-3] names the case of package storagetest that proves the sentence.
// Adapters run one case with -run 'Conformance/Claim/Priority', the path that the table
// at the end of a run shows beside the tag.
//
// # Fencing
//
// Every transition raises the record's Version by one, and nothing else does [claim-1,
// lease-1, lease-3, due-1, settle-1]. The version that Claim or Due hands out with an
// active job is the claim token of its holder: Settle and Extend apply only to the
// version they name, so the late result of an attempt whose job has been cancelled,
// reaped or handed on is refused [settle-2, lease-2, lease-3, race-2, race-3]. Version
// never falls, and never comes again for an id: a job that is stored under the id of a
// deleted one begins at a version that the deleted one never had, so that a token of that
// one does not fit [settle-12]. This holds for as long as the storage does [durable-3].
// The attempt number falls, when a snooze gives an attempt back and when a replay by hand
// begins anew; so it cannot fence [settle-3].
//
// # Time
//
// A storage compares the times in its records with the now of the call and with nothing
// else [due-1, due-3, claim-9]. now may go backwards between calls, as wall clocks do:
// each call then does what its own now asks for, and none fails for it [due-6, claim-13,
// insert-10, prune-9].
//
// # Concurrency
//
// Calls that overlap take effect one after the other, in an order that the storage
// chooses: each at one moment between its begin and its end, as if no other call were
// under way [histories-1]. Settle does so for each change by itself, in the order of the
// changes [histories-1]. A storage may treat Claim, Extend, Due, List
// and Prune in the same way, with a moment for each job. Claim may then skip jobs that a
// call under way is changing, and Insert may count the jobs of a bounded queue while
// other calls change it. Claim and Insert may obey the state that a queue had at any
// moment of their call. Settle may see at any moment of its call that it refuses a
// change. SettleAndClaim is then a Settle that is followed by a Claim. Config.JobByJob of
// package storagetest declares such a storage.
//
// # Fairness
//
// Jobs with a Fairness.Key take turns in rounds [fair-1]. A level is the available jobs
// of one queue and priority. A round is some jobs of a level that have keys. It stands
// where the first of these stood when it became available, and stays there. Among jobs of
// equal priority, Claim and OrderClaim have the jobs of a round before those of later
// rounds, and each job without a key alone in its place [fair-1, fair-2]. Jobs of one
// round come in the order in which they became available [fair-1].
//
// A job with a key that becomes available joins the first round of its level that has
// fewer than Share jobs of the key, and that comes before no round with a job of the key
// [fair-1, fair-3, fair-10]. It joins none that does not come after each round of which
// Claim has taken a job since there last was no job with a key in the level [fair-4]. If
// there is no such round, it begins one, last of all [fair-1]. It does so in whichever
// way it becomes available [fair-5]. A job that Insert replaces leaves its round just
// before the new record joins one [fair-11]. The earlier records of the batch have joined
// theirs by then [fair-11].
//
// A job keeps its round for as long as it keeps its place: with Unclaim [fair-6], and
// with a Settle that leaves it available with the same queue, priority and key [fair-5].
// A Settle that changes the key of an available job has it become available anew
// [fair-5]. If the Settle makes the job active, Unclaim gives it a round of its own in
// its place [fair-6]. Insert.DropOldest goes by the order in which jobs became available,
// and not by their rounds [fair-7]. A round counts even if claims have skipped it
// [fair-8]. The rounds of a durable storage outlive it [fair-9].
//
// It follows that before a job of a key that has none waiting, at most twice Share jobs
// of another key start [fair-12]. While keys have jobs waiting, each starts its share by
// weight [fair-13]. A key that stores its next job whenever one starts has no more than
// that [fair-14]. Jobs of one call take turns as those of many calls do [fair-15].
//
// # Copies
//
// The results of a call share no memory with the stored records, nor these with the
// arguments of a call [insert-6, settleclaim-8, fields-1, fields-5]. Record.Copy makes
// such copies.
//
// # Values
//
// Every field of a record comes back as it was given, for any value [fields-1, fields-3,
// general-4, general-6, general-8]. Times are rounded to Capabilities.Precision
// [fields-1]. Engines store no Priority outside of -2^31 to 2^31-1, and no Queue or Type
// of more than 255 bytes.
//
// # Errors
//
// A call that returns an error has changed nothing, unless it documents otherwise or the
// storage cannot know [insert-2, delete-2, general-1, each-2]. A context that has ended
// before the call fails it with the context's error [general-1, settleclaim-9]. After
// Close every call fails with ojs.ErrClosed [general-2]. An argument that is invalid may
// fail the call before these. A call about nothing, such as an empty batch or a Max of 0,
// does nothing and is no error [general-5].
package storage

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/ojsengine/ojs"
)

// Storage holds jobs. Its methods are safe for concurrent use [race-1, race-2, race-3,
// race-4, race-5]. Engines do not close it: the program that opened it does.
type Storage interface {
	// Capabilities says what the storage is. It is cheap, and does not change
	// [general-7].
	Capabilities() Capabilities

	// Insert stores the batch, all of it or none, in order: of jobs that become available
	// at the same priority the earlier ones are claimed first [insert-1, insert-2,
	// insert-3]. An id that is stored already fails the call with an *ojs.DuplicateError
	// that has the stored job's state; an id that is twice in the batch, with one that
	// has the later record's state [insert-4]. Records come with State available,
	// scheduled or pending, or the call fails with an error that is ojs.ErrInvalid, and
	// with Version 0 [insert-5]. They are stored under a version above 0 and above every
	// one that a job with their id has had [insert-1, settle-12]. Every later call sees
	// them [insert-15, insert-17]. The results are appended to dst, one for each of the
	// batch, in order [insert-3].
	//
	// A queue that would come to have more than Insert.MaxDepth jobs that have not ended
	// fails the call with an *ojs.QueueError of ojs.ErrQueueFull [insert-7], unless
	// Insert.DropOldest is set and dropping makes room: then, in the same step, the jobs
	// of the queue that have been available longest end by Record.Drop, of any priority
	// [insert-8], but no jobs of the batch [insert-11] and none whose deadline has come
	// [insert-10]. A record counts the records before it in the batch, and not those
	// after it [insert-12]. Jobs that are replaced do not count, nor need room
	// [insert-12, insert-16]. The dropped jobs of a queue are in the result of its last
	// record that did not fit [insert-13]. A queue that is draining fails the call with
	// an *ojs.QueueError of ojs.ErrQueueDraining (QueueStore), also if no record of the
	// batch for it is stored [queue-2].
	//
	// A record with a Fingerprint and a Unique policy is checked, in the same atomic
	// step, against the stored jobs with that fingerprint, and against those before it in
	// the batch [unique-1, unique-10, unique-11, race-4]. The jobs for which
	// Unique.Counts holds, by their state and their CreatedAt, are in its way [unique-7,
	// unique-8, unique-15, unique-17]. If there are any, the policy's strategy decides:
	//
	//   - reject: the call fails with an *ojs.DuplicateError that names the newest, by
	//     CreatedAt and then by insertion, and has its state and the fingerprint
	//     [unique-1, unique-9, unique-16].
	//   - ignore: the record is not stored, and Inserted.Existing is the newest
	//     [unique-2].
	//   - replace: those of them that have not ended end by Record.Cancel, and the record
	//     is stored [unique-3, unique-4, race-5]. If Insert.KeepActive is set and some of
	//     them are active, the call fails with the *ojs.DuplicateError of the newest
	//     active one instead [unique-13].
	//   - replace_except_schedule: if any of them is scheduled, the newest of the
	//     scheduled ones takes over by Record.Update and is Inserted.Existing, the record
	//     is not stored, and the others are cancelled, or KeepActive fails the call
	//     [unique-5, unique-13, unique-14]. Otherwise it is replace [unique-6]. The job
	//     that takes over keeps its place among those that wait for the same time
	//     [due-7].
	//   - ojs:debounce: as replace_except_schedule if the record is scheduled too, and
	//     Record.Update gives the job that takes over also another time to wait for
	//     [unique-18]. Otherwise it is replace [unique-19].
	//
	// No other call checks uniqueness [unique-12].
	//
	// If several things are wrong with a batch, the error is that of the first of these
	// checks that fails, each made for the whole batch in its order: states and ids,
	// Insert.DependsOn by itself, unique jobs, draining queues, full queues, jobs that
	// Insert.DependsOn names and that are not stored [insert-14, depend-4].
	//
	// The jobs that the call ends do so in the order in which it returns them, first all
	// that are replaced and then all that are dropped [prune-4]. Last of all they are
	// counted in that order for the jobs that wait for them, and then the new jobs count,
	// each in its turn, what has ended before (Insert.DependsOn) [depend-3, depend-5].
	Insert(ctx context.Context, now time.Time, batch []Insert, dst []Inserted) ([]Inserted, error)

	// Claim takes up to c.Max available jobs and appends them to dst as Record.Claim
	// leaves them [claim-1, claim-7, claim-8, claim-10, scale-3]. Each goes to exactly
	// one caller [race-1]. It takes from the queues in the order given, each until
	// nothing is left in it; within a queue, or among all of them if none is given, the
	// highest priority first, and at equal priority the one that became available first,
	// or whose turn it is (Fairness) [claim-2, claim-3, claim-4, claim-5, fair-1]. It
	// takes only the given types, if any are given [claim-6, claim-19]. It skips jobs
	// whose deadline (Record.Deadline) has come [claim-9], jobs that limits hold back
	// (Limited) [limit-1, claim-16], and jobs of paused queues (QueueStore) [queue-1].
	Claim(ctx context.Context, now time.Time, c Claim, dst []Record) ([]Record, error)

	// Settle applies each change by itself, atomically, in order, and appends one result
	// for each to dst [settle-4, race-2]. A change is applied if the stored record still
	// has the Version that Change.Record has, and if its state can become Change.Record's
	// by the transition table or is waiting and stays as it is; the stored record is then
	// Change.Record with its Version raised by one [settle-1, settle-2]. Otherwise
	// Settled.Err says why not, and nothing changed [settle-1, settle-2, settle-4]. From
	// then on every call finds the job by its new values: Claim by its queue, type,
	// priority, rate limit and deadline, Due by its times, Insert by its fingerprint and
	// the time of its creation [settle-6, settle-13, settle-9, settle-10, settle-11,
	// settle-20]. An available job that stays available keeps its place unless its queue
	// or priority changes [settle-5, settle-9]. A job that becomes available comes after
	// those that are [settle-7]. Any other change has the job begin anew to wait for its
	// time (Due) [due-7]. A job that was stored with Insert.DependsOn keeps its
	// Dependencies as the storage has counted them [depend-9]. The call fails as a whole
	// only if the storage does; it may then have applied some.
	Settle(ctx context.Context, now time.Time, changes []Change, dst []Settled) ([]Settled, error)

	// Extend renews leases: an active job that has the version named is held until now
	// plus its lease (Record.LeaseFor), and keeps what the extension says of its attempt
	// (Record.Extend) [lease-1, lease-5, lease-6]. It does not raise the version
	// [lease-1]. It returns the ids that it could not extend, since the claim has been
	// lost, in the order of the call [lease-2]. An id is in a call once.
	Extend(ctx context.Context, now time.Time, extensions []Extension) (lost []string, err error)

	// Due does what time has brought about until now, for up to max jobs [due-4] in the
	// order of their due times (Record.WakeAt) [due-2]. Jobs of the same time come in the
	// order in which they began to wait for it: with the call that stored, claimed,
	// handed over or changed the job last, or renewed its lease [due-7]. Jobs of one call
	// come in its order [due-9]. An available job that is given back, or that keeps its
	// place and is given another deadline, may come anywhere among the jobs of that time.
	//
	//   - scheduled and retryable jobs whose time has come are promoted (Record.Promote)
	//     and enter their queue in that order [due-1, due-2];
	//   - waiting jobs whose deadline has come end (Record.Expire) [due-3, due-8], and
	//     are counted for the jobs that wait for them (Insert.DependsOn) [depend-5];
	//   - active jobs whose lease has run out are handed over to this caller alone
	//     (Record.TakeOver), who decides their fate and settles it [lease-3]. A caller
	//     that dies before loses the new lease in turn [lease-4].
	//
	// Next is when Due next has something to do: a time not after now if max cut the call
	// short, zero if there is nothing to wait for [due-4, due-5]. It takes every stored
	// job into account, also those that another process inserted [due-5].
	//
	// Due.Promoted may use the memory of buf, whose contents are lost [due-1].
	Due(ctx context.Context, now time.Time, max int, buf []Record) (Due, error)

	// ClaimedBy returns the active jobs that the worker claimed last, in any order
	// [claimed-1]. A job that Due has handed over keeps its worker, and is among them
	// [claimed-1]. Its cost is at most that of a look at all active jobs.
	ClaimedBy(ctx context.Context, worker string) ([]Record, error)

	// Get returns the job with the id, or ojs.ErrNotFound [insert-1, general-3].
	Get(ctx context.Context, id string) (Record, error)

	// List returns a page of the jobs that match q [list-1, list-2, list-3, scale-1,
	// scale-4, scale-5]. If q is Indexed, it looks at no other job, but for active ones
	// [list-17]. A cursor that is none of the storage's fails the call with an
	// error that is ojs.ErrInvalid [list-7].
	List(ctx context.Context, q Query) (Page, error)

	// Counts returns how many jobs of each type each queue has in each state, without
	// zeros and in no order [list-6]. It must not scan the jobs.
	Counts(ctx context.Context) ([]Count, error)

	// Delete removes jobs that are in a terminal state and returns how many; ids that are
	// not stored count for nothing [delete-1, durable-2]. Their ids may be used again
	// [delete-3]. A job in any other state fails the call with an *ojs.TransitionError,
	// and nothing is deleted [delete-2].
	Delete(ctx context.Context, ids []string) (int, error)

	// Prune deletes up to p.Max of the finished jobs that p selects, those that finished
	// first before the others [prune-1, prune-2, prune-3, scale-2]: in the order of
	// FinishedAt, and of the same FinishedAt in that of the calls that ended them, or in
	// which one call did [prune-4]. Clocks differ, and go back: that a job is too young
	// says nothing of the jobs that ended after it [prune-7]. The cost of a call does not
	// grow with the number of finished jobs that it leaves.
	Prune(ctx context.Context, p Prune) (Pruned, error)

	QueueStore
	DocumentStore
	GroupStore
	LimitStore
	LogStore

	// Close releases what the storage holds. Closing twice is no error [general-2].
	Close() error
}

// Capabilities is what a storage says of itself.
type Capabilities struct {
	Name      string        // "memory", "postgres"
	Durable   bool          // what is stored outlives the process [durable-1, durable-4, fields-2, fields-4]
	Unique    Strength      // of the guarantee that equal jobs do not coexist
	Mechanism string        // of that guarantee, for people: "mutex", "unique index"
	Precision time.Duration // of stored times; 0: nanoseconds [fields-1]

	// InsertClaims says that the storage obeys Insert.Claim [insertclaim-1].
	InsertClaims bool

	// Shared says that several processes may use the storage at once. Engines on it
	// report on themselves.
	Shared bool
}

// Strength says how far unique jobs can be relied on (OJS unique jobs, section 8).
type Strength string

// The strengths. A storage that does not know uniqueness has none: engines refuse unique
// jobs then.
const (
	Strong     Strength = "strong"      // of equal jobs enqueued at once, exactly one is stored [race-4]
	BestEffort Strength = "best-effort" // rarely, more than one
)

// Insert is one job to store.
type Insert struct {
	Record     Record
	MaxDepth   int  // most jobs of its queue that have not ended, this one included; 0: any number [insert-7]
	DropOldest bool // make room in a full queue [insert-8]

	// KeepActive says that no equal job that is active is replaced [unique-13]. Engines
	// set it for storages that are not strong (Capabilities.Unique).
	KeepActive bool

	// IDIsNew says that the id was drawn for this job and no other caller has seen it: a
	// storage need not look for it, nor for the versions that a deleted job with it had.
	// If it is there all the same, there may be two jobs with it. Everything else is as
	// without IDIsNew [insert-9].
	IDIsNew bool

	// Claim of the first job asks the storage to claim the jobs of the batch in the same
	// atomic step; its Max and Limits do not count [insertclaim-1]. A storage may do so
	// if such a Claim would take all of them directly after the call: see
	// Inserted.Claimed [insertclaim-2, insertclaim-3, insertclaim-4]. Engines use it only
	// if Capabilities.InsertClaims is set.
	Claim *Claim

	// DependsOn are the ids of jobs that the job waits for: stored ones, and jobs of the
	// batch at any place of it [depend-1, depend-3]. The record is pending, and its
	// Dependencies have the condition; Unfinished and Failed are the storage's to count,
	// and not looked at [depend-1]. Jobs that have ended are counted at once, in the
	// order given, until the counts decide [depend-3]. The others are counted in the
	// atomic step of the call that ends them, each once [depend-5, depend-7, depend-11,
	// depend-12, each-1].
	// A job whose counts decide moves in that step (Record.Resolve)
	// [depend-1, depend-2]. If it ends by that, it is counted in turn for the jobs that
	// wait for it [depend-6]. Jobs that end are counted in the order in which they end,
	// each for the jobs that wait for it in the order of their insertion [depend-6]. A
	// count is no transition and leaves the version as it is [depend-9].
	//
	// Until then the job is like any other that is pending: it may be changed, cancelled
	// or activated, and its deadline may come [depend-7, depend-14]. Once it is not
	// pending, nothing is counted for it [depend-7, order-12].
	//
	// A job that is neither stored nor stored by the batch fails the call with an
	// *ojs.DependencyError [depend-4]. A job named twice, jobs of the batch that wait for
	// each other in a circle, and a record that is not pending or has no Dependencies
	// fail it with an error that is ojs.ErrInvalid [depend-4]. Without DependsOn a
	// record's Dependencies are kept as they are given, and the job waits for nothing
	// [fields-1].
	DependsOn []string

	// OrderingKey has the job wait for its turn: jobs of one key, of any queue and type,
	// leave pending one after the other, in the order of their insertion [order-1,
	// order-2, order-10, order-11]. A job of the key has the turn if it has not ended
	// and does not wait for it: it is in another state than pending, or is pending since
	// it waits for others by DependsOn [order-3]. When a job of the key is stored, and
	// when one ends, in any way, the first that waits gets the turn in the same atomic
	// step, unless another job has it [order-1, order-4, order-9]. The end of a job that
	// waits for its turn gives the turn to none behind it [order-2]. The record is as
	// with DependsOn; OrderingKey and InLine of its Dependencies are the storage's to
	// set, and Unfinished counts one more until the job has its turn [order-1]. A job
	// whose turn has come moves if its DependsOn does not hold it (Record.Turn,
	// Record.Resolve) [order-1, order-3]. A job that ends is counted for jobs with
	// DependsOn first [order-5]. New jobs enter their lines before the call counts any
	// end, which may give one the turn [order-6]. The others get their turns after that,
	// each after its DependsOn is counted [order-6]. A new job that another one of its
	// batch replaces gives the turn of its key at its own place in the batch [order-4].
	// A job that is not stored, since an equal one is, is in no line [order-4]. Jobs
	// that wait for each other in a circle, also by the order of the batch, fail the
	// call with an error that is ojs.ErrInvalid, and so does a key in a batch with
	// AwaitedBy [order-7]. A job that Settle brings back after its end is in no line and
	// has no turn [order-8].
	OrderingKey string

	// AwaitedBy are the ids of stored jobs that wait for others, by DependsOn: each
	// waits for this job, too, as if its own DependsOn had ended with it [group-6]. That
	// is before the call counts any end [group-6]. A new job that its batch replaces is
	// counted in its place among the ends of the call [group-6]. A job among them that is
	// not pending is skipped [group-6]. If none is when the call begins, it fails with an
	// *ojs.DependencyError that names the first, after the checks of DependsOn
	// [group-7]. A job named twice, or one of the batch, fails the call with an error
	// that is ojs.ErrInvalid [group-7]. A job that is not stored, since an equal one is,
	// is awaited by none, and its AwaitedBy need not name a job that waits [group-6].
	// Callers see to it that no circle arises.
	AwaitedBy []string
}

// Inserted is the result of an Insert.
type Inserted struct {
	Version uint64 // of the stored record; 0 if it was not [insert-1, unique-2]

	// Claimed says that the record was stored under Version and then claimed, by
	// Record.Claim for the worker of Insert.Claim [insertclaim-1]. It is so for all
	// records of a batch or for none [insertclaim-3].
	Claimed bool

	Existing *Record // the equal job because of which the record was not stored [unique-2, unique-5]
	Updated  bool    // it has taken over from the record [unique-5, unique-18]

	// Replaced are the equal jobs that were cancelled for it, the oldest by CreatedAt
	// first, as they are stored now [unique-3, unique-10].
	Replaced []Record

	// Depth is how many jobs of the queue have not ended, after all that the call has
	// done, if MaxDepth is set [insert-7]. A job that the call stores and then ends, or
	// ends by a count, is not among them [depend-16].
	Depth int

	// Dropped are the jobs that were dropped for it and for those of its queue before it,
	// the longest available first, as they are stored now [insert-8, insert-13].
	Dropped []Record

	// Moved are the jobs that waited for others and have moved in the call, in the order
	// of their transitions, as each left them [depend-3, depend-5]. New jobs are among
	// them if what they wait for has ended [depend-3]. The result of the last record has
	// all that the call has moved, and those of a Change.Then have none [depend-3,
	// depend-10].
	Moved []Record
}

// Claim asks for jobs to run.
type Claim struct {
	Queues []string // in order of preference; empty: all [claim-4, claim-5]
	Max    int      // most jobs, over all queues together [claim-7]
	Worker string   // who asks; kept in the record [claim-1, claim-15]

	// Types are the types to claim; empty: all [claim-6]. A type takes jobs of any
	// version and of none [version-1]. "type@" takes those without a version
	// [version-1], and "type@>=2.0 <3.0" those whose version is in the range [version-2,
	// version-3]. A storage may keep the slice.
	Types []string

	// Lease is how long the claims hold jobs whose own lease is ojs.DefaultLease; 0: as
	// long as that [claim-18]. Jobs with another lease are held for their own [claim-18].
	// A negative Lease is for all jobs, which are held for -Lease [claim-18]. It holds
	// for SettleAndClaim and for Insert.Claim, too [settleclaim-17, insertclaim-5].
	Lease time.Duration

	// Limits receives what limits have done in the claim; nil: the caller does not ask
	// [limit-1]. It replaces the contents of Limits but Now [limit-11].
	Limits *Limited

	// Remote says that the attempts may outlive this process: a worker elsewhere makes
	// them. Other attempts end with this process, and a storage that can prove that it
	// has ended hands them over at once, as if their leases had run out.
	Remote bool
}

// ResetLimits empties Limits but for Now. If it is nil, it becomes an empty one.
func (c *Claim) ResetLimits() {
	if c.Limits == nil {
		c.Limits = new(Limited)
	}
	*c.Limits = Limited{Now: c.Limits.Now}
}

// Held names an active job and the version at which it was claimed.
type Held struct {
	ID      string
	Version uint64
}

// Extension renews the lease of an active job and says what its attempt has come to.
type Extension struct {
	Held
	Progress   float64         // kept if it is greater than what is stored [lease-5]
	Checkpoint json.RawMessage // kept if it is not nil [lease-5]
	Lease      time.Duration   // as Claim.Lease [lease-6]
}

// Change replaces a record by another state of itself. Record is the job as it shall be,
// with the Version it had when the change was decided [settle-2].
type Change struct {
	Record Record

	// AttemptFieldsOnly says that nothing of the record differs from what is stored but
	// what attempts change: State, Attempt, Progress, Error, Errors, History, Result,
	// Checkpoint, Worker, LeaseUntil, and the times but CreatedAt, ScheduledAt and
	// ExpiresAt [settle-8]. A storage may leave everything else unwritten. Values that
	// follow from these, such as Record.Deadline, change with them [due-8]. The job may
	// be in any state: cancelling one that waits is such a change [fields-1].
	AttemptFieldsOnly bool

	// Then are new jobs that are stored in the same atomic step, if and only if the
	// change is applied [then-1, then-2, then-8, then-9, then-10]. They are stored as if
	// Insert followed the change at once: its rules hold for them, and the job that the
	// change ends has ended [then-3, then-6, then-7]. If that Insert fails, the change
	// is refused with its error and nothing changes [then-4]. Only a change that ends a
	// job, with AttemptFieldsOnly, may have a Then: any other fails the call with an
	// error that is ojs.ErrInvalid, and no change of the call is applied [then-5].
	Then []Insert

	// Log is kept for the job in the same atomic step, if and only if the change is
	// applied [logs-1, logs-2]. Nil: nothing is [logs-1]. The last MaxLogs of a job are
	// kept [logs-3]. It is at most some hundred KiB.
	Log []byte
}

// CheckThen refuses changes with a Then that may have none [then-5].
func CheckThen(changes []Change) error {
	for i := range changes {
		c := &changes[i]
		if len(c.Then) > 0 && !(c.AttemptFieldsOnly && c.Record.State.Terminal()) {
			return &ojs.InvalidError{Code: ojs.InvalidCodeOption, Field: "then",
				Reason: fmt.Sprintf("is with a change to %s, and only a change of attempt fields that ends a job may have one", c.Record.State)}
		}
	}
	return nil
}

// Settled is the result of a Change.
type Settled struct {
	Version uint64 // the new one if the change was applied, else the stored one [settle-1, settle-2]

	// Err is nil if the change was applied [settle-1]. ErrFenced: the job has moved on
	// since [settle-2]. ojs.ErrNotFound: it is gone [settle-4]. An *ojs.TransitionError:
	// the transition table has no such transition [settle-1]. Any other error is that of
	// an Insert of Change.Then [then-4].
	Err error

	Then []Inserted // the results of Change.Then if the change was applied, else nil [then-1, then-2]

	// Moved are the jobs that waited for others and have moved by the change and its
	// Then, in the order of their transitions, as each left them [depend-1, depend-6].
	// They do so after the Then is stored [depend-10].
	Moved []Record
}

// ErrFenced refuses a change decided on a version of the job that is not the current one.
var ErrFenced = errors.New("ojs: fenced: the job has moved on")

// Due is what time has brought about. The records are as they are stored now [due-1,
// due-3, lease-3]. The records of Moved are as their transitions left them: a job whose
// deadline had come may be among Expired, too [depend-14].
type Due struct {
	Promoted []Record  // available now [due-1]
	Expired  []Record  // discarded now [due-3]
	Stalled  []Record  // active, under a version that is the caller's [lease-3]
	Moved    []Record  // that waited for expired ones, in the order of their transitions [depend-5]
	Next     time.Time // when Due next has something to do [due-5]

	// Ended are the ids of those of Stalled whose lease is not over: the storage knows
	// that the process that held them has ended [lease-3].
	Ended []string
}

// Prune selects finished jobs to delete, by age and by number. Jobs that are kept for
// longer than Now (Record.KeptUntil) are neither selected nor counted [prune-5, prune-6].
// Now may be before that of the call before: clocks differ, and go back [prune-9].
//
// The jobs of a workflow are kept as long as the workflow [prune-10]. If KeptUntil of a
// job is over, and its Keeper is stored and keeps it (Record.Keeps), Prune keeps the job
// until KeptOn, and then asks again [prune-10]. A job that comes back is kept anew for
// its next end [prune-10].
type Prune struct {
	Now         time.Time
	DeadLetters bool        // dead letters only; otherwise the finished jobs that are none [prune-3]
	States      []ojs.State // terminal ones; empty: all [prune-3]
	Before      time.Time   // those that finished before; zero: age is no reason [prune-1]
	Beyond      int         // all but this many that finished last; 0: number is no reason [prune-2]
	Spare       time.Time   // Beyond applies to jobs that finished before Spare; zero: to all [prune-8]
	Max         int         // most to delete in this call [prune-1]
}

// Selects reports whether p selects the job of its states that finished first, given how
// many of them there are.
func (p *Prune) Selects(finished time.Time, n int) bool {
	tooMany := p.Beyond > 0 && n > p.Beyond && (p.Spare.IsZero() || finished.Before(p.Spare))
	return finished.Before(p.Before) || tooMany
}

// Pruned is what Prune did.
type Pruned struct {
	IDs []string // of the jobs that it deleted, in that order [prune-1, prune-7]

	// Left is how many of the jobs that Prune's DeadLetters and States select are left,
	// without those that are kept for longer [prune-5, prune-8].
	Left int

	// Oldest is the least FinishedAt of the jobs that Left counts; zero: it counts none
	// [prune-5, prune-7].
	Oldest time.Time
}

// Page is a part of a listing. It may have fewer records than the limit, or none, though
// more follow. A job that is stored throughout a listing, and matches and keeps its place
// in the order throughout, is in it exactly once [list-4, list-14].
type Page struct {
	Records []Record // in the order of the query, whichever cursor led here [list-14]
	Next    string   // the Cursor of the next page; "": this was the last [list-2]

	// Prev is the Cursor of the page before, which ends where this one begins; "": this
	// was the first [list-14].
	Prev string

	// Looked is how many jobs the storage looked at for the page, those that the query
	// does not select included [list-13].
	Looked int
}

// Count is how many jobs of a queue and a type are in a state.
type Count struct {
	Queue, Type string
	State       ojs.State
	N           int
}

// As finds an optional ability of s: s itself if it is an A, or else what s wraps, as
// told by a method Unwrap() Storage.
func As[A any](s Storage) (A, bool) {
	const most = 100 // storages in each other; one may wrap itself
	for range most {
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
