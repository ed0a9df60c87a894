package admission

import (
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/ojsengine/ojs"
)

// No period has more starts than the rate allows, wherever it begins; starts are as far
// apart as the throttle says; no more run at once than may; and the time at which a
// closed limiter says that it opens is when it does.
func TestLimiterNeverExceeds(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		rate := func(name string) (r ojs.Rate) {
			if rapid.Bool().Draw(t, name) {
				r = ojs.Rate{Limit: rapid.IntRange(1, 5).Draw(t, name+" limit"),
					Per: time.Duration(rapid.IntRange(1, 1000).Draw(t, name+" per"))}
			}
			return r
		}
		l := limiter{bounds: ojs.RateLimit{Concurrency: rapid.IntRange(0, 3).Draw(t, "concurrency"),
			Rate: rate("rate"), Throttle: rate("throttle")}}
		now := time.Unix(1_000_000, 0)
		var starts []time.Time
		running := 0
		for range rapid.IntRange(1, 60).Draw(t, "steps") {
			switch rapid.IntRange(0, 3).Draw(t, "step") {
			case 0:
				if running > 0 {
					l.end()
					running--
				}
			case 1:
				now = now.Add(time.Duration(rapid.IntRange(0, 700).Draw(t, "wait")))
			default:
				at, open := l.open(now)
				if !open {
					full := l.bounds.Concurrency > 0 && running == l.bounds.Concurrency
					if full != at.IsZero() {
						t.Fatalf("closed until %v with %d running", at, running)
					}
					if full {
						continue
					}
					if _, early := l.open(at.Add(-1)); early || !at.After(now) {
						t.Fatalf("opens at %v, or before", at)
					}
					if _, open := l.open(at); !open {
						t.Fatalf("not open at %v", at)
					}
					if rapid.Bool().Draw(t, "wait for it") {
						now = at
					} else {
						continue
					}
				}
				l.start(now)
				running++
				starts = append(starts, now)
			}
			if l.bounds.Concurrency > 0 && running > l.bounds.Concurrency {
				t.Fatalf("%d run", running)
			}
		}
		for i, first := range starts {
			in := 0
			for _, s := range starts[i:] {
				if s.Sub(first) < l.bounds.Rate.Per {
					in++
				}
			}
			if l.bounds.Rate.Limit > 0 && in > l.bounds.Rate.Limit {
				t.Fatalf("%d starts from %v on in a period of %+v", in, first, l.bounds.Rate)
			}
			if th := l.bounds.Throttle; th.Limit > 0 && i > 0 &&
				int64(first.Sub(starts[i-1]))*int64(th.Limit) < int64(th.Per) {
				t.Fatalf("starts %v apart, throttle %+v", first.Sub(starts[i-1]), th)
			}
		}
	})
}

func TestLimiterRemembersNoMoreThanItNeeds(t *testing.T) {
	l := limiter{bounds: ojs.RateLimit{Rate: ojs.Rate{Limit: 3, Per: time.Second}}}
	now := time.Unix(1, 0)
	for range 10_000 {
		l.start(now)
		l.end()
		now = now.Add(time.Second)
	}
	if len(l.starts) > 3 || cap(l.starts) > 16 {
		t.Errorf("%d starts in %d places", len(l.starts), cap(l.starts))
	}
	l.rebound(ojs.RateLimit{Rate: ojs.Rate{Limit: 1, Per: time.Hour}})
	if at, open := l.open(now); open || !at.Equal(now.Add(time.Hour-time.Second)) {
		t.Errorf("bounds that came later do not count what started: %v %v", at, open)
	}
}
