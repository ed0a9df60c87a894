package engine_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ojsengine/ojs"
	"github.com/ojsengine/ojs/engine"
	"github.com/ojsengine/ojs/internal/test/pace"
	"github.com/ojsengine/ojs/storage/memory"
	"github.com/ojsengine/ojs/storage/storagetest"
)

// Every call of the storage fails one time in ten, before its work or after it. 3,000
// jobs all come to an end, none is lost, and none runs twice at once.
func TestStorageThatFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex // guards r
		r := rand.New(rand.NewPCG(1, 2))
		var faults atomic.Int64
		sound := memory.New()
		store := &storagetest.Faulty{Storage: sound}
		store.OnCall(func(c *storagetest.Call) {
			mu.Lock()
			fails, after := r.IntN(10) == 0, r.IntN(2) == 0
			mu.Unlock()
			if !fails {
				return
			}
			faults.Add(1)
			if after {
				c.Do()
			}
			c.Err = storagetest.ErrFault
		})
		eng, err := engine.New[any](store, quiet, engine.WithConcurrency(8),
			engine.WithRetention(engine.Retention{MaxFinished: -1, MaxDeadLetters: -1}))
		must(t, err)
		var running sync.Map
		var ran atomic.Int64
		eng.Handle("x", func(ctx context.Context, job *ojs.Job[any]) error {
			if _, twice := running.LoadOrStore(job.ID, true); twice {
				t.Errorf("job %s runs twice at once", job.ID)
			}
			defer running.Delete(job.ID)
			pace.Virtual(time.Millisecond)
			if ran.Add(1)%5 == 0 {
				return errBoom
			}
			return nil
		})
		ctx, stop := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- eng.Run(ctx) }()

		const jobs = 3000
		var ids []string
		for i := range jobs {
			id := fmt.Sprintf("01890a5d-ac96-774b-bcce-%012x", i)
			for { // an enqueue that names its job may be repeated
				_, err := eng.Enqueue(ctx, "x", i, ojs.WithID(id), ojs.WithLease(time.Minute),
					ojs.WithMaxAttempts(10))
				if err == nil || errors.Is(err, ojs.ErrDuplicate) {
					break
				}
				if !errors.Is(err, storagetest.ErrFault) {
					t.Fatal(err)
				}
			}
			ids = append(ids, id)
		}
		open := func() (n int) {
			counts, err := sound.Counts(ctx)
			must(t, err)
			for _, c := range counts {
				if !c.State.Terminal() {
					n += c.N
				}
			}
			return n
		}
		for minute := 0; open() > 0; minute++ {
			if minute == 24*60 {
				t.Fatalf("%d jobs have not ended after a day", open())
			}
			pace.Virtual(time.Minute)
		}
		stop()
		must(t, <-ended)
		var got []string
		for _, id := range ids {
			rec, err := sound.Get(t.Context(), id)
			if err != nil || !rec.State.Terminal() || rec.Attempt > rec.MaxAttempts {
				t.Fatalf("%+v, %v", rec, err)
			}
			got = append(got, rec.ID)
		}
		if !slices.Equal(got, ids) || faults.Load() < jobs/10 {
			t.Errorf("%d jobs, %d faults", len(got), faults.Load())
		}
		t.Logf("%d faults, %d attempts, %v", faults.Load(), ran.Load(),
			time.Since(time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC)))
		must(t, sound.Close())
	})
}

// Health says which calls of the storage fail and why, and forgets it when they work
// again.
func TestHealthOfAStorageThatFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var failing atomic.Value
		failing.Store("")
		store := &storagetest.Faulty{Storage: memory.New()}
		store.OnCall(func(c *storagetest.Call) {
			if c.Method == failing.Load() {
				c.Err = storagetest.ErrFault
			}
		})
		eng, err := engine.New[any](store, quiet)
		must(t, err)
		eng.Handle("x", func(context.Context, *ojs.Job[any]) error { return nil })
		ctx, stop := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- eng.Run(ctx) }()
		synctest.Wait()
		for op, says := range map[string]engine.Problem{
			"Claim":  {Code: engine.ProblemClaims, Text: "claims of jobs fail: "},
			"Due":    {Code: engine.ProblemChecks, Text: "checks for due jobs fail: "},
			"Counts": {Code: engine.ProblemStorage, Text: "the storage does not answer: "},
		} {
			failing.Store(op)
			_, err := eng.Enqueue(t.Context(), "x", nil, ojs.WithDelay(time.Second))
			must(t, err)
			if op == "Claim" {
				_, err := eng.Enqueue(t.Context(), "x", nil)
				must(t, err)
			}
			pace.Virtual(2 * time.Second)
			synctest.Wait()
			h, want := eng.Health(t.Context()), says.Text+storagetest.ErrFault.Error()
			status, storage := engine.Degraded, engine.Healthy
			if op == "Counts" {
				status, storage = engine.Unhealthy, engine.Unhealthy
			}
			told := func(p engine.Problem) bool {
				return p.Code == says.Code && p.Text == want && errors.Is(p.Err, storagetest.ErrFault)
			}
			if h.Status != status || h.Storage != storage || !slices.ContainsFunc(h.Problems, told) {
				t.Errorf("%s: %+v, want %q", op, h, want)
			}
			failing.Store("")
			pace.Virtual(time.Minute)
			synctest.Wait()
			if h := eng.Health(t.Context()); h.Status != engine.Healthy {
				t.Errorf("%s works again: %+v", op, h)
			}
		}
		stop()
		must(t, <-ended)
	})
}
