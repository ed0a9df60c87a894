// Package memory keeps jobs in this process, under one mutex: nothing to install, and gone when the process ends.
//
// Insert, Claim, Settle and a job coming due cost the same however many jobs are stored, but for the logarithm of how many
// wait for a time and of how many priorities are in use. Listing goes through the jobs in pieces and never holds the mutex
// for more than some thousands of them.
//
// Finished jobs stay, for lookups, until they are deleted or pruned.
package memory

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/ojsengine/ojs"
	"github.com/ojsengine/ojs/internal/notify"
	"github.com/ojsengine/ojs/scheduler"
	"github.com/ojsengine/ojs/storage"
)

// Storage is a storage.Storage. Its zero value is not usable; see New.
type Storage struct {
	hub notify.Hub // of engines that share the storage

	mu     sync.Mutex // guards everything below
	closed bool
	jobs   map[string]*job
	ready  ready                // available jobs
	due    scheduler.Heap[*job] // jobs that time will do something to, by storage.Record.WakeAt
	all    index                // every job, by insertion
	ended  [classes]index       // finished jobs, by when they came there
	ends   uint64               // the latest number in ended
	queues map[string]*queue
	unique map[string]*peers // by fingerprint
	crons  map[string]storage.Cron

	heard  bool           // somebody wants to know what the call under way does
	notice storage.Notice // what that is
}

var (
	_ storage.Storage    = (*Storage)(nil)
	_ storage.QueueStore = (*Storage)(nil)
	_ storage.CronStore  = (*Storage)(nil)
	_ storage.Notifier   = (*Storage)(nil)
)

// job is a stored job with its places in the indexes.
type job struct {
	rec    storage.Record
	queue  *queue
	wake   scheduler.Item[*job]
	spot   spot   // among the available jobs
	ord    uint64 // in all
	peerAt int    // among its peers
	end    uint64 // in ended[class]; 0: it has not ended
	class  class
}

// queue is what is known of a queue: how many jobs it has, and its state.
type queue struct {
	counts [8]int // by stateIndex
	total  int
	live   int            // those that have not ended
	state  ojs.QueueState // "": active
}

// New makes an empty storage.
func New() *Storage {
	return &Storage{
		jobs:   make(map[string]*job),
		ready:  newReady(),
		queues: make(map[string]*queue),
		unique: make(map[string]*peers),
		crons:  make(map[string]storage.Cron),
	}
}

// Capabilities implements storage.Storage.
func (s *Storage) Capabilities() storage.Capabilities {
	return storage.Capabilities{Name: "memory", Unique: storage.Strong, Mechanism: "mutex"}
}

// enter locks the storage for a call, unless the call must fail.
func (s *Storage) enter(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	s.mu.Lock()
	if s.closed {
		s.mu.Unlock()
		return fmt.Errorf("%w: memory storage", ojs.ErrClosed)
	}
	s.heard = s.hub.Heard(ctx)
	return nil
}

// leave unlocks the storage after a call, and tells others of it.
func (s *Storage) leave(ctx context.Context) {
	if !s.heard {
		s.mu.Unlock()
		return
	}
	n := s.notice
	s.heard, s.notice = false, storage.Notice{}
	s.mu.Unlock()
	s.hub.Tell(ctx, n)
}

// taken notes that a claim has been taken from its holder.
func (s *Storage) taken(id string, version uint64, cause error) {
	if s.heard {
		s.notice.Taken = append(s.notice.Taken, storage.Taken{Held: storage.Held{ID: id, Version: version}, Cause: cause})
	}
}

// Notify implements storage.Notifier. Notices are told before the call that they are about returns.
func (s *Storage) Notify(self any, f func(storage.Notice)) (stop func()) {
	return s.hub.Notify(self, f)
}

