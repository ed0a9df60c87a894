package memory

import (
	"math"
	"slices"
	"sync/atomic"
	"time"

	"github.com/ojsengine/ojs"
	"github.com/ojsengine/ojs/storage"
	"github.com/ojsengine/ojs/storage/rule"
)

// job is a stored job with its places in the indexes. Most jobs have nothing to remember
// but what others of their kind have: no meta, errors or result. The struct holds such a
// job entirely, in less than a third of the size of a storage.Record. If a job has more,
// rest has the record.
//
// The memory of a deleted job is reused for a new one. No pointer to a job leaves this
// package.
//
// Fields that are looked at together stand together: a line of the processor's cache is
// 64 bytes.
type job struct {
	id     string
	args   ojs.Args
	kind   *kind
	rest   *rest          // nil: there is none
	limit  *ojs.RateLimit // nil: none; jobs share it, and nothing changes it
	worker *string        // who claimed it last
	level  *level         // of an available job: its queue, type, key and priority; nil: not there

	prev, next *job    // in level
	ord        uint64  // in all
	turn       uint64  // of its end, or of the beginning of its state or lease
	readySeq   uint64  // the order among available jobs: its turn when it became one; an active job keeps it
	wakesAt    instant // the time by which it is in store.wakes; never: it is not there
	hash       uint32  // in the table, by which it is found there
	state      uint8   // index of states
	class      class   // once it has ended
	end        endState
	marks      marks
	attempt    int32
	priority   int32

	version                               uint64
	created, scheduled, enqueued, started instant

	timed instant // when it ended, or until then its storage.Record.WakeAt
}

// marks are bits of a job.
type marks uint8

const (
	done    marks = 1 << iota // its progress is 1, otherwise 0
	awaited                   // others wait for its end
)

// rest is what few jobs have.
type rest struct {
	fingerprint string
	fairness    ojs.Fairness
	peerAt      int             // among its peers
	whole       *storage.Record // the job, if it has more to remember than its like; else nil
	counted     bool            // it waited for jobs or its turn: only the storage changes its Dependencies
	revived     uint32          // how often: edges from before are stale
	line        *keyLine        // of its ordering key, until its end
	hasTurn     bool            // it has the turn of its line
	round       uint64          // see fair.go; 0: it has no fairness key
}

// whole is the job's record if it is kept as one, else nil.
func (j *job) whole() *storage.Record {
	if j.rest == nil {
		return nil
	}
	return j.rest.whole
}

// instant is a time in ns since 1970.
type instant int64

// never is the zero time.
const never = instant(rule.None)

// at makes an instant of a time. It reports false for one that no instant stands for.
func at(t time.Time) (instant, bool) {
	ns := rule.Nanos(t)
	return instant(ns), rule.Exact(ns)
}

func (i instant) time() time.Time { return rule.Time(int64(i)) }

// kind is what jobs have in common that were enqueued alike.
type kind struct {
	jobType, version, queue      string
	maxAttempts                  int
	retry                        ojs.RetryPolicy
	timeout, totalTimeout, lease time.Duration
	resultTTL                    time.Duration
	// nil: none, or one with a key, which may be another in each job
	unique *ojs.UniquePolicy

	section *section
	jobs    int // how many there are
}

// fits reports whether a job is of the kind.
func (k *kind) fits(r *storage.Record) bool {
	return k.jobType == r.Type && k.version == r.TypeVersion && k.queue == r.Queue &&
		k.maxAttempts == r.MaxAttempts &&
		k.timeout == r.Timeout && k.totalTimeout == r.TotalTimeout && k.lease == r.Lease &&
		k.resultTTL == r.ResultTTL && k.retry.Equal(r.Retry) &&
		k.unique.Equal(ofMany(r.Unique))
}

// ofMany is a policy that may be that of many jobs, nil if it is none.
func ofMany(p *ojs.UniquePolicy) *ojs.UniquePolicy {
	if p == nil || p.Key != "" {
		return nil
	}
	return p
}

// kindOf finds the kind of a job, or makes it.
func (s *store) kindOf(r *storage.Record) *kind {
	if k := s.lastKind.Load(); k != nil && k.fits(r) {
		return k
	}
	x := s.ready.section(s.queue(r.Queue), r.Type, r.TypeVersion)
	for _, k := range x.kinds {
		if k.fits(r) {
			s.lastKind.Store(k)
			return k
		}
	}
	k := &kind{
		jobType: r.Type, version: r.TypeVersion, queue: r.Queue, maxAttempts: r.MaxAttempts, retry: r.Retry,
		timeout: r.Timeout, totalTimeout: r.TotalTimeout, lease: r.Lease, resultTTL: r.ResultTTL,
		section: x,
	}
	k.retry.NonRetryableErrors = slices.Clone(r.Retry.NonRetryableErrors)
	k.unique = ofMany(r.Unique).Clone()
	// Jobs that are all different would make a list of them all. Kinds beyond that many
	// are not looked for again.
	x.n++
	if len(x.kinds) < maxKinds {
		x.kinds = append(x.kinds, k)
		s.lastKind.Store(k)
	}
	return k
}

