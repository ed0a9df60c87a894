// Package telemetry counts what an engine does to jobs, by queue and type: how many were
// enqueued, started and ended, and how long that took. An engine stores what it has
// counted as the history of its storage, and History reads it, without an engine.
//
// # Invariants
//
//  1. A counter of an engine only rises. Meters keeps MeterPairs pairs at most.
//  2. Meters has a lock of its own, and holds it for no storage call and no code of a
//     program.
//  3. Snapshots share no memory with what is counted later.
//  4. Each engine writes values of its own, so no engine overwrites the history of
//     another one. The groups of failures are common to all: failures.go says how. A
//     Recorder belongs to one goroutine.
package telemetry

import (
	"cmp"
	"iter"
	"math/bits"
	"slices"
	"strings"
	"time"

	"github.com/ojsengine/ojs"
	"github.com/ojsengine/ojs/internal/spin"
	"github.com/ojsengine/ojs/storage"
)

// Meter counts the jobs of a queue and type since the engine was made. Of each kind there
// are those that this engine has brought about: other engines on the storage count
// theirs.
type Meter struct {
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

	// Wait is how long jobs were available before an attempt 1 began, counted at the
	// start. An attempt that is given back does not count as one, so its job has another
	// attempt 1. Run is how long attempts took.
	Wait, Run Histogram

	// EnqueueTime is how long calls that enqueued took, for each of their jobs.
	// CompletedTime, RetriedTime and DiscardedTime are how long the attempts took that
	// Completed, Retried and Discarded count. The history does not keep these four.
	EnqueueTime, CompletedTime, RetriedTime, DiscardedTime Histogram
}

// Add adds what other has counted. It keeps the queue and type.
func (m *Meter) Add(other *Meter) {
	from := other.counters()
	for i, n := range m.counters() {
		*n += *from[i]
	}
	histograms := other.histograms()
	for i, h := range m.histograms() {
		h.Add(histograms[i])
	}
}

// IsZero reports whether nothing was counted.
func (m *Meter) IsZero() bool {
	return !slices.ContainsFunc(m.counters(), func(n *uint64) bool { return *n > 0 })
}

// counters are the numbers of a meter in the order in which they are stored.
func (m *Meter) counters() []*uint64 {
	return []*uint64{
		&m.Enqueued, &m.Completed, &m.Failed, &m.Retried, &m.Discarded, &m.DeadLettered, &m.Returned,
		&m.Cancelled, &m.Expired, &m.Started,
	}
}

func (m *Meter) histograms() []*Histogram {
	return []*Histogram{
		&m.Wait, &m.Run, &m.EnqueueTime, &m.CompletedTime, &m.RetriedTime, &m.DiscardedTime,
	}
}

// clone is a copy that shares no memory.
func (m *Meter) clone() Meter {
	c := *m
	for _, h := range c.histograms() {
		h.buckets = slices.Clone(h.buckets)
	}
	return c
}

func byQueueAndType(a, b *Meter) int {
	return cmp.Or(strings.Compare(a.Queue, b.Queue), strings.Compare(a.Type, b.Type))
}

const (
	// MeterPairs is how many pairs of a queue and a type have a Meter of their own.
	MeterPairs = 1000
	// MeterOther is the queue and the type of the Meter of all others.
	MeterOther = "other"
)

// Meters is what an engine counts. The zero Meters has counted nothing. It is safe for
// concurrent use.
type Meters struct {
	mu    spin.Mutex // guards the fields below
	last  *Meter     // the meter that was counted in last
	pairs map[pair]*Meter

	// CountFailures has failed attempts counted by kind, for a FailureRecorder. It is set
	// before the first call.
	CountFailures bool
	failures      failures // has a lock of its own
}

type pair struct{ queue, jobType string }

// of returns the counters of a queue and type. It is called under the lock.
func (m *Meters) of(queue, jobType string) *Meter {
	if p := m.last; p != nil && p.Queue == queue && p.Type == jobType {
		return p
	}
	key := pair{queue, jobType}
	p := m.pairs[key]
	if p == nil && len(m.pairs) >= MeterPairs {
		key = pair{MeterOther, MeterOther}
		p = m.pairs[key]
	}
	if p == nil {
		if m.pairs == nil {
			m.pairs = make(map[pair]*Meter)
		}
		key = pair{strings.Clone(key.queue), strings.Clone(key.jobType)}
		p = &Meter{Queue: key.queue, Type: key.jobType}
		m.pairs[key] = p
	}
	m.last = p
	return p
}

// Enqueued counts the jobs that a call has stored, and how long it took.
func (m *Meters) Enqueued(batch []storage.Insert, stored []storage.Inserted, took time.Duration) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for i := range stored {
		if r := &batch[i].Record; stored[i].Existing == nil {
			p := m.of(r.Queue, r.Type)
			p.Enqueued++
			p.EnqueueTime.Observe(took)
		}
	}
}

// Started counts an attempt that has begun.
func (m *Meters) Started(r *storage.Record) {
	m.mu.Lock()
	defer m.mu.Unlock()
	p := m.of(r.Queue, r.Type)
	if p.Started++; r.Attempt != 1 {
		return
	}
	waited := time.Duration(0)
	if !r.EnqueuedAt.IsZero() {
		waited = r.StartedAt.Sub(r.EnqueuedAt)
	}
	p.Wait.Observe(waited)
}

// Attempt is an attempt that has ended.
type Attempt struct {
	Job       *storage.Record // after the attempt
	Took      time.Duration
	Completed bool
	Returned  bool // the attempt does not count
}

