package scheduler

import (
	"time"

	"github.com/benbjohnson/clock"

	"github.com/ojsengine/ojs/internal/locks"
)

// Scheduler calls functions at their times: on one goroutine, one at a time, in the order
// of their due times and, for the same time, of their Set. By its clock's reading it
// calls none early. One clock timer waits for the earliest entry, a minute at a time.
//
// Its methods are safe for concurrent use, also from the functions it calls.
type Scheduler struct {
	clock  clock.Clock
	mocked bool
	wake   chan struct{} // a function is due at once, or alarm was replaced; capacity 1
	quit   chan struct{}
	done   chan struct{}

	mu      locks.Mutex // guards everything below
	heap    Heap[*Timer]
	alarm   *clock.Timer
	armed   time.Time     // the time of the entry that alarm is for; zero: none
	passing bool          // the goroutine is calling functions, and arms alarm after the last
	passed  chan struct{} // closed at the end of the calls; nil: no waiter
	stopped bool
}

// Timer is an entry of a Scheduler: a function and, once it has been Set, a time. It
// belongs to the caller, so that setting it allocates nothing. Set Func before the first
// use and do not change it.
type Timer struct {
	// Func is called with the clock's reading, which is not before its time. It must not
	// block: all other entries wait for it. A function that sets its own timer again for
	// a fixed rhythm computes the next time from the previous one, not from now.
	Func func(now time.Time)
	item Item[*Timer]
}

// maxWait bounds one wait of the clock's timer (OJS cron). The timer measures a duration.
// It notices neither that the wall clock is put forward nor that the machine was
// suspended. If the earliest entry is more than a month away, one wait lasts until a
// month before it.
const (
	maxWait = time.Minute
	month   = 30 * 24 * time.Hour
)

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

// Set arms t for due, or moves it there. If due has passed, the function is called at
// once, on the scheduler's goroutine. After Stop it does nothing.
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

// Cancel disarms t. It reports whether t was armed; if so its function is not called. It
// does not wait for a call that has begun.
func (s *Scheduler) Cancel(t *Timer) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.heap.Remove(&t.item) {
		return false
	}
	s.arm()
	return true
}

// Next returns when the earliest entry is due, false if there is none. The clock's timer
// is armed for it, or for a look at the clock before. After Stop there is none.
func (s *Scheduler) Next() (time.Time, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.stopped {
		return time.Time{}, false
	}
	return s.heap.Next()
}

// Settled reports whether nothing is due at the clock's present and no function is being
// called. If not, it returns a channel that is closed when that may have changed.
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

// tell wakes the waiters for Settled. mu is held.
func (s *Scheduler) tell() {
	if s.passed != nil {
		close(s.passed)
		s.passed = nil
	}
}

// Stop ends the scheduler. It waits for the running function, and no function is called
// after it. It must not be called from such a function. It may be called twice.
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

// ringing returns the channel of the clock's timer. A call that makes a new timer wakes
// the loop.
func (s *Scheduler) ringing() <-chan time.Time {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.alarm == nil {
		return nil
	}
	return s.alarm.C
}

// pass calls the functions that are due at one reading of the clock. rang says that the
// clock's timer has fired.
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
		// Clocks differ in their treatment of a timer with no duration.
		s.disarm()
		s.poke()
		return
	}
	s.disarm()
	s.armed = next
	if !s.mocked {
		d = min(d, max(maxWait, d-month))
	}
	if s.alarm != nil && !s.mocked {
		s.alarm.Reset(d)
		return
	}
	// A mock clock may still ring a timer that has been stopped. If that were reset, the
	// ring would unset it again, and fill the channel in which the next ring then waits
	// with the clock's lock held. So on a mock clock each time is a new timer.
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

// disarm stops the clock's timer and removes an unread ring. mu is held.
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
