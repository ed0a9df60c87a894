package alarm_test

import (
	"math"
	"testing"
	"time"

	"github.com/benbjohnson/clock"

	"github.com/ojsengine/ojs/engine/internal/alarm"
	"github.com/ojsengine/ojs/scheduler"
)

func TestAlarm(t *testing.T) {
	mock := clock.NewMock()
	s := scheduler.New(mock)
	defer s.Stop()
	in := func(d time.Duration) time.Time { return mock.Now().Add(d) }
	var a alarm.Alarm
	a.By(in(1))
	a.Exactly(in(1)) // before Start
	a.Start(s, func(time.Time) {})
	is := func(d time.Duration) {
		t.Helper()
		next, ok := s.Next()
		if ok != (d > 0) || ok && !next.Equal(in(d)) || a.Armed() != ok {
			t.Errorf("rings at %v, want in %v", next, d)
		}
	}
	a.By(time.Time{})
	is(0)
	a.By(in(3))
	a.By(in(2))
	a.By(in(4))
	is(2)
	a.Exactly(in(5))
	is(5)
	a.Exactly(time.Time{})
	is(0)
	a.By(time.Unix(math.MaxInt64/4, 0))
	if !a.Armed() {
		t.Error("not armed for a far time")
	}
	a.By(in(1))
	is(1)
	mock.Add(1)
	for {
		ok, wait := s.Settled()
		if ok {
			break
		}
		<-wait
	}
	is(0)
}
