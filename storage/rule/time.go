package rule

import (
	"math"
	"time"
)

// Nanos returns a time as nanoseconds since 1970, None for the zero time. These do not
// hold times before 1677 and after 2262, of which Nanos returns the nearest that fits.
func Nanos(t time.Time) int64 {
	const most = math.MaxInt64 / int64(time.Second)
	switch s := t.Unix(); {
	case t.IsZero():
		return None
	case s <= -most:
		return None + 1
	case s >= most:
		return math.MaxInt64
	}
	return t.UnixNano()
}

// Exact reports whether nanoseconds are those of the time that Nanos was given.
func Exact(ns int64) bool { return ns != None+1 && ns != math.MaxInt64 }

// Time returns the time of nanoseconds.
func Time(ns int64) time.Time {
	if ns == None {
		return time.Time{}
	}
	return time.Unix(0, ns).UTC()
}
