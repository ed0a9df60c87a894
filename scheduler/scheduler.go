package scheduler

import (
	"sync"
	"time"

	"github.com/benbjohnson/clock"
)

// Scheduler calls functions when their time has come: on one goroutine, one at a time, in the order of their due times and,
// for the same time, of their Set. It calls none early by its clock's own reading, and it does not poll: one clock timer
// waits for the earliest entry.
//
// Its methods are safe for concurrent use, also from the functions it calls.
type Scheduler struct {
	clock  clock.Clock
	mocked bool
	wake   chan struct{} // something is due at once, or the alarm is another; capacity 1
	quit   chan struct{}
	done   chan struct{}

	mu      sync.Mutex // guards everything below
	heap    Heap[*Timer]
	alarm   *clock.Timer
	armed   time.Time     // what alarm waits for; zero: nothing
	passing bool          // the owner is calling functions, and will arm alarm after the last
	passed  chan struct{} // closed when it has, for waiters; nil: nobody waits
	stopped bool
}

// Timer is an entry of a Scheduler: a function and, once it has been Set, a time. It belongs to the caller, so that setting
// it allocates nothing. Set Func before the first use and do not change it.
type Timer struct {
	// Func is called with the clock's reading, which is not before the time it was set for. It must not block: all other
	// entries wait for it. A function that sets its own timer again for a fixed rhythm computes the next time from the one
	// before, not from now.
	Func func(now time.Time)
	item Item[*Timer]
}

// New makes a scheduler on c and starts its goroutine. Stop ends it.
func New(c clock.Clock) *Scheduler {
	s := &Scheduler{
		clock: c,
		wake:  make(chan struct{}, 1),
		quit:  make(chan struct{}),
		done:  make(chan struct{}),
	}
	_, s.mocked = c.(*clock.Mock)
	go s.loop()
	return s
}

// Set arms t for due, or moves it there. What is due already is called at once, on the scheduler's goroutine. After Stop
// it does nothing.
func (s *Scheduler) Set(t *Timer, due time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.stopped {
		return
	}
	t.item.Value = t
	s.heap.Push(&t.item, due)
	s.arm()
}

// At sets a new timer.
func (s *Scheduler) At(due time.Time, f func(now time.Time)) *Timer {
	t := &Timer{Func: f}
	s.Set(t, due)
	return t
}

// Cancel disarms t. It reports whether t was armed; if so its function is not called. It does not wait for a call that has
// begun.
func (s *Scheduler) Cancel(t *Timer) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.heap.Remove(&t.item) {
		return false
	}
	s.arm()
	return true
}

// Next returns when the earliest entry is due, false if there is none. The clock's timer is armed for it. After Stop there
// is none.
func (s *Scheduler) Next() (time.Time, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.stopped {
		return time.Time{}, false
	}
	return s.heap.Next()
}

// Settled reports whether nothing is due at the clock's present and no function is being called. If not, it returns a channel
// that is closed when that may have changed.
func (s *Scheduler) Settled() (bool, <-chan struct{}) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.stopped {
		return true, nil
	}
	if next, some := s.heap.Next(); !s.passing && (!some || next.After(s.clock.Now())) {
		return true, nil
	}
	if s.passed == nil {
		s.passed = make(chan struct{})
	}
	return false, s.passed
}

// tell wakes those who wait for the scheduler to be settled. mu is held.
func (s *Scheduler) tell() {
	if s.passed != nil {
		close(s.passed)
		s.passed = nil
	}
}

// Stop ends the scheduler: no function is called any more, and the one that is running is waited for. It must not be called
// from such a function. Stopping twice is fine.
func (s *Scheduler) Stop() {
	s.mu.Lock()
	if !s.stopped {
		s.stopped = true
		close(s.quit)
	}
	s.mu.Unlock()
	<-s.done
}

func (s *Scheduler) loop() {
	defer close(s.done)
	for {
		select {
		case <-s.wake:
			s.pass(false)
		case <-s.ringing():
			s.pass(true)
		case <-s.quit:
			s.mu.Lock()
			s.tell()
			s.disarm()
			s.mu.Unlock()
			return
		}
	}
}

// ringing returns the channel of the clock's timer. Whoever makes a new one wakes the loop.
func (s *Scheduler) ringing() <-chan time.Time {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.alarm == nil {
		return nil
	}
	return s.alarm.C
}

// pass calls what is due at one reading of the clock. rang says that the clock's timer has done its work.
func (s *Scheduler) pass(rang bool) {
	now := s.clock.Now()
	s.mu.Lock()
	s.passing = true
	for !s.stopped {
		it, ok := s.heap.PopDue(now)
		if !ok {
			break
		}
		t := it.Value
		s.mu.Unlock()
		t.Func(now)
		s.mu.Lock()
	}
	s.passing = false
	s.tell()
	if rang {
		s.armed = time.Time{}
	}
	s.arm()
	s.mu.Unlock()
}

// arm makes the clock's timer wait for the earliest entry. mu is held.
func (s *Scheduler) arm() {
	if s.passing || s.stopped {
		return
	}
	next, some := s.heap.Next()
	if !some {
		s.disarm()
		return
	}
	if next.Equal(s.armed) {
		return
	}
	d := next.Sub(s.clock.Now())
	if d <= 0 {
		// What a timer of no duration does differs from clock to clock.
		s.disarm()
		s.poke()
		return
	}
	s.disarm()
	s.armed = next
	if s.alarm != nil && !s.mocked {
		s.alarm.Reset(d)
		return
	}
	// A mock clock may still ring a timer that has been stopped. If that were reset, the ring would unset it again, and fill
	// the channel in which the next ring then waits with the clock's lock held. So on a mock clock each time is a new timer.
	s.alarm = s.clock.Timer(d)
	s.poke()
}

// poke wakes the loop.
func (s *Scheduler) poke() {
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

// disarm stops the clock's timer and takes away a ring that nobody has heard. mu is held.
func (s *Scheduler) disarm() {
	s.armed = time.Time{}
	if s.alarm == nil {
		return
	}
	s.alarm.Stop()
	select {
	case <-s.alarm.C:
	default:
	}
}
