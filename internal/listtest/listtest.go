// Package listtest counts the jobs that listings of a storage look at.
package listtest

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/ojsengine/ojs"
	"github.com/ojsengine/ojs/storage"
)

// ActiveOnly tests that a listing of active jobs looks at active jobs alone: at five of
// 3,000, in both orders of insertion and in both directions.
func ActiveOnly(t *testing.T, s storage.Storage) {
	t.Helper()
	ctx, now := t.Context(), time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	claim := func(most int, queue string) []storage.Record {
		t.Helper()
		list, err := s.Claim(ctx, now, storage.Claim{Queues: []string{queue}, Max: most, Worker: "w"}, nil)
		must(err)
		if len(list) != most {
			t.Fatalf("%d of %d jobs claimed", len(list), most)
		}
		return list
	}
	var batch []storage.Insert
	var ids []string
	for n := range 3000 {
		var r storage.Record
		r.ID, r.Type, r.Queue = fmt.Sprintf("01890a5d-ac96-774b-bcce-%012x", n), "x", "waits"
		r.State, r.CreatedAt, r.Lease, r.Timeout = ojs.StateAvailable, now, time.Hour, time.Minute
		switch {
		case n%600 == 50:
			r.Queue = "runs"
			ids = append(ids, r.ID)
		case n%2 == 0:
			r.State, r.ScheduledAt = ojs.StateScheduled, now.Add(time.Hour)
		}
		batch = append(batch, storage.Insert{Record: r})
	}
	_, err := s.Insert(ctx, now, batch, nil)
	must(err)
	ends := storage.Change{Record: claim(1, "waits")[0]} // it has ended
	ends.Record.State, ends.Record.FinishedAt = ojs.StateCompleted, now
	settled, err := s.Settle(ctx, now, []storage.Change{ends}, nil)
	must(err)
	must(settled[0].Err)
	claim(len(ids), "runs")

	for _, order := range []storage.Order{storage.OrderOldest, storage.OrderNewest} {
		want := slices.Clone(ids)
		if order == storage.OrderNewest {
			slices.Reverse(want)
		}
		q := storage.Query{States: []ojs.State{ojs.StateActive}, Order: order, Limit: 3}
		looked := 0
		page := func(cursor string) (ids []string, p storage.Page) {
			t.Helper()
			q.Cursor = cursor
			p, err := s.List(ctx, q)
			must(err)
			for i := range p.Records {
				ids = append(ids, p.Records[i].ID)
			}
			looked += p.Looked
			return ids, p
		}
		first, p := page("")
		second, p := page(p.Next)
		if p.Next != "" {
			t.Errorf("%q: a third page follows", order)
		}
		back, _ := page(p.Prev)
		if got := slices.Concat(first, second); !slices.Equal(got, want) || !slices.Equal(back, want[:3]) {
			t.Errorf("%q: %v, and back %v\nwant %v", order, got, back, want)
		}
		if most := len(first) + len(second) + len(back); looked != most {
			t.Errorf("%q: %d jobs looked at to list %d", order, looked, most)
		}
	}
}
