package postgres_test

import (
	"context"
	"fmt"
	"os"
	"sync"
	"testing"
	"time"

	"github.com/ojsengine/ojs"
	"github.com/ojsengine/ojs/storage"
	"github.com/ojsengine/ojs/storage/postgres"
)

// Of claimers that race for jobs that are inserted meanwhile in batches of all sizes,
// with steps and claims and with claims that are undone, each job is completed by one.
// OJS_TEST_RACE=full makes the race a long one.
func TestStepRace(t *testing.T) {
	jobs, runs := 1500, 1
	if os.Getenv("OJS_TEST_RACE") == "full" {
		jobs, runs = 30_000, 5
	}
	for range runs {
		stepRace(t, jobs)
	}
}

func stepRace(t *testing.T, jobs int) {
	const claimers = 8
	_, name := open(t, "")
	var mu sync.Mutex
	var starts []storage.Held // of attempts that were completed
	var all sync.WaitGroup
	ctx, cancel := context.WithTimeout(t.Context(), 9*time.Minute)
	defer cancel()
	now := time.Now()
	for i := range claimers {
		s, _ := open(t, name)
		all.Go(func() {
			var to []*storage.Record
			for n := i; ctx.Err() == nil; n++ {
				into := make([]*storage.Record, 1+(n*37+i*11)%120)
				for k := range into {
					into[k] = new(storage.Record)
				}
				settled, got, err := s.SettleAndClaim(ctx, now, to, nil, storage.Claim{Worker: fmt.Sprint(i)}, into)
				if err != nil {
					t.Error(err)
					return
				}
				mu.Lock()
				for k, r := range to {
					if settled[k].Err != nil {
						t.Errorf("job %s: %v", r.ID, settled[k].Err)
					}
					starts = append(starts, storage.Held{ID: r.ID, Version: r.Version})
				}
				over := len(starts) >= jobs
				mu.Unlock()
				to = to[:0]
				if over && got == 0 {
					return
				}
				if into = into[:got]; n%5 == 0 {
					half := into[:got/2]
					held := make([]storage.Held, len(half))
					for k, r := range half {
						held[k] = storage.Held{ID: r.ID, Version: r.Version}
					}
					if back, err := s.Unclaim(ctx, now, held); err != nil || back != len(held) {
						t.Errorf("%d of %d claims were undone: %v", back, len(held), err)
					}
					into = into[len(half):]
				}
				for _, r := range into {
					r.State, r.Progress, r.FinishedAt, r.LeaseUntil = ojs.StateCompleted, 1, now, time.Time{}
					to = append(to, r)
				}
			}
		})
	}
	s, _ := open(t, name)
	for first, size := 0, 1; first < jobs; size = size*3%499 + 1 {
		var batch []storage.Insert
		for ; len(batch) < size && first < jobs; first++ {
			var in storage.Insert
			r := &in.Record
			r.ID = fmt.Sprintf("01890a5d-ac96-774b-bcce-%012d", first)
			r.Type, r.Queue, r.State = "x", "q", ojs.StateAvailable
			r.CreatedAt, r.Lease = now, time.Hour
			batch = append(batch, in)
		}
		_, err := s.Insert(ctx, now, batch, nil)
		must(t, err)
	}
	all.Wait()
	seen := make(map[string]bool)
	for _, h := range starts {
		if seen[h.ID] {
			t.Errorf("job %s was completed twice", h.ID)
		}
		seen[h.ID] = true
	}
	if len(seen) != jobs {
		t.Errorf("%d of %d jobs were completed", len(seen), jobs)
	}
	checkCounts(t, connect(t), name)
}

// A claim that has skipped jobs begins behind them. It finds a job before them that
// another process gives back, without waiting for a poll.
func TestUnclaimBehindAClaim(t *testing.T) {
	mine, name := open(t, "", postgres.WithPoll(time.Hour))
	theirs, _ := open(t, name, postgres.WithPoll(time.Hour))
	told := make(chan struct{}, 100)
	defer mine.Notify(nil, func(n storage.Notice) {
		if n.Available {
			told <- struct{}{}
		}
	})()
	now := time.Now()
	var batch []storage.Insert
	for i := range 4 {
		var in storage.Insert
		r := &in.Record
		r.ID = fmt.Sprintf("01890a5d-ac96-774b-bcce-%012d", i)
		r.Type, r.Queue, r.State = "x", "q", ojs.StateAvailable
		r.CreatedAt, r.Lease = now, time.Hour
		if i > 0 {
			r.RateLimit = &ojs.RateLimit{Key: "k"}
		}
		batch = append(batch, in)
	}
	_, err := theirs.Insert(t.Context(), now, batch, nil)
	must(t, err)
	first := new(storage.Record)
	_, n, err := theirs.SettleAndClaim(t.Context(), now, nil, nil, storage.Claim{}, []*storage.Record{first})
	if err != nil || n != 1 {
		t.Fatal(n, err)
	}
	skip := storage.Claim{SkipKeys: storage.Keys("k"), Max: 1}
	for range 3 {
		if got, err := mine.Claim(t.Context(), now, skip, nil); err != nil || len(got) != 0 {
			t.Fatal(got, err)
		}
	}
	for len(told) > 0 {
		<-told
	}
	n, err = theirs.Unclaim(t.Context(), now, []storage.Held{{ID: first.ID, Version: first.Version}})
	if err != nil || n != 1 {
		t.Fatal(n, err)
	}
	late := time.After(time.Minute)
	for {
		select {
		case <-told:
		case <-late:
			t.Fatal("the job that was given back is not found")
		}
		got, err := mine.Claim(t.Context(), now, skip, nil)
		must(t, err)
		if len(got) == 1 && got[0].ID == first.ID {
			return
		}
	}
}
