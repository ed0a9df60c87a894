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
		Open:   func(testing.TB) storage.Storage { return storagetest.NewReference() },
		Queues: true, Crons: true, Then: true, Orders: true,
		DependsOn: true, Ordering: true, Fairness: true, Versions: true,
		Groups: true,
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
		Queues: true, Crons: true, SettleClaims: true, Then: true, Orders: true,
		DependsOn: true, Ordering: true, Fairness: true,
		Groups:   true,
		Versions: true,
	}
	storagetest.Run(t, cfg)
	storagetest.RunEngine(t, cfg)
	storagetest.SameBehaviour(t, cfg)
}
