package scheduler_test

import (
	"fmt"
	"slices"
	"sort"
	"testing"
	"time"

	"github.com/benbjohnson/clock"
	"pgregory.net/rapid"

	"github.com/ojsengine/ojs/scheduler"
)

// entry is an armed timer, as a list would have it.
type entry struct {
	timer int
	due   time.Time
	seq   int
}

// Random timers are set, moved and cancelled while time passes: every timer fires once
// for each time that it was armed for and not disarmed before, at that time and not
// earlier, in the order of their times and then of their being set.
func TestAgainstAModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		mock := clock.NewMock()
		s := scheduler.New(mock)
		defer s.Stop()
		start := mock.Now()
		passed := func() { // what is due now has fired: this comes after all of it
			done := make(chan struct{})
			s.At(mock.Now(), func(time.Time) { close(done) })
			<-done
		}
		var got, want []string
		var armed []entry
		seq := 0
		timers := make([]scheduler.Timer, 6)
		fired := func(k int, at time.Time) string { return fmt.Sprintf("%d@%v", k, at.Sub(start)) }
		for k := range timers {
			timers[k].Func = func(now time.Time) {
				if !now.Equal(mock.Now()) {
					got = append(got, fmt.Sprintf("told %v at %v", now, mock.Now()))
				}
				got = append(got, fired(k, mock.Now()))
			}
		}
		disarm := func(k int) bool {
			before := len(armed)
			armed = slices.DeleteFunc(armed, func(e entry) bool { return e.timer == k })
			return len(armed) < before
		}
		settle := func() { // what is due has fired
			passed()
			now := mock.Now()
			sort.Slice(armed, func(i, j int) bool {
				if !armed[i].due.Equal(armed[j].due) {
					return armed[i].due.Before(armed[j].due)
				}
				return armed[i].seq < armed[j].seq
			})
			for len(armed) > 0 && !armed[0].due.After(now) {
				want = append(want, fired(armed[0].timer, armed[0].due))
				armed = armed[1:]
			}
			if !slices.Equal(got, want) {
				t.Fatalf("fired %v, want %v", got, want)
			}
			next, some := s.Next()
			if some != (len(armed) > 0) || some && !next.Equal(armed[0].due) {
				t.Fatalf("next %v %v, want %v", next, some, armed)
			}
		}
		t.Repeat(map[string]func(*rapid.T){
			"set": func(t *rapid.T) {
				k := rapid.IntRange(0, len(timers)-1).Draw(t, "timer")
				due := mock.Now().Add(time.Duration(rapid.IntRange(0, 20).Draw(t, "in")) * time.Second)
				disarm(k)
				seq++
				armed = append(armed, entry{k, due, seq})
				s.Set(&timers[k], due)
			},
			"cancel": func(t *rapid.T) {
				k := rapid.IntRange(0, len(timers)-1).Draw(t, "timer")
				if got, want := s.Cancel(&timers[k]), disarm(k); got != want {
					t.Fatalf("Cancel says %v, want %v", got, want)
				}
			},
			"time": func(t *rapid.T) { // from one due time to the next
				end := mock.Now().Add(time.Duration(rapid.IntRange(0, 9).Draw(t, "s")) * time.Second)
				for {
					next, some := s.Next()
					if !some || next.After(end) {
						break
					}
					mock.Set(next)
					passed()
				}
				mock.Set(end)
			},
			"": func(*rapid.T) { settle() },
		})
	})
}
