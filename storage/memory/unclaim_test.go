package memory_test

import (
	"fmt"
	"reflect"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/ojsengine/ojs"
	"github.com/ojsengine/ojs/storage"
	"github.com/ojsengine/ojs/storage/memory"
)

// A claim that is undone might as well not have been made, but for the version of its jobs.
func TestUnclaim(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s, twin := memory.New(), memory.New()
		ctx, ids := t.Context(), 0
		jobs := func(s storage.Storage) []storage.Record {
			page, err := s.List(ctx, storage.Query{})
			if err != nil {
				t.Fatal(err)
			}
			for i := range page.Records {
				page.Records[i].Version = 0
			}
			return page.Records
		}
		for range rapid.IntRange(1, 5).Draw(t, "rounds") {
			for range rapid.IntRange(1, 10).Draw(t, "jobs") {
				r := record(fmt.Sprintf("%03d", ids), ojs.StateAvailable)
				ids++
				r.Priority = rapid.IntRange(0, 2).Draw(t, "priority")
				r.Queue, r.Type = rapid.SampledFrom([]string{"a", "b"}).Draw(t, "queue"), rapid.SampledFrom([]string{"x", "y"}).Draw(t, "type")
				if rapid.Bool().Draw(t, "meta") {
					r.Meta = map[string]any{"a": "b"}
				}
				if rapid.Bool().Draw(t, "deadline") {
					r.TotalTimeout = time.Hour
				}
				for _, s := range []storage.Storage{s, twin} {
					if _, err := s.Insert(ctx, epoch, []storage.Insert{{Record: r}}, nil); err != nil {
						t.Fatal(err)
					}
				}
			}
			for range rapid.IntRange(0, 3).Draw(t, "claims") { // that are undone, in any order
				claimed, err := s.Claim(ctx, epoch, storage.Claim{Max: rapid.IntRange(0, 12).Draw(t, "max"), Worker: "w"}, nil)
				if err != nil {
					t.Fatal(err)
				}
				var held []storage.Held
				for i := range claimed {
					held = append(held, storage.Held{ID: claimed[i].ID, Version: claimed[i].Version})
				}
				held = append(rapid.Permutation(held).Draw(t, "order"), storage.Held{ID: "nobody"})
				if len(claimed) > 0 {
					held = append(held, storage.Held{ID: claimed[0].ID, Version: claimed[0].Version - 1})
				}
				if n, err := s.Unclaim(ctx, epoch, held); n != len(claimed) || err != nil {
					t.Fatalf("%d of %d, %v", n, len(claimed), err)
				}
			}
			if got, want := jobs(s), jobs(twin); !reflect.DeepEqual(got, want) {
				t.Fatalf("%v, want %v", got, want)
			}
			claim := storage.Claim{Max: rapid.IntRange(0, 8).Draw(t, "claim")} // and these are not
			got, err := s.Claim(ctx, epoch, claim, nil)
			if err != nil {
				t.Fatal(err)
			}
			want, err := twin.Claim(ctx, epoch, claim, nil)
			if err != nil {
				t.Fatal(err)
			}
			for i := range got {
				got[i].Version = want[min(i, len(want)-1)].Version
			}
			if !reflect.DeepEqual(got, want) {
				t.Fatalf("%v, want %v", got, want)
			}
		}
	})
	t.Run("a job that has run before", func(t *testing.T) {
		s := memory.New()
		insert(t, s, record("1", ojs.StateAvailable))
		var last storage.Record
		for attempt := range 2 {
			claimed, err := s.Claim(t.Context(), epoch, storage.Claim{Max: 1, Worker: "w"}, nil)
			if err != nil || len(claimed) != 1 {
				t.Fatal(claimed, err)
			}
			if last = claimed[0]; attempt == 0 {
				last.State, last.LeaseUntil, last.NextRetryAt = ojs.StateRetryable, time.Time{}, epoch
				if settled, err := s.Settle(t.Context(), epoch, []storage.Change{{Record: last}}, nil); err != nil || settled[0].Err != nil {
					t.Fatal(settled, err)
				}
				if due, err := s.Due(t.Context(), epoch, 10, nil); err != nil || len(due.Promoted) != 1 {
					t.Fatal(due, err)
				}
			}
		}
		if n, err := s.Unclaim(t.Context(), epoch, []storage.Held{{ID: "1", Version: last.Version}}); n != 1 || err != nil {
			t.Fatal(n, err)
		}
		r, err := s.Get(t.Context(), "1")
		if err != nil || r.State != ojs.StateAvailable || r.Attempt != 1 || r.StartedAt.IsZero() || r.Version != last.Version+1 {
			t.Errorf("%+v, %v", r, err)
		}
	})
}