// maxKinds is how many kinds of jobs of a section are told apart.
const maxKinds = 16

// leaves takes a job out of its kind.
func (s *store) leaves(k *kind) {
	if k.jobs--; k.jobs > 0 {
		return
	}
	x := k.section
	x.kinds = slices.DeleteFunc(x.kinds, func(other *kind) bool { return other == k })
	if x.n--; x.n == 0 {
		s.ready.part(x)
		s.forgetIfEmpty(x.home)
	}
	if s.lastKind.Load() == k {
		s.lastKind.Store(nil)
	}
}

// set makes the job what a record says, of which it keeps nothing. Its places in the
// indexes are the caller's.
func (s *store) set(j *job, r *storage.Record) {
	if k := j.kind; !k.fits(r) {
		j.kind = s.kindOf(r)
		j.kind.jobs++
		s.leaves(k)
	}
	if j.rest != nil && j.rest.counted {
		kept := *r
		kept.Dependencies = j.rest.whole.Dependencies
		r = &kept
	}
	was := j.keeper()
	s.fill(j, r)
	if is := j.keeper(); is != was {
		s.inWorkflow(j, was, (*index).remove)
		s.inWorkflow(j, is, (*index).add)
	}
}

// fill makes the job what a record says, but for its kind. It needs no lock for a job
// that is not stored yet.
func (s *store) fill(j *job, r *storage.Record) {
	j.id, j.args = r.ID, r.Args
	j.priority = int32(min(max(r.Priority, math.MinInt32), math.MaxInt32))
	if j.limit = nil; r.RateLimit != nil {
		j.limit = shared(&s.lastLimit, *r.RateLimit)
	}
	attempted := s.attempted(j, r)
	compact := j.common(r) && attempted
	if compact && r.Fingerprint == "" && r.Fairness == (ojs.Fairness{}) {
		j.rest = nil
		return
	}
	if j.rest == nil {
		j.rest = new(rest)
	}
	j.rest.fingerprint, j.rest.fairness = r.Fingerprint, r.Fairness
	if compact {
		j.rest.whole = nil
		return
	}
	if j.rest.whole == nil {
		j.rest.whole = new(storage.Record)
	}
	*j.rest.whole = r.Copy()
}

// common takes in what of a record attempts do not change. It reports false if that is
// more than most jobs have.
func (j *job) common(r *storage.Record) bool {
	var created, scheduled bool
	j.created, created = at(r.CreatedAt)
	j.scheduled, scheduled = at(r.ScheduledAt)
	return created && scheduled &&
		r.Meta == nil && r.Unique == ofMany(r.Unique) && r.Dependencies == nil && r.Extra == nil &&
		r.ExpiresAt.IsZero() && r.EnqueueTTL == 0 && int(j.priority) == r.Priority
}

// attempted takes in what attempts change of a job. It reports false if that is more than
// most jobs have.
func (s *store) attempted(j *job, r *storage.Record) bool {
	j.follow(r)
	var enqueued, started bool
	j.enqueued, enqueued = at(r.EnqueuedAt)
	j.started, started = at(r.StartedAt)
	if j.attempt = int32(r.Attempt); r.Progress == 1 {
		j.marks |= done
	} else {
		j.marks &^= done
	}
	if r.Worker == "" {
		j.worker = nil
	} else if j.worker == nil || *j.worker != r.Worker {
		j.worker = shared(&s.lastWorker, r.Worker)
	}
	leased := j.state == active || r.LeaseUntil.IsZero()
	retried := r.NextRetryAt.IsZero() || j.state == retryable && j.timed.time().Equal(r.NextRetryAt)
	finished := j.ended() || r.FinishedAt.IsZero()
	return enqueued && started && leased && retried && finished && rule.Exact(int64(j.timed)) &&
		r.Errors == nil && r.History == nil && r.Error == nil && r.Result == nil && r.Checkpoint == nil &&
		r.DeadLetteredAt.IsZero() && (r.Progress == 0 || r.Progress == 1) && int(j.attempt) == r.Attempt
}

// shared returns a value that jobs may share, which nothing changes.
func shared[T comparable](last *atomic.Pointer[T], v T) *T {
	if p := last.Load(); p != nil && *p == v {
		return p
	}
	p := clone(&v)
	last.Store(p)
	return p
}

// advance is set for a record that differs from the job in nothing but what attempts
// change.
func (s *store) advance(j *job, r *storage.Record) {
	if j.whole() != nil || !s.attempted(j, r) {
		s.set(j, r)
	}
}

