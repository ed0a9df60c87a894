package memory

import (
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/ojsengine/ojs"
	"github.com/ojsengine/ojs/storage"
)

// The kind of a job, its queue or the storage may be gone when the job comes into the
// inbox.
func TestLateForTheInbox(t *testing.T) {
	ctx, now := t.Context(), time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	fresh := func(id, queue string) []storage.Insert {
		var r storage.Record
		r.ID, r.Type, r.Queue, r.State, r.CreatedAt, r.Lease = id, "x", queue, ojs.StateAvailable,
			now, time.Minute
		return []storage.Insert{{Record: r, IDIsNew: true}}
	}
	first := func(s *Storage) *job { // stored, completed, and there is another of its kind on its way
		for _, batch := range [][]storage.Insert{fresh("0", "other"), fresh("1", "q")} {
			if _, err := s.Insert(ctx, now, batch, nil); err != nil {
				t.Fatal(err)
			}
		}
		done, err := s.Claim(ctx, now, storage.Claim{Max: 1, Worker: "w", Queues: []string{"q"}}, nil)
		if err != nil || len(done) != 1 {
			t.Fatal(done, err)
		}
		done[0].State, done[0].LeaseUntil, done[0].FinishedAt = ojs.StateCompleted, time.Time{}, now
		if _, err := s.Settle(ctx, now, []storage.Change{{Record: done[0]}}, nil); err != nil {
			t.Fatal(err)
		}
		j := s.prepare(&fresh("2", "q")[0].Record)
		if j.kind == nil {
			t.Fatal("its kind is not known")
		}
		return j
	}
	t.Run("its kind and queue", func(t *testing.T) {
		s := New()
		j := first(s)
		if n, err := s.Delete(ctx, []string{"1"}); err != nil || n != 1 {
			t.Fatal(n, err)
		}
		if !s.leaveIn(ctx, nil, fresh("2", "q"), j) {
			t.Fatal("refused")
		}
		if counts, err := s.Counts(ctx); err != nil || len(counts) != 2 ||
			!slices.Contains(counts, storage.Count{Queue: "q", Type: "x", State: ojs.StateAvailable, N: 1}) {
			t.Errorf("%v, %v", counts, err)
		}
		claimed, err := s.Claim(ctx, now,
			storage.Claim{Max: 1, Queues: []string{"q"}, Types: []string{"x"}}, nil)
		if err != nil || len(claimed) != 1 {
			t.Errorf("%v, %v", claimed, err)
		}
	})
	t.Run("the storage", func(t *testing.T) {
		s := New()
		j := first(s)
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
		if s.leaveIn(ctx, nil, fresh("2", "q"), j) {
			t.Error("a closed storage has taken a job")
		}
		if _, err := s.Insert(ctx, now, fresh("2", "q"), nil); !errors.Is(err, ojs.ErrClosed) {
			t.Error(err)
		}
	})
}