// Insert implements storage.Storage.
func (s *Storage) Insert(ctx context.Context, now time.Time, batch []storage.Insert, dst []storage.Inserted) ([]storage.Inserted, error) {
	if err := s.enter(ctx); err != nil {
		return dst, err
	}
	defer s.leave(ctx)
	if err := s.insertable(batch); err != nil {
		return dst, err
	}
	p, err := s.resolve(batch, now)
	if err != nil {
		return dst, err
	}
	room, err := s.makeRoom(batch, p, now)
	if err != nil {
		return dst, err
	}
	first := len(dst)
	var stored []*job // only a plan asks for them
	for i := range batch {
		dst = append(dst, storage.Inserted{})
		s.carryOut(p, i, batch, stored, now, &dst[first+i])
		if p != nil {
			stored = append(stored, nil)
		}
		if !p.stores(i) {
			continue
		}
		j := &job{rec: batch[i].Record.Copy()}
		j.rec.Version = 1
		j.wake.Value = j
		s.jobs[j.rec.ID] = j
		j.ord = s.all.add(j)
		s.place(j)
		dst[first+i].Version = 1
		if p != nil {
			stored[i] = j
		}
	}
	s.drop(room, now, batch, dst[first:])
	return dst, nil
}

func (s *Storage) insertable(batch []storage.Insert) error {
	var ids map[string]struct{}
	if len(batch) > 1 {
		ids = make(map[string]struct{}, len(batch))
	}
	for i := range batch {
		r := &batch[i].Record
		switch r.State {
		case ojs.StateAvailable, ojs.StateScheduled, ojs.StatePending:
		default:
			return &ojs.InvalidError{Code: ojs.CodeEnvelopeInvalid, Field: "state", Reason: fmt.Sprintf("%q is no state to begin in", r.State)}
		}
		if there, ok := s.jobs[r.ID]; ok {
			return &ojs.DuplicateError{ID: r.ID, State: there.rec.State}
		}
		if ids != nil {
			if _, twice := ids[r.ID]; twice {
				return &ojs.DuplicateError{ID: r.ID, State: r.State}
			}
			ids[r.ID] = struct{}{}
		}
	}
	return nil
}

// Claim implements storage.Storage.
func (s *Storage) Claim(ctx context.Context, now time.Time, c storage.Claim, dst []storage.Record) ([]storage.Record, error) {
	if err := s.enter(ctx); err != nil {
		return dst, err
	}
	defer s.leave(ctx)
	skip := c.SkipKeys
	take := func(j *job) {
		if l := j.rec.RateLimit; l != nil && c.Max > 1 {
			skip = append(slices.Clip(skip), l.Key)
		}
		s.displace(j)
		j.rec.Claim(now, c.Worker)
		s.place(j)
		dst = append(dst, j.rec.Copy())
	}
	left := c.Max
	if len(c.Queues) == 0 {
		for ; left > 0; left-- {
			j := s.ready.next(c.Types, skip, now)
			if j == nil {
				break
			}
			take(j)
		}
		return dst, nil
	}
	for _, q := range c.Queues {
		for ; left > 0; left-- {
			j := s.ready.nextIn(q, c.Types, skip, now)
			if j == nil {
				break
			}
			take(j)
		}
	}
	return dst, nil
}

// Settle implements storage.Storage.
func (s *Storage) Settle(ctx context.Context, now time.Time, changes []storage.Change, dst []storage.Settled) ([]storage.Settled, error) {
	if err := s.enter(ctx); err != nil {
		return dst, err
	}
	defer s.leave(ctx)
	for i := range changes {
		dst = append(dst, s.settle(&changes[i].Record))
	}
	return dst, nil
}

func (s *Storage) settle(to *storage.Record) storage.Settled {
	j, ok := s.jobs[to.ID]
	if !ok {
		return storage.Settled{Err: ojs.ErrNotFound}
	}
	from := &j.rec
	switch {
	case from.Version != to.Version:
		return storage.Settled{Version: from.Version, Err: storage.ErrFenced}
	case from.State == to.State && from.State.Waiting(), from.State.CanBecome(to.State):
	default:
		return storage.Settled{Version: from.Version, Err: &ojs.TransitionError{ID: to.ID, From: from.State, To: to.State}}
	}
	if from.State == ojs.StateAvailable && to.State == from.State &&
		to.Queue == from.Queue && to.Type == from.Type && to.Priority == from.Priority && sameKey(to.RateLimit, from.RateLimit) &&
		to.Fingerprint == from.Fingerprint {
		s.edit(j, to)
		return storage.Settled{Version: j.rec.Version}
	}
	s.displace(j)
	queue := from.Queue
	if from.State == ojs.StateActive && to.State == ojs.StateCancelled {
		s.taken(to.ID, from.Version, ojs.ErrCancelled)
	}
	j.rec = to.Copy()
	j.rec.Version++
	s.place(j)
	if queue != j.rec.Queue {
		s.forgetIfEmpty(queue)
	}
	return storage.Settled{Version: j.rec.Version}
}

