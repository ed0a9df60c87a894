package scheduler_test

import (
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/benbjohnson/clock"
	"go.uber.org/goleak"

	"github.com/ojsengine/ojs/internal/test/pace"
	"github.com/ojsengine/ojs/scheduler"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// pass lets time go by in a bubble, and what that brings about happen.
func pass(d time.Duration) {
	pace.Virtual(d)
	synctest.Wait()
}

func TestOrderAndTimes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := scheduler.New(clock.New())
		defer s.Stop()
		start := time.Now()
		var got []string
		for i, d := range []int{5, 3, 5, 1, 3, 0, -1} {
			s.At(start.Add(time.Duration(d)*time.Second), func(now time.Time) {
				if time.Since(start) < time.Duration(d)*time.Second || !now.Equal(time.Now()) {
					t.Errorf("called at %v with %v", time.Now(), now)
				}
				got = append(got, fmt.Sprintf("%d@%v", i, time.Since(start)))
			})
		}
		pass(time.Minute)
		if len(got) == 7 && got[0] == "5@0s" && got[1] == "6@0s" { // both were due when the loop woke up
			got[0], got[1] = got[1], got[0]
		}
		want := []string{"6@0s", "5@0s", "3@1s", "1@3s", "4@3s", "0@5s", "2@5s"}
		if !slices.Equal(got, want) {
			t.Errorf("called %v, want %v", got, want)
		}
	})
}

func TestRhythm(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := scheduler.New(clock.New())
		defer s.Stop()
		start := time.Now()
		next := start
		var at []time.Duration
		var timer scheduler.Timer
		timer.Func = func(time.Time) {
			at = append(at, time.Since(start))
			pace.Virtual(300 * time.Millisecond) // a slow call does not shift the next
			if next = next.Add(time.Second); len(at) < 60 {
				s.Set(&timer, next)
			}
		}
		s.Set(&timer, next)
		pass(2 * time.Minute)
		for i := range at {
			if at[i] != time.Duration(i)*time.Second {
				t.Fatalf("call %d at %v", i, at[i])
			}
		}
		if len(at) != 60 {
			t.Errorf("%d calls", len(at))
		}
	})
}

func TestSetAndCancel(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := scheduler.New(clock.New())
		defer s.Stop()
		start := time.Now()
		var at []time.Duration
		timer := &scheduler.Timer{Func: func(time.Time) { at = append(at, time.Since(start)) }}
		s.Set(timer, start.Add(time.Second))
		s.Set(timer, start.Add(time.Hour)) // later
		s.Set(timer, start.Add(time.Minute))
		pass(2 * time.Hour)
		if !slices.Equal(at, []time.Duration{time.Minute}) {
			t.Errorf("moved: called at %v", at)
		}
		if s.Cancel(timer) {
			t.Error("cancelled after its call")
		}
		s.Set(timer, time.Now().Add(time.Second))
		if next, ok := s.Next(); !ok || !next.Equal(time.Now().Add(time.Second)) {
			t.Errorf("Next %v, %v", next, ok)
		}
		if !s.Cancel(timer) || s.Cancel(timer) {
			t.Error("Cancel")
		}
		if _, ok := s.Next(); ok {
			t.Error("something is left")
		}
		// Of two that are due together the first cancels the second, and adds one that is
		// due at once.
		due := time.Now().Add(time.Second)
		called := 0
		s.At(due, func(now time.Time) {
			s.Cancel(timer)
			s.At(now, func(time.Time) { called++ })
			s.At(now.Add(1), func(time.Time) { called += 10 })
		})
		s.Set(timer, due)
		pass(time.Minute)
		if called != 11 || len(at) != 1 {
			t.Errorf("called %d, the cancelled one %d times", called, len(at)-1)
		}
	})
}

func TestStop(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := scheduler.New(clock.New())
		ended := false
		s.At(time.Now(), func(time.Time) { pace.Virtual(time.Second); ended = true })
		timer := s.At(time.Now().Add(500*time.Millisecond), func(time.Time) { t.Error("called after Stop") })
		pass(100 * time.Millisecond)
		s.Stop()
		if !ended {
			t.Error("Stop does not wait for the call that runs")
		}
		s.Stop()
		s.Set(timer, time.Now())
		s.At(time.Now(), func(time.Time) { t.Error("called after Stop") })
		s.Cancel(timer)
		if _, ok := s.Next(); ok {
			t.Error("a stopped scheduler has something to do")
		}
		pass(time.Minute)
	})
}

