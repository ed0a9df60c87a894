package engine

import (
	"context"
	"time"

	"github.com/ojsengine/ojs/scheduler"
)

// sleep is a worker's wait on the engine's clock. While it counts, the worker counts as asleep.
type sleep struct {
	r      *run
	timer  scheduler.Timer
	over   chan struct{}
	counts bool // guarded by core.mu
}

// newSleep begins a sleep. core.mu is held, under which it arms the timer before it counts.
func (r *run) newSleep(d time.Duration, counts bool) *sleep {
	s := &sleep{r: r, over: make(chan struct{}), counts: counts}
	s.timer.Func = func(time.Time) {
		r.c.mu.Lock()
		s.wake() // here, not where the sleeper goes on: until then the worker would seem asleep
		r.c.mu.Unlock()
		close(s.over)
	}
	r.sched.Set(&s.timer, r.c.clock.Now().Add(d))
	if counts {
		r.asleep++
		r.c.changed()
	}
	return s
}

// wake makes the sleep count no more. core.mu is held.
func (s *sleep) wake() {
	if s.counts {
		s.counts = false
		s.r.asleep--
	}
}

// wait returns nil when the sleep is over, and the cause of ctx's end if that comes first.
func (s *sleep) wait(ctx context.Context) error {
	select {
	case <-s.over:
		return nil
	case <-ctx.Done():
	}
	s.r.sched.Cancel(&s.timer)
	s.r.c.mu.Lock()
	s.wake()
	s.r.c.mu.Unlock()
	return context.Cause(ctx)
}
