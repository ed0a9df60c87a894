package engine

import (
	"context"
	"time"
)

// changed tells those who wait for idleness to look again. It wants core.mu.
func (c *core) changed() {
	for _, ch := range c.idlers {
		close(ch)
	}
	c.idlers = nil
}

// quiet reports whether a run has nothing to do until a timer fires: its workers are gone or asleep, and no look at the
// storage is due. It wants core.mu.
func (r *run) quiet() bool {
	return r.working == r.asleep && (r.left == 0 || r.blocked || r.stopping) && !r.keeper.busy()
}

// NextWake returns when an engine that is idle has something to do next, if nobody gives it anything before: a job comes due,
// a lease wants renewing, a limit opens. It reports false if nothing is to come, or the engine does not run.
func (e *Engine[T]) NextWake() (time.Time, bool) {
	c := e.core
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.run == nil {
		return time.Time{}, false
	}
	return c.run.sched.Next()
}

func (c *core) waitIdle(ctx context.Context) error {
	for {
		if err := c.fireDue(ctx); err != nil {
			return err
		}
		c.mu.Lock()
		if r := c.run; r != nil && r.quiet() {
			next, some := r.sched.Next()
			if !some || next.After(c.clock.Now()) {
				c.mu.Unlock()
				return nil
			}
			c.mu.Unlock()
			continue
		}
		ch := make(chan struct{})
		c.idlers = append(c.idlers, ch)
		c.mu.Unlock()
		select {
		case <-ch:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// fireDue waits until every timer that is due at the clock's present has fired: an entry that is due now and comes last
// fires after all of them.
func (c *core) fireDue(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	c.mu.Lock()
	r := c.run
	c.mu.Unlock()
	if r == nil {
		return nil
	}
	fired := make(chan struct{})
	t := r.sched.At(c.clock.Now(), func(time.Time) { close(fired) })
	defer r.sched.Cancel(t)
	select {
	case <-fired:
		return nil
	case <-r.ended: // and with it its timers
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
