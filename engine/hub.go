package engine

import (
	"log/slog"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/ojsengine/ojs"
)

// EventFilter selects events; a zero field selects all.
type EventFilter struct {
	Types  []ojs.EventType // "job.*" matches every type that starts with "job."
	JobIDs []string
	Queues []string
	Buffer int // how many events may wait to be received; 0: 256
}

const defaultBuffer = 256

func (f *EventFilter) matches(ev *ojs.Event) bool {
	return (len(f.Types) == 0 || slices.ContainsFunc(f.Types, func(t ojs.EventType) bool {
		if prefix, ok := strings.CutSuffix(string(t), "*"); ok {
			return strings.HasPrefix(string(ev.Type), prefix)
		}
		return t == ev.Type
	})) &&
		(len(f.JobIDs) == 0 || ev.Job != nil && slices.Contains(f.JobIDs, ev.Job.ID)) &&
		(len(f.Queues) == 0 || slices.Contains(f.Queues, ev.Queue))
}

// Subscription receives the events that this engine brings about, from the moment it was made: those of one job in the
// order in which they happened. A subscriber that is slow holds nobody up; it misses events, and the next one that it
// receives says how many.
type Subscription struct {
	hub    *hub
	filter EventFilter
	events chan ojs.Event

	// Guarded by hub.mu.
	missed int
	closed bool
}

// C returns the channel of the events. Close closes it.
func (s *Subscription) C() <-chan ojs.Event { return s.events }

// Close ends the subscription. What waits in the channel can still be received. Closing twice does nothing.
func (s *Subscription) Close() {
	s.hub.mu.Lock()
	defer s.hub.mu.Unlock()
	if s.closed {
		return
	}
	s.closed = true
	s.hub.subs = slices.DeleteFunc(s.hub.subs, func(other *Subscription) bool { return other == s })
	s.hub.count()
	close(s.events)
}

// hub hands events to subscribers.
//
// The events of a job are published by whoever made its transitions, on goroutines of their own, and a transition may be
// published before the one that made it possible: a claim may be faster than the enqueue of the same job. So a storage call
// that may change jobs is an op while it lasts, until its events are handed in. If one op led to another, its effect came
// before the other's, and so before the other's events are handed in: by then it has handed in its own, or is still an op.
// Events therefore wait for the ops that are under way when they are handed in, and then leave in the order of their jobs'
// versions.
//
// Without subscribers and observers nothing of this happens.
type hub struct {
	listeners atomic.Int32
	observers []Observer // from the start
	log       *slog.Logger

	mu      sync.Mutex // guards the fields below
	subs    []*Subscription
	ops     []uint64 // under way, in the order of their numbers
	lastOp  uint64
	waiting []*batch // in the order in which they were handed in
}

// batch is the events of one transition of one job.
type batch struct {
	id      string
	version uint64
	events  []ojs.Event
	after   uint64 // the ops up to this one have to end first
}

func (h *hub) subscribe(f EventFilter) *Subscription {
	if f.Buffer <= 0 {
		f.Buffer = defaultBuffer
	}
	f.Types, f.JobIDs, f.Queues = slices.Clone(f.Types), slices.Clone(f.JobIDs), slices.Clone(f.Queues)
	s := &Subscription{hub: h, filter: f, events: make(chan ojs.Event, f.Buffer)}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.subs = append(h.subs, s)
	h.count()
	return s
}

// begin begins an op. It returns 0 if nobody listens.
func (h *hub) begin() uint64 {
	if h.listeners.Load() == 0 {
		return 0
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.lastOp++
	h.ops = append(h.ops, h.lastOp)
	return h.lastOp
}

// end ends an op and hands in what it has brought about.
func (h *hub) end(op uint64, batches ...*batch) {
	if op == 0 {
		return
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.ops = slices.DeleteFunc(h.ops, func(n uint64) bool { return n == op })
	for _, b := range batches {
		b.after = h.lastOp
		h.waiting = append(h.waiting, b)
	}
	for len(h.waiting) > 0 && (len(h.ops) == 0 || h.ops[0] > h.waiting[0].after) {
		// Events of the same job that happened before but were handed in later have waited long enough, too: their op
		// was under way then.
		first := h.waiting[0]
		for {
			earliest := first
			for _, b := range h.waiting {
				if b.id == first.id && b.version < earliest.version {
					earliest = b
				}
			}
			h.publish(earliest.events)
			h.waiting = slices.DeleteFunc(h.waiting, func(b *batch) bool { return b == earliest })
			if earliest == first {
				break
			}
		}
	}
}

// count: mu is held.
func (h *hub) count() { h.listeners.Store(int32(len(h.subs) + len(h.observers))) }

// publish: mu is held.
func (h *hub) publish(events []ojs.Event) {
	for i := range events {
		for _, o := range h.observers {
			h.observe(o, &events[i])
		}
	}
	for _, ev := range events {
		for _, s := range h.subs {
			if !s.filter.matches(&ev) {
				continue
			}
			ev.Missed = s.missed
			select {
			case s.events <- ev:
				s.missed = 0
			default:
				s.missed++
			}
		}
	}
}
