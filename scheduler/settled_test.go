package scheduler_test

import (
	"testing"
	"time"

	"github.com/benbjohnson/clock"

	"github.com/ojsengine/ojs/scheduler"
)

// A scheduler has not settled while it calls a function, even if no other is due: what
// the function will do has not happened yet.
func TestSettled(t *testing.T) {
	mock := clock.NewMock()
	s := scheduler.New(mock)
	defer s.Stop()
	if ok, _ := s.Settled(); !ok {
		t.Error("not settled from the beginning")
	}
	called, release := make(chan struct{}), make(chan struct{})
	s.At(mock.Now().Add(time.Second), func(time.Time) { close(called); <-release })
	if ok, _ := s.Settled(); !ok {
		t.Error("not settled before anything is due")
	}
	mock.Set(mock.Now().Add(time.Second))
	<-called
	if _, some := s.Next(); some {
		t.Error("something is due")
	}
	ok, changed := s.Settled()
	if ok {
		t.Error("settled while it calls a function")
	}
	close(release)
	for !ok {
		<-changed
		ok, changed = s.Settled()
	}
}

func TestSettledAfterStop(t *testing.T) {
	mock := clock.NewMock()
	s := scheduler.New(mock)
	called, release := make(chan struct{}), make(chan struct{})
	s.At(mock.Now(), func(time.Time) { close(called); <-release })
	<-called
	_, changed := s.Settled()
	go close(release)
	s.Stop()
	<-changed
	if ok, _ := s.Settled(); !ok {
		t.Error("not settled though it has stopped")
	}
}
