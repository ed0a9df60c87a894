package memory

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/ojsengine/ojs"
	"github.com/ojsengine/ojs/storage"
)

// Jobs are enqueued, refused, claimed, settled, deleted and pruned by several at once, by
// ids of which many are near each other. None is lost, found under another's id, or has
// the memory of another.
func TestInsertsBesideDeletions(t *testing.T) {
	s := New()
	ctx := context.Background()
	var wg sync.WaitGroup
	quit := make(chan struct{})
	var mu sync.Mutex
	next := 0
	inserted, deleted := 0, 0
	for p := range 3 {
		wg.Go(func() {
			r := rand.New(rand.NewPCG(1, uint64(p)))
			for range 4000 {
				n := 1 + r.IntN(10)
				mu.Lock()
				from := next
				next += n
				mu.Unlock()
				var batch []storage.Insert
				now := time.Now()
				for i := range n {
					var rec storage.Record
					rec.ID, rec.Type, rec.Queue = v7((from+i)/200, from+i), "t", "q"
					rec.State, rec.MaxAttempts = ojs.StateAvailable, 1
					rec.CreatedAt, rec.EnqueuedAt = now, now
					if r.IntN(50) == 0 {
						rec.Meta = map[string]any{"a": 1}
					}
					batch = append(batch, storage.Insert{Record: rec, IDIsNew: r.IntN(3) > 0})
				}
				if r.IntN(20) == 0 && from > 0 { // refused
					bad := append([]storage.Insert{}, batch...)
					bad[0].IDIsNew = false
					bad = append(bad, bad[0])
					if _, err := s.Insert(ctx, now, bad, nil); !errors.Is(err, ojs.ErrDuplicate) {
						t.Errorf("%v", err)
					}
				}
				if _, err := s.Insert(ctx, now, batch, nil); err != nil {
					t.Errorf("%v", err)
				}
				mu.Lock()
				inserted += n
				mu.Unlock()
			}
		})
	}
	var bg sync.WaitGroup
	for w := range 2 {
		bg.Go(func() {
			r := rand.New(rand.NewPCG(2, uint64(w)))
			for {
				select {
				case <-quit:
					return
				default:
				}
				now := time.Now()
				recs, err := s.Claim(ctx, now, storage.Claim{Max: 32, Worker: "w"}, nil)
				if err != nil {
					t.Error(err)
					return
				}
				var ids []string
				for _, rec := range recs {
					rec.State, rec.FinishedAt, rec.LeaseUntil = ojs.StateCompleted, now, time.Time{}
					changes := []storage.Change{{Record: rec, AttemptFieldsOnly: true}}
					got, err := s.Settle(ctx, now, changes, nil)
					if err != nil || got[0].Err != nil {
						t.Errorf("settle %v %v", err, got)
					}
					ids = append(ids, rec.ID, rec.ID)
				}
				if r.IntN(2) == 0 {
					n, err := s.Delete(ctx, ids)
					if err != nil {
						t.Error(err)
					}
					mu.Lock()
					deleted += n
					mu.Unlock()
				} else {
					p, err := s.Prune(ctx, storage.Prune{Beyond: 100, Max: 1 + r.IntN(300)})
					if err != nil {
						t.Error(err)
					}
					mu.Lock()
					deleted += len(p.IDs)
					mu.Unlock()
				}
				if r.IntN(10) == 0 {
					_, _ = s.List(ctx, storage.Query{Limit: 100})
				}
			}
		})
	}
	wg.Wait()
	close(quit)
	bg.Wait()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.takeIn()
	if n := s.all.n; s.jobs.n != inserted-deleted || n != s.jobs.n {
		t.Errorf("%d in the table, %d in all, want %d", s.jobs.n, n, inserted-deleted)
	}
	strays := 0
	for e := s.all.from(0, 0, false); e.next(); {
		if s.find(e.job.id) != e.job {
			t.Errorf("%s is not found", e.job.id)
		}
		if e.job.hash != near(s.seed, e.job.id) {
			strays++
		}
	}
	if strays != s.jobs.strays {
		t.Errorf("%d strays, counted %d", strays, s.jobs.strays)
	}
}
