// Package memory keeps jobs in this process, under one mutex: nothing to install, and
// gone when the process ends.
//
// Insert, Claim, Settle and a job coming due cost the same however many jobs are stored,
// but for the logarithm of how many wait for a time and of how many priorities are in
// use. If n jobs wait for times that come in no order, about one job in 32 also moves a
// list of n/64 to n/32 pointers. Listing goes through the jobs in pieces and never holds
// the mutex for more than some thousands of them.
//
// While other jobs are available, ordinary jobs are inserted without that mutex, and a
// later call that holds it adds them to the indexes. A job is ordinary if it has no
// priority, uniqueness, bound or other rule that involves other jobs. An insert while
// more than 512 jobs are available yields the processor once in 128 jobs, or later if
// others use the storage.
//
// Finished jobs stay, for lookups, until they are deleted or pruned.
package memory

import (
	"context"
	"fmt"
	"hash/maphash"
	"slices"
	"sync/atomic"
	"time"

	"github.com/ojsengine/ojs"
	"github.com/ojsengine/ojs/internal/notify"
	"github.com/ojsengine/ojs/internal/spin"
	"github.com/ojsengine/ojs/storage"
	"github.com/ojsengine/ojs/storage/depend"
	"github.com/ojsengine/ojs/storage/insert"
	"github.com/ojsengine/ojs/storage/rule"
)

// Storage is a storage.Storage. Its zero value is not usable; see New.
type Storage struct{ personal }

// store is what a storage has.
type store struct {
	inbox  inbox        // jobs that are in none of what follows yet
	hub    notify.Hub   // of engines that share the storage
	seed   maphash.Seed // of hashes of ids
	spares spares

	lastKind   atomic.Pointer[kind]          // that a job was enqueued of; changed under mu
	lastLimit  atomic.Pointer[ojs.RateLimit] // of a job
	lastWorker atomic.Pointer[string]        // who claimed

	mu spin.Mutex // guards the fields below
	state
}

// state is what mu guards.
type state struct {
	closed bool
	jobs   table
	ready  ready // available jobs
	// active jobs by when they became so, in a list of the same kind as available ones
	running level
	wakes   [endStates]index // jobs that wait for a time, by it: see endState
	all     index            // every job, by insertion: job.ord
	ords    uint64           // the latest that was given

	finished [endStates][classes]index // jobs that have ended, by when they did

	lastTurn uint64            // the latest that was given to a job
	floor    uint64            // no job that was deleted had a later version
	states   int               // queues that have one
	unique   map[string]*peers // by fingerprint

	failed    map[string]*index // discarded jobs by the type of their error, and by their ends
	workflows map[string]*index // jobs by their Keeper, and by job.ord
	keepers   index             // jobs that are their own Keeper, by job.ord

	documents map[storage.Kind]*documents

	edges     map[int64][]edge // by job.ord: see depends.go
	lines     map[string]*keyLine
	uncounted []depend.End // of jobs that others wait for, in the call under way
	toCount   []*job       // room for the list of dependTx.Take

	logs map[string][]storage.Log // by the ids of their jobs

	gone *job // for the spares: a list, by next, of jobs that are in no index

	self   any            // the caller of the call under way, if heard
	heard  bool           // a listener has to be told of the call under way
	notice storage.Notice // for that listener
}

var (
	_ storage.Storage = (*Storage)(nil)
	_ storage.Binder  = (*Storage)(nil)

	_ storage.SettleClaimer = (*Storage)(nil)
	_ storage.SettleClaimer = personal{}
)

// queue is what is known of a queue: its jobs and its state.
type queue struct {
	name     string
	state    ojs.QueueState           // "": active
	sections map[*typeBranch]*section // none is without jobs
	live     int                      // jobs that have not ended
}

// New makes an empty storage.
func New() *Storage {
	seed := maphash.MakeSeed()
	return &Storage{personal{store: &store{seed: seed, state: newState(seed)}}}
}

func newState(seed maphash.Seed) state {
	return state{
		jobs:   newTable(seed),
		ready:  newReady(),
		unique: make(map[string]*peers),

		failed: make(map[string]*index), workflows: make(map[string]*index),
		documents: make(map[storage.Kind]*documents),
		edges:     make(map[int64][]edge), lines: make(map[string]*keyLine),
		logs: make(map[string][]storage.Log),
	}
}

// orMake returns what a map has for a key. If it has nothing, it is given what made
// returns.
func orMake[K comparable, V any](m map[K]V, key K, made func() V) V {
	v, there := m[key]
	if !there {
		v = made()
		m[key] = v
	}
	return v
}

