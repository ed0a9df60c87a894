package enginetest

import (
	"time"

	"github.com/ojsengine/ojs"
)

// own applies options to two Options that differ in everything but what adds up. The
// options have set the values that are the same in both results, zero values included.
func own(opts []ojs.Option) (a, b ojs.Options) {
	a, b = distinct("a", 1, false), distinct("b", 2, true)
	a.Apply(opts...)
	b.Apply(opts...)
	return a, b
}

func distinct(name string, n int, yes bool) ojs.Options {
	d := time.Duration(n)
	return ojs.Options{
		ID: name, Queue: name, Priority: n, Delay: d, ScheduledAt: Start.Add(d), TTL: d,
		ExpiresAt: Start.Add(d),
		Timeout:   d, TotalTimeout: d, EnqueueTTL: d, Lease: d, ResultTTL: d,
		RateLimit: &ojs.RateLimit{Key: name}, RateLimitBy: name,
		Fairness: ojs.Fairness{Key: name, Weight: n}, FairnessBy: name,
		Unique: &ojs.UniquePolicy{Key: name}, Pending: yes,
	}
}
