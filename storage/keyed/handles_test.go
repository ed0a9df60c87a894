package keyed_test

import (
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ojsengine/ojs/storage"
	"github.com/ojsengine/ojs/storage/keyed"
	"github.com/ojsengine/ojs/storage/keyed/driver"
	"github.com/ojsengine/ojs/storage/keyed/drivertest"
)

// The attempts of a handle that has been found dead are handed over before their leases
// end, once, and not those of others.
func TestBury(t *testing.T) {
	db := drivertest.NewMemory(false, driver.Limits{Shared: true})
	s := open(t, db).(*keyed.Storage)
	other, nameless := open(t, db.Another()).(*keyed.Storage), open(t, db.Another()).(*keyed.Storage)
	check := func(err error) {
		t.Helper()
		must(0, err)(t)
	}
	check(s.Enter(t.Context(), "one"))
	check(other.Enter(t.Context(), "other"))
	if names := must(s.Handles(t.Context()))(t); !slices.Equal(names, []string{"one", "other"}) {
		t.Errorf("entered: %v", names)
	}
	claim := func(s *keyed.Storage, id string, remote bool) storage.Record {
		t.Helper()
		check(insertIn(t.Context(), s, id))
		claimed := must(s.Claim(t.Context(), now, storage.Claim{Max: 1, Remote: remote}, nil))(t)
		if len(claimed) != 1 || claimed[0].ID != id {
			t.Fatalf("claimed %v", claimed)
		}
		return claimed[0]
	}
	stalled := func(s *keyed.Storage, now time.Time) (ids []string) {
		t.Helper()
		due := must(s.Due(t.Context(), now, 10, nil))(t)
		for _, r := range due.Stalled {
			ids = append(ids, r.ID)
		}
		if !slices.Equal(due.Ended, ids) {
			t.Errorf("%v are handed over, and %v before their leases end", ids, due.Ended)
		}
		return ids
	}
	claim(s, "mine", false)
	claim(nameless, "nameless", false)
	claim(other, "far", true)
	first, extended := claim(other, "first", false), claim(other, "extended", false)
	back := claim(other, "back", false)
	check(func() error {
		_, err := other.Unclaim(t.Context(), now, []storage.Held{{ID: back.ID, Version: back.Version}})
		return err
	}())
	must(other.Claim(t.Context(), now, storage.Claim{Max: 1, Remote: true}, nil))(t)
	_, err := other.Extend(t.Context(), now, []storage.Extension{
		{Held: storage.Held{ID: extended.ID, Version: extended.Version}}})
	check(err)
	if ids := stalled(s, now); len(ids) > 0 {
		t.Errorf("of living handles %v are handed over", ids)
	}
	var due atomic.Bool
	defer s.Notify(t, func(n storage.Notice) {
		if !n.Due.IsZero() && !n.Due.After(now) {
			due.Store(true)
		}
	})()
	for _, want := range []bool{true, false} {
		if buried := must(s.Bury(t.Context(), "other"))(t); buried != want {
			t.Errorf("buried: %v", buried)
		}
	}
	if !due.Load() {
		t.Error("listeners are not told that jobs are due")
	}
	before := now.Add(-24 * time.Hour) // the clock goes back meanwhile
	if ids := stalled(s, before); !slices.Equal(ids, []string{first.ID, extended.ID}) {
		t.Errorf("%v are handed over", ids)
	}
	if ids := stalled(s, before); len(ids) > 0 {
		t.Errorf("%v are handed over twice", ids)
	}

	// They are those of the handle that they were handed over to.
	must(nameless.Bury(t.Context(), "one"))(t)
	if ids := stalled(nameless, before); !slices.Equal(ids, []string{"mine", first.ID, extended.ID}) {
		t.Errorf("%v are handed over", ids)
	}
	if names := must(s.Handles(t.Context()))(t); len(names) > 0 {
		t.Errorf("buried: %v", names)
	}
}

// The jobs of a handle that has left wait for their leases.
func TestLeave(t *testing.T) {
	s := config.Open(t).(*keyed.Storage)
	must(0, s.Enter(t.Context(), "one"))(t)
	must(0, insertIn(t.Context(), s, "a"))(t)
	must(s.Claim(t.Context(), now, storage.Claim{Max: 1}, nil))(t)
	must(0, s.Leave(t.Context(), "one"))(t)
	if must(s.Bury(t.Context(), "one"))(t) || len(must(s.Due(t.Context(), now, 10, nil))(t).Stalled) > 0 {
		t.Error("a job is handed over")
	}
}
