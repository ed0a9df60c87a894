package rule_test

import (
	"errors"
	"testing"
	"time"

	"github.com/ojsengine/ojs"
	"github.com/ojsengine/ojs/storage/rule"
)

const second = int64(time.Second)

// TestJudge: which jobs claims look at, by what is active, has started and was set.
func TestJudge(t *testing.T) {
	const now = 1000 * second
	one := ojs.RateLimit{Key: "k", Concurrency: 1}
	drop, unknown := one, one
	drop.OnLimit, unknown.OnLimit = ojs.OnLimitDrop, "of tomorrow"
	rate := ojs.RateLimit{Key: "k", Rate: ojs.Rate{Limit: 2, Per: 10 * time.Second}}
	starts := []int64{now - 9*second, now - 3*second}
	start := func(n int64) (int64, bool, error) { return starts[n-1], true, nil }
	set := func(bounds ojs.RateLimit, until int64) rule.Limit {
		l := rule.Limit{Active: 1, Until: rule.None, Blocked: rule.None}
		l.Set(bounds, until)
		return l
	}
	three := ojs.RateLimit{Concurrency: 3}
	none := ojs.RateLimit{Concurrency: ojs.NoneAtOnce}
	for _, c := range []struct {
		name  string
		limit rule.Limit
		own   ojs.RateLimit
		want  rule.Verdict
	}{
		{"open", rule.Limit{Blocked: rule.None}, one, rule.Verdict{Open: true, Ready: true}},
		{"full", set(ojs.RateLimit{}, rule.None), one, rule.Verdict{At: rule.None}},
		{"full, and its jobs are dropped", set(ojs.RateLimit{}, rule.None), drop,
			rule.Verdict{At: rule.None, Ready: true}},
		{"full, with an OnLimit that is not known", set(ojs.RateLimit{}, rule.None), unknown,
			rule.Verdict{At: rule.None}},
		{"rate", rule.Limit{Blocked: rule.None, Started: 2, LastStart: starts[1]}, rate,
			rule.Verdict{At: now + second}},
		{"blocked", rule.Limit{Blocked: now + 5*second}, one, rule.Verdict{At: now + 5*second}},
		{"a setting opens it", set(three, now+second), one, rule.Verdict{Open: true, Ready: true}},
		{"a setting closes it", set(none, now+second), rate, rule.Verdict{At: now + second}},
		{"a setting that opened it has ended", set(three, now), one, rule.Verdict{At: rule.None}},
		{"a setting that closed it has just ended", set(none, now-second), one,
			rule.Verdict{At: rule.None}},
	} {
		got, err := c.limit.Judge(&c.own, now, start)
		if c.want.Open {
			got.At = 0 // it says when the lane has opened
		}
		if err != nil || got != c.want {
			t.Errorf("%s: %+v (error %v), want %+v", c.name, got, err, c.want)
		}
		if closed := got.Closed(&c.own); closed != (!got.Open && c.own.OnLimit != ojs.OnLimitDrop) {
			t.Errorf("%s: closed is %v", c.name, closed)
		}
	}
	l := rule.Limit{Blocked: rule.None, Started: 2}
	lost := errors.New("lost")
	failing := func(int64) (int64, bool, error) { return 0, false, lost }
	if _, err := l.Judge(&rate, now, failing); !errors.Is(err, lost) {
		t.Errorf("a start that cannot be looked up: %v", err)
	}
}

// The longest window and the most starts of all bounds that a limit has seen count.
func TestRemember(t *testing.T) {
	rate := ojs.RateLimit{Rate: ojs.Rate{Limit: 3, Per: time.Minute}}
	throttle := ojs.RateLimit{Throttle: ojs.Rate{Limit: 1, Per: time.Hour}}
	both := ojs.RateLimit{Rate: rate.Rate, Throttle: throttle.Throttle}
	for name, list := range map[string][]ojs.RateLimit{
		"at once": {both}, "the rate first": {rate, throttle}, "the throttle first": {throttle, rate},
		"again": {both, rate, throttle},
	} {
		var l rule.Limit
		for i := range list {
			l.Remember(&list[i])
		}
		if l.Window != int64(time.Hour) || l.Most != 3 {
			t.Errorf("%s: %v and %d starts", name, time.Duration(l.Window), l.Most)
		}
	}
}

// Earlier takes None for no time, and not for the first of all.
func TestEarlier(t *testing.T) {
	for _, test := range [][3]int64{
		{1, 2, 1}, {2, 1, 1}, {rule.None, 1, 1}, {1, rule.None, 1}, {rule.None, rule.None, rule.None},
	} {
		if got := rule.Earlier(test[0], test[1]); got != test[2] {
			t.Errorf("%d of %d and %d", got, test[0], test[1])
		}
	}
}
