package engine

import (
	"time"

	"github.com/ojsengine/ojs"
	"github.com/ojsengine/ojs/storage"
)

// limiter counts starts and running attempts against the bounds of one queue or job type,
// by the rules of storages (storage.Opens). A token bucket would let twice the rate
// through where two periods meet; this remembers the starts themselves, so that no
// period, wherever it begins, has more of them than the rate allows.
type limiter struct {
	bounds  ojs.RateLimit
	running int
	starts  []int64 // ns since 1970 of as many as the rate counts, and of one at least; oldest first
}

// counted is how many starts the limiter remembers at most.
func (l *limiter) counted() int { return max(l.bounds.Rate.Limit, 1) }

// rebound gives the limiter other bounds. Earlier starts count against them.
func (l *limiter) rebound(to ojs.RateLimit) {
	l.bounds = to
	l.starts = l.starts[max(0, len(l.starts)-l.counted()):]
}

// open reports whether another one may start now. If not, at is when one may as far as
// time alone decides; zero if a running one has to end first.
func (l *limiter) open(now time.Time) (at time.Time, open bool) {
	ns := now.UnixNano()
	switch next, never := storage.Opens(&l.bounds, l.running, l.starts, ns); {
	case never:
		return time.Time{}, false
	case next <= ns:
		return time.Time{}, true
	default:
		return time.Unix(0, next).UTC(), false
	}
}

func (l *limiter) start(now time.Time) {
	l.running++
	at := now.UnixNano()
	if n := len(l.starts); n > 0 {
		at = max(at, l.starts[n-1])
	}
	switch n := l.counted(); {
	case n == 1:
		l.starts = l.starts[:0]
	case len(l.starts) >= n:
		l.starts = l.starts[len(l.starts)-n+1:]
	}
	l.starts = append(l.starts, at)
}

func (l *limiter) end() { l.running-- }
