package postgres_test

import (
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/ojsengine/ojs"
	"github.com/ojsengine/ojs/internal/test/workflowtest"
	"github.com/ojsengine/ojs/storage"
	"github.com/ojsengine/ojs/storage/postgres"
)

func TestWorkflowsOutliveTheirEngine(t *testing.T) {
	first, name := open(t, "")
	workflowtest.OutliveTheirEngine(t, first, func() []storage.Storage {
		second, _ := open(t, name)
		third, _ := open(t, name)
		return []storage.Storage{second, third}
	})
}

func TestWorkflowsInOneStep(t *testing.T) {
	workflowtest.Groups(t, func(t *testing.T) storage.Storage {
		s, _ := open(t, "")
		return s
	})
}

// Jobs that wait for each other's jobs in opposite orders end in concurrent transactions:
// each is counted, whichever transaction the database undoes.
func TestConcurrentEndsInAnyOrder(t *testing.T) {
	one, name := open(t, "")
	two, _ := open(t, name)
	now := time.Now()
	job := func(id string, state ojs.State, on ...string) storage.Insert {
		var r storage.Record
		r.ID, r.Queue, r.Type, r.State, r.Lease = id, "q", "x", state, 1e9
		r.CreatedAt, r.EnqueuedAt = now, now
		if len(on) > 0 {
			r.Dependencies = &ojs.Dependencies{Condition: ojs.AllEnded}
		}
		return storage.Insert{Record: r, DependsOn: on}
	}
	for round := range 20 {
		id := func(what string, i int) string { return fmt.Sprint(what, i, ".", round) }
		const n = 8
		var batch []storage.Insert
		var roots []string
		for i := range n {
			batch = append(batch, job(id("root", i), ojs.StateAvailable))
			roots = append(roots, id("root", i))
		}
		// Joins of the roots; then two levels whose numbers fall where the levels rise.
		for i := range n {
			in := job(id("last", i), ojs.StatePending,
				id("join", i), id("join", (i+1)%n), id("join", (i+3)%n))
			batch = append(batch, in)
		}
		for i := range n {
			in := job(id("join", i), ojs.StatePending, roots[i], roots[(i+1)%n], roots[(i+5)%n])
			in.Record.Dependencies.Join = true
			batch = append(batch, in)
		}
		_, err := one.Insert(t.Context(), now, batch, nil)
		must(t, err)
		claimed, err := one.Claim(t.Context(), now, storage.Claim{Max: n}, nil)
		must(t, err)
		moved := make(map[string]int)
		var mu sync.Mutex
		var wg sync.WaitGroup
		for i := range claimed {
			wg.Go(func() {
				r := claimed[i]
				r.State, r.FinishedAt, r.LeaseUntil = ojs.StateCompleted, now, r.FinishedAt
				s := []*postgres.Storage{one, two}[i%2]
				changes := []storage.Change{{Record: r, AttemptFieldsOnly: true}}
				out, err := s.Settle(t.Context(), now, changes, nil)
				if err != nil || out[0].Err != nil {
					t.Errorf("%v, %+v", err, out)
					return
				}
				mu.Lock()
				defer mu.Unlock()
				for _, m := range out[0].Moved {
					moved[m.ID+" "+string(m.State)]++
				}
			})
		}
		wg.Wait()
		for i := range n {
			if k := id("join", i) + " completed"; moved[k] != 1 {
				t.Errorf("%s: %d times", k, moved[k])
			}
			if k := id("last", i) + " available"; moved[k] != 1 {
				t.Errorf("%s: %d times", k, moved[k])
			}
		}
		left, err := one.Claim(t.Context(), now, storage.Claim{Max: 2 * n}, nil)
		if err != nil || len(left) != n {
			t.Fatalf("%d jobs are available, %v", len(left), err)
		}
		for i := range left {
			r := left[i]
			r.State, r.FinishedAt, r.LeaseUntil = ojs.StateCompleted, now, r.FinishedAt
			changes := []storage.Change{{Record: r, AttemptFieldsOnly: true}}
			_, err := one.Settle(t.Context(), now, changes, nil)
			must(t, err)
		}
	}
	var edges, awaited int
	count := "SELECT (SELECT count(*) FROM " + name + ".edge), count(*) FROM " + name + ".stage WHERE awaited"
	must(t, connect(t).QueryRow(t.Context(), count).Scan(&edges, &awaited))
	if edges+awaited > 0 {
		t.Errorf("%d edges and %d awaited jobs are left", edges, awaited)
	}
}
