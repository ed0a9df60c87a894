package engine

import (
	"fmt"
	"testing"
	"time"

	"github.com/ojsengine/ojs"
	"github.com/ojsengine/ojs/storage"
)

// The cost of building a claim does not depend on the number of closed keys. A key opens
// when time passes or a job ends.
func TestClosedKeys(t *testing.T) {
	g := newGate(&config{})
	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	w := wanted{all: true}
	start := func(n int, limit ojs.RateLimit) storage.Held {
		var r storage.Record
		r.ID, r.Version, r.Type, r.RateLimit = fmt.Sprint(n), 1, "x", &limit
		g.started(w, nil, []storage.Record{r}, now)
		return storage.Held{ID: r.ID, Version: r.Version}
	}
	const keys = 10_000
	var held []storage.Held
	for i := range keys {
		limit := ojs.RateLimit{Key: fmt.Sprint("key", i), Concurrency: 1}
		if i%2 == 1 {
			limit = ojs.RateLimit{Key: limit.Key, Rate: ojs.Rate{Limit: 1, Per: time.Hour + time.Duration(i)}}
		}
		held = append(held, start(i, limit))
	}
	ask := func() (int, time.Time) {
		t.Helper()
		c, _, reopens, ok := g.ask(w, now)
		if !ok {
			t.Fatal("nothing may be claimed")
		}
		return c.SkipKeys.Len(), reopens
	}
	if n, reopens := ask(); n != keys || !reopens.Equal(now.Add(time.Hour+1)) {
		t.Fatalf("%d keys are closed, and one opens in %v", n, reopens.Sub(now))
	}
	if n := testing.AllocsPerRun(100, func() { ask() }); n > 2 {
		t.Errorf("to put a claim together allocates %v times", n)
	}
	_, before, _ := g.closed.Changes(0)
	for range 100 {
		ask()
	}
	if _, after, _ := g.closed.Changes(0); after != before {
		t.Error("the set changes though nothing has opened")
	}
	g.ended(held[0]) // by concurrency
	g.ended(held[1]) // by rate: it stays closed
	if n, _ := ask(); n != keys-1 || g.closed.Has("key0") || !g.closed.Has("key1") {
		t.Errorf("%d keys are closed after one has been freed", n)
	}
	now = now.Add(time.Hour + 2)
	if n, _ := ask(); n != keys-2 || g.closed.Has("key1") {
		t.Errorf("%d keys are closed after the hour of one", n)
	}
	for _, h := range held {
		g.ended(h)
	}
	now = now.Add(2 * time.Hour)
	if n, reopens := ask(); n != 0 || !reopens.IsZero() || g.opening.Len() != 0 || len(g.freed) != 0 {
		t.Errorf("%d keys are closed after all, until %v", n, reopens)
	}
}

// A storage that can tell that this process has ended takes away what ends with it, and
// leaves what workers elsewhere go on with.
func TestRemoteClaims(t *testing.T) {
	g := newGate(&config{})
	for _, lapses := range []bool{false, true} {
		if c, _, _, _ := g.ask(wanted{all: true, lapses: lapses}, time.Now()); c.Remote != lapses {
			t.Errorf("a claim of a worker elsewhere (%v) says %v", lapses, c.Remote)
		}
	}
}

// A claim that fails leaves what weighted queues are owed as it was.
func TestFailedClaimOwesNothing(t *testing.T) {
	g := newGate(&config{})
	g.queues = []*queueGate{{name: "a", weight: 3}, {name: "b", weight: 1}}
	for range 5 {
		g.takeBack(g.order(time.Now(), func(time.Time) {}))
	}
	for _, q := range g.queues {
		if q.credit != 0 {
			t.Errorf("after claims that failed queue %s is owed %d", q.name, q.credit)
		}
	}
}
