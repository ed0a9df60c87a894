package env

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/benbjohnson/clock"

	"github.com/ojsengine/ojs/internal/test/pace"
)

// exact wants f to be without an error once. A comparison of readings of the machine's
// clocks fails now and then: a clock may be set between two readings, and an interruption
// between the two readings of one time.Now makes them disagree.
func exact(t *testing.T, f func() error) {
	t.Helper()
	var err error
	for range 20 {
		if err = f(); err == nil {
			return
		}
	}
	t.Errorf("each time: %v", err)
}

// An engine's time is the clock's, however often it is asked for.
func TestTimes(t *testing.T) {
	of := func(c clock.Clock) *Env {
		eng := &Env{}
		eng.Clock = c
		eng.Begin()
		return eng
	}
	read := func(c clock.Clock) func() time.Time { return of(c).Now }
	// onTime checks an engine's time against what the wall shows before and after.
	onTime := func(eng *Env) error {
		before := time.Now().Round(0)
		at := eng.Now()
		after := time.Now().Round(0)
		if at.Before(before.Add(-time.Millisecond)) || at.After(after.Add(time.Millisecond)) ||
			at.Location() != time.UTC || at != at.Round(0) {
			return fmt.Errorf("%v is not from %v to %v", at, before, after)
		}
		return nil
	}
	t.Run("wall", func(t *testing.T) {
		eng := of(clock.New())
		exact(t, func() error {
			// Through some times at which it looks at the time of day, and what it counts
			// on in between.
			for start := time.Now(); time.Since(start) < 10*time.Millisecond; {
				if err := onTime(eng); err != nil {
					return err
				}
			}
			return nil
		})
	})
	t.Run("wall that is set", func(t *testing.T) {
		exact(t, func() error {
			eng := of(clock.New())
			eng.Now()
			eng.wall.offset.Add(int64(time.Hour)) // as if it had been an hour later until now
			for start := time.Now(); time.Since(start) < time.Millisecond; {
			}
			return onTime(eng)
		})
	})
	t.Run("bubble", func(t *testing.T) {
		outside := read(clock.New())
		outside()
		synctest.Test(t, func(t *testing.T) {
			inside := read(clock.New())
			for _, d := range []time.Duration{0, time.Nanosecond, time.Microsecond, time.Millisecond - 1,
				time.Millisecond, time.Hour, 0} {
				pace.Virtual(d)
				for range 2 {
					if at := inside(); !at.Equal(time.Now()) {
						t.Errorf("it is %v, want %v", at, time.Now())
					}
					if at := outside(); !at.Equal(time.Now()) {
						t.Errorf("of an engine from outside it is %v, want %v", at, time.Now())
					}
				}
			}
		})
		if at := outside(); time.Until(at).Abs() > time.Second {
			t.Errorf("outside again it is %v", at)
		}
	})
	t.Run("mock", func(t *testing.T) {
		mock := clock.NewMock()
		now := read(mock)
		for _, at := range []time.Time{time.Unix(7, 7), time.Unix(3, 0), {}, time.Unix(1<<40, 0)} {
			mock.Set(at)
			if !now().Equal(at) {
				t.Errorf("it is %v, want %v", now(), at)
			}
		}
	})
}
