// Package sleeps has goroutines wait on an engine's clock, and knows which of them only
// the clock can wake.
//
// # Invariants
//
//  1. Under a virtual clock, a goroutine for which a sleep stands is idle, since only the
//     next step of the clock wakes it. Under any other clock time passes by itself, and
//     the goroutine is busy.
//  2. The timer of a sleep is armed before its goroutine is idle. The goroutine is busy
//     again before its sleep is over, not when it continues.
//  3. While a context is about to end, a sleep that may end with it is in doubt, and its
//     goroutine busy, until the goroutine has looked at its own context.
package sleeps

import (
	"context"
	"time"

	"github.com/benbjohnson/clock"

	"github.com/ojsengine/ojs/engine/internal/idle"
	"github.com/ojsengine/ojs/internal/locks"
	"github.com/ojsengine/ojs/scheduler"
)

// Sleeps are those of one run of an engine.
type Sleeps struct {
	Sched   *scheduler.Scheduler
	Clock   clock.Clock
	Busy    *idle.Counter
	Virtual bool // the clock is

	mu     locks.Mutex         // guards the fields below, and those of each Sleep that say so
	pauses map[*Sleep]struct{} // of Pause
}

// Sleep is one wait. It is safe for concurrent use, but for Wait. A nil Sleep takes
// Waits, Doubt, Decided and End, and does nothing.
type Sleep struct {
	all   *Sleeps
	timer scheduler.Timer
	over  chan struct{}
	check chan struct{} // the sleeper's context may have ended

	// Guarded by all.mu.
	ended  bool // over is closed
	left   bool // the call of Wait has returned
	stands bool // for its goroutine; false once the sleep is over
	counts bool // its goroutine is idle
	doubts int  // how many calls are about to end contexts, perhaps the sleeper's
}

// New begins a sleep that stands for its goroutine or does not. A negative d has no end.
func (all *Sleeps) New(d time.Duration, stands bool) *Sleep {
	all.mu.Lock()
	defer all.mu.Unlock()
	return all.begin(d, stands)
}

// Pause sleeps, and stands for its goroutine. EndPauses ends it. It reports false if the
// end of quit comes first.
func (all *Sleeps) Pause(d time.Duration, quit <-chan struct{}) bool {
	all.mu.Lock()
	s := all.begin(d, true)
	if all.pauses == nil {
		all.pauses = make(map[*Sleep]struct{})
	}
	all.pauses[s] = struct{}{}
	all.mu.Unlock()
	defer func() {
		all.mu.Lock()
		defer all.mu.Unlock()
		delete(all.pauses, s)
	}()
	select {
	case <-s.over:
		return true
	case <-quit:
	}
	s.leave()
	return false
}

// EndPauses ends all pauses.
func (all *Sleeps) EndPauses() {
	all.mu.Lock()
	defer all.mu.Unlock()
	for s := range all.pauses {
		s.wake()
	}
}

// Wake ends the sleep, also before its time, and its goroutine is busy.
func (s *Sleep) Wake() {
	s.all.Sched.Cancel(&s.timer)
	s.all.mu.Lock()
	defer s.all.mu.Unlock()
	s.wake()
}

// Waits reports whether the call of Wait is to come, or has not returned.
func (s *Sleep) Waits() bool {
	if s == nil {
		return false
	}
	s.all.mu.Lock()
	defer s.all.mu.Unlock()
	return !s.left
}

// End has the sleep stand for its goroutine no more.
func (s *Sleep) End() {
	if s != nil {
		s.all.mu.Lock()
		defer s.all.mu.Unlock()
		s.stands = false
		s.count()
	}
}

// Doubt says that contexts are about to end, and the sleep perhaps with them. A call of
// Decided follows.
func (s *Sleep) Doubt() {
	if s != nil {
		s.all.mu.Lock()
		defer s.all.mu.Unlock()
		s.doubts++
		s.count()
	}
}

// Decided says that the contexts have ended.
func (s *Sleep) Decided() {
	if s == nil {
		return
	}
	s.all.mu.Lock()
	defer s.all.mu.Unlock()
	select {
	case s.check <- struct{}{}: // which takes the doubt over
	default:
		s.doubts-- // a check is on its way, and has a doubt of its own
	}
}

// Wait returns nil when the sleep is over, and the cause of ctx's end if that comes
// first.
func (s *Sleep) Wait(ctx context.Context) error {
	defer s.leave()
	for {
		select {
		case <-s.over:
			return nil
		case <-s.check:
			s.all.mu.Lock()
			if ctx.Err() == nil {
				s.doubts--
				s.count()
			}
			s.all.mu.Unlock()
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// leave ends the sleep of a goroutine that waits no more.
func (s *Sleep) leave() {
	s.all.Sched.Cancel(&s.timer)
	s.all.mu.Lock()
	defer s.all.mu.Unlock()
	s.left, s.stands = true, false
	s.count()
}

// all.mu is held in the rest.

func (all *Sleeps) begin(d time.Duration, stands bool) *Sleep {
	s := &Sleep{all: all, over: make(chan struct{}), check: make(chan struct{}, 1)}
	s.stands = stands && all.Virtual
	s.timer.Func = func(time.Time) { s.Wake() }
	if d >= 0 {
		all.Sched.Set(&s.timer, all.Clock.Now().Add(d))
	}
	s.count()
	return s
}

func (s *Sleep) wake() {
	s.stands = false
	s.count()
	if !s.ended {
		s.ended = true
		close(s.over)
	}
}

// count has the goroutine be idle, or busy.
func (s *Sleep) count() {
	counts := s.stands && s.doubts == 0
	if counts == s.counts {
		return
	}
	if s.counts = counts; counts {
		s.all.Busy.Add(-1)
	} else {
		s.all.Busy.Add(1)
	}
}
