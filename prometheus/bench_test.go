package ojsprometheus_test

import (
	"testing"
	"time"

	"github.com/ojsengine/ojs"
	ojsprometheus "github.com/ojsengine/ojs/prometheus"
)

// life is what the collector sees of a job that fails twice.
func life() []ojs.Event {
	job := &ojs.JobInfo{JobHeader: ojs.JobHeader{Type: "mail.send", Queue: "mail", Attempt: 1},
		State: ojs.StateRetryable}
	failure := &ojs.Failure{Code: ojs.CodeRetry}
	return []ojs.Event{
		{Type: ojs.EventFailed, Job: job, Duration: time.Second, Failure: failure},
		{Type: ojs.EventRetrying, Job: job, Duration: time.Second, Wait: time.Second, Failure: failure},
		{Type: ojs.EventFailed, Job: job, Duration: time.Second, Failure: failure},
		{Type: ojs.EventDiscarded, Job: job, Reason: "exhausted"},
	}
}

func TestObserveAllocatesNothing(t *testing.T) {
	c := ojsprometheus.New()
	events := life()
	if n := testing.AllocsPerRun(100, func() {
		for i := range events {
			c.Observe(&events[i])
		}
	}); n != 0 {
		t.Errorf("%v allocations for the events of a job", n)
	}
}

func BenchmarkObserve(b *testing.B) {
	c := ojsprometheus.New()
	events := life()
	b.ReportAllocs()
	for b.Loop() {
		for i := range events {
			c.Observe(&events[i])
		}
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*len(events)), "ns/event")
}
