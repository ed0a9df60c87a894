package server

import (
	"context"
	"time"

	"github.com/ojsengine/ojs/telemetry"
)

// lately is what was counted of late.
type lately struct {
	completed, failed, enqueued uint64
	run, wait                   int64   // in milliseconds, on average
	rate                        float64 // completed jobs in a second
	runs                        telemetry.Histogram
}

// lately sums up the last hour of a queue, or of all; it is what engines have reported.
func (s *Server) lately(ctx context.Context, queue string) (n lately, err error) {
	now := s.now()
	buckets, err := s.history(ctx, now.Add(-time.Hour), now, time.Minute)
	if err != nil {
		return n, err
	}
	for i := range buckets {
		n.add(&buckets[i], queue)
	}
	n.rate = float64(n.completed) / time.Hour.Seconds()
	return n, nil
}

// history is what engines have reported.
func (s *Server) history(
	ctx context.Context, from, to time.Time, width time.Duration,
) ([]telemetry.Bucket, error) {
	return telemetry.History(ctx, s.op.Jobs().Documents(), s.now(), from, to, width)
}

// add adds a bucket's counts of a queue, or of all.
func (n *lately) add(b *telemetry.Bucket, queue string) {
	var wait telemetry.Histogram
	for i := range b.Meters {
		m := &b.Meters[i]
		if queue != "" && m.Queue != queue {
			continue
		}
		n.completed += m.Completed
		n.failed += m.Failed
		n.enqueued += m.Enqueued
		n.runs.Add(&m.Run)
		wait.Add(&m.Wait)
	}
	if n.runs.Count > 0 {
		n.run = (n.runs.Sum / time.Duration(n.runs.Count)).Milliseconds()
	}
	if wait.Count > 0 {
		n.wait = (wait.Sum / time.Duration(wait.Count)).Milliseconds()
	}
}
