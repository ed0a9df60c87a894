package memory

import (
	"context"
	"runtime"
	"sync"
	"sync/atomic"

	"github.com/ojsengine/ojs"
	"github.com/ojsengine/ojs/storage"
)

// inbox is a buffer of stored jobs that are in no index yet, in the order in which they
// came. An enqueue adds ordinary jobs to it, under a lock that is seldom contended. Every
// other call drains it first, with two exceptions. A claim from every queue drains it
// when the other available jobs run out, as the jobs of the inbox come after them. A
// settle of jobs that end drains it if it does not find one. So producers and workers do
// not contend for the storage at each job, and the data of each stays in the cache of its
// processor for a while.
type inbox struct {
	some atomic.Bool // jobs are in it; changed under mu
	// open says that jobs are available, so that workers are likely to have enough to do
	// without what is left here, and that no queue has a state. It is changed under both
	// locks.
	open atomic.Bool

	mu    sync.Mutex // guards the fields below; store.mu is locked before it
	jobs  []*job
	spare []*job // memory for the next; changed under store.mu
	_     [64]byte
}

const (
	inboxSize = 128  // jobs at which an enqueue drains the inbox, unless the storage is locked
	fullInbox = 512  // jobs at which it waits for the lock to do so
	maxInbox  = 1024 // jobs whose memory is kept
	backlog   = 512  // available jobs, beyond which it then lets other goroutines run
)

// leaveIn adds the jobs of a batch to the inbox. It reports false, and has done nothing,
// if no other job is available or a job of the batch is not ordinary. A job is not
// ordinary if a listener must be told of it, if its kind is not known yet, if it has a
// priority, if its id may exist already, or if other jobs decide on it.
func (s *store) leaveIn(ctx context.Context, self any, batch []storage.Insert, first *job) bool {
	if !s.inbox.open.Load() || ctx.Err() != nil || s.hub.HeardFrom(self) {
		return false
	}
	j := first
	for i := range batch {
		in := &batch[i]
		if !in.IDIsNew || in.MaxDepth > 0 || in.Record.Priority != 0 ||
			in.Record.State != ojs.StateAvailable || j.kind == nil || j.rest != nil {
			return false
		}
		j = j.next
	}
	x := &s.inbox
	x.mu.Lock()
	if !x.open.Load() {
		x.mu.Unlock()
		return false
	}
	for j := first; j != nil; {
		x.jobs = append(x.jobs, j)
		j, j.next = j.next, nil
	}
	n := len(x.jobs)
	if !x.some.Load() { // a store costs more
		x.some.Store(true)
	}
	x.mu.Unlock()
	// A listener that registered meanwhile may have claimed before these jobs came, and
	// not after. It must be told.
	if heard := s.hub.HeardFrom(self); heard || n >= inboxSize {
		if heard || n >= fullInbox {
			s.mu.Lock()
		} else if !s.mu.TryLock() {
			if len(batch) > 1 && n >= 2*inboxSize { // batches would fill the inbox before a worker drains it
				runtime.Gosched()
			}
			return true // no listener waits for these jobs; the next call that needs them drains the inbox
		}
		s.heard, s.self = s.hub.HeardFrom(self), self
		s.takeIn()
		if s.heard { // if a call of the listener's own has taken them in, it has not been told
			s.notice.Available = true
		}
		long := s.ready.n > backlog
		s.leave()
		if long { // jobs would leave the caches, and use memory that is about to be free
			for range max(n/inboxSize, 1) {
				runtime.Gosched()
			}
		}
	}
	return true
}

// takeIn empties the inbox. mu is held.
func (s *store) takeIn() {
	x := &s.inbox
	if !x.some.Load() {
		return
	}
	x.mu.Lock()
	jobs := x.jobs
	x.jobs = x.spare[:0]
	x.some.Store(false)
	x.mu.Unlock()
	for _, j := range jobs {
		if j.kind.jobs == 0 { // the kind was forgotten with its last job
			r := j.record()
			j.kind = s.kindOf(&r)
		}
		s.enlist(j)
	}
	if clear(jobs); cap(jobs) > maxInbox {
		jobs = nil
	}
	x.spare = jobs
}

// openInbox opens the inbox if there are available jobs and no queue has a state, and
// closes it otherwise. mu is held.
func (s *store) openInbox() {
	x, open := &s.inbox, s.ready.n > 0 && s.states == 0
	if x.open.Load() != open {
		x.mu.Lock()
		x.open.Store(open)
		x.mu.Unlock()
	}
}
