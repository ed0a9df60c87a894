package engine

import (
	"math"
	"time"

	"github.com/ojsengine/ojs"
)

// limiter counts starts and running attempts against the bounds of one key, queue or job
// type. A token bucket would let twice the rate through where two periods meet; this
// remembers the starts themselves, so that no period, wherever it begins, has more of
// them than the rate allows.
type limiter struct {
	bounds  ojs.RateLimit
	running int
	starts  []int64 // ns since 1970 of the latest ones, at most bounds.Rate.Limit, oldest first
	last    int64   // of the latest one
}

// rebound gives the limiter other bounds. Earlier starts count against them.
func (l *limiter) rebound(to ojs.RateLimit) {
	l.bounds = to
	l.starts = l.starts[max(0, len(l.starts)-to.Rate.Limit):]
}

// open reports whether another one may start now. If not, at is when one may as far as
// time alone decides; zero if a running one has to end first.
func (l *limiter) open(now time.Time) (at time.Time, open bool) {
	if most := l.bounds.Concurrency; most != 0 && l.running >= max(most, 0) {
		return time.Time{}, false
	}
	ns := now.UnixNano()
	next := ns
	if r := l.bounds.Rate; r.Limit > 0 && len(l.starts) >= r.Limit {
		next = max(next, later(l.starts[len(l.starts)-r.Limit], int64(r.Per)))
	}
	if l.last != 0 {
		next = max(next, later(l.last, l.gap()))
	}
	if next <= ns {
		return time.Time{}, true
	}
	return time.Unix(0, next).UTC(), false
}

// gap is how far apart starts are. It is rounded up: down would let one too many through
// in a long run.
func (l *limiter) gap() int64 {
	t := l.bounds.Throttle
	if t.Limit == 0 {
		return 0
	}
	gap := int64(t.Per) / int64(t.Limit)
	if int64(t.Per)%int64(t.Limit) > 0 {
		gap++
	}
	return gap
}

// later is d, which is not negative, after a time, or the end of time.
func later(ns, d int64) int64 {
	if ns > math.MaxInt64-d {
		return math.MaxInt64
	}
	return ns + d
}

func (l *limiter) start(now time.Time) {
	l.running++
	ns := now.UnixNano()
	l.last = max(l.last, ns)
	r := l.bounds.Rate
	if r.Limit == 0 {
		return
	}
	if len(l.starts) >= r.Limit {
		l.starts = l.starts[len(l.starts)-r.Limit+1:]
	}
	l.starts = append(l.starts, l.last)
}

func (l *limiter) end() { l.running-- }

// idle reports whether the limiter remembers nothing that a new one would not know.
func (l *limiter) idle(now time.Time) bool {
	ns := now.UnixNano()
	return l.running == 0 && later(l.last, l.gap()) <= ns && later(l.last, int64(l.bounds.Rate.Per)) <= ns
}
