package engine_test

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ojsengine/ojs"
	"github.com/ojsengine/ojs/engine"
	"github.com/ojsengine/ojs/inspect"
	"github.com/ojsengine/ojs/internal/test/pace"
	"github.com/ojsengine/ojs/policy"
	"github.com/ojsengine/ojs/storage/storagetest"
)

// A handler that returned an error at once has failed with that error, and not by its
// timeout, though the storage could not take what was completed before for longer than
// that.
func TestOutcomeBehindOthersIsItsOwn(t *testing.T) {
	var down atomic.Bool
	s := hooked(func(c *storagetest.Call) {
		if down.Load() && (c.Method == "SettleAndClaim" || c.Method == "Settle") {
			c.Err = errStorage
		}
	})
	eng, err := engine.New[int](s.Stepping(), quiet, keepAll, engine.WithConcurrency(2),
		engine.WithGracePeriod(10*time.Millisecond))
	must(t, err)
	var once sync.Once
	eng.Handle("quick", func(_ context.Context, job *ojs.Job[int]) error {
		if job.Args >= 4000 && job.Args%16 == 7 {
			once.Do(func() {
				down.Store(true)
				time.AfterFunc(400*time.Millisecond, func() { down.Store(false) })
			})
			return errors.New("at once")
		}
		return nil
	})
	var drafts []ojs.Draft
	for i := range 5000 {
		drafts = append(drafts, ojs.NewDraft("quick", i, ojs.WithTimeout(200*time.Millisecond),
			ojs.WithMaxAttempts(1)))
	}
	_, err = eng.EnqueueMany(t.Context(), drafts...)
	must(t, err)
	started(t, eng)
	// An engine that waits for its storage counts as idle.
	pace.Until(t, "all jobs have ended", func() bool {
		stats, err := eng.Stats(t.Context())
		must(t, err)
		n := stats.Total
		return n[ojs.StateAvailable]+n[ojs.StateActive]+n[ojs.StateRetryable] == 0
	})
	n, wrong := 0, 0
	for job, err := range eng.Jobs().List(t.Context(), inspect.Filter{}) {
		must(t, err)
		if job.State != ojs.StateCompleted {
			switch n++; {
			case job.Error == nil:
				t.Errorf("idle, but a job is %s at attempt %d", job.State, job.Attempt)
			case job.Error.Type == policy.ErrorTypeTimeout:
				wrong++
			}
		}
	}
	if n == 0 || wrong > 0 {
		t.Errorf("%d of %d failures are timeouts", wrong, n)
	}
}
