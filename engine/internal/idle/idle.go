// Package idle tells when the parts of an engine have nothing to do. No lock covers all
// of them: they count the work that passes between them.
//
// # Invariants
//
//  1. The part that gives work to another adds one before it hands the work on. The part
//     that has got it subtracts one when the work is done, and when all that follows from
//     it is counted, or has a timer.
//  2. So the count is zero only if no part works, and no work is on its way. Work that
//     waits for a timer does not count. The function of a timer adds before it returns.
//  3. A goroutine that only the clock can wake does not count while it waits. The
//     function that wakes it adds.
package idle

import "github.com/ojsengine/ojs/internal/locks"

// Counter counts the work that is under way. The zero Counter is ready.
type Counter struct {
	mu    locks.Mutex // guards the fields below
	n     int
	rises uint64        // how often n has left zero
	zero  chan struct{} // closed when n is zero again; nil: no caller waits
}

// Add adds n, which is negative when work has ended.
func (c *Counter) Add(n int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.n == 0 && n > 0 {
		c.rises++
	}
	if c.n += n; c.n == 0 && c.zero != nil {
		close(c.zero)
		c.zero = nil
	}
}

// Idle reports whether nothing is under way and no timer is due, both at one moment. If
// not, it returns a channel that is closed when that may have changed. The function
// settled says the same of the timers.
func (c *Counter) Idle(settled func() (bool, <-chan struct{})) (bool, <-chan struct{}) {
	for {
		before, wait := c.look()
		if wait != nil {
			return false, wait
		}
		if ok, wait := settled(); !ok {
			return false, wait
		}
		// The timers were settled at a moment between the two looks.
		if after, wait := c.look(); wait != nil || after == before {
			return wait == nil, wait
		}
	}
}

// look returns how often the count has left zero, and what to wait for if it is not zero.
func (c *Counter) look() (rises uint64, wait <-chan struct{}) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.n == 0 {
		return c.rises, nil
	}
	if c.zero == nil {
		c.zero = make(chan struct{})
	}
	return c.rises, c.zero
}
