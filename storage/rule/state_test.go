package rule_test

import (
	"errors"
	"fmt"
	"math"
	"testing"
	"time"

	"github.com/ojsengine/ojs"
	"github.com/ojsengine/ojs/storage"
	"github.com/ojsengine/ojs/storage/rule"
)

// TestSetAndBlock: what a limit keeps of settings and blocks, and when a setting is over.
func TestSetAndBlock(t *testing.T) {
	rate := ojs.RateLimit{Key: "k", OnLimit: ojs.OnLimitDrop, Rate: ojs.Rate{Limit: 2, Per: time.Second}}
	l := rule.Limit{Until: 7, Blocked: rule.None}
	if l.Set(ojs.RateLimit{Key: "k"}, 5); l.Setting != nil || l.Until != rule.None || l.Over(9) {
		t.Errorf("bounds that bound nothing are set: %+v", l)
	}
	l.Set(rate, 5*second)
	want := ojs.RateLimit{Rate: rate.Rate}
	if l.Setting == nil || *l.Setting != want || l.Until != 5*second || l.Most != 2 {
		t.Errorf("set: %+v, with %+v", l, l.Setting)
	}
	for now, over := range map[int64]bool{5*second - 1: false, 5 * second: true, 6 * second: true} {
		if l.Over(now) != over || (l.InForce(now) == nil) != over {
			t.Errorf("at %d: over %v, in force %v", now, l.Over(now), l.InForce(now))
		}
	}
	if l.Set(rate, rule.None); l.Over(math.MaxInt64) {
		t.Error("a setting without an end is over")
	}
	l.Block(5)
	if l.Block(4); l.Blocked != 5 {
		t.Errorf("blocked until %d, not 5", l.Blocked)
	}
	if l.Block(6); l.Blocked != 6 {
		t.Errorf("blocked until %d, not 6", l.Blocked)
	}
	if l.Block(rule.None); l.Blocked != rule.None {
		t.Errorf("blocked until %d, and the block has ended", l.Blocked)
	}
}

// TestRememberMore: a limit says whether bounds have it keep more starts.
func TestRememberMore(t *testing.T) {
	var l rule.Limit
	for _, c := range []struct {
		b    ojs.RateLimit
		more bool
	}{
		{ojs.RateLimit{Concurrency: 3}, false},
		{ojs.RateLimit{Rate: ojs.Rate{Limit: 2, Per: time.Second}}, true},
		{ojs.RateLimit{Rate: ojs.Rate{Limit: 2, Per: time.Second}}, false},
		{ojs.RateLimit{Rate: ojs.Rate{Limit: 3, Per: time.Second}}, true},
		{ojs.RateLimit{Throttle: ojs.Rate{Limit: 1, Per: time.Second}}, false},
		{ojs.RateLimit{Throttle: ojs.Rate{Limit: 1, Per: time.Minute}}, true},
	} {
		if more := l.Remember(&c.b); more != c.more {
			t.Errorf("%+v: more is %v", c.b, more)
		}
	}
	if l.Window != int64(time.Minute) || l.Most != 3 {
		t.Errorf("%v and %d starts", time.Duration(l.Window), l.Most)
	}
	var one rule.Limit
	if one.Remember(&ojs.RateLimit{Throttle: ojs.Rate{Limit: 4, Per: time.Second}}); one.Most != 1 {
		t.Errorf("a throttle counts %d starts, not the last one", one.Most)
	}
}

// TestFewStarts: starts that are not known count for no rate, before 1970 either.
func TestFewStarts(t *testing.T) {
	l := rule.Limit{Until: rule.None, Blocked: rule.None, Started: 5, LastStart: -5 * second}
	unknown := func(int64) (int64, bool, error) { return 0, false, nil }
	for _, n := range []int{2, 9} {
		own := ojs.RateLimit{Key: "k", Rate: ojs.Rate{Limit: n, Per: 10 * time.Second}}
		if at, open, err := l.Open(&own, -second, unknown); err != nil || !open {
			t.Errorf("%d at once: open %v, at %d, error %v", n, open, at, err)
		}
	}
}