// Capabilities implements storage.Storage.
func (s *store) Capabilities() storage.Capabilities {
	return storage.Capabilities{Name: "memory", Unique: storage.Strong, Mechanism: "mutex"}
}

// find returns the job with the id, nil if there is none.
func (s *store) find(id string) *job { return s.jobs.find(near(s.seed, id), id) }

// leave unlocks the storage after a call, and tells others of it.
func (s *store) leave() {
	s.openInbox()
	gone := s.gone
	s.gone = nil
	if !s.heard {
		s.mu.Unlock()
	} else {
		self, n := s.self, s.notice
		s.heard, s.notice = false, storage.Notice{}
		s.mu.Unlock()
		s.hub.TellFrom(self, n)
	}
	s.spares.give(gone)
}

// taken notes that a claim has been taken from its holder.
func (s *store) taken(id string, version uint64, cause error) {
	if s.heard {
		s.notice.AddTaken(id, version, cause)
	}
}

// Notify implements storage.Notifier. Notices are told before the call that they are
// about returns.
func (s *store) Notify(self any, f func(storage.Notice)) (stop func()) {
	return s.hub.Notify(self, f)
}

// Insert implements storage.Storage.
func (s personal) Insert(
	ctx context.Context, now time.Time, batch []storage.Insert, dst []storage.Inserted,
) ([]storage.Inserted, error) {
	first, refused := s.prepareAll(batch)
	if refused == nil && s.leaveIn(ctx, s.caller(ctx), batch, first) {
		for range batch {
			dst = append(dst, storage.Inserted{Version: firstVersion})
		}
		return dst, nil
	}
	if err := s.enter(ctx); err != nil {
		s.spares.give(first)
		return dst, err
	}
	defer s.leave()
	if refused != nil {
		return dst, refused
	}
	return s.insertPrepared(now, batch, first, dst)
}

// prepareAll makes the jobs of a batch, a list by next.
func (s *store) prepareAll(batch []storage.Insert) (first *job, err error) {
	if err := storage.CheckBegin(batch); err != nil {
		return nil, err
	}
	for i := len(batch) - 1; i >= 0; i-- {
		j := s.prepare(&batch[i].Record)
		j.next, first = first, j
	}
	return first, nil
}

// insertPrepared stores the jobs of a batch.
func (s *store) insertPrepared(
	now time.Time, batch []storage.Insert, jobs *job, dst []storage.Inserted,
) ([]storage.Inserted, error) {
	if !s.plain(batch) {
		s.gone = jobs
		x := s.inserter(batch)
		results, err := insert.Batch(x, now, x.batch)
		return append(dst, results...), err
	}
	if err := s.insertable(batch, jobs); err != nil {
		s.gone = jobs
		return dst, err
	}
	for i := range batch {
		j := jobs
		jobs, j.next = j.next, nil
		s.adopt(j, &batch[i].Record)
		if !batch[i].IDIsNew {
			j.version = s.floor + 1
		}
		s.enlist(j)
		dst = append(dst, storage.Inserted{Version: j.version})
	}
	return dst, nil
}

// enlist enters a job that has its kind into the indexes.
func (s *store) enlist(j *job) {
	j.kind.jobs++
	s.jobs.add(j)
	s.ords++
	j.ord = s.ords
	s.all.add(int64(j.ord), j)
	s.inWorkflow(j, j.keeper(), (*index).add)
	s.place(j)
}

// insertable looks whether the ids of a batch are free and its queues take jobs.
func (s *store) insertable(batch []storage.Insert, jobs *job) error {
	var stored map[string]ojs.State
	for i, j := 0, jobs; j != nil && stored == nil; i, j = i+1, j.next {
		if !batch[i].IDIsNew {
			if there := s.jobs.find(j.hash, j.id); there != nil {
				stored = map[string]ojs.State{j.id: there.current()}
			}
		}
	}
	if err := insert.Check(batch, stored); err != nil {
		return err
	}
	for i := 0; i < len(batch) && s.states > 0; i++ {
		if name := batch[i].Record.Queue; s.draining(name) {
			return &ojs.QueueError{Queue: name, Err: ojs.ErrQueueDraining}
		}
	}
	return nil
}

// Claim implements storage.Storage.
func (s personal) Claim(
	ctx context.Context, now time.Time, c storage.Claim, dst []storage.Record,
) ([]storage.Record, error) {
	if err := s.enterAhead(ctx); err != nil {
		return dst, err
	}
	defer s.leave()
	t := taker{list: dst, left: c.Max}
	s.claimJobs(now, c, &t)
	return t.list, nil
}

