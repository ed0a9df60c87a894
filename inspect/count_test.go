package inspect_test

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/benbjohnson/clock"

	"github.com/ojsengine/ojs"
	"github.com/ojsengine/ojs/inspect"
	"github.com/ojsengine/ojs/storage"
	"github.com/ojsengine/ojs/storage/memory"
)

// discarded stores dead letters of a type and an end, and returns the view of their
// storage.
func discarded(t *testing.T, n int, of func(i int) (string, time.Time)) *inspect.Jobs {
	t.Helper()
	store, ctx := memory.New(), t.Context()
	t.Cleanup(func() { _ = store.Close() })
	var batch []storage.Insert
	ends := make(map[string]time.Time)
	for i := range n {
		jobType, end := of(i)
		var r storage.Record
		r.ID, r.Type, r.Queue = fmt.Sprintf("%06d", i), jobType, "q"
		r.CreatedAt, r.State = noon, ojs.StateAvailable
		batch = append(batch, storage.Insert{Record: r})
		ends[r.ID] = end
	}
	if _, err := store.Insert(ctx, noon, batch, nil); err != nil {
		t.Fatal(err)
	}
	recs, err := store.Claim(ctx, noon, storage.Claim{Queues: []string{"q"}, Max: n, Worker: "w"}, nil)
	if err != nil || len(recs) != n {
		t.Fatalf("%d claimed, %v", len(recs), err)
	}
	var changes []storage.Change
	for _, r := range recs {
		end := ends[r.ID]
		r.State, r.FinishedAt, r.DeadLetteredAt = ojs.StateDiscarded, end, end
		r.Error = &ojs.Failure{Type: "e", Message: "no", At: end}
		changes = append(changes, storage.Change{Record: r})
	}
	if _, err := store.Settle(ctx, noon, changes, nil); err != nil {
		t.Fatal(err)
	}
	virtual := clock.NewMock()
	virtual.Set(noon)
	return inspect.Open(store, virtual)
}

// However many types have failures, those with the fewest are looked through, and those
// with the most are looked at.
func TestRareFailuresOfManyTypes(t *testing.T) {
	const rare, frequent = 45, 15
	view := discarded(t, 3*rare+frequent*200, func(i int) (string, time.Time) {
		if i < 3*rare {
			return fmt.Sprintf("rare.%02d", i/3), noon
		}
		return fmt.Sprintf("frequent.%02d", i%frequent), noon
	})
	for _, f := range []inspect.Filter{{}, {DeadLettered: true}} {
		groups, err := view.Failures(t.Context(), f, 1000)
		if err != nil {
			t.Fatal(err)
		}
		n, through := 0, 0
		seen := make(map[string]int)
		for _, g := range groups.Groups {
			seen[g.Type] += g.N
			n += g.N
			if !g.Least && g.N == 3 {
				through++
			}
		}
		if through < 39 || groups.Exact || n > groups.Looked || n < 500 {
			t.Errorf("%v: %d types were looked through: %v", f, through, seen)
		}
		for i := range frequent {
			if name := fmt.Sprintf("frequent.%02d", i); seen[name] == 0 || seen[name] > 200 {
				t.Errorf("%v: %d failures of %s were looked at", f, seen[name], name)
			}
		}
	}
}

// In a period too, the types with few failures are looked through.
func TestRareFailuresOfAPeriod(t *testing.T) {
	view := discarded(t, 3010, func(i int) (string, time.Time) {
		if i < 10 {
			return "rare", noon.Add(-30 * time.Minute)
		}
		return "frequent", noon.Add(-time.Minute)
	})
	groups, err := view.Failures(t.Context(), inspect.Filter{States: []ojs.State{ojs.StateDiscarded},
		FinishedFrom: noon.Add(-time.Hour)}, 500)
	if err != nil {
		t.Fatal(err)
	}
	if n := len(groups.Groups); n != 2 || groups.Groups[1].Type != "rare" || groups.Groups[1].N != 10 ||
		groups.Groups[1].Least {
		t.Errorf("%d groups: %+v", n, groups.Groups)
	}
}

// A pattern of ids with two stars is refused.
func TestPatternsOfIDs(t *testing.T) {
	for id, ok := range map[string]bool{"*abc": true, "abc*": true, "*": true, "*abc*": false, "**": false} {
		f := inspect.Filter{IDs: []string{id}}
		if _, err := f.Query(); ok == errors.Is(err, ojs.ErrInvalid) {
			t.Errorf("%s: %v", id, err)
		}
	}
}