// edit changes an available job that keeps its place among the others.
func (s *Storage) edit(j *job, to *storage.Record) {
	before := j.rec.WakeAt()
	j.rec = to.Copy()
	j.rec.Version++
	if at := j.rec.WakeAt(); at.IsZero() {
		s.due.Remove(&j.wake)
	} else if !at.Equal(before) {
		s.due.Push(&j.wake, at)
	}
	if s.heard {
		s.notice.Add(j.rec.ID, j.rec.State, j.rec.WakeAt())
	}
}

// Extend implements storage.Storage.
func (s *Storage) Extend(ctx context.Context, now time.Time, extensions []storage.Extension) (lost []string, err error) {
	if err := s.enter(ctx); err != nil {
		return nil, err
	}
	defer s.leave(ctx)
	for _, x := range extensions {
		j, ok := s.jobs[x.ID]
		if !ok || j.rec.State != ojs.StateActive || j.rec.Version != x.Version {
			lost = append(lost, x.ID)
			continue
		}
		j.rec.Extend(now, x)
		s.due.Push(&j.wake, j.rec.LeaseUntil)
	}
	return lost, nil
}

// Due implements storage.Storage.
func (s *Storage) Due(ctx context.Context, now time.Time, limit int) (storage.Due, error) {
	var d storage.Due
	if err := s.enter(ctx); err != nil {
		return d, err
	}
	defer s.leave(ctx)
	for range limit {
		it, ok := s.due.PopDue(now)
		if !ok {
			break
		}
		j := it.Value
		s.displace(j)
		switch {
		case j.rec.Expired(now):
			j.rec.Expire(now)
			d.Expired = append(d.Expired, j.rec.Copy())
		case j.rec.State == ojs.StateActive:
			s.taken(j.rec.ID, j.rec.Version, ojs.ErrLeaseLost)
			j.rec.Reclaim(now)
			d.Stalled = append(d.Stalled, j.rec.Copy())
		default:
			j.rec.Promote(now)
			d.Promoted = append(d.Promoted, j.rec.Copy())
		}
		s.place(j)
	}
	d.Next, _ = s.due.Next()
	return d, nil
}

// Get implements storage.Storage.
func (s *Storage) Get(ctx context.Context, id string) (storage.Record, error) {
	if err := s.enter(ctx); err != nil {
		return storage.Record{}, err
	}
	defer s.leave(ctx)
	j, ok := s.jobs[id]
	if !ok {
		return storage.Record{}, fmt.Errorf("%w: job %q", ojs.ErrNotFound, id)
	}
	return j.rec.Copy(), nil
}

// Counts implements storage.Storage.
func (s *Storage) Counts(ctx context.Context) ([]storage.Count, error) {
	if err := s.enter(ctx); err != nil {
		return nil, err
	}
	defer s.leave(ctx)
	var counts []storage.Count
	for name, q := range s.queues {
		for i, n := range q.counts {
			if n > 0 {
				counts = append(counts, storage.Count{Queue: name, State: states[i], N: n})
			}
		}
	}
	return counts, nil
}

// Delete implements storage.Storage.
func (s *Storage) Delete(ctx context.Context, ids []string) (int, error) {
	if err := s.enter(ctx); err != nil {
		return 0, err
	}
	defer s.leave(ctx)
	for _, id := range ids {
		if j, ok := s.jobs[id]; ok && !j.rec.State.Terminal() {
			return 0, &ojs.TransitionError{ID: id, From: j.rec.State, To: "deleted"}
		}
	}
	n := 0
	for _, id := range ids {
		if j, ok := s.jobs[id]; ok {
			s.delete(j)
			n++
		}
	}
	return n, nil
}

func (s *Storage) delete(j *job) {
	s.displace(j)
	if j.end != 0 {
		s.ended[j.class].remove(j.end)
	}
	s.all.remove(j.ord)
	delete(s.jobs, j.rec.ID)
	s.forgetIfEmpty(j.rec.Queue)
}

// Close implements storage.Storage. It forgets every job.
func (s *Storage) Close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	fresh := New()
	s.closed = true
	s.jobs, s.ready, s.due, s.all, s.ended, s.queues, s.unique, s.crons = fresh.jobs, fresh.ready, fresh.due, fresh.all, fresh.ended, fresh.queues, fresh.unique, fresh.crons
	return nil
}
