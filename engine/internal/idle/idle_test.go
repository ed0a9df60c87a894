package idle_test

import (
	"testing"

	"github.com/ojsengine/ojs/engine/internal/idle"
)

func settled() (bool, <-chan struct{}) { return true, nil }

func TestIdle(t *testing.T) {
	var c idle.Counter
	if ok, _ := c.Idle(settled); !ok {
		t.Fatal("a new counter is not idle")
	}
	c.Add(2)
	ok, wait := c.Idle(settled)
	if ok {
		t.Fatal("idle with two things under way")
	}
	c.Add(-1)
	select {
	case <-wait:
		t.Fatal("told that it is idle with one thing under way")
	default:
	}
	c.Add(-1)
	<-wait
	if ok, _ := c.Idle(settled); !ok {
		t.Fatal("not idle with nothing under way")
	}
}

// Timers that are not settled are waited for.
func TestTimers(t *testing.T) {
	var c idle.Counter
	passed := make(chan struct{})
	ok, wait := c.Idle(func() (bool, <-chan struct{}) { return false, passed })
	if ok || wait != (<-chan struct{})(passed) {
		t.Fatal("idle while a timer is due")
	}
}

// Work that comes and goes while the timers are asked may have set one: they are asked
// again.
func TestWorkWhileTimersAreAsked(t *testing.T) {
	var c idle.Counter
	asked := 0
	ok, _ := c.Idle(func() (bool, <-chan struct{}) {
		if asked++; asked == 1 {
			c.Add(1)
			c.Add(-1)
		}
		return true, nil
	})
	if !ok || asked != 2 {
		t.Errorf("idle %t after the timers were asked %d times, want 2", ok, asked)
	}
	ok, wait := c.Idle(func() (bool, <-chan struct{}) {
		c.Add(1)
		return true, nil
	})
	if ok || wait == nil {
		t.Error("idle although work has come while the timers were asked")
	}
}
