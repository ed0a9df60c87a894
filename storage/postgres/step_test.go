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
				settled, got, err := s.SettleAndClaim(ctx, now, to, nil,
					storage.Claim{Worker: fmt.Sprint(i)}, into)
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
			batch = append(batch, freshJob(first, now))
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

// The outcomes and the claims of a step are written by one transaction.
func TestStepIsOneTransaction(t *testing.T) {
	s, name := open(t, "")
	pool := connect(t)
	now := time.Now()
	_, err := s.Insert(t.Context(), now, []storage.Insert{freshJob(0, now), freshJob(1, now)}, nil)
	must(t, err)
	first, second := new(storage.Record), new(storage.Record)
	_, n, err := s.SettleAndClaim(t.Context(), now, nil, nil, storage.Claim{}, []*storage.Record{first})
	if err != nil || n != 1 {
		t.Fatal(n, err)
	}
	first.State, first.FinishedAt, first.LeaseUntil = ojs.StateCompleted, now, time.Time{}
	to := []*storage.Record{first}
	settled, n, err := s.SettleAndClaim(t.Context(), now, to, nil, storage.Claim{}, []*storage.Record{second})
	if err != nil || n != 1 || settled[0].Err != nil {
		t.Fatal(settled, n, err)
	}
	var writers int
	must(t, pool.QueryRow(t.Context(), "SELECT count(DISTINCT xmin::text) FROM "+name+
		".stage").Scan(&writers))
	if writers != 1 {
		t.Errorf("%d transactions have written the two jobs", writers)
	}
}

// With retention, a schema that is vacuumed does not grow with the jobs that have gone
// through it: 6,000, or a million with OJS_STORM.
func TestPlateau(t *testing.T) {
	rounds, jobs, kept := 6, 1000, 100
	if os.Getenv("OJS_STORM") != "" {
		rounds, jobs, kept = 20, 50_000, 10_000
	}
	s, name := open(t, "")
	pool := connect(t)
	now := time.Now()
	var sizes []int64
	for round := range rounds {
		for first := round * jobs; first < (round+1)*jobs; first += 1000 {
			var batch []storage.Insert
			for i := range 1000 {
				batch = append(batch, freshJob(first+i, now))
			}
			_, err := s.Insert(t.Context(), now, batch, nil)
			must(t, err)
		}
		var to []*storage.Record
		for {
			into := make([]*storage.Record, 250)
			for i := range into {
				into[i] = new(storage.Record)
			}
			_, n, err := s.SettleAndClaim(t.Context(), now, to, nil, storage.Claim{}, into)
			must(t, err)
			if to = into[:n]; n == 0 {
				break
			}
			for _, r := range to {
				r.State, r.FinishedAt, r.LeaseUntil = ojs.StateCompleted, now, time.Time{}
			}
		}
		for left := jobs - kept*max(0, 1-round); left > 0; left -= 1000 {
			prune(t, s, storage.Prune{Beyond: kept}, min(left, 1000))
		}
		_, err := pool.Exec(t.Context(), fmt.Sprintf("VACUUM %[1]s.job, %[1]s.stage, %[1]s.tally", name))
		must(t, err)
		var size int64
		must(t, pool.QueryRow(t.Context(), `SELECT sum(pg_total_relation_size(c.oid))::bigint FROM pg_class c
			JOIN pg_namespace n ON n.oid = c.relnamespace WHERE n.nspname = $1 AND c.relkind = 'r'`, name).Scan(&size))
		sizes = append(sizes, size)
	}
	if sizes[rounds-1] > sizes[2]*5/4 {
		t.Errorf("the schema grows: %v bytes", sizes)
	}
	t.Log(sizes)
}

// freshJob is an available job with a number.
func freshJob(n int, now time.Time) (in storage.Insert) {
	r := &in.Record
	r.ID = fmt.Sprintf("01890a5d-ac96-774b-bcce-%012d", n)
	r.Type, r.Queue, r.State = "x", "q", ojs.StateAvailable
	r.CreatedAt, r.Lease = now, time.Hour
	return in
}
