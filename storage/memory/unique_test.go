package memory_test

import (
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/ojsengine/ojs"
	"github.com/ojsengine/ojs/storage"
	"github.com/ojsengine/ojs/storage/memory"
)

// uniqueStore tells the scenarios of OJS unique jobs, section 14, to a storage:
// fingerprints are given, not computed.
type uniqueStore struct {
	*testing.T
	s   *memory.Storage
	now time.Time
	n   int
}

func (u *uniqueStore) insert(
	fingerprint string, p ojs.UniquePolicy, state ojs.State,
) (string, storage.Inserted, error) {
	u.n++
	r := storage.Record{Fingerprint: fingerprint}
	r.ID, r.Type, r.Queue, r.State, r.CreatedAt, r.Lease, r.Unique = fmt.Sprint("job", u.n), "x", "q", state,
		u.now, time.Minute, &p
	if state == ojs.StateScheduled {
		r.ScheduledAt = u.now.Add(time.Hour)
	}
	out, err := u.s.Insert(u.Context(), u.now, []storage.Insert{{Record: r}}, nil)
	if err != nil {
		return r.ID, storage.Inserted{}, err
	}
	return r.ID, out[0], nil
}

func (u *uniqueStore) admitted(rule, fingerprint string, p ojs.UniquePolicy) string {
	u.Helper()
	id, out, err := u.insert(fingerprint, p, ojs.StateAvailable)
	if err != nil || out.Existing != nil || out.Version == 0 {
		u.Errorf("%s: %+v, %v", rule, out, err)
	}
	return id
}

func (u *uniqueStore) rejected(rule, fingerprint, by string, p ojs.UniquePolicy) {
	u.Helper()
	_, _, err := u.insert(fingerprint, p, ojs.StateAvailable)
	var dup *ojs.DuplicateError
	if !errors.As(err, &dup) || dup.ID != by || dup.Fingerprint != fingerprint {
		u.Errorf("%s: %v", rule, err)
	}
}

// move claims the job, if it is to run, and settles it in a state.
func (u *uniqueStore) move(id string, to ojs.State) {
	u.Helper()
	rec, err := u.s.Get(u.Context(), id)
	if err != nil {
		u.Fatal(err)
	}
	if rec.State == ojs.StateAvailable && to != ojs.StateCancelled {
		got, err := u.s.Claim(u.Context(), u.now, storage.Claim{Max: 1}, nil)
		if err != nil || len(got) != 1 || got[0].ID != id {
			u.Fatalf("%v, %v", got, err)
		}
		rec = got[0]
	}
	if rec.State == to {
		return
	}
	rec.State = to
	switch {
	case to.Terminal():
		rec.FinishedAt = u.now
	case to == ojs.StateRetryable:
		rec.NextRetryAt = u.now.Add(time.Second)
	}
	out, err := u.s.Settle(u.Context(), u.now, []storage.Change{{Record: rec}}, nil)
	if err != nil || out[0].Err != nil {
		u.Fatal(err, out)
	}
}

func (u *uniqueStore) state(id string) ojs.State {
	u.Helper()
	rec, err := u.s.Get(u.Context(), id)
	if err != nil {
		u.Fatal(err)
	}
	return rec.State
}

