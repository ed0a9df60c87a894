// Package chores does what the clock asks of a storage: one chore after another, on a
// goroutine of its own, so that a slow storage delays no timer.
//
// # Invariants
//
//  1. A chore runs after each Poke, and at each time for which it was asked. If it is
//     asked again while it runs, it runs again.
//  2. Of the chores that are wanted, the first in the order of Start runs next.
//  3. A chore that fails is tried again after a wait of its own, and on Retry. Until then
//     it does not run at times for which it was asked before it failed. The other chores
//     do not wait.
//  4. From Poke until its run has ended, a chore counts in Config.Busy. Before that, its
//     next time has a timer.
//  5. After Stop no chore begins.
package chores

import (
	"context"
	"time"

	"github.com/ojsengine/ojs/engine/internal/alarm"
	"github.com/ojsengine/ojs/engine/internal/idle"
	"github.com/ojsengine/ojs/internal/locks"
	"github.com/ojsengine/ojs/scheduler"
)

// Chore is one thing to do. A chore that was not given to Start ignores all calls.
type Chore struct {
	Name string

	// Run does it, and returns when it has to be done again; zero: no time is known. With
	// an error, that is after Config.Wait at the latest.
	Run func(ctx context.Context, now time.Time) (next time.Time, err error)

	// Exact says that the time that Run returns takes the place of those asked for
	// before, as it does after an error. Otherwise the earliest counts.
	Exact bool

	alarm.Alarm
	set      *Set
	wanted   bool // guarded by set.mu, as are the fields below
	failed   bool // since its latest run began
	failures int  // runs in a row
	err      error
}

// Config says what a Set needs.
type Config struct {
	Sched  *scheduler.Scheduler
	Busy   *idle.Counter
	Now    func() time.Time
	Failed func(call string, err error, attrs ...any) // follows a failure
	Wait   func(failures int) time.Duration           // before a chore is tried again
}

// Set is chores that share a goroutine. It is safe for concurrent use.
type Set struct {
	Config
	list               []*Chore
	signal, quit, done chan struct{}
	mu                 locks.Mutex // guards fields of the chores
}

// Start starts the goroutine. Stop ends it.
func (s *Set) Start(ctx context.Context, cfg Config, list ...*Chore) {
	s.Config, s.list = cfg, list
	s.signal, s.quit, s.done = make(chan struct{}, 1), make(chan struct{}), make(chan struct{})
	for _, c := range list {
		c.set = s
		c.Start(cfg.Sched, func(time.Time) { c.Poke() })
	}
	go s.loop(ctx)
}

// Stop lets no more chores begin. It returns a channel that is closed when the chore that
// runs has ended.
func (s *Set) Stop() (done <-chan struct{}) {
	s.mu.Lock() // begin looks at it with mu
	defer s.mu.Unlock()
	close(s.quit)
	return s.done
}

// Quitting reports whether Stop was called: a chore that makes many calls ends.
func (s *Set) Quitting() bool {
	select {
	case <-s.quit:
		return true
	default:
		return false
	}
}

// Retry runs the chores whose latest run has failed.
func (s *Set) Retry() {
	for _, c := range s.list {
		s.mu.Lock()
		again := c.failed || c.failures > 0 // also if that run goes on
		s.mu.Unlock()
		if again {
			c.Poke()
		}
	}
}

// Poke makes the chore run.
func (c *Chore) Poke() {
	s := c.set
	if s == nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if c.wanted {
		return
	}
	c.wanted = true
	s.Busy.Add(1)
	select {
	case s.signal <- struct{}{}:
	default:
	}
}

// Fail says that a call of the chore has failed, while it runs. Run calls it for failures
// after which it continues.
func (c *Chore) Fail(call string, err error, attrs ...any) {
	c.set.mu.Lock()
	c.failed, c.err = true, err
	c.set.mu.Unlock()
	c.set.Failed(call, err, attrs...)
}

// Failing returns how many runs in a row have failed, and why the last of them did. The
// chore has been started.
func (c *Chore) Failing() (n int, err error) {
	c.set.mu.Lock()
	defer c.set.mu.Unlock()
	return c.failures, c.err
}

func (s *Set) loop(ctx context.Context) {
	defer close(s.done)
	for {
		select {
		case <-s.signal:
		case <-s.quit:
			return
		}
		for i := 0; i < len(s.list); i++ {
			if c := s.list[i]; c.begin() {
				c.run(ctx)
				s.Busy.Add(-1)
				i = -1 // an earlier one may be wanted by now
			}
		}
	}
}

// begin reports whether the chore is wanted before Stop, and takes that as done.
func (c *Chore) begin() bool {
	c.set.mu.Lock()
	defer c.set.mu.Unlock()
	if !c.wanted || c.set.Quitting() {
		return false
	}
	c.wanted, c.failed = false, false
	return true
}

func (c *Chore) run(ctx context.Context) {
	s := c.set
	next, err := c.Run(ctx, s.Now())
	if err != nil {
		c.Fail(c.Name, err)
	}
	s.mu.Lock()
	if c.failed {
		c.failures++
	} else {
		c.failures, c.err = 0, nil
	}
	if again := s.Now().Add(s.Wait(max(c.failures, 1))); err != nil && (next.IsZero() || again.Before(next)) {
		next = again
	}
	s.mu.Unlock()
	if c.Exact || err != nil {
		c.Exactly(next)
	} else {
		c.By(next)
	}
}