// SettleAndClaim implements storage.SettleClaimer.
func (s personal) SettleAndClaim(ctx context.Context, now time.Time, to []*storage.Record,
	dst []storage.Settled, c storage.Claim, into []*storage.Record) ([]storage.Settled, int, error) {
	if err := s.enterAhead(ctx); err != nil {
		return dst, 0, err
	}
	defer s.leave()
	for _, r := range to {
		if !r.State.Terminal() {
			s.takeIn() // or it would become available before those
		}
		settled := s.settleOne(now, r, true)
		if settled.Err == ojs.ErrNotFound && s.inbox.some.Load() { // it may be there still
			s.takeIn()
			settled = s.settleOne(now, r, true)
		}
		dst = append(dst, settled)
	}
	t := taker{into: into, left: len(into), undoable: true}
	s.claimJobs(now, c, &t)
	return dst, t.n, nil
}

// Unclaim implements storage.SettleClaimer.
func (s personal) Unclaim(ctx context.Context, _ time.Time, held []storage.Held) (n int, err error) {
	if err := s.enter(ctx); err != nil {
		return 0, err
	}
	defer s.leave()
	for _, h := range held {
		j := s.find(h.ID)
		if j == nil || j.current() != ojs.StateActive || j.version != h.Version {
			continue
		}
		r := j.record()
		s.ready.limits.takeBack(j, r.StartedAt)
		s.displace(j)
		r.Unclaim()
		s.set(j, &r)
		s.placeAgain(j)
		n++
	}
	return n, nil
}

// taker is where a claim's jobs go.
type taker struct {
	list []storage.Record  // the jobs are appended to it
	into []*storage.Record // if it is not nil, its records become the jobs instead
	n    int               // how many jobs there are
	left int               // how many more there may be
	// the first job that has an enqueue TTL ends the claim: Unclaim would not restore it
	undoable bool
}

// room is for one more job, and holds garbage.
func (t *taker) room() (r *storage.Record) {
	t.left--
	t.n++
	if t.into != nil {
		return t.into[t.n-1]
	}
	t.list, r = another(t.list)
	return r
}

// claimJobs hands the jobs of a claim to t.
func (s *store) claimJobs(now time.Time, c storage.Claim, t *taker) {
	c.ResetLimits()
	s.ready.openDue(now)
	defer s.limited(now, c.Limits, t)
	at := now.Round(0).UTC() // as copies have it
	claim := func(r *storage.Record) { r.Claim(at, c.Worker, c.Lease) }
	take := func(j *job) bool {
		ends := t.undoable && j.hasEnqueueTTL()
		counts := j.counts()
		switch {
		case counts && s.holdsBack(j, now, c.Limits, ends):
			return true
		case counts && c.Limits.Now > 0 && t.n >= c.Limits.Now:
			t.left = 0
			return false
		case ends:
			return false
		}
		s.ready.serve(j)
		if counts {
			s.ready.limits.started(j, now)
		}
		s.change(j, t.room(), claim)
		return true
	}
	queues, all := c.Queues, len(c.Queues) == 0
	if all {
		queues = []string{""}
	} else {
		s.takeIn()
	}
	for _, q := range queues {
		for t.left > 0 && (all || q != "") { // "" stands for all
			j := s.ready.next(q, c.Types, now)
			if all && (j == nil || j.priority < 0) { // what is in the inbox comes before it
				s.takeIn()
				j = s.ready.next(q, c.Types, now)
			}
			if j == nil {
				break
			}
			if !take(j) {
				return
			}
		}
	}
}

// Settle implements storage.Storage.
func (s personal) Settle(
	ctx context.Context, now time.Time, changes []storage.Change, dst []storage.Settled,
) ([]storage.Settled, error) {
	if err := s.enter(ctx); err != nil {
		return dst, err
	}
	defer s.leave()
	if err := storage.CheckThen(changes); err != nil {
		return dst, err
	}
	for i := range changes {
		c := &changes[i]
		if len(c.Then) > 0 {
			dst = append(dst, s.settleThen(now, c))
		} else {
			dst = append(dst, s.settleOne(now, &c.Record, c.AttemptFieldsOnly))
		}
		if last := &dst[len(dst)-1]; c.Log != nil && last.Err == nil {
			s.addLog(s.find(c.Record.ID), last.Version, c.Log)
		}
	}
	return dst, nil
}