// TestState: what GetLimit tells of a limit, and whether ListLimits does.
func TestState(t *testing.T) {
	const now = 100 * second
	start := func(n int64) (int64, bool, error) { return now - second, true, nil }
	own := ojs.RateLimit{Key: "k", OnLimit: ojs.OnLimitDrop, Concurrency: 1}
	rate := ojs.RateLimit{Key: "k", Rate: ojs.Rate{Limit: 1, Per: 10 * time.Second}}
	started := func(l rule.Limit) rule.Limit {
		l.Until, l.Started, l.LastStart = rule.None, 1, now-second
		return l
	}
	at := func(ns int64) time.Time { return time.Unix(0, ns).UTC() }
	two := ojs.RateLimit{Concurrency: 2}
	key := storage.LimitName{Kind: storage.LimitKey, Name: "k"}
	for name, c := range map[string]struct {
		l       rule.Limit
		own     ojs.RateLimit
		waiting int
		want    storage.Limit
	}{
		"nothing": {rule.Limit{Blocked: rule.None}, ojs.RateLimit{}, 0, storage.Limit{}},
		"full": {rule.Limit{Active: 1, Blocked: now + second}, own, 2, storage.Limit{Active: 1, Waiting: 2,
			Bounds: ojs.RateLimit{Concurrency: 1}, BlockedUntil: at(now + second)}},
		"a start counts": {started(rule.Limit{Blocked: rule.None}), rate, 1, storage.Limit{Waiting: 1,
			Bounds: ojs.RateLimit{Rate: rate.Rate}, Opens: at(now + 9*second)}},
		"blocked for longer": {started(rule.Limit{Blocked: now + 20*second}), rate, 0, storage.Limit{
			Bounds: ojs.RateLimit{Rate: rate.Rate}, Opens: at(now + 20*second),
			BlockedUntil: at(now + 20*second)}},
		"a block that ends now": {rule.Limit{Blocked: now}, own, 0,
			storage.Limit{Bounds: ojs.RateLimit{Concurrency: 1}}},
		"set": {rule.Limit{Setting: &two, Until: now + 1, Blocked: rule.None}, own, 0,
			storage.Limit{Setting: &two, Until: at(now + 1), Bounds: two}},
		"set for ever": {rule.Limit{Setting: &two, Until: rule.None, Blocked: rule.None}, own, 0,
			storage.Limit{Setting: &two, Bounds: two}},
	} {
		got, err := c.l.State(key, c.own, c.waiting, now, start)
		c.want.LimitName = key
		if err != nil || plain(got) != plain(c.want) {
			t.Errorf("%s: %+v (error %v), want %+v", name, plain(got), err, plain(c.want))
		}
		if got.Setting != nil && got.Setting == c.l.Setting {
			t.Errorf("%s: the state shares its setting with the limit", name)
		}
	}
	bad := errors.New("bad")
	l := started(rule.Limit{})
	_, err := l.State(key, rate, 0, now, func(int64) (int64, bool, error) { return 0, false, bad })
	if !errors.Is(err, bad) {
		t.Errorf("error %v", err)
	}
	for name, c := range map[string]struct {
		of            storage.Limit
		known, listed bool // as the limit of a key
	}{
		"nothing": {storage.Limit{}, false, false},
		"active":  {storage.Limit{Active: 1}, true, true},
		"waiting": {storage.Limit{Waiting: 1}, true, true},
		"set":     {storage.Limit{Setting: &two}, true, true},
		"blocked": {storage.Limit{BlockedUntil: at(1)}, true, true},
	} {
		for _, kind := range []storage.LimitKind{storage.LimitKey, storage.LimitQueue} {
			c.of.Kind = kind
			set := c.of.Setting != nil || !c.of.BlockedUntil.IsZero()
			listed := c.listed && (kind == storage.LimitKey || set)
			if rule.Known(&c.of) != c.known || rule.Listed(&c.of) != listed {
				t.Errorf("%s, %s: known %v, listed %v", name, kind, rule.Known(&c.of), rule.Listed(&c.of))
			}
		}
	}
}

