package engine

import (
	"cmp"
	"math/bits"
	"slices"
	"strings"
	"time"

	"github.com/ojsengine/ojs"
	"github.com/ojsengine/ojs/internal/spin"
	"github.com/ojsengine/ojs/storage"
)

// JobMeter counts the jobs of a queue and type since the engine was made. Of each kind
// there are those that this engine has brought about: other engines on the storage count
// theirs.
type JobMeter struct {
	Queue, Type string // both MeterOther for the pairs beyond the first MeterPairs

	Enqueued  uint64 // jobs that were stored
	Started   uint64 // attempts
	Completed uint64 // jobs

	Failed       uint64 // attempts
	Retried      uint64 // of these, the attempts after which the job waits for another one
	Discarded    uint64 // and the attempts with which the job ended
	DeadLettered uint64 // among these, the jobs that are kept as dead letters
	Returned     uint64 // attempts that do not count: snoozed, or interrupted by a stop

	Cancelled uint64 // jobs that were cancelled or replaced
	Expired   uint64 // jobs that ended while they waited: at a deadline, or dropped from a full queue

	// Wait is how long jobs were available before their first attempt began, and Run how
	// long attempts took. Both are counted when the attempt ends.
	Wait, Run Histogram

	// EnqueueTime is how long calls that enqueued took, for each of their jobs, by
	// DurationBounds. It is for systems of metrics, as are those below: the history
	// does not keep them.
	EnqueueTime MetricHistogram
	// QueueTime is how long jobs were available before an attempt 1 began, by WaitBounds.
	// It is counted at the start. An attempt that is given back does not count as one, so
	// its job has another attempt 1.
	QueueTime MetricHistogram
	// CompletedTime, RetriedTime and DiscardedTime are how long the attempts took that
	// Completed, Retried and Discarded count, by DurationBounds.
	CompletedTime, RetriedTime, DiscardedTime MetricHistogram
}

// Add adds what other has counted. It keeps the queue and type.
func (m *JobMeter) Add(other *JobMeter) {
	others := other.counters()
	for i, n := range m.counters() {
		*n += *others[i]
	}
	m.Wait.Add(&other.Wait)
	m.Run.Add(&other.Run)
	m.EnqueueTime.Add(&other.EnqueueTime)
	m.QueueTime.Add(&other.QueueTime)
	m.CompletedTime.Add(&other.CompletedTime)
	m.RetriedTime.Add(&other.RetriedTime)
	m.DiscardedTime.Add(&other.DiscardedTime)
}

// counters are the numbers of a meter in the order in which they are stored.
func (m *JobMeter) counters() [10]*uint64 {
	return [10]*uint64{
		&m.Enqueued, &m.Completed, &m.Failed, &m.Retried, &m.Discarded, &m.DeadLettered, &m.Returned,
		&m.Cancelled, &m.Expired, &m.Started,
	}
}

func byQueueAndType(a, b *JobMeter) int {
	return cmp.Or(strings.Compare(a.Queue, b.Queue), strings.Compare(a.Type, b.Type))
}

const (
	// MeterPairs is how many pairs of a queue and a type have a JobMeter of their own.
	MeterPairs = 1000
	// MeterOther is the queue and the type of the JobMeter of all others.
	MeterOther = "other"

	histogramBuckets = 40
)

// Histogram counts durations in buckets, each twice as wide as the one before: bucket 0
// has those below 1 µs, bucket i those from 2^(i-1) µs to below 2^i µs, and the last all
// from 2^38 µs (76 h) on. A negative duration counts as 0.
type Histogram struct {
	Count   uint64
	Sum     time.Duration
	Buckets [histogramBuckets]uint64
}

func (h *Histogram) observe(d time.Duration) {
	d = max(d, 0)
	h.Count++
	h.Sum += d
	h.Buckets[min(bits.Len64(uint64(d/time.Microsecond)), histogramBuckets-1)]++
}

// Add adds what other has counted.
func (h *Histogram) Add(other *Histogram) {
	h.Count += other.Count
	h.Sum += other.Sum
	for i, n := range other.Buckets {
		h.Buckets[i] += n
	}
}

// Bound is the upper bound of a bucket, which it does not include.
func (h *Histogram) Bound(bucket int) time.Duration { return time.Microsecond << bucket }

// Quantile estimates the duration that a share q of the durations, from 0 to 1, does not
// exceed: 0.5 is the median, 0.99 the 99th percentile. It is in the right bucket, so at
// most twice or half of what it was. Without durations it is 0.
func (h *Histogram) Quantile(q float64) time.Duration {
	rank := min(max(q, 0), 1) * float64(h.Count)
	below := 0.0
	for i, n := range h.Buckets {
		if n == 0 || below+float64(n) < rank {
			below += float64(n)
			continue
		}
		from, to := time.Duration(0), h.Bound(i)
		if i > 0 {
			from = h.Bound(i - 1)
		}
		return from + time.Duration(float64(to-from)*max(rank-below, 0)/float64(n))
	}
	return 0
}

