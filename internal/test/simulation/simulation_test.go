package simulation

import (
	"flag"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/ojsengine/ojs"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var (
	firstSeed = flag.Uint64("seed", 1, "the first seed of TestSimulation")
	seeds     = flag.Int("seeds", 150, "how many seeds TestSimulation runs")
)

// TestSimulation runs the programs of some seeds: those that the flags name.
func TestSimulation(t *testing.T) {
	for seed := *firstSeed; seed < *firstSeed+uint64(*seeds); seed++ {
		t.Run(fmt.Sprint("seed=", seed), func(t *testing.T) {
			t.Parallel()
			Run(t, seed, Config{})
		})
	}
}

// A timeout begins with the handler: a snooze at once is in time, however long the claim
// has taken (P0.5).
func TestSnoozeAfterASlowClaim(t *testing.T) {
	const jobs = 20
	var w *world
	synctest.Test(t, func(t *testing.T) {
		w = newWorld(t, 1, Config{})
		all := storm{to: 10 * time.Minute, hang: 1}
		w.prog = &program{
			horizon: all.to, weather: []storm{all},
			nodes: []nodeConfig{{concurrency: 1, grace: time.Second, types: workTypes}},
		}
		w.stage(func() {
			var drafts []ojs.Draft
			for n := 0; len(drafts) < jobs; n++ {
				if script(w.seed, n, 0).kind == "snooze" {
					drafts = append(drafts, ojs.NewDraft(workTypes[0], Args{N: n}, ojs.WithMeta("n", n),
						ojs.WithTimeout(time.Second), ojs.WithLease(time.Minute),
						ojs.WithRetry(ojs.RetryPolicy{NonRetryableErrors: []string{"fatal.*"}})))
				}
			}
			if _, err := w.nodes[0].eng.EnqueueMany(w.ctx, drafts...); err != nil {
				t.Fatal(err)
			}
		})
	})
	if len(w.violations) > 0 {
		t.Error(w.report())
	}
}