// plain is a limit as text, with its setting and not the address of that.
func plain(l storage.Limit) string {
	var set ojs.RateLimit
	if l.Setting != nil {
		set = *l.Setting
	}
	there := l.Setting != nil
	l.Setting = nil
	return fmt.Sprintf("%+v %v %+v", l, there, set)
}

// TestCloses: a limit tells what has closed it by its last start, if there is one.
func TestCloses(t *testing.T) {
	const now = 100 * second
	throttle := ojs.RateLimit{
		Throttle: ojs.Rate{Limit: 1, Per: time.Minute}, Rate: ojs.Rate{Limit: 5, Per: time.Hour},
	}
	one := ojs.RateLimit{Concurrency: 1}
	for name, c := range map[string]struct {
		l    rule.Limit
		own  ojs.RateLimit
		want storage.LimitStrategy
	}{
		"throttle": {rule.Limit{Started: 1, LastStart: now, Blocked: rule.None}, throttle,
			storage.LimitedByThrottle},
		"no start": {rule.Limit{LastStart: now, Blocked: rule.None}, throttle, storage.LimitedByRate},
		"setting": {rule.Limit{Setting: &one, Until: rule.None, Active: 1, Started: 1, LastStart: now},
			throttle, storage.LimitedByConcurrency},
		"setting that is over": {rule.Limit{Setting: &one, Until: now, Active: 1, Started: 1, LastStart: now},
			throttle, storage.LimitedByThrottle},
		"block": {rule.Limit{Blocked: now + 1}, throttle, storage.LimitedByBlock},
	} {
		if got := c.l.Closes("k", &c.own, now); got.Strategy != c.want || got.Key != "k" {
			t.Errorf("%s: %+v, not %s", name, got, c.want)
		}
	}
}

// TestTimes: a time comes back from its nanoseconds, unless these do not hold it.
func TestTimes(t *testing.T) {
	const most = math.MaxInt64 / int64(time.Second)
	for _, c := range []struct {
		at    time.Time
		want  int64
		exact bool
	}{
		{time.Time{}, rule.None, true},
		{time.Unix(0, 0), 0, true},
		{time.Unix(1, 5), second + 5, true},
		{time.Unix(most-1, 999_999_999), (most-1)*second + 999_999_999, true},
		{time.Unix(most, 0), math.MaxInt64, false},
		{time.Unix(-most+1, 0), (-most + 1) * second, true},
		{time.Unix(-most, 0), rule.None + 1, false},
		{time.Date(9999, 1, 1, 0, 0, 0, 0, time.UTC), math.MaxInt64, false},
		{time.Date(1, 1, 1, 0, 0, 1, 0, time.UTC), rule.None + 1, false},
	} {
		got := rule.Nanos(c.at)
		if got != c.want || rule.Exact(got) != c.exact {
			t.Errorf("%v: %d, exact %v", c.at, got, rule.Exact(got))
		}
		if back := rule.Time(got); c.exact && (!back.Equal(c.at) || back.Location() != time.UTC) {
			t.Errorf("%v comes back as %v", c.at, back)
		}
	}
}

// TestBegin: a page has the limit of the contract, and an order that there is.
func TestBegin(t *testing.T) {
	for given, want := range map[int]int{-1: 1000, 0: 1000, 1: 1, 1000: 1000, 1001: 1000} {
		q := storage.Query{Limit: given}
		if w, err := rule.Begin("s", &q); err != nil || q.Limit != want || !w.First {
			t.Errorf("limit %d: %d, first %v, error %v", given, q.Limit, w.First, err)
		}
	}
	_, err := rule.Begin("s", &storage.Query{Order: "none"})
	if want := `storage s has no order "none"`; !errors.Is(err, ojs.ErrUnsupported) ||
		err.Error() != ojs.ErrUnsupported.Error()+": "+want {
		t.Errorf("error %v", err)
	}
	if _, err = rule.Begin("s", &storage.Query{Cursor: "x", Order: "none"}); !errors.Is(err, ojs.ErrInvalid) {
		t.Errorf("error %v", err)
	}
}