// Timers that are set while another goroutine moves a mock clock are called once, and
// none early.
func TestMockClockUnderLoad(t *testing.T) {
	for round := range 30 {
		mock := clock.NewMock()
		s := scheduler.New(mock)
		const setters, each = 4, 50
		var called, cancelled, left atomic.Int32
		left.Store(setters * each)
		var wg sync.WaitGroup
		for g := range setters {
			wg.Go(func() {
				for i := range each {
					due := mock.Now().Add(time.Duration(1+(g*31+i*17)%20) * time.Millisecond)
					timer := s.At(due, func(now time.Time) {
						if now.Before(due) || mock.Now().Before(due) {
							t.Errorf("round %d: early by %v", round, due.Sub(now))
						}
						called.Add(1)
						left.Add(-1)
					})
					if i%5 == 0 && s.Cancel(timer) {
						cancelled.Add(1)
						left.Add(-1)
					}
				}
			})
		}
		deadline := time.Now().Add(20 * time.Second)
		for left.Load() > 0 && time.Now().Before(deadline) {
			mock.Add(3 * time.Millisecond)
		}
		wg.Wait()
		for left.Load() > 0 && time.Now().Before(deadline) {
			mock.Add(30 * time.Millisecond)
		}
		if n := called.Load() + cancelled.Load(); n != setters*each {
			t.Fatalf("round %d: %d called or cancelled, want %d", round, n, setters*each)
		}
		s.Stop()
	}
}

// One timer that several goroutines set again and again, while it is being called.
func TestOneTimerSetByMany(t *testing.T) {
	s := scheduler.New(clock.New())
	defer s.Stop()
	var called atomic.Int32
	timer := &scheduler.Timer{Func: func(time.Time) { called.Add(1) }}
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			for i := range 500 {
				s.Set(timer, time.Now().Add(time.Duration(i%3)*time.Microsecond))
				if i%7 == 0 {
					s.Cancel(timer)
				}
			}
		})
	}
	wg.Wait()
	last := make(chan struct{})
	s.At(time.Now().Add(time.Millisecond), func(time.Time) { close(last) })
	<-last
	if _, armed := s.Next(); armed || called.Load() == 0 {
		t.Errorf("called %d times, armed %v", called.Load(), armed)
	}
}

// The wall clock may be set back: nothing is called early by its own reading.
type shifted struct {
	clock.Clock
	by atomic.Int64
}

func (c *shifted) Now() time.Time {
	return c.Clock.Now().Add(time.Duration(c.by.Load())).Round(0)
}

func TestClockSetBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := &shifted{Clock: clock.New()}
		s := scheduler.New(c)
		defer s.Stop()
		due := c.Now().Add(time.Minute)
		var at time.Time
		s.At(due, func(time.Time) { at = c.Now() })
		pass(30 * time.Second)
		c.by.Store(int64(-10 * time.Minute))
		pass(time.Hour)
		if !at.Equal(due) {
			t.Errorf("called at %v, want %v", at, due)
		}
	})
}

// P1.1: a timer that waits for hours notices within a minute that the wall clock was put
// forward.
func TestClockPutForward(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := &shifted{Clock: clock.New()}
		s := scheduler.New(c)
		defer s.Stop()
		var at time.Time
		s.At(c.Now().Add(8*time.Hour), func(now time.Time) { at = now })
		pass(90 * time.Second)
		c.by.Store(int64(8 * time.Hour))
		put := c.Now()
		pass(time.Minute)
		if late := at.Sub(put); at.IsZero() || late > time.Minute {
			t.Errorf("called at %v, and the clock was put forward at %v", at, put)
		}
	})
}

func BenchmarkSetCancel(b *testing.B) {
	b.Run("Scheduler", func(b *testing.B) {
		b.ReportAllocs()
		s := scheduler.New(clock.New())
		defer s.Stop()
		far := time.Now().Add(time.Hour)
		s.At(far, func(time.Time) {})
		timers := make([]scheduler.Timer, 1024)
		for i := range b.N {
			t := &timers[i%len(timers)]
			s.Set(t, far.Add(time.Duration(i)))
			s.Cancel(t)
		}
	})
	b.Run("AfterFunc", func(b *testing.B) {
		b.ReportAllocs()
		for range b.N {
			time.AfterFunc(time.Hour, func() {}).Stop()
		}
	})
}

func Example() {
	mock := clock.NewMock()
	s := scheduler.New(mock)
	defer s.Stop()
	done := make(chan struct{})
	s.At(mock.Now().Add(2*time.Hour), func(now time.Time) {
		fmt.Println("second at", now.UTC().Format(time.TimeOnly))
		close(done)
	})
	s.At(mock.Now().Add(time.Hour), func(now time.Time) { fmt.Println("first") })
	mock.Add(2 * time.Hour)
	<-done
	// Output:
	// first
	// second at 02:00:00
}