// Meter returns what this engine has counted since it was made, by queue and type in
// alphabetical order. It costs a copy, and counting costs no event: it is always on. It
// is safe for concurrent use.
func (e *Engine[T]) Meter() []JobMeter { return e.core.meter.snapshot() }

// MeterReader is an Observer that reads what engines count. WithObserver gives it the
// Meter of each engine that it observes. The function stays valid when the engine has
// stopped, and is safe for concurrent use.
type MeterReader interface {
	Observer
	ReadMeter(meter func() []JobMeter)
}

// meter counts. Its lock is held for no call of another package.
type meter struct {
	mu    spin.Mutex
	last  *JobMeter // that was counted
	pairs map[meterKey]*JobMeter
}

type meterKey struct{ queue, jobType string }

// of returns the counters of a queue and type. mu is held.
func (m *meter) of(queue, jobType string) *JobMeter {
	if p := m.last; p != nil && p.Queue == queue && p.Type == jobType {
		return p
	}
	key := meterKey{queue, jobType}
	p := m.pairs[key]
	if p == nil && len(m.pairs) >= MeterPairs {
		key = meterKey{MeterOther, MeterOther}
		p = m.pairs[key]
	}
	if p == nil {
		if m.pairs == nil {
			m.pairs = make(map[meterKey]*JobMeter)
		}
		key = meterKey{strings.Clone(key.queue), strings.Clone(key.jobType)}
		p = &JobMeter{Queue: key.queue, Type: key.jobType}
		m.pairs[key] = p
	}
	m.last = p
	return p
}

// enqueued counts jobs that were stored by a call that took so long.
func (m *meter) enqueued(batch []storage.Insert, stored []storage.Inserted, took time.Duration) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for i := range stored {
		if r := &batch[i].Record; stored[i].Existing == nil {
			p := m.of(r.Queue, r.Type)
			p.Enqueued++
			p.EnqueueTime.observe(took, durationBounds)
		}
	}
}

// started counts an attempt that has begun.
func (m *meter) started(r *storage.Record) {
	m.mu.Lock()
	defer m.mu.Unlock()
	p := m.of(r.Queue, r.Type)
	p.Started++
	if r.Attempt == 1 {
		p.QueueTime.observe(queued(r), waitBounds)
	}
}

// endedOtherwise counts a job that ended, and not with the end of an attempt.
func (m *meter) endedOtherwise(r *storage.Record) {
	m.mu.Lock()
	defer m.mu.Unlock()
	switch p := m.of(r.Queue, r.Type); r.State {
	case ojs.StateCompleted:
		p.Completed++
	case ojs.StateCancelled:
		p.Cancelled++
	case ojs.StateDiscarded:
		p.Expired++
	}
}

// ended counts the ends of attempts that were stored.
func (m *meter) ended(list []*settlement, settled []storage.Settled) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for i, f := range list {
		if settled[i].Err != nil {
			continue
		}
		r := f.rec
		p := m.of(r.Queue, r.Type)
		p.Run.observe(f.took)
		if r.Attempt == 1 && !r.EnqueuedAt.IsZero() && !f.decision.Refunded {
			p.Wait.observe(f.at.Sub(r.EnqueuedAt) - f.took)
		}
		switch {
		case f.decision.State == ojs.StateCompleted:
			p.Completed++
			p.CompletedTime.observe(f.took, durationBounds)
			continue
		case f.decision.Refunded:
			p.Returned++
			continue
		}
		p.Failed++
		if r.State == ojs.StateRetryable {
			p.Retried++
			p.RetriedTime.observe(f.took, durationBounds)
		} else if r.State == ojs.StateDiscarded {
			p.Discarded++
			p.DiscardedTime.observe(f.took, durationBounds)
		}
		if r.DeadLettered() {
			p.DeadLettered++
		}
	}
}

func (m *meter) snapshot() []JobMeter {
	m.mu.Lock()
	list := make([]*JobMeter, 0, len(m.pairs)) // no pair goes
	for _, p := range m.pairs {
		list = append(list, p)
	}
	m.mu.Unlock()
	slices.SortFunc(list, byQueueAndType)
	out := make([]JobMeter, len(list))
	for i, p := range list {
		m.mu.Lock() // for each by itself, so that the jobs do not wait for long
		out[i] = *p
		m.mu.Unlock()
	}
	return out
}