// settleOne is Settle of one change.
func (s *store) settleOne(now time.Time, to *storage.Record, sameJob bool) storage.Settled {
	j, refused := s.settles(to)
	if refused != nil {
		return *refused
	}
	settled := s.applyChange(j, to, sameJob)
	settled.Moved = s.count(now, nil)
	return settled
}

// settles finds the job of a change, or says why the change is refused.
func (s *store) settles(to *storage.Record) (j *job, refused *storage.Settled) {
	if j = s.find(to.ID); j == nil {
		return nil, &storage.Settled{Err: ojs.ErrNotFound}
	}
	if err := storage.CanSettle(j.version, j.current(), to); err != nil {
		return nil, &storage.Settled{Version: j.version, Err: err}
	}
	return j, nil
}

// applyChange makes a change that settles allows.
func (s *store) applyChange(j *job, to *storage.Record, sameJob bool) storage.Settled {
	from := j.current()
	if from == ojs.StateAvailable && to.State == from && to.Queue == j.kind.queue &&
		to.Priority == int(j.priority) &&
		to.Fairness.Key == j.fairness().Key {
		s.edit(j, to)
		return storage.Settled{Version: j.version}
	}
	if to.State != from {
		s.takeTurn(j)
	}
	s.displace(j)
	if from == ojs.StateActive && to.State == ojs.StateCancelled {
		s.taken(to.ID, j.version, ojs.ErrCancelled)
	}
	key := j.fairness().Key
	if sameJob {
		s.advance(j, to)
	} else {
		s.set(j, to)
	}
	if j.rest != nil && to.Fairness.Key != key {
		j.rest.round = 0
	}
	j.version = to.Version + 1
	s.place(j)
	return storage.Settled{Version: j.version}
}

// settleThen is settleOne of a change with a Then.
func (s *store) settleThen(now time.Time, c *storage.Change) storage.Settled {
	j, refused := s.settles(&c.Record)
	if refused != nil {
		return *refused
	}
	x, ended := s.inserter(c.Then), c.Record
	x.ends = true
	ended.Version++
	change := func() error {
		s.applyChange(j, &c.Record, true)
		return nil
	}
	results, err := insert.Then(x, now, &ended, change, x.batch)
	if err != nil {
		return storage.Settled{Version: j.version, Err: err}
	}
	last := &results[len(results)-1]
	settled := storage.Settled{Version: j.version, Then: results, Moved: last.Moved}
	last.Moved = nil
	return settled
}

// edit changes an available job that keeps its place among the others, though maybe not
// where that is looked for.
func (s *store) edit(j *job, to *storage.Record) {
	limit := j.limit
	moves := j.level == &s.ready.passed || to.Type != j.kind.jobType || to.TypeVersion != j.kind.version ||
		(limit != nil) != (to.RateLimit != nil) || limit != nil && *limit != *to.RateLimit
	if moves {
		s.ready.remove(j)
	}
	s.reset(j, to)
	j.version = to.Version + 1
	if moves {
		s.ready.add(j)
	}
}

// reset makes an open job, whose state stays, what a record says. It keeps its turn, and
// its place if it is available.
func (s *store) reset(j *job, to *storage.Record) {
	s.removePeer(j)
	s.leaveSection(j)
	s.leaveEnd(j)
	s.set(j, to)
	s.enterEnd(j, open, j.timed)
	s.enterSection(j)
	s.addPeer(j)
	if s.heard {
		s.notice.Add(j.id, j.current(), j.wakeAt())
	}
}

// change makes a transition of a job, and r a copy of the job as it is then.
func (s *store) change(j *job, r *storage.Record, f func(*storage.Record)) {
	s.displace(j)
	if whole := j.whole(); whole != nil { // one copy, since such a record is large
		whole.Version = j.version
		f(whole)
		j.follow(whole)
		*r = whole.Copy()
	} else {
		j.copyTo(r)
		f(r)
		s.advance(j, r)
	}
	s.place(j)
}

// changed is change that appends the copy to dst.
func (s *store) changed(j *job, dst []storage.Record, f func(*storage.Record)) []storage.Record {
	dst, r := another(dst)
	s.change(j, r, f)
	return dst
}

// another makes room in a list for one more record, which holds garbage.
func another(list []storage.Record) ([]storage.Record, *storage.Record) {
	n := len(list)
	list = slices.Grow(list, 1)[:n+1]
	return list, &list[n]
}

