package sqlite_test

import (
	"testing"
	"time"

	"github.com/ojsengine/ojs"
	"github.com/ojsengine/ojs/storage"
)

// A job joins a round that claims of another process have skipped.
func TestTurnsOverProcesses(t *testing.T) {
	a, b := both(t)
	key := storage.LimitName{Kind: storage.LimitKey, Name: "closed"}
	none := ojs.RateLimit{Concurrency: ojs.NoneAtOnce}
	must(t, a.SetLimit(t.Context(), limitsBegin, key, none, time.Time{}))
	add := func(s storage.Storage, n int, key string, l ojs.RateLimit) string {
		t.Helper()
		r := limited(n, l)
		r.Fairness.Key = key
		must(t, insert(s, r))
		return r.ID
	}
	next := func() (id string) {
		t.Helper()
		ask := storage.Claim{Max: 1, Worker: "w"}
		recs, err := a.Claim(t.Context(), limitsBegin, ask, nil)
		must(t, err)
		for _, r := range recs {
			id = r.ID
		}
		return id
	}
	for n := range 2 { // two rounds
		add(a, n, "first", ojs.RateLimit{Key: "closed"})
	}
	if id := next(); id != "" {
		t.Fatalf("claimed %s, whose key is closed", id)
	}
	plain := add(b, 2, "", ojs.RateLimit{})
	joins := add(b, 3, "second", ojs.RateLimit{})
	for _, want := range []string{joins, plain} {
		if id := next(); id != want {
			t.Fatalf("claimed %s, not %s", id, want)
		}
	}
}
