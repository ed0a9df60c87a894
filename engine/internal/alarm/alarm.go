// Package alarm has a timer for the earliest time that any caller has asked for.
//
// # Invariants
//
//  1. After By(t), the alarm rings at t or before.
//  2. A caller that asks for a time has stored before what the ring is to find. A ring
//     that is under way may stand for a time that is asked for meanwhile.
package alarm

import (
	"math"
	"sync/atomic"
	"time"

	"github.com/ojsengine/ojs/internal/locks"
	"github.com/ojsengine/ojs/scheduler"
)

// Alarm is a timer. Before Start it does nothing. It is safe for concurrent use.
type Alarm struct {
	sched *scheduler.Scheduler
	timer scheduler.Timer

	mu locks.Mutex // held by writers of at
	at atomic.Int64
}

// unset is the time of an alarm that is not armed.
const unset = math.MaxInt64

// Start readies the alarm. It calls ring at each time, on the goroutine of the scheduler.
func (a *Alarm) Start(s *scheduler.Scheduler, ring func(now time.Time)) {
	a.sched = s
	a.at.Store(unset)
	a.timer.Func = func(now time.Time) {
		a.mu.Lock()
		a.at.Store(unset)
		a.mu.Unlock()
		ring(now)
	}
}

// By makes the alarm ring at t, unless it will earlier. Zero asks for nothing.
func (a *Alarm) By(t time.Time) {
	if a.sched == nil || t.IsZero() || a.at.Load() <= nanos(t) { // as for almost every job
		return
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.at.Load() > nanos(t) {
		a.set(t)
	}
}

// Exactly makes the alarm ring at t, and at no time before. Zero: not at all.
func (a *Alarm) Exactly(t time.Time) {
	if a.sched == nil {
		return
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	switch {
	case t.IsZero() && a.Armed():
		a.at.Store(unset)
		a.sched.Cancel(&a.timer)
	case !t.IsZero() && a.at.Load() != nanos(t):
		a.set(t)
	}
}

// Armed reports whether the alarm is to ring.
func (a *Alarm) Armed() bool { return a.at.Load() != unset }

// set arms the timer, with mu.
func (a *Alarm) set(t time.Time) {
	a.at.Store(nanos(t))
	a.sched.Set(&a.timer, t)
}

// nanos is a time as a number that is below unset.
func nanos(t time.Time) int64 {
	const most = math.MaxInt64/int64(time.Second) - 1
	return min(max(t.Unix(), -most), most)*int64(time.Second) + int64(t.Nanosecond())
}