// Extend implements storage.Storage.
func (s personal) Extend(
	ctx context.Context, now time.Time, extensions []storage.Extension,
) (lost []string, err error) {
	if err := s.enter(ctx); err != nil {
		return nil, err
	}
	defer s.leave()
	for _, x := range extensions {
		j := s.find(x.ID)
		if j == nil || j.current() != ojs.StateActive || j.version != x.Version {
			lost = append(lost, x.ID)
			continue
		}
		r := j.record()
		r.Extend(now, x)
		s.leaveEnd(j)
		s.set(j, &r)
		s.lastTurn++
		j.turn = s.lastTurn
		s.enterEnd(j, open, j.timed)
	}
	return lost, nil
}

// Due implements storage.Storage.
func (s personal) Due(
	ctx context.Context, now time.Time, limit int, buf []storage.Record,
) (storage.Due, error) {
	d := storage.Due{Promoted: buf[:0]}
	if err := s.enter(ctx); err != nil {
		return storage.Due{}, err
	}
	defer s.leave()
	first := s.wakes[open].first()
	for n := 0; n < limit && first.job != nil && first.at <= rule.Nanos(now); n++ {
		j := first.job
		switch {
		case j.expired(now):
			d.Expired = s.changed(j, d.Expired, func(r *storage.Record) { r.Expire(now) })
			d.Moved = s.count(now, d.Moved)
		case j.current() == ojs.StateActive:
			s.taken(j.id, j.version, ojs.ErrLeaseLost)
			d.Stalled = s.changed(j, d.Stalled, func(r *storage.Record) { r.TakeOver(now) })
		default:
			d.Promoted = s.changed(j, d.Promoted, func(r *storage.Record) { r.Promote(now) })
		}
		first = s.wakes[open].first()
	}
	if first.job != nil {
		d.Next = rule.Time(first.at)
	}
	return d, nil
}

// ClaimedBy implements storage.Storage.
func (s personal) ClaimedBy(ctx context.Context, worker string) (list []storage.Record, err error) {
	if err := s.enter(ctx); err != nil {
		return nil, err
	}
	defer s.leave()
	for j := s.running.head; j != nil; j = j.next {
		if r := j.record(); r.Worker == worker {
			list = append(list, r)
		}
	}
	return list, nil
}

// Get implements storage.Storage.
func (s personal) Get(ctx context.Context, id string) (r storage.Record, err error) {
	if err := s.enter(ctx); err != nil {
		return r, err
	}
	defer s.leave()
	j := s.find(id)
	if j == nil {
		return r, fmt.Errorf("%w: job %q", ojs.ErrNotFound, id)
	}
	j.copyTo(&r) // where it is wanted: a record is large to copy
	return r, nil
}

// Counts implements storage.Storage.
func (s personal) Counts(ctx context.Context) ([]storage.Count, error) {
	if err := s.enter(ctx); err != nil {
		return nil, err
	}
	defer s.leave()
	sums := make(map[storage.Count]int) // of the versions of a type
	for name, q := range s.ready.queues {
		for t, x := range q.sections {
			for i, n := range x.counts {
				if n > 0 {
					sums[storage.Count{Queue: name, Type: t.name, State: states[i]}] += n
				}
			}
		}
	}
	var counts []storage.Count
	for c, n := range sums {
		c.N = n
		counts = append(counts, c)
	}
	return counts, nil
}

// Delete implements storage.Storage.
func (s personal) Delete(ctx context.Context, ids []string) (int, error) {
	if err := s.enter(ctx); err != nil {
		return 0, err
	}
	defer s.leave()
	for _, id := range ids {
		if j := s.find(id); j != nil && !j.ended() {
			return 0, &ojs.TransitionError{ID: id, From: j.current(), To: "deleted"}
		}
	}
	n := 0
	for _, id := range ids {
		if j := s.find(id); j != nil {
			s.delete(j)
			n++
		}
	}
	return n, nil
}

// delete takes a job out of every index.
func (s *store) delete(j *job) {
	s.floor = max(s.floor, j.version)
	s.displace(j)
	s.all.remove(int64(j.ord), j)
	s.inWorkflow(j, j.keeper(), (*index).remove)
	j.ord = 0 // edges that lead to the job are stale, also if its memory is used again
	s.jobs.remove(j)
	s.leaves(j.kind)
	delete(s.logs, j.id)
	j.next, s.gone = s.gone, j
}

// Close implements storage.Storage. It forgets every job.
func (s *store) Close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.states++
	s.openInbox() // it closes
	s.takeIn()
	s.state = newState(s.seed)
	s.closed = true
	s.lastKind.Store(nil)
	return nil
}
