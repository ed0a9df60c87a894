package sleeps_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/benbjohnson/clock"

	"github.com/ojsengine/ojs/engine/internal/idle"
	"github.com/ojsengine/ojs/engine/internal/sleeps"
	"github.com/ojsengine/ojs/scheduler"
)

// rig has one goroutine that is busy, on a virtual clock.
type rig struct {
	*testing.T
	sleeps.Sleeps
	mock *clock.Mock
	busy idle.Counter
}

func newRig(t *testing.T, virtual bool) *rig {
	r := &rig{T: t, mock: clock.NewMock()}
	r.Sched, r.Clock, r.Busy, r.Virtual = scheduler.New(r.mock), r.mock, &r.busy, virtual
	t.Cleanup(r.Sched.Stop)
	r.busy.Add(1)
	return r
}

func (r *rig) idle(want bool) {
	r.Helper()
	got, _ := r.busy.Idle(func() (bool, <-chan struct{}) { return true, nil })
	if got != want {
		r.Errorf("idle %t, want %t", got, want)
	}
}

// Invariants 1 and 2.
func TestSleep(t *testing.T) {
	r := newRig(t, true)
	s := r.New(time.Second, true)
	r.idle(true)
	r.mock.Add(time.Second)
	if err := s.Wait(t.Context()); err != nil {
		t.Error(err)
	}
	r.idle(false)

	beside := r.New(time.Second, false)
	r.idle(false)
	beside.Wake()
	if err := beside.Wait(t.Context()); err != nil {
		t.Error(err)
	}

	real := newRig(t, false)
	real.New(time.Second, true)
	real.idle(false)
}

// A sleep ends with its context.
func TestContext(t *testing.T) {
	r := newRig(t, true)
	ctx, cancel := context.WithCancelCause(t.Context())
	s := r.New(-1, true)
	gone := errors.New("gone")
	cancel(gone)
	if err := s.Wait(ctx); err != gone {
		t.Errorf("error %v, want %v", err, gone)
	}
	r.idle(false)
}

// Invariant 3.
func TestDoubt(t *testing.T) {
	r := newRig(t, true)
	s := r.New(time.Second, true)
	s.Doubt()
	r.idle(false)
	s.Doubt()
	s.Decided()
	s.Decided() // the check is on its way
	r.idle(false)
	over := make(chan error)
	go func() { over <- s.Wait(t.Context()) }() // its context goes on
	for ok := false; !ok; {
		var wait <-chan struct{}
		if ok, wait = r.busy.Idle(func() (bool, <-chan struct{}) { return true, nil }); !ok {
			<-wait
		}
	}
	s.End()
	r.idle(false)
	s.Wake()
	if err := <-over; err != nil {
		t.Error(err)
	}
	var none *sleeps.Sleep
	none.Doubt()
	none.Decided()
	none.End()
}

func TestPause(t *testing.T) {
	r := newRig(t, true)
	paused := func(quit chan struct{}) chan bool {
		over := make(chan bool)
		go func() { over <- r.Pause(time.Hour, quit) }()
		for ok := false; !ok; {
			var wait <-chan struct{}
			if ok, wait = r.busy.Idle(func() (bool, <-chan struct{}) { return true, nil }); !ok {
				<-wait
			}
		}
		return over
	}
	over := paused(nil)
	r.EndPauses()
	if !<-over {
		t.Error("the pause was ended by its quit")
	}
	r.idle(false)
	quit := make(chan struct{})
	over = paused(quit)
	close(quit)
	if <-over {
		t.Error("the pause has ended by itself")
	}
	r.idle(false)
}
