package engine_test

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/ojsengine/ojs"
	"github.com/ojsengine/ojs/engine"
	"github.com/ojsengine/ojs/engine/fetch"
	"github.com/ojsengine/ojs/policy"
	"github.com/ojsengine/ojs/storage"
)

// bestEffort is a storage that says its check is a query before the insert.
type bestEffort struct{ storage.Storage }

func (bestEffort) Capabilities() storage.Capabilities {
	return storage.Capabilities{Name: "best effort", Unique: storage.BestEffort,
		Mechanism: "query then insert"}
}

func TestBestEffort(t *testing.T) {
	eng, err := engine.New[any](bestEffort{newMemory(t)}, quiet)
	must(t, err)
	if u := eng.Describe().Manifest.Capabilities.UniqueJobs; u.Strength != "best-effort" ||
		u.Mechanism != "query then insert" {
		t.Errorf("C077 C078 C092: %+v", u)
	}
	for _, conflict := range []ojs.Conflict{ojs.ConflictReplace, ojs.ConflictReplaceExceptSchedule} {
		replace := ojs.WithUnique(ojs.UniquePolicy{Key: string(conflict), OnConflict: conflict})
		first, err := eng.Enqueue(t.Context(), "x", 1, replace)
		must(t, err)
		second, err := eng.Enqueue(t.Context(), "x", 2, replace)
		if err != nil || second.ID == first.ID {
			t.Errorf("a waiting job: %+v, %v", second, err)
		}
		if _, err := eng.Worker("w", fetch.Config{}).Fetch(t.Context()); err != nil {
			t.Fatal(err)
		}
		_, err = eng.Enqueue(t.Context(), "x", 3, replace)
		var dup *ojs.DuplicateError
		if !errors.As(err, &dup) || dup.ID != second.ID || dup.State != ojs.StateActive ||
			!strings.Contains(err.Error(), "an active job cannot be replaced") {
			t.Errorf("C047 C048: %s: %v", conflict, err)
		}
		if job, err := eng.Get(t.Context(), second.ID); err != nil || job.State != ojs.StateActive {
			t.Errorf("C047: the active job is %+v, %v", job, err)
		}
		_, err = eng.Enqueue(t.Context(), "x", 3, ojs.WithUnique(ojs.UniquePolicy{Key: string(conflict)}))
		if !errors.As(err, &dup) || strings.Contains(err.Error(), "cannot be replaced") {
			t.Errorf("reject: %v", err)
		}
	}
}

func TestFingerprintIsKept(t *testing.T) {
	inBubble(t, func(b *rig) {
		b.handle("x", func(context.Context, *ojs.Job[any]) error { return errBoom })
		b.run()
		p := ojs.UniquePolicy{Keys: ojs.ByArgs}
		ticket, err := b.Enqueue(b.ctx, "x", user{ID: 1}, ojs.WithUnique(p), noJitter)
		must(t, err)
		want, err := policy.Fingerprint(&p, b.job(ticket.ID))
		must(t, err)
		for range 4 {
			rec, err := b.store.Get(b.ctx, ticket.ID)
			if err != nil || rec.Fingerprint != want {
				t.Errorf("C133: %s in state %s, want %s; %v", rec.Fingerprint, rec.State, want, err)
			}
			raw, err := json.Marshal(b.job(ticket.ID))
			if err != nil || strings.Contains(string(raw), want) {
				t.Errorf("C111: lookups show the fingerprint: %s, %v", raw, err)
			}
			b.advance(time.Second)
		}
	})
}

// The unique jobs of other systems, as policies of this one.
func TestUniqueOfOtherSystems(t *testing.T) {
	day := 24 * time.Hour
	for name, tt := range map[string]struct {
		p         ojs.UniquePolicy
		same, not []any // args that count as equal to 1, and that do not
		until     time.Duration
	}{
		"C105 Oban: fields, keys, states and a period": {
			p: ojs.UniquePolicy{Keys: ojs.ByQueue | ojs.ByArgs, ArgsKeys: []string{"user_id"},
				Period: time.Minute,
				States: []ojs.State{ojs.StateAvailable, ojs.StateScheduled, ojs.StateActive,
					ojs.StateRetryable, ojs.StateCompleted}},
			same: []any{user{1, "b"}}, not: []any{user{2, "a"}}, until: time.Minute},
		"C106 River: ByArgs, ByPeriod, ByQueue, ByState": {
			p:    ojs.UniquePolicy{Keys: ojs.ByQueue | ojs.ByArgs, Period: day, States: ojs.AllStates()},
			same: []any{user{1, "a"}}, not: []any{user{1, "b"}}, until: day},
		"C108 BullMQ: an id of the caller's": {
			p: ojs.UniquePolicy{Keys: ojs.ByArgs, ArgsKeys: []string{"user_id"}, States: ojs.AllStates(),
				OnConflict: ojs.ConflictReject},
			same: []any{user{1, "z"}}, not: []any{user{3, "a"}}},
		"C109 asynq: a task id": {
			p:    ojs.UniquePolicy{Key: "task-1"},
			same: []any{user{1, "a"}, user{2, "b"}}},
		"C110 Faktory: unique_for on type and args": {
			p:    ojs.UniquePolicy{Keys: ojs.ByArgs, Period: 10 * time.Minute},
			same: []any{user{1, "a"}}, not: []any{user{1, "b"}}, until: 10 * time.Minute},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(r *rig) {
				b := uniqueRig{r}
				first := b.expect("", "new", "", "x", user{1, "a"}, unique(tt.p))
				for _, v := range tt.same {
					b.expect("equal", "rejected", first, "x", v, unique(tt.p))
				}
				for _, v := range tt.not {
					b.expect("not equal", "new", "", "x", v, unique(tt.p))
				}
				if tt.until > 0 {
					b.advance(tt.until)
					b.expect("afterwards", "new", "", "x", user{1, "a"}, unique(tt.p))
				}
			})
		})
	}
}
