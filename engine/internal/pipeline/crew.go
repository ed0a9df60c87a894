package pipeline

import "sync/atomic"

// Crew starts the goroutines of a pipeline. A few of them that have left wait for the
// next start, since a goroutine that waits begins sooner than a new one.
type Crew struct {
	wake, over chan struct{}
	resting    atomic.Int32
}

// mostResting is how many goroutines wait at most.
const mostResting = 4

// NewCrew makes a crew without goroutines.
func NewCrew() *Crew { return &Crew{wake: make(chan struct{}), over: make(chan struct{})} }

// Start has a goroutine that waits go on, or a new one call work.
func (c *Crew) Start(work func()) {
	select {
	case c.wake <- struct{}{}:
	default:
		go work()
	}
}

// Rest waits for a Start. It reports false if the goroutine is to end.
func (c *Crew) Rest() bool {
	defer c.resting.Add(-1)
	if c.resting.Add(1) > mostResting {
		return false
	}
	select {
	case <-c.wake:
		return true
	case <-c.over:
		return false
	}
}

// End ends the goroutines that wait, and lets none wait from then on.
func (c *Crew) End() { close(c.over) }
