package ojsprometheus

import (
	"sync"

	"github.com/prometheus/client_golang/prometheus"
)

// queues are the series by queue alone.
type queues struct {
	warned, rejected, dropped *prometheus.CounterVec

	most int

	mu     sync.Mutex // guards byName
	byName map[string]*queue
}

// queue is what a bounded queue has done.
type queue struct{ warned, rejected, dropped prometheus.Counter }

func newQueues(cfg *config) *queues {
	counter := func(name, help string) *prometheus.CounterVec {
		return prometheus.NewCounterVec(prometheus.CounterOpts{Namespace: namespace,
			Subsystem: "backpressure", Name: name, Help: help},
			[]string{"queue"})
	}
	return &queues{
		most: cfg.maxPairs, byName: make(map[string]*queue),
		warned:   counter("warning_total", "How often a bounded queue has reached 0.8 of its depth."),
		rejected: counter("rejected_total", "Enqueues that a full queue has refused."),
		dropped:  counter("dropped_total", "Jobs that a full queue has dropped for new ones."),
	}
}

func (qs *queues) vectors() []prometheus.Collector {
	return []prometheus.Collector{qs.warned, qs.rejected, qs.dropped}
}

// of returns the series of a queue, or those of the rest.
func (qs *queues) of(name string) *queue {
	qs.mu.Lock()
	defer qs.mu.Unlock()
	if q := qs.byName[name]; q != nil {
		return q
	}
	l := label(name)
	if len(qs.byName) >= qs.most {
		l = other
	}
	q := &queue{qs.warned.WithLabelValues(l), qs.rejected.WithLabelValues(l), qs.dropped.WithLabelValues(l)}
	if l != other {
		qs.byName[name] = q
	}
	return q
}
