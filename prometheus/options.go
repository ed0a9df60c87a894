package ojsprometheus

import (
	"time"

	"github.com/benbjohnson/clock"
)

const (
	defaultMaxPairs = 1000
	defaultMaxKeys  = 100
	defaultTimeout  = 5 * time.Second
)

// Option configures a Collector.
type Option func(*config)

type config struct {
	retryPrefix string
	maxPairs    int
	maxKeys     int
	timeout     time.Duration
	clock       clock.Clock
}

// WithRetryPrefix puts a prefix before the names retries_total, retry_exhausted_total and
// retry_latency_seconds, for registries in which these names mean something else: "ojs_"
// gives ojs_retries_total. The default is none. A prefix that makes no valid name is
// refused when the collector is registered.
func WithRetryPrefix(prefix string) Option { return func(c *config) { c.retryPrefix = prefix } }

// WithMaxPairs bounds how many pairs of queue and type have series of their own, how many
// queues have gauges, and how many names of workflows have series. Later ones count
// together as "other". The default, also for n < 1, is 1,000. A pair has up to 130
// samples and takes up to 20 kB.
func WithMaxPairs(n int) Option {
	return func(c *config) {
		if c.maxPairs = n; n < 1 {
			c.maxPairs = defaultMaxPairs
		}
	}
}

// WithMaxKeys bounds how many keys of rate limits have series of their own. Keys come
// from clients: the first ones that the collector meets have series, and later ones count
// together as "other". The default, also for n < 1, is 100.
func WithMaxKeys(n int) Option {
	return func(c *config) {
		if c.maxKeys = n; n < 1 {
			c.maxKeys = defaultMaxKeys
		}
	}
}

// WithTimeout bounds how long a scrape waits for the engine's Stats, and for its limits.
// The default, also for d <= 0, is 5 s; it should be less than the scrape_timeout of the
// server, which is 10 s by default.
func WithTimeout(d time.Duration) Option {
	return func(c *config) {
		if c.timeout = d; d <= 0 {
			c.timeout = defaultTimeout
		}
	}
}

// WithClock sets the clock that WithTimeout goes by. The default is the system's.
func WithClock(cl clock.Clock) Option { return func(c *config) { c.clock = cl } }
