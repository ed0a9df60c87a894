package memory

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/ojsengine/ojs"
	"github.com/ojsengine/ojs/storage"
	"github.com/ojsengine/ojs/storage/storagetest"
)

// Many jobs that are kept for periods of their own are pruned as the reference prunes
// them, while other calls change them.
func TestKeptJobsArePruned(t *testing.T) {
	for seed := range uint64(6) {
		rnd := rand.New(rand.NewPCG(seed, 1))
		ctx, now := t.Context(), time.Date(2026, 3, 1, 0, 0, 0, 0, time.UTC)
		s, ref := New(), storagetest.NewReference()
		both := func(f func(storage.Storage) error) {
			for _, on := range []storage.Storage{s, ref} {
				if err := f(on); err != nil {
					t.Fatal(err)
				}
			}
		}
		var live []storage.Record
		var version uint64 // the same in both
		n := 0
		for step := range 300 {
			now = now.Add(time.Duration(rnd.IntN(1000)) * time.Millisecond)
			switch rnd.IntN(4) {
			case 0, 1:
				for range rnd.IntN(12) {
					var r storage.Record
					r.ID, r.Type, r.Queue, r.State = fmt.Sprintf("01890a5d-ac96-774b-bcce-%012x", n), "x",
						"q", ojs.StateAvailable
					r.CreatedAt, r.Lease, r.Timeout = now, time.Hour, time.Hour
					r.ResultTTL = time.Duration(rnd.IntN(3)*rnd.IntN(30)) * time.Second
					if n++; rnd.IntN(4) > 0 {
						r.Fingerprint = r.ID
						r.Unique = &ojs.UniquePolicy{States: ojs.AllStates(),
							Period: time.Duration(rnd.IntN(60)) * time.Second}
						if rnd.IntN(3) == 0 {
							r.Unique.Key = r.ID
						}
					}
					both(func(on storage.Storage) error {
						out, err := on.Insert(ctx, now, []storage.Insert{{Record: r}}, nil)
						if err == nil {
							version = out[0].Version
						}
						return err
					})
					r.Version = version
					live = append(live, r)
				}
			case 2:
				for range min(rnd.IntN(12), len(live)) {
					i := rnd.IntN(len(live))
					r := live[i]
					live = slices.Delete(live, i, i+1)
					r.State, r.FinishedAt = ojs.StateCancelled,
						now.Add(-time.Duration(rnd.IntN(5)*rnd.IntN(20))*time.Second)
					both(func(on storage.Storage) error {
						changes := []storage.Change{{Record: r, AttemptFieldsOnly: true}}
						_, err := on.Settle(ctx, now, changes, nil)
						return err
					})
					if rnd.IntN(10) == 0 {
						both(func(on storage.Storage) error {
							_, err := on.Delete(ctx, []string{r.ID})
							return err
						})
					}
				}
			case 3:
				p := storage.Prune{Now: now, Max: rnd.IntN(30), Beyond: rnd.IntN(40)}
				if rnd.IntN(2) == 0 { // by the clock of another machine, or one that was set
					p.Now = now.Add(time.Duration(rnd.IntN(120)-60) * time.Second)
				}
				if rnd.IntN(2) == 0 {
					p.Spare = now.Add(-time.Duration(rnd.IntN(60)) * time.Second)
				}
				if rnd.IntN(2) == 0 {
					p.Before = now.Add(-time.Duration(rnd.IntN(60)) * time.Second)
				}
				got, err := s.Prune(ctx, p)
				if err != nil {
					t.Fatal(err)
				}
				if want, _ := ref.Prune(ctx, p); !slices.Equal(got.IDs, want.IDs) || got.Left != want.Left ||
					!got.Oldest.Equal(want.Oldest) {
					t.Fatalf("seed %d, step %d: %+v pruned %+v, want %+v", seed, step, p, got, want)
				}
			}
		}
		list := func(on storage.Storage) (ids []string) {
			page, err := on.List(ctx, storage.Query{States: []ojs.State{ojs.StateCancelled}})
			if err != nil || page.Next != "" {
				t.Fatal(err, page.Next)
			}
			for _, r := range page.Records {
				ids = append(ids, r.ID)
			}
			return ids
		}
		if got, want := list(s), list(ref); !slices.Equal(got, want) {
			t.Fatalf("seed %d: left %v, want %v", seed, got, want)
		}
	}
}