// follow takes in what indexes go by and transitions change.
func (j *job) follow(r *storage.Record) {
	j.state, j.version = uint8(stateIndex(r.State)), r.Version
	at := r.FinishedAt
	if !j.ended() {
		at = r.WakeAt()
	}
	j.timed = instant(rule.Nanos(at))
}

// copyTo makes r a copy of the job.
func (j *job) copyTo(r *storage.Record) {
	if whole := j.whole(); whole != nil {
		*r = whole.Copy()
		r.Version = j.version
		return
	}
	// Each field once, even those that most jobs do not have: clearing the record first
	// costs as much again.
	k := j.kind
	r.ID, r.Type, r.TypeVersion, r.Queue = j.id, k.jobType, k.version, k.queue
	r.Priority, r.Attempt, r.MaxAttempts = int(j.priority), int(j.attempt), k.maxAttempts
	r.Meta, r.Errors, r.History = nil, nil, nil
	r.CreatedAt, r.ScheduledAt = j.created.time(), j.scheduled.time()
	r.Args, r.State = j.args, states[j.state]
	r.Retry = k.retry
	r.Retry.NonRetryableErrors = slices.Clone(k.retry.NonRetryableErrors)
	r.Timeout, r.TotalTimeout, r.Lease, r.ResultTTL = k.timeout, k.totalTimeout, k.lease, k.resultTTL
	r.RateLimit, r.Unique, r.Fingerprint = clone(j.limit), k.unique.Clone(), j.fingerprint()
	r.Dependencies, r.Fairness = nil, j.fairness()
	r.ExpiresAt, r.DeadLetteredAt, r.EnqueueTTL = time.Time{}, time.Time{}, 0
	r.EnqueuedAt, r.StartedAt = j.enqueued.time(), j.started.time()
	r.LeaseUntil, r.NextRetryAt, r.FinishedAt = time.Time{}, time.Time{}, time.Time{}
	switch {
	case j.state == active:
		r.LeaseUntil = j.timed.time()
	case j.state == retryable:
		r.NextRetryAt = j.timed.time()
	case j.ended():
		r.FinishedAt = j.timed.time()
	}
	r.Progress, r.Error, r.Result, r.Checkpoint, r.Extra = 0, nil, nil, nil, nil
	if j.marks&done != 0 {
		r.Progress = 1
	}
	r.Version, r.Worker = j.version, ""
	if j.worker != nil {
		r.Worker = *j.worker
	}
}

// record returns a copy of the job.
func (j *job) record() (r storage.Record) {
	j.copyTo(&r)
	return r
}

// ended reports whether the job has ended.
func (j *job) ended() bool { return j.state >= completedState }

// current is storage.Record.State.
func (j *job) current() ojs.State { return states[j.state] }

// deadLettered is storage.Record.DeadLettered.
func (j *job) deadLettered() bool {
	whole := j.whole()
	return whole != nil && whole.DeadLettered()
}

// deadline is storage.Record.Deadline.
func (j *job) deadline() time.Time {
	if whole := j.whole(); whole != nil {
		return whole.Deadline()
	}
	if j.kind.totalTimeout > 0 {
		return j.created.time().Add(j.kind.totalTimeout)
	}
	return time.Time{}
}

// expired is storage.Record.Expired.
func (j *job) expired(now time.Time) bool {
	d := j.deadline()
	return !d.IsZero() && !now.Before(d) && j.current().Waiting()
}

// wakeAt is storage.Record.WakeAt, or the earliest or latest time of 64 bits.
func (j *job) wakeAt() time.Time {
	if j.ended() {
		return time.Time{}
	}
	return j.timed.time()
}

// finishedAt is storage.Record.FinishedAt of a job that has ended, or the earliest or
// latest time of 64 bits.
func (j *job) finishedAt() time.Time { return j.timed.time() }

// hasEnqueueTTL reports whether the job has an enqueue TTL.
func (j *job) hasEnqueueTTL() bool {
	whole := j.whole()
	return whole != nil && whole.EnqueueTTL > 0
}

// fingerprint is storage.Record.Fingerprint.
func (j *job) fingerprint() string {
	if j.rest == nil {
		return ""
	}
	return j.rest.fingerprint
}

func clone[T any](p *T) *T {
	if p == nil {
		return nil
	}
	c := *p
	return &c
}

// firstVersion is that of a job whose id no other has had.
const firstVersion = 1

// prepare makes a job of a record, in its first version. It runs before the storage is
// locked, so that the lock is held for less time.
func (s *store) prepare(r *storage.Record) *job {
	j := s.spares.take()
	if k := s.lastKind.Load(); k != nil && k.fits(r) {
		j.kind = k // if it still is one when the job is stored
	}
	s.fill(j, r)
	j.version = firstVersion
	j.hash = near(s.seed, j.id)
	return j
}

// adopt gives a prepared job its kind.
func (s *store) adopt(j *job, r *storage.Record) {
	if j.kind == nil || j.kind != s.lastKind.Load() {
		j.kind = s.kindOf(r)
	}
}
