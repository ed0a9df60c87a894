package ojsprometheus

import (
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// other is the queue, type or reason of what has no label of its own.
const other = "other"

// The counters of a queue and type.
const (
	failed = iota
	discarded
	retried
	cancelled
	expired
	timedOut
	stalled
	deadAdded
	deadRetried
	deadDeleted
	retries
	exhausted
	nCounters
)

// counterNames are their names behind "ojs_", but for those of the Go queue document.
var counterNames = [nCounters]struct{ name, help string }{
	failed:      {"job_failed_total", "Attempts that failed, except those that answered DISCARD."},
	discarded:   {"job_discarded_total", "Jobs whose handlers answered DISCARD."},
	retried:     {"job_retried_total", "Failed attempts after which the job waits for another."},
	cancelled:   {"job_cancelled_total", "Jobs cancelled."},
	expired:     {"job_expired_total", "Jobs that were still waiting at their deadline."},
	timedOut:    {"job_timeout_total", "Attempts that exceeded their timeout."},
	stalled:     {"job_stalled_total", "Attempts whose lease expired."},
	deadAdded:   {"dead_letter_added_total", "Jobs that became dead letters."},
	deadRetried: {"dead_letter_retried_total", "Dead letters that were made available again."},
	deadDeleted: {"dead_letter_deleted_total", "Dead letters deleted by a call."},
	retries:     {"retries_total", "Retries of all jobs: the same as ojs_job_retried_total."},
	exhausted:   {"retry_exhausted_total", "Jobs that failed with no attempt left."},
}

// backoffBuckets bound the times between attempts, in seconds.
var backoffBuckets = []float64{.1, .5, 1, 2, 5, 10, 30, 60, 120, 300, 600, 1800, 3600, 21600, 86400}

// pairs are the series by queue and type.
type pairs struct {
	counters     [nCounters]*prometheus.CounterVec
	retryLatency *prometheus.HistogramVec

	most int

	mu    sync.RWMutex // guards what follows
	rest  *pair        // of all that come beyond most
	byKey map[key]*pair
}

type key struct{ queue, jobType string } // as labels

// restKey is that of the rest, and of what a Meter counts beyond its
// telemetry.MeterPairs.
var restKey = key{other, other}

// pair is the series of a queue and type. Its counters are there from the start, its
// histograms from their first value.
type pair struct {
	key
	counters     [nCounters]prometheus.Counter
	retryLatency series
}

func newPairs(cfg *config) *pairs {
	ps := &pairs{most: cfg.maxPairs, byKey: make(map[key]*pair)}
	labels := []string{"queue", "type"}
	for i, c := range counterNames {
		name := namespace + "_" + c.name
		if i == retries || i == exhausted {
			name = cfg.retryPrefix + c.name
		}
		ps.counters[i] = prometheus.NewCounterVec(prometheus.CounterOpts{Name: name, Help: c.help}, labels)
	}
	ps.retryLatency = prometheus.NewHistogramVec(prometheus.HistogramOpts{
		Name: cfg.retryPrefix + "retry_latency_seconds",
		Help: "Time between a failed attempt and the next, as decided.", Buckets: backoffBuckets}, labels)
	return ps
}

func (ps *pairs) vectors() []prometheus.Collector {
	all := []prometheus.Collector{ps.retryLatency}
	for _, c := range ps.counters {
		all = append(all, c)
	}
	return all
}

// of returns the series of a queue and type, or those of the rest. No two pairs have the
// same labels.
func (ps *pairs) of(queue, jobType string) *pair {
	k := key{label(queue), label(jobType)}
	ps.mu.RLock()
	p := ps.byKey[k]
	if p == nil && (k == restKey || len(ps.byKey) >= ps.most) {
		p = ps.rest
	}
	ps.mu.RUnlock()
	if p != nil {
		return p
	}
	ps.mu.Lock()
	defer ps.mu.Unlock()
	switch p := ps.byKey[k]; {
	case p != nil:
		return p
	case k != restKey && len(ps.byKey) < ps.most:
		p = ps.make(k)
		ps.byKey[k] = p
		return p
	}
	if ps.rest == nil {
		ps.rest = ps.make(restKey)
	}
	return ps.rest
}

func (ps *pairs) make(k key) *pair {
	p := &pair{key: k}
	for i, c := range ps.counters {
		p.counters[i] = c.WithLabelValues(k.queue, k.jobType)
	}
	p.retryLatency.make = func() prometheus.Observer {
		return ps.retryLatency.WithLabelValues(k.queue, k.jobType)
	}
	return p
}

// all returns the series of all pairs.
func (ps *pairs) all() []*pair {
	ps.mu.RLock()
	defer ps.mu.RUnlock()
	list := slices.Collect(maps.Values(ps.byKey))
	if ps.rest != nil {
		list = append(list, ps.rest)
	}
	return list
}

// series is a histogram that is made when it has something to count. That a race makes it
// twice does no harm: it is the same one.
type series struct {
	made atomic.Pointer[prometheus.Observer]
	make func() prometheus.Observer
}

func (h *series) observe(d time.Duration) {
	o := h.made.Load()
	if o == nil {
		first := h.make()
		o = &first
		h.made.Store(o)
	}
	(*o).Observe(d.Seconds())
}

// label makes a valid value of a label. The names that an engine lets in are valid.
func label(s string) string { return strings.ToValidUTF8(s, "\uFFFD") }
