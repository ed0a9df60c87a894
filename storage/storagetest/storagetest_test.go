package storagetest_test

import (
	"flag"
	"os"
	"testing"

	"go.uber.org/goleak"

	"github.com/ojsengine/ojs/storage"
	"github.com/ojsengine/ojs/storage/storagetest"
)

// TestRandomReachesEverything, which OJS_STORM=1 has search, needs the 100 runs that are
// the default of rapid.
func TestMain(m *testing.M) {
	if os.Getenv("RAPID_CHECKS") == "" && os.Getenv("OJS_STORM") == "" {
		_ = flag.Set("rapid.checks", "25") // the command line comes after
	}
	goleak.VerifyTestMain(m)
}

func TestReference(t *testing.T) {
	cfg := storagetest.Config{
		Open: func(testing.TB) storage.Storage { return storagetest.NewReference() },
	}
	storagetest.Run(t, cfg)
	storagetest.RunEngine(t, cfg)
}

// The plainest storage that settles and claims in one step.
func TestReferenceInOneStep(t *testing.T) {
	cfg := storagetest.Config{
		Open: func(testing.TB) storage.Storage {
			return storagetest.Stepper{Reference: storagetest.NewReference()}
		},
		SettleClaims: true,
	}
	storagetest.Run(t, cfg)
	storagetest.RunEngine(t, cfg)
	storagetest.SameBehaviour(t, cfg)
}
