package server

import (
	"math"
	"net/http"
	"strconv"
	"sync"
	"time"
)

// limiter has a bucket of tokens for each caller: a request takes one (F102).
type limiter struct {
	conf RequestRate

	mu      sync.Mutex // guards buckets
	buckets map[string]bucket
}

// bucket had so many tokens at a time.
type bucket struct {
	tokens float64
	at     time.Time
}

// manyBuckets is how many callers are remembered before full buckets are forgotten.
const manyBuckets = 10_000

// take takes a token. next is how long it takes until there is one more.
func (l *limiter) take(who string, now time.Time) (left int, next time.Duration, ok bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	b, known := l.buckets[who]
	if !known {
		b = bucket{float64(l.conf.Burst), now}
		if l.buckets == nil {
			l.buckets = make(map[string]bucket)
		}
		if len(l.buckets) >= manyBuckets {
			l.forget(now)
		}
	}
	b.tokens = l.at(b, now)
	b.at = now
	if ok = b.tokens >= 1; ok {
		b.tokens--
	}
	l.buckets[who] = b
	missing := math.Floor(b.tokens) + 1 - b.tokens
	return int(b.tokens), time.Duration(missing / l.conf.PerSecond * float64(time.Second)), ok
}

func (l *limiter) at(b bucket, now time.Time) float64 {
	return min(float64(l.conf.Burst), b.tokens+max(0, now.Sub(b.at).Seconds())*l.conf.PerSecond)
}

// forget drops the full buckets, and all if few are full.
func (l *limiter) forget(now time.Time) {
	for who, b := range l.buckets {
		if l.at(b, now) >= float64(l.conf.Burst) {
			delete(l.buckets, who)
		}
	}
	if len(l.buckets) > manyBuckets/2 { // or the next callers would scan them again
		clear(l.buckets)
	}
}

// client is whom the bounds count a request for: the principal, or the address.
func (c *call) client() string {
	if c.who != nil {
		return "principal " + c.who.Name
	}
	return address(c.r)
}

// limit takes a token for a request.
func (s *Server) limit(c *call) error {
	if s.conf.limit.Burst == 0 || c.rt != nil && c.rt.need == permHealth {
		return nil
	}
	now := s.clock.Now()
	left, next, ok := s.limiter.take(c.client(), now)
	h := c.w.Header()
	h.Set("X-RateLimit-Limit", strconv.Itoa(s.conf.limit.Burst))
	h.Set("X-RateLimit-Remaining", strconv.Itoa(left))
	h.Set("X-RateLimit-Reset", strconv.FormatInt(int64(math.Ceil(float64(now.Add(next).UnixNano())/1e9)), 10))
	if ok {
		return nil
	}
	r := refuse(http.StatusTooManyRequests, codeRateLimited, "too many requests")
	r.retryable, r.after = true, next
	window := int64(math.Ceil(float64(s.conf.limit.Burst) / s.conf.limit.PerSecond))
	return r.with("limit", s.conf.limit.Burst).with("window_seconds", window).
		with("retry_after_seconds", int64(math.Ceil(next.Seconds())))
}

// connections counts the requests under way of each client (F196). The requests to a
// route that waits are counted by themselves: many long polls keep no ack out.
type connections struct {
	mu    sync.Mutex // guards count
	count map[connection]int
}

type connection struct {
	client string
	route  *route // nil: any that does not wait
}

// enter counts a request in. It is counted out by leave.
func (s *Server) enter(c *call) (leave func(), err error) {
	if s.conf.maxRequests == 0 || c.rt.need == permHealth {
		return func() {}, nil
	}
	who, n := connection{client: c.client()}, &s.seen
	if c.rt.waits {
		who.route = c.rt
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.count == nil {
		n.count = make(map[connection]int)
	}
	if n.count[who] >= s.conf.maxRequests {
		r := refuse(http.StatusTooManyRequests, codeRateLimited, "the client has %d requests under way",
			s.conf.maxRequests)
		r.retryable = true
		return nil, r.with("limit", s.conf.maxRequests)
	}
	n.count[who]++
	return func() {
		n.mu.Lock()
		defer n.mu.Unlock()
		if n.count[who]--; n.count[who] == 0 {
			delete(n.count, who)
		}
	}, nil
}
