package memory

import (
	"context"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/ojsengine/ojs"
	"github.com/ojsengine/ojs/storage"
)

// inbox has jobs that are stored, in the order in which they came, and are in no index
// yet. Those who enqueue leave ordinary jobs there, under a lock that others seldom want;
// whoever comes to the storage for anything else takes them in first, except workers that
// have something to do before them. So producers and workers do not take turns at the
// storage for each job, and what both keep stays in the caches of one processor for a
// while.
type inbox struct {
	some atomic.Bool // jobs are in it; changed under mu
	// open says that jobs are available, so that workers are likely to have enough to do
	// without what is left here. It is changed under Storage.mu.
	open atomic.Bool

	mu    sync.Mutex // guards the fields below; whoever has Storage.mu too has taken that first
	shut  bool       // everything has to be enqueued the long way: the storage is closed, or a queue has a state
	jobs  []*job
	spare []*job // memory for the next; changed under Storage.mu
	_     [64]byte
}

const (
	inboxSize = 128  // at which an enqueue takes the jobs in, unless somebody else has the storage
	fullInbox = 512  // at which it waits to do so
	maxInbox  = 1024 // whose memory is kept
	backlog   = 512  // available jobs, beyond which it then lets other goroutines run
)

// leaveIn leaves the jobs of a batch in the inbox. It reports false, and has done
// nothing, if no others are available, or if they are not ordinary: somebody else has to
// hear of them, they are of a kind that is not known yet, they have a priority, ids that
// have to be looked for, or anything that other jobs have a part in.
func (s *Storage) leaveIn(ctx context.Context, self any, batch []storage.Insert, first *job) bool {
	if !s.inbox.open.Load() || ctx.Err() != nil || s.hub.HeardFrom(self) {
		return false
	}
	j := first
	for i := range batch {
		in := &batch[i]
		if !in.IDIsNew || in.MaxDepth > 0 || in.Record.Priority != 0 || in.Record.State != ojs.StateAvailable || j.kind == nil || j.rest != nil {
			return false
		}
		j = j.next
	}
	x := &s.inbox
	x.mu.Lock()
	if x.shut {
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
	// Whoever began to listen meanwhile may have looked at the storage before these jobs
	// came, and not after: it must be told.
	if heard := s.hub.HeardFrom(self); heard || n >= inboxSize {
		if heard || n >= fullInbox {
			s.mu.Lock()
		} else if !s.mu.TryLock() {
			if len(batch) > 1 && n >= 2*inboxSize { // batches would fill the inbox before anybody has time for it
				runtime.Gosched()
			}
			return true // nobody waits for them, and whoever needs them will
		}
		s.heard, s.self = s.hub.HeardFrom(self), self
		s.takeIn()
		if s.heard { // if a call of the listener's own has taken them in, it has not been told
			s.notice.Available = true
		}
		long := s.ready.n > backlog
		s.leave()
		if long { // or jobs would leave the caches, and memory be asked for that others are about to give back
			for range max(n/inboxSize, 1) {
				runtime.Gosched()
			}
		}
	}
	return true
}

// takeIn empties the inbox. mu is held.
func (s *Storage) takeIn() {
	x := &s.inbox
	if !x.some.Load() {
		return
	}
	x.mu.Lock()
	jobs := x.jobs
	x.jobs = x.spare[:0]
	x.some.Store(false)
	x.mu.Unlock()
	var some [inboxSize]uint32
	for part := range slices.Chunk(jobs, inboxSize) {
		near := some[:0]
		for _, j := range part {
			near = append(near, j.hash)
		}
		s.jobs.warm(near)
	}
	for _, j := range jobs {
		if j.kind.jobs == 0 { // nobody knows it any more
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

// openInbox opens the inbox if there are available jobs, and closes it otherwise. mu is
// held.
func (s *Storage) openInbox() {
	if some := s.ready.n > 0; s.inbox.open.Load() != some {
		s.inbox.open.Store(some)
	}
}

// shutInbox has jobs enqueued the long way, or no longer. mu is held.
func (s *Storage) shutInbox(shut bool) {
	s.inbox.mu.Lock()
	s.inbox.shut = shut
	s.inbox.mu.Unlock()
	s.takeIn()
}
