package engine

import (
	"slices"
	"time"
)

// The boundaries of OJS observability, section 8.
var (
	durationBounds = []time.Duration{
		5 * time.Millisecond, 10 * time.Millisecond, 25 * time.Millisecond, 50 * time.Millisecond,
		100 * time.Millisecond, 250 * time.Millisecond, 500 * time.Millisecond, time.Second,
		2500 * time.Millisecond, 5 * time.Second, 10 * time.Second, 30 * time.Second, time.Minute,
		2 * time.Minute, 5 * time.Minute,
	}
	waitBounds = []time.Duration{
		10 * time.Millisecond, 50 * time.Millisecond, 100 * time.Millisecond, 500 * time.Millisecond,
		time.Second, 5 * time.Second, 10 * time.Second, 30 * time.Second, time.Minute, 5 * time.Minute,
		10 * time.Minute, 30 * time.Minute, time.Hour,
	}
)

// DurationBounds are the boundaries of OJS observability for attempts and enqueues, from
// 5 ms to 5 minutes.
func DurationBounds() []time.Duration { return slices.Clone(durationBounds) }

// WaitBounds are the boundaries of OJS observability for waits, from 10 ms to an hour.
func WaitBounds() []time.Duration { return slices.Clone(waitBounds) }

// MetricHistogram counts durations by boundaries b: Buckets[0] has those up to b[0],
// Buckets[i] those above b[i-1] and up to b[i], and Buckets[len(b)] those above all
// boundaries. A negative duration counts as 0.
type MetricHistogram struct {
	Sum     time.Duration
	Buckets [16]uint64
}

func (h *MetricHistogram) observe(d time.Duration, bounds []time.Duration) {
	d = max(d, 0)
	h.Sum += d
	i := 0
	for i < len(bounds) && d > bounds[i] {
		i++
	}
	h.Buckets[i]++
}

// Add adds what other has counted.
func (h *MetricHistogram) Add(other *MetricHistogram) {
	h.Sum += other.Sum
	for i, n := range other.Buckets {
		h.Buckets[i] += n
	}
}
