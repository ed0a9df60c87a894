package server

import (
	"time"

	"github.com/ojsengine/ojs/event"
)

const (
	statsStream             = "/admin/stats/stream"
	eventMetrics event.Type = "metrics"
	metricsEvery            = 3 * time.Second
	manyMeasured            = 100 // workers in an event
)

// streamStats answers GET /admin/stats/stream (F184). The public admin pages read the
// event "metrics" and the events of jobs. A metrics event has no id, since the feed does
// not keep it.
func (s *Server) streamStats(c *call) error {
	return s.stream(c, "all", string(event.Enqueued), string(event.Completed), string(event.Failed),
		string(event.Cancelled))
}

// measure writes an event with the statistics, or nothing if the storage fails. All
// streams share a measurement: their callers may see every queue.
func (s *Server) measure(c *call, w *writer) {
	data, err := s.measured.get(s.clock.Now(), false, func() ([]byte, error) { return s.measurement(c) })
	if err != nil {
		return
	}
	w.text("event: " + string(eventMetrics) + "\ndata: ")
	w.buf = append(w.buf, data...)
	w.text("\n\n")
}

// measurement has the queues, the workers and the throughput of the last hour.
func (s *Server) measurement(c *call) ([]byte, error) {
	list, err := s.queues(c)
	if err != nil {
		return nil, err
	}
	seen, err := s.workersSeen(c)
	if err != nil {
		return nil, err
	}
	n, err := s.lastHour(c.ctx, "")
	if err != nil {
		return nil, err
	}
	queues, workers, now := []obj{}, []obj{}, s.now()
	for i := range list {
		queues = append(queues, append(obj{"queue", list[i].Name}, countsOf(list[i].Counts)...))
	}
	for i := range seen[:min(len(seen), manyMeasured)] {
		workers = append(workers, obj{"id", seen[i].ID, "state", seen[i].word(now), "activeJobs",
			seen[i].active, "lastHeartbeatAt", seen[i].Seen})
	}
	failed := 0.0 // of 100 attempts
	if n.failed > 0 {
		failed = 100 * float64(n.failed) / float64(n.completed+n.failed)
	}
	second := func(n uint64) float64 { return float64(n) / time.Hour.Seconds() }
	return appendValue(nil, obj{"queues", queues, "workers", obj{"total", len(seen), "active", workers},
		"throughput", obj{"processed_per_second", second(n.completed), "failed_per_second",
			second(n.failed), "enqueued_per_second", second(n.enqueued)},
		"error_rate", failed, "timestamp", now}), nil
}
