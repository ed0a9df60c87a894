package server

import (
	"context"
	"slices"
	"time"

	"github.com/ojsengine/ojs/telemetry"
)

// counts are the numbers of a period, of a queue or of all.
type counts struct {
	completed, failed, enqueued uint64
	run, wait                   int64   // in milliseconds, on average
	rate                        float64 // completed jobs in a second
	runs                        telemetry.Histogram
}

// lastHour sums up what engines have reported of the last hour.
func (s *Server) lastHour(ctx context.Context, queue string) (n counts, err error) {
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
	list, err := gathered(ctx, s, func(ctx context.Context, s *Server) ([]telemetry.Bucket, error) {
		return telemetry.History(ctx, s.values(), s.now(), from, to, width)
	})
	slices.SortStableFunc(list, func(a, b telemetry.Bucket) int { return a.Start.Compare(b.Start) })
	return list, err
}

// add adds a bucket's counts of a queue, or of all.
func (n *counts) add(b *telemetry.Bucket, queue string) {
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