func TestUniqueScenarios(t *testing.T) {
	scenario := func(name string, f func(u *uniqueStore)) {
		t.Run(name, func(t *testing.T) {
			u := &uniqueStore{T: t, s: memory.New(), now: time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)}
			defer u.s.Close()
			f(u)
		})
	}
	reject := ojs.UniquePolicy{}
	scenario("C001 C076 C121 1 basic deduplication", func(u *uniqueStore) {
		u.rejected("", "f", u.admitted("", "f", reject), reject)
	})
	scenario("C026 C122 2 other fingerprints do not matter", func(u *uniqueStore) {
		u.admitted("", "f", reject)
		u.admitted("", "g", reject)
	})
	scenario("C086 C123 3 the period elapses", func(u *uniqueStore) {
		p := ojs.UniquePolicy{Period: time.Minute}
		first := u.admitted("", "f", p)
		u.now = u.now.Add(time.Minute - 1)
		u.rejected("", "f", first, p)
		u.now = u.now.Add(1)
		u.admitted("", "f", p)
	})
	scenario("C124 4 a completed job does not block", func(u *uniqueStore) {
		u.move(u.admitted("", "f", reject), ojs.StateCompleted)
		u.admitted("", "f", reject)
	})
	scenario("C087 C125 5 unless the states say so", func(u *uniqueStore) {
		p := ojs.UniquePolicy{States: []ojs.State{ojs.StateCompleted}}
		first := u.admitted("", "f", p)
		u.admitted("C057", "f", p)
		u.move(first, ojs.StateCompleted)
		u.rejected("", "f", first, p)
	})
	scenario("C126 6 replace", func(u *uniqueStore) {
		p := ojs.UniquePolicy{OnConflict: ojs.ConflictReplace}
		first := u.admitted("", "f", p)
		u.move(first, ojs.StateActive)
		_, out, err := u.insert("f", p, ojs.StateAvailable)
		if err != nil || len(out.Replaced) != 1 || out.Replaced[0].ID != first ||
			out.Replaced[0].Version != 3 || u.state(first) != ojs.StateCancelled {
			t.Errorf("%+v, %v", out, err)
		}
	})
	scenario("C127 7 ignore", func(u *uniqueStore) {
		p := ojs.UniquePolicy{OnConflict: ojs.ConflictIgnore}
		first := u.admitted("", "f", p)
		id, out, err := u.insert("f", p, ojs.StateAvailable)
		if err != nil || out.Existing == nil || out.Existing.ID != first || out.Version != 0 {
			t.Errorf("%+v, %v", out, err)
		}
		if _, err := u.s.Get(t.Context(), id); !errors.Is(err, ojs.ErrNotFound) {
			t.Errorf("it was stored: %v", err)
		}
	})
	scenario("C088 C128 8 what differs in a dimension has another fingerprint", func(u *uniqueStore) {
		u.admitted("", "queue a", reject)
		u.admitted("", "queue b", reject)
	})
	scenario("C129 9 a policy without a fingerprint is no check: engines refuse what has none", func(u *uniqueStore) {
		u.admitted("", "", reject)
		u.admitted("", "", reject)
	})
	scenario("C130 10 a job that waits for its retry counts, and its promotion checks nothing", func(u *uniqueStore) {
		first := u.admitted("", "f", reject)
		u.move(first, ojs.StateRetryable)
		u.rejected("C093", "f", first, reject)
		u.admitted("", "f", ojs.UniquePolicy{States: []ojs.State{ojs.StatePending}})
		u.now = u.now.Add(time.Second)
		if d, err := u.s.Due(t.Context(), u.now, 10, nil); err != nil || len(d.Promoted) != 1 ||
			d.Promoted[0].ID != first {
			t.Errorf("C094: %+v, %v", d, err)
		}
	})
	scenario("C131 11 concurrent inserts", func(u *uniqueStore) {
		var done sync.WaitGroup
		errs := make(chan error, 64)
		for i := range 64 {
			done.Go(func() {
				r := storage.Record{Fingerprint: "f"}
				r.ID, r.State, r.Unique = fmt.Sprint("c", i), ojs.StateAvailable, &reject
				_, err := u.s.Insert(t.Context(), u.now, []storage.Insert{{Record: r}}, nil)
				errs <- err
			})
		}
		done.Wait()
		close(errs)
		admitted := 0
		for err := range errs {
			if err == nil {
				admitted++
			} else if !errors.Is(err, ojs.ErrDuplicate) {
				t.Error(err)
			}
		}
		if admitted != 1 {
			t.Errorf("C090: %d admitted", admitted)
		}
	})
	scenario("C050 replace_except_schedule", func(u *uniqueStore) {
		p := ojs.UniquePolicy{OnConflict: ojs.ConflictReplaceExceptSchedule}
		first, _, err := u.insert("f", p, ojs.StateScheduled)
		if err != nil {
			t.Fatal(err)
		}
		_, out, err := u.insert("f", p, ojs.StateScheduled)
		if err != nil || out.Existing == nil || !out.Updated || out.Existing.ID != first ||
			out.Existing.Version != 2 || out.Replaced != nil {
			t.Errorf("%+v, %v", out, err)
		}
	})
	scenario("what is deleted or pruned is in nobody's way", func(u *uniqueStore) {
		p := ojs.UniquePolicy{States: ojs.AllStates()}
		a := u.admitted("", "f", p)
		u.move(a, ojs.StateCompleted)
		if _, err := u.s.Delete(t.Context(), []string{a}); err != nil {
			t.Fatal(err)
		}
		b := u.admitted("", "f", p)
		u.move(b, ojs.StateCancelled)
		if _, err := u.s.Prune(t.Context(), storage.Prune{Before: u.now.Add(1), Max: 9}); err != nil {
			t.Fatal(err)
		}
		u.admitted("", "f", p)
	})
	t.Run("C079 C080 C081 the strength", func(t *testing.T) {
		if c := memory.New().Capabilities(); c.Unique != storage.Strong || c.Mechanism == "" ||
			!slices.Contains([]storage.Strength{"strong", "best-effort"}, c.Unique) {
			t.Errorf("%+v", c)
		}
	})
}
