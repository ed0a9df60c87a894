package ojsprometheus_test

import (
	"testing"
	"time"

	"github.com/ojsengine/ojs"
	"github.com/ojsengine/ojs/event"
	ojsprometheus "github.com/ojsengine/ojs/prometheus"
)

// life is what the collector sees of a job that fails twice.
func life() []event.Event {
	job := &ojs.JobInfo{JobHeader: ojs.JobHeader{Type: "mail.send", Queue: "mail", Attempt: 1},
		State: ojs.StateRetryable}
	failure := &ojs.Failure{Code: ojs.CodeRetry}
	return []event.Event{
		{Type: event.Failed, Job: job, Duration: time.Second, Failure: failure},
		{Type: event.Retrying, Job: job, Duration: time.Second, Wait: time.Second, Failure: failure},
		{Type: event.Failed, Job: job, Duration: time.Second, Failure: failure},
		{Type: event.Discarded, Job: job, Reason: "exhausted"},
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
