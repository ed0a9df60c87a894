package sqlite_test

import (
	"testing"
	"time"

	"github.com/ojsengine/ojs/storage"
)

// The claims of one storage find a job that another storage on the file has given back to
// a place that they have passed.
func TestUnclaimBehindTheClaimsOfAnother(t *testing.T) {
	a := open(t)
	defer a.Close()
	b := config.Another(t, a)
	defer b.Close()
	now := time.Now()
	claim := func() []storage.Record {
		t.Helper()
		ask := storage.Claim{Queues: []string{"q"}, Types: []string{"x"}, Max: 1, Worker: "w"}
		recs, err := a.Claim(t.Context(), now, ask, nil)
		must(t, err)
		return recs
	}
	other := record(1) // which the claims skip, and so remember where they were
	other.Type = "y"
	must(t, insert(a, other, record(2)))
	got := claim()
	if len(got) != 1 {
		t.Fatalf("claimed %v", got)
	}
	held := []storage.Held{{ID: got[0].ID, Version: got[0].Version}}
	if n, err := b.(storage.SettleClaimer).Unclaim(t.Context(), now, held); n != 1 || err != nil {
		t.Fatalf("%d jobs are given back, %v", n, err)
	}
	if again := claim(); len(again) != 1 || again[0].ID != got[0].ID {
		t.Errorf("claimed %v after a job was given back", again)
	}
}
