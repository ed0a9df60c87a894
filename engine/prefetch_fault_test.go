package engine_test

import (
	"context"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/ojsengine/ojs"
	"github.com/ojsengine/ojs/engine"
	"github.com/ojsengine/ojs/inspect"
	"github.com/ojsengine/ojs/internal/test/pace"
	"github.com/ojsengine/ojs/storage"
	"github.com/ojsengine/ojs/storage/storagetest"
)

// durableSteps is a storage that stores and claims in one step, and is durable as far as
// engines know.
type durableSteps struct {
	durable
	storage.SettleClaimer
}

func (s durableSteps) Unwrap() storage.Storage { return s.Storage }

// Every job completes over a storage that fails now and then, and only those run again
// whose claims were lost. No job runs that may have been given back.
func TestPrefetchOnMoodyStorage(t *testing.T) {
	t.Run("memory", func(t *testing.T) { prefetchOnMoodyStorage(t, false) })
	t.Run("durable", func(t *testing.T) { prefetchOnMoodyStorage(t, true) })
}

func prefetchOnMoodyStorage(t *testing.T, lasts bool) {
	store := hooked(func(c *storagetest.Call) {
		odds := map[string]int{"SettleAndClaim": 400, "Settle": 10, "Unclaim": 16}[c.Method]
		if odds == 0 {
			return
		}
		switch rand.IntN(odds) {
		case 1:
			c.Do()
			fallthrough
		case 0:
			c.Err = errStorage
		}
	}).Stepping()
	if lasts {
		store = durableSteps{durable{store}, store.(storage.SettleClaimer)}
	}
	eng, err := engine.New[int](store, quiet, engine.WithConcurrency(4), keepAll)
	must(t, err)
	var mu sync.Mutex
	runs := make(map[string]int)
	eng.Handle("quick", func(_ context.Context, job *ojs.Job[int]) error {
		mu.Lock()
		runs[job.ID]++
		mu.Unlock()
		return nil
	})
	const jobs = 2000
	var drafts []ojs.Draft
	for i := range jobs {
		drafts = append(drafts, ojs.NewDraft("quick", i, ojs.WithLease(time.Second), ojs.WithMaxAttempts(20),
			ojs.WithRetry(ojs.RetryPolicy{InitialInterval: time.Millisecond, MaxInterval: time.Millisecond})))
	}
	_, err = eng.EnqueueMany(t.Context(), drafts...)
	must(t, err)
	stop := started(t, eng)
	pace.Until(t, "all jobs have completed", func() bool {
		must1(eng.Queues().Pause(t.Context(), ojs.DefaultQueue)) // jobs claimed ahead go back
		must1(eng.Queues().Resume(t.Context(), ojs.DefaultQueue))
		stats, err := eng.Stats(t.Context())
		must(t, err)
		return stats.Total[ojs.StateCompleted] == jobs
	})
	pace.Until(t, "workers know of the outcomes that are stored", func() bool {
		stats, err := eng.Stats(t.Context())
		must(t, err)
		return stats.Busy == 0
	})
	must(t, eng.WaitIdle(t.Context()))
	for job, err := range eng.Jobs().List(t.Context(), inspect.Filter{}) {
		must(t, err)
		if n := runs[job.ID]; n < 1 || n > job.Attempt {
			t.Errorf("job %s: %d runs, %d attempts", job.ID, n, job.Attempt)
		}
	}
	stop()
}
