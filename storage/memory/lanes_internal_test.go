package memory

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/ojsengine/ojs"
	"github.com/ojsengine/ojs/storage"
)

// fullStore has n full keys, each with an active job, and then with one that waits.
func fullStore(tb testing.TB, n int) (s *Storage, active []storage.Record) {
	tb.Helper()
	s = New()
	add := func(k int) {
		for i := range n {
			addLimited(tb, s, fmt.Sprint(i, " ", k), fmt.Sprint("q", i%3), fmt.Sprint("key ", i))
		}
	}
	add(0)
	active, err := s.Claim(tb.Context(), time.Unix(1, 0), storage.Claim{Max: 2 * n, Worker: "w"}, nil)
	if err != nil || len(active) != n {
		tb.Fatalf("%d jobs of %d keys are claimed, %v", len(active), n, err)
	}
	add(1)
	return s, active
}

func addLimited(tb testing.TB, s *Storage, id, queue, key string) {
	tb.Helper()
	r := storage.Record{}
	r.ID, r.Type, r.Queue, r.State, r.Lease = id, "x", queue, ojs.StateAvailable, time.Minute
	if key != "" {
		r.RateLimit = &ojs.RateLimit{Key: key, Concurrency: 1}
	}
	if _, err := s.Insert(tb.Context(), time.Unix(0, 0), []storage.Insert{{Record: r}}, nil); err != nil {
		tb.Fatal(err)
	}
}

// limit-1: the work of a claim does not grow with the number of full keys, not even that
// of the first claim after their jobs came. It looks at the first job of a type or queue,
// and judges the lane of each job that it takes before and after. The counts are exact,
// since a counter that stands still would prove nothing.
func TestClaimsDoNotWalkPastFullKeys(t *testing.T) {
	type work struct{ first, plain, inQueues, freed int }
	for _, n := range []int{50, 5000} {
		s, active := fullStore(t, n)
		claim := func(queues []string, want ...string) int {
			t.Helper()
			before := s.ready.looked
			c := storage.Claim{Max: len(want) + 1, Queues: queues, Worker: "w", Limits: new(storage.Limited)}
			recs, err := s.Claim(t.Context(), time.Unix(1, 0), c, nil)
			var got []string
			for _, r := range recs {
				got = append(got, r.ID)
			}
			if err != nil || !slices.Equal(got, want) || !c.Limits.Held || len(c.Limits.Closed) > maxTold {
				t.Fatalf("claimed %v, %v, and not %q; %+v", got, err, want, c.Limits)
			}
			return s.ready.looked - before
		}
		var got work
		addLimited(t, s, "plain", "q1", "")
		got.first = claim(nil, "plain")
		for i := range 10 {
			plain := fmt.Sprint("plain ", i)
			addLimited(t, s, plain, "q1", "")
			got.plain += claim(nil, plain)
			addLimited(t, s, plain+" too", "q1", "")
			got.inQueues += claim([]string{"q0", "q1"}, plain+" too")
			done := &active[i]
			done.State, done.FinishedAt, done.LeaseUntil = ojs.StateCompleted, time.Unix(1, 0), time.Time{}
			_, err := s.Settle(t.Context(), time.Unix(1, 0), []storage.Change{{Record: *done}}, nil)
			if err != nil {
				t.Fatal(err)
			}
			got.freed += claim(nil, fmt.Sprint(i, " 1"))
		}
		if want := (work{first: 1, plain: 10, inQueues: 30, freed: 20}); got != want {
			t.Errorf("with %d full keys, claims look at %+v, want %+v", n, got, want)
		}
	}
}

// limit-16: a claim tells of a hundred closed keys at the most, and the next ones of the
// others, each once, unless the key has opened meanwhile.
func TestClosedKeysAreToldInParts(t *testing.T) {
	s, active := fullStore(t, 2*maxTold+10)
	done := active[0]
	done.State, done.FinishedAt, done.LeaseUntil = ojs.StateCompleted, time.Unix(1, 0), time.Time{}
	if _, err := s.Settle(t.Context(), time.Unix(1, 0), []storage.Change{{Record: done}}, nil); err != nil {
		t.Fatal(err)
	}
	told := make(map[string]bool)
	for _, want := range []int{maxTold, maxTold, 9, 0} {
		c := storage.Claim{Max: 1, Types: []string{"none"}, Limits: new(storage.Limited)}
		if _, err := s.Claim(t.Context(), time.Unix(1, 0), c, nil); err != nil {
			t.Fatal(err)
		}
		for _, k := range c.Limits.Closed {
			told[k.Key] = true
		}
		if n := len(c.Limits.Closed); n != want {
			t.Errorf("a claim tells of %d closed keys, want %d", n, want)
		}
	}
	if len(told) != len(active)-1 || told["key 0"] {
		t.Errorf("claims told of %d keys, of the open one: %v", len(told), told["key 0"])
	}
}

// limit-8: if the clock goes back to before the end of a setting, the setting counts
// again, also for jobs that were set aside after its end.
func TestSettingCountsAgainWhenTheClockGoesBack(t *testing.T) {
	s := New()
	for i := range 3 {
		addLimited(t, s, fmt.Sprint(i), "q", "k")
	}
	limit, end := storage.LimitName{Kind: storage.LimitKey, Name: "k"}, time.Unix(100, 0)
	bounds := ojs.RateLimit{Concurrency: 2}
	if err := s.SetLimit(t.Context(), time.Unix(1, 0), limit, bounds, end); err != nil {
		t.Fatal(err)
	}
	for _, claim := range []struct {
		at   time.Time
		want int
	}{{end, 1}, {end.Add(-1), 1}, {end, 0}, {end.Add(-1), 0}} {
		recs, err := s.Claim(t.Context(), claim.at, storage.Claim{Max: 9}, nil)
		if err != nil || len(recs) != claim.want {
			t.Errorf("%d jobs are claimed at %v, want %d; %v", len(recs), claim.at, claim.want, err)
		}
	}
}
