package engine

import (
	"time"

	"github.com/ojsengine/ojs/scheduler"
)

// alarm is a timer for the earliest time that any part of a run has asked for. core.mu
// guards it.
type alarm struct {
	timer scheduler.Timer
	sched *scheduler.Scheduler
	at    time.Time // when it fires; zero: not armed
}

// start readies the alarm. It calls ring at each time, with core.mu held.
func (a *alarm) start(r *run, ring func(now time.Time)) {
	a.sched = r.sched
	a.timer.Func = func(now time.Time) {
		r.c.mu.Lock()
		defer r.c.mu.Unlock()
		a.at = time.Time{}
		ring(now)
	}
}

// by makes the alarm fire at t, unless it will earlier. Zero asks for nothing.
func (a *alarm) by(t time.Time) {
	if !t.IsZero() && (a.at.IsZero() || t.Before(a.at)) {
		a.at = t
		a.sched.Set(&a.timer, t)
	}
}

// exactly makes the alarm fire at t, and at no time before. Zero: not at all.
func (a *alarm) exactly(t time.Time) {
	switch {
	case t.Equal(a.at):
	case t.IsZero():
		a.at = t
		a.sched.Cancel(&a.timer)
	default:
		a.at = t
		a.sched.Set(&a.timer, t)
	}
}
