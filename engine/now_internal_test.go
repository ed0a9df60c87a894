package engine

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/benbjohnson/clock"
)

// An engine's time is the clock's, however often it is asked for.
func TestTimes(t *testing.T) {
	read := func(t *testing.T, c clock.Clock) func() time.Time {
		eng := &core{}
		eng.clock = c
		eng.times.start(c)
		return eng.now
	}
	t.Run("wall", func(t *testing.T) {
		now := read(t, clock.New())
		for range 100_000 {
			before := time.Now().Round(0)
			at := now()
			if after := time.Now().Round(0); at.Before(before.Add(-time.Millisecond)) || at.After(after.Add(time.Millisecond)) || at.Location() != time.UTC || at != at.Round(0) {
				t.Fatalf("%v is not from %v to %v", at, before, after)
			}
		}
	})
	t.Run("bubble", func(t *testing.T) {
		outside := read(t, clock.New())
		outside()
		synctest.Test(t, func(t *testing.T) {
			inside := read(t, clock.New())
			for _, d := range []time.Duration{0, time.Nanosecond, time.Microsecond, time.Millisecond - 1, time.Millisecond, time.Hour, 0} {
				time.Sleep(d)
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
		now := read(t, mock)
		for _, at := range []time.Time{time.Unix(7, 7), time.Unix(3, 0), {}, time.Unix(1<<40, 0)} {
			mock.Set(at)
			if !now().Equal(at) {
				t.Errorf("it is %v, want %v", now(), at)
			}
		}
	})
}
