package engine

import (
	"context"
	"time"
)

// changed has the callers of WaitIdle look again. core.mu is held.
func (c *core) changed() {
	for _, ch := range c.idlers {
		close(ch)
	}
	c.idlers = nil
}

// quiet reports whether a run has nothing to do until a timer fires: the goroutines of
// its pipeline have left or are asleep, no job that could start waits, and no maintenance
// is due. Under a clock that moves by itself, a run whose storage fails is not quiet,
// since jobs may be due. core.mu is held.
func (r *run) quiet() bool {
	if !r.c.mocked && (r.failures > 0 || r.maintenance.failures > 0) {
		return false
	}
	return r.pipe.Idle(r.asleep) && !r.maintenance.busy()
}

// NextWake returns when an idle engine has something to do next without a call from
// outside: a job comes due, a lease wants renewing, a limit opens. It reports false if
// nothing is to come, or the engine does not run.
func (e *Engine[T]) NextWake() (time.Time, bool) {
	c := e.core
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.run == nil {
		return time.Time{}, false
	}
	c.run.punctual()
	return c.run.sched.Next()
}

func (c *core) waitIdle(ctx context.Context) error {
	for {
		if err := ctx.Err(); err != nil {
			return err
		}
		c.mu.Lock()
		var wait <-chan struct{}
		idle := false
		if r := c.run; r != nil && r.quiet() {
			// A timer that has come due but not been heard yet is waited for. Its
			// function takes mu, so none is half done once the scheduler has settled.
			r.punctual()
			idle, wait = r.sched.Settled()
		} else {
			ch := make(chan struct{})
			c.idlers = append(c.idlers, ch)
			wait = ch
		}
		c.mu.Unlock()
		if idle {
			return nil
		}
		select {
		case <-wait:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}
