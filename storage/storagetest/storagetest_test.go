package storagetest_test

import (
	"testing"

	"go.uber.org/goleak"

	"github.com/ojsengine/ojs/storage"
	"github.com/ojsengine/ojs/storage/storagetest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

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
