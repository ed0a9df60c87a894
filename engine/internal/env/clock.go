package env

import (
	"reflect"
	"sync/atomic"
	"time"

	"github.com/benbjohnson/clock"
)

// Now reads the clock, for storages: without the zone and the monotonic reading that none
// of them keeps.
func (c *Env) Now() time.Time {
	if t, ok := c.wall.now(c.Clock); ok {
		return t
	}
	return c.Clock.Now().UTC().Round(0)
}

// birth is when the program began.
var birth = clock.New().Now()

// Virtual reports whether time is virtual. A bubble of testing/synctest cannot be seen
// from inside, but its time begins in the year 2000.
func (c *Env) Virtual() bool { return c.Mocked || c.Clock.Now().Before(birth) }

// wallClock reads the wall clock in half the time that time.Now takes, which reads both
// the time of day and the monotonic clock: it counts on from a time of day that is a
// millisecond old at most. So when the clock is set it follows within a millisecond.
type wallClock struct {
	origin time.Time    // with a monotonic reading; zero: the clock is not the wall clock
	read   atomic.Int64 // when the time of day was read, in ns since the origin
	offset atomic.Int64 // what it was then less that, in ns since 1970
}

// start begins to read a clock.
func (t *wallClock) start(c clock.Clock) {
	if reflect.TypeOf(c) == reflect.TypeOf(clock.New()) {
		t.origin = c.Now()
		t.read.Store(-int64(time.Hour))
	}
}

// now returns the time of day. It reports false for a clock that is not the wall clock.
func (t *wallClock) now(c clock.Clock) (time.Time, bool) {
	if t.origin.IsZero() {
		return time.Time{}, false
	}
	gone := int64(c.Since(t.origin))
	if age := gone - t.read.Load(); age >= 0 && age < int64(time.Millisecond) {
		return time.Unix(0, gone+t.offset.Load()).UTC(), true
	}
	now := c.Now()
	gone = int64(now.Sub(t.origin))
	t.offset.Store(now.UnixNano() - gone)
	t.read.Store(gone)
	return now.UTC().Round(0), true
}