// A job whose period was over for a Prune in the future is kept again when the clock goes
// back.
func TestKeptAgainWhenTheClockGoesBack(t *testing.T) {
	s, now := New(), time.Date(2026, 3, 1, 0, 0, 0, 0, time.UTC)
	const jobs = 5
	for i := range jobs {
		var r storage.Record
		r.ID, r.Type, r.Queue, r.State = fmt.Sprintf("01890a5d-ac96-774b-bcce-%012x", i), "x", "q",
			ojs.StateAvailable
		r.CreatedAt, r.Lease, r.Timeout = now, time.Hour, time.Hour
		r.Fingerprint, r.Unique = r.ID, &ojs.UniquePolicy{States: ojs.AllStates(),
			Period: time.Duration(i+1) * time.Hour}
		out, err := s.Insert(t.Context(), now, []storage.Insert{{Record: r}}, nil)
		if err != nil {
			t.Fatal(err)
		}
		r.Version, r.State, r.FinishedAt = out[0].Version, ojs.StateCancelled, now
		if _, err := s.Settle(t.Context(), now, []storage.Change{{Record: r, AttemptFieldsOnly: true}},
			nil); err != nil {
			t.Fatal(err)
		}
	}
	prune := func(hour, most, want int) {
		t.Helper()
		at := now.Add(time.Duration(hour) * time.Hour)
		if out, err := s.Prune(t.Context(),
			storage.Prune{Now: at, Before: at.Add(1), Max: most}); err != nil || len(out.IDs) != want {
			t.Fatalf("after %d hours: %+v, %v, want %d", hour, out, err, want)
		}
	}
	for range 2 {
		prune(9, 0, 0)
		prune(0, 9, 0)
	}
	prune(4, 1, 1)
	prune(2, 9, 1)
	prune(4, 9, 2)
	prune(4, 9, 0)
	prune(5, 9, 1)
}

// prune-10: a job that its workflow keeps on until a time is kept again if the clock goes
// back before that time, though a Prune after it has found the workflow ended.
func TestKeptOnAgainWhenTheClockGoesBack(t *testing.T) {
	storages := map[string]storage.Storage{"memory": New(), "reference": storagetest.NewReference()}
	for name, s := range storages {
		t.Run(name, func(t *testing.T) {
			defer s.Close()
			now := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
			const workflow = "01890a5d-ac96-774b-bcce-000000000001"
			const step = "01890a5d-ac96-774b-bcce-000000000002"
			end := func(id string) {
				t.Helper()
				r, err := s.Get(t.Context(), id)
				if err != nil {
					t.Fatal(err)
				}
				r.State, r.FinishedAt = ojs.StateCancelled, now
				if _, err := s.Settle(t.Context(), now, []storage.Change{{Record: r}}, nil); err != nil {
					t.Fatal(err)
				}
			}
			prune := func(minute, most int, want ...string) {
				t.Helper()
				at := now.Add(time.Duration(minute) * time.Minute)
				out, err := s.Prune(t.Context(), storage.Prune{Now: at, Before: at.Add(1), Max: most})
				if err != nil || !slices.Equal(out.IDs, want) {
					t.Errorf("after %d minutes pruned %v, want %v; %v", minute, out.IDs, want, err)
				}
			}
			for _, id := range []string{workflow, step} {
				var r storage.Record
				r.ID, r.Type, r.Queue, r.State, r.CreatedAt = id, "x", "q", ojs.StateAvailable, now
				r.Meta, r.ResultTTL = map[string]any{"workflow_id": workflow}, ojs.NoResult
				if _, err := s.Insert(t.Context(), now, []storage.Insert{{Record: r}}, nil); err != nil {
					t.Fatal(err)
				}
			}
			end(step)
			prune(10, 9) // as long again as since the end: until minute 20
			end(workflow)
			prune(21, 0)
			prune(16, 9, workflow)
			prune(19, 9)
			prune(20, 9, step)
		})
	}
}