// Ended counts the ends of n attempts. of returns each, false if its end was not stored.
func (m *Meters) Ended(n int, of func(i int) (Attempt, bool)) {
	failed := m.ended(n, of)
	for i := 0; failed && m.CountFailures && i < n; i++ {
		if a, ok := of(i); ok && a.failed() {
			m.failures.count(a.Job)
		}
	}
}

// failed reports whether the attempt counts as failed.
func (a *Attempt) failed() bool { return !a.Completed && !a.Returned }

// ended is Ended without the kinds of failures. It reports whether an attempt has failed.
func (m *Meters) ended(n int, of func(i int) (Attempt, bool)) (failed bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for i := range n {
		a, ok := of(i)
		if !ok {
			continue
		}
		p := m.of(a.Job.Queue, a.Job.Type)
		p.Run.Observe(a.Took)
		switch {
		case a.Completed:
			p.Completed++
			p.CompletedTime.Observe(a.Took)
			continue
		case a.Returned:
			p.Returned++
			continue
		}
		p.Failed++
		failed = true
		switch a.Job.State {
		case ojs.StateRetryable:
			p.Retried++
			p.RetriedTime.Observe(a.Took)
		case ojs.StateDiscarded:
			p.Discarded++
			p.DiscardedTime.Observe(a.Took)
		}
		if a.Job.DeadLettered() {
			p.DeadLettered++
		}
	}
	return failed
}

// EndedOtherwise counts a job that ended, and not with the end of an attempt.
func (m *Meters) EndedOtherwise(r *storage.Record) {
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

// Snapshot returns what was counted, by queue and type in alphabetical order. It costs a
// copy.
func (m *Meters) Snapshot() []Meter {
	m.mu.Lock()
	list := make([]*Meter, 0, len(m.pairs)) // no pair goes
	for _, p := range m.pairs {
		list = append(list, p)
	}
	m.mu.Unlock()
	slices.SortFunc(list, byQueueAndType)
	out := make([]Meter, len(list))
	for i, p := range list {
		m.mu.Lock() // for each by itself, so that the jobs do not wait for long
		out[i] = p.clone()
		m.mu.Unlock()
	}
	return out
}

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

// Histogram counts durations in buckets, 8 for each doubling: a bucket is at most an
// eighth wider than where it begins. Below 16 µs each µs has a bucket. The last one has
// all durations from 2^38 µs (76 h) on. A negative duration counts as 0.
type Histogram struct {
	Count   uint64
	Sum     time.Duration
	buckets []uint64 // up to the last that has a duration
}

// perDoubling is the number of buckets for each doubling.
const perDoubling = 8

// bucketOf is the bucket of a duration. Its number in µs is a mantissa of 8 to 15, and an
// exponent of 2. Below 8 µs the exponent is 0, and the mantissa less.
func bucketOf(d time.Duration) int {
	n := min(uint64(max(d, 0)/time.Microsecond), 1<<38)
	exponent := max(bits.Len64(n)-4, 0)
	return exponent*perDoubling + int(n>>exponent)
}

// bound is the upper bound of a bucket, which it does not include.
func bound(bucket int) time.Duration {
	exponent := max(bucket/perDoubling-1, 0)
	return time.Duration(bucket-exponent*perDoubling+1) << exponent * time.Microsecond
}

// Observe counts a duration.
func (h *Histogram) Observe(d time.Duration) {
	h.Count++
	h.Sum += max(d, 0)
	h.put(bucketOf(d), 1)
}

func (h *Histogram) put(bucket int, n uint64) {
	if missing := bucket + 1 - len(h.buckets); missing > 0 {
		h.buckets = append(h.buckets, make([]uint64, missing)...)
	}
	h.buckets[bucket] += n
}

// Add adds what other has counted.
func (h *Histogram) Add(other *Histogram) {
	h.Count += other.Count
	h.Sum += other.Sum
	for i, n := range other.buckets {
		if n > 0 {
			h.put(i, n)
		}
	}
}

// since is what was counted since an earlier state of the histogram.
func (h *Histogram) since(before *Histogram) Histogram {
	d := Histogram{h.Count - before.Count, h.Sum - before.Sum, slices.Clone(h.buckets)}
	for i, n := range before.buckets {
		d.buckets[i] -= n
	}
	return d
}

// Buckets are the buckets that have durations: the upper bound of each, which it does not
// include, and how many it has.
func (h *Histogram) Buckets() iter.Seq2[time.Duration, uint64] {
	return func(yield func(time.Duration, uint64) bool) {
		for i, n := range h.buckets {
			if n > 0 && !yield(bound(i), n) {
				return
			}
		}
	}
}

// Within is how many durations were not longer than d. It counts the whole bucket of d,
// and so some that were up to an eighth longer.
func (h *Histogram) Within(d time.Duration) (n uint64) {
	for _, in := range h.buckets[:min(bucketOf(d)+1, len(h.buckets))] {
		n += in
	}
	return n
}

// Quantile estimates the duration that a share q of the durations, from 0 to 1, does not
// exceed: 0.5 is the median, 0.99 the 99th percentile. It is in the right bucket, so at
// most an eighth too long or too short. Without durations it is 0.
func (h *Histogram) Quantile(q float64) time.Duration {
	rank := min(max(q, 0), 1) * float64(h.Count)
	below := 0.0
	for i, n := range h.buckets {
		if n == 0 || below+float64(n) < rank {
			below += float64(n)
			continue
		}
		from := time.Duration(0)
		if i > 0 {
			from = bound(i - 1)
		}
		return from + time.Duration(float64(bound(i)-from)*max(rank-below, 0)/float64(n))
	}
	return 0
}
