package memory_test

import (
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/ojsengine/ojs"
	"github.com/ojsengine/ojs/storage"
	"github.com/ojsengine/ojs/storage/memory"
)

// Kinds of jobs and their queues that go while jobs of theirs are on their way in come
// back with them.
func TestInboxAndDeadKinds(t *testing.T) {
	s := memory.New()
	const producers, each = 3, 20_000
	var producing sync.WaitGroup
	for p := range producers {
		producing.Go(func() {
			mine := s.Bind(p, s)
			for i := range each {
				r := record(fmt.Sprintf("%d-%06d", p, i), ojs.StateAvailable)
				r.Queue = []string{"a", "b"}[i/500%2]
				if _, err := mine.Insert(t.Context(), epoch, []storage.Insert{{Record: r, IDIsNew: true}},
					nil); err != nil {
					t.Error(err)
				}
			}
		})
	}
	done := make(chan struct{})
	go func() { producing.Wait(); close(done) }()
	taken, paused := 0, false
	for round := 0; taken < producers*each; round++ {
		recs, err := s.Claim(t.Context(), epoch, storage.Claim{Max: 7, Worker: "w"}, nil)
		if err != nil {
			t.Fatal(err)
		}
		if round%1000 == 0 {
			to := []ojs.QueueState{ojs.QueuePaused, ojs.QueueActive}[round/1000%2]
			if _, err := s.SetQueueState(t.Context(), "a", to); err != nil {
				t.Fatal(err)
			}
			paused = to == ojs.QueuePaused
		}
		if len(recs) == 0 && !paused {
			select {
			case <-done:
				if again, err := s.Claim(t.Context(), epoch, storage.Claim{Max: 1, Worker: "w"},
					nil); err != nil || len(again) == 0 {
					counts, _ := s.Counts(t.Context())
					t.Fatalf("%d of %d claimed, %v left, %v", taken, producers*each, counts, err)
				} else {
					recs = again
				}
			default:
			}
		}
		var changes []storage.Change
		var ids []string
		for _, r := range recs {
			r.State, r.LeaseUntil, r.FinishedAt = ojs.StateCompleted, time.Time{}, epoch
			changes = append(changes, storage.Change{Record: r, AttemptFieldsOnly: true})
			ids = append(ids, r.ID)
		}
		settled, err := s.Settle(t.Context(), epoch, changes, nil)
		if err != nil {
			t.Fatal(err)
		}
		for _, r := range settled {
			if r.Err != nil {
				t.Fatal(r.Err)
			}
		}
		if n, err := s.Delete(t.Context(), ids); err != nil || n != len(ids) {
			t.Fatal(n, err)
		}
		taken += len(ids)
	}
	if counts, err := s.Counts(t.Context()); err != nil || len(counts) != 0 {
		t.Errorf("%v, %v", counts, err)
	}
}

// Jobs of one producer are claimed in the order in which they were stored, through the
// inbox or not.
func TestInboxKeepsOrder(t *testing.T) {
	s := memory.New()
	const producers, each = 3, 10_000
	for p := range producers {
		go func() {
			mine := s.Bind(p, s)
			for i := range each {
				r := record(fmt.Sprintf("%d-%06d", p, i), ojs.StateAvailable)
				if i%97 == 0 {
					r.Meta = map[string]any{"not": "ordinary"}
				}
				if _, err := mine.Insert(t.Context(), epoch,
					[]storage.Insert{{Record: r, IDIsNew: i%61 != 0}}, nil); err != nil {
					t.Error(err)
				}
			}
		}()
	}
	var running []storage.Record
	var latest [producers]string
	for taken := 0; taken < producers*each; {
		var got []storage.Record
		if len(running) == 0 {
			recs, err := s.Claim(t.Context(), epoch, storage.Claim{Max: 3, Worker: "w"}, nil)
			if err != nil {
				t.Fatal(err)
			}
			got = recs
		} else {
			var to []*storage.Record
			for i := range running {
				r := &running[i]
				r.State, r.LeaseUntil, r.FinishedAt = ojs.StateCompleted, time.Time{}, epoch
				to = append(to, r)
			}
			into := []*storage.Record{new(storage.Record), new(storage.Record), new(storage.Record),
				new(storage.Record)}
			_, n, err := s.SettleAndClaim(t.Context(), epoch, to, nil, storage.Claim{Worker: "w"}, into)
			if err != nil {
				t.Fatal(err)
			}
			for _, r := range into[:n] {
				got = append(got, *r)
			}
		}
		for _, r := range got {
			p := r.ID[0] - '0'
			if r.ID <= latest[p] {
				t.Fatalf("%s after %s", r.ID, latest[p])
			}
			latest[p] = r.ID
		}
		taken += len(got)
		running = got
	}
}
