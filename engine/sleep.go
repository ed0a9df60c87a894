package engine

import (
	"context"
	"time"

	"github.com/ojsengine/ojs/scheduler"
)

// sleep is a wait on the engine's clock, of a handler or before an outcome is stored
// again. It stands for a goroutine of the pipeline. Under a virtual clock that goroutine
// counts as asleep, since only the clock's next step wakes it up. Under any other clock
// time passes by itself, and the goroutine counts as working.
type sleep struct {
	r     *run
	timer scheduler.Timer
	over  chan struct{}
	check chan struct{} // the sleeper's context may have ended

	// Guarded by core.mu.
	ended  bool // over is closed
	stands bool // for its goroutine; false once the sleep is over
	counts bool // its goroutine does not count in run.busy
	doubts int  // how many calls are about to end contexts, perhaps the sleeper's
}

// newSleep begins a sleep that stands for its goroutine or does not. A negative d has no
// end. core.mu is held, under which the timer is armed before the goroutine counts as
// asleep.
func (r *run) newSleep(d time.Duration, stands bool) *sleep {
	s := &sleep{r: r, over: make(chan struct{}), check: make(chan struct{}, 1), stands: stands && r.c.mocked}
	s.timer.Func = func(time.Time) { s.wake() }
	if d >= 0 {
		r.sched.Set(&s.timer, r.c.clock.Now().Add(d))
	}
	s.count()
	return s
}

// wake ends the sleep here, not where the sleeper continues. Otherwise its goroutine
// would count as asleep until then.
func (s *sleep) wake() {
	s.r.c.mu.Lock()
	defer s.r.c.mu.Unlock()
	s.wakeNow()
}

// wakeNow is wake while core.mu is held.
func (s *sleep) wakeNow() {
	s.end()
	if !s.ended {
		s.ended = true
		close(s.over)
	}
}

// count counts the goroutine as asleep, or not. core.mu is held.
func (s *sleep) count() {
	counts := s.stands && s.doubts == 0
	if counts == s.counts {
		return
	}
	if s.counts = counts; counts {
		s.r.busy.Add(-1)
	} else {
		s.r.busy.Add(1)
	}
}

// end marks the sleep as over: it stops standing for its goroutine. core.mu is held.
func (s *sleep) end() {
	s.stands = false
	s.count()
}

// doubt says that contexts are about to end, and the sleep perhaps with them: until the
// sleeper has looked at its own, the goroutine does not count as asleep. A call of
// decided follows. core.mu is held in both.
func (s *sleep) doubt() {
	if s != nil {
		s.doubts++
		s.count()
	}
}

func (s *sleep) decided() {
	if s == nil {
		return
	}
	select {
	case s.check <- struct{}{}: // which takes the doubt over
	default:
		s.doubts-- // a check is on its way, and has a doubt of its own
	}
}

// wait returns nil when the sleep is over, and the cause of ctx's end if that comes
// first.
func (s *sleep) wait(ctx context.Context) error {
	for {
		select {
		case <-s.over:
			return nil
		case <-s.check:
			s.r.c.mu.Lock()
			if ctx.Err() == nil {
				s.doubts--
				s.count()
			}
			s.r.c.mu.Unlock()
			continue
		case <-ctx.Done():
		}
		s.leave()
		return context.Cause(ctx)
	}
}

// leave ends the sleep of a goroutine that waits no more.
func (s *sleep) leave() {
	s.r.sched.Cancel(&s.timer)
	s.r.c.mu.Lock()
	defer s.r.c.mu.Unlock()
	s.end()
}
