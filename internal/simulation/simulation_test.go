package simulation

import (
	"flag"
	"fmt"
	"testing"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var (
	firstSeed = flag.Uint64("seed", 1, "the first seed of TestSimulation")
	seeds     = flag.Int("seeds", 40, "how many seeds TestSimulation runs")
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
