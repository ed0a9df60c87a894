package memory_test

import (
	"testing"

	"go.uber.org/goleak"

	"github.com/ojsengine/ojs/storage"
	"github.com/ojsengine/ojs/storage/memory"
	"github.com/ojsengine/ojs/storage/storagetest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func open(testing.TB) storage.Storage { return memory.New() }

func TestStorage(t *testing.T) {
	cfg := storagetest.Config{
		Open: open, Notices: true, SettleClaims: true,
	}
	storagetest.Run(t, cfg)
	storagetest.RunEngine(t, cfg)
	storagetest.SameBehaviour(t, cfg)
}

func BenchmarkStorage(b *testing.B) { storagetest.Benchmark(b, open) }
