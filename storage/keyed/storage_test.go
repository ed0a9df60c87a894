package keyed_test

import (
	"flag"
	"os"
	"testing"

	"github.com/ojsengine/ojs/internal/listtest"
	"github.com/ojsengine/ojs/storage"
	"github.com/ojsengine/ojs/storage/keyed"
	"github.com/ojsengine/ojs/storage/keyed/driver"
	"github.com/ojsengine/ojs/storage/keyed/drivertest"
	"github.com/ojsengine/ojs/storage/keyed/keyedtest"
	"github.com/ojsengine/ojs/storage/storagetest"
)

// A hundred runs of the random operations of storagetest, on a steady store and on an
// unsteady one, take a minute. OJS_STORM=1 makes them.
func TestMain(m *testing.M) {
	if os.Getenv("RAPID_CHECKS") == "" && os.Getenv("OJS_STORM") == "" {
		_ = flag.Set("rapid.checks", "25") // the command line comes after
	}
	os.Exit(m.Run())
}

func open(tb testing.TB, db driver.DB) storage.Storage {
	s, err := keyed.Open(db, "keyed")
	if err != nil {
		tb.Fatal(err)
	}
	return s
}

// config is a storage over a store in memory that outlives its handles.
var config = keyedtest.Config(drivertest.Config{
	Open: func(testing.TB) driver.DB {
		return drivertest.NewMemory(false, driver.Limits{Durable: true})
	},
	Reopen: func(_ testing.TB, db driver.DB) driver.DB { return db.(*drivertest.Memory).Another() },
})

func TestStorage(t *testing.T) { storagetest.Run(t, config) }

func TestActiveListingLooksAtActiveJobs(t *testing.T) { listtest.ActiveOnly(t, config.Open(t)) }

func TestEngine(t *testing.T) { storagetest.RunEngine(t, config) }

func TestSameBehaviour(t *testing.T) { storagetest.SameBehaviour(t, config) }

// TestUnsteady runs the suite over a store whose transactions fail, conflict and have
// unknown outcomes, with several handles.
func TestUnsteady(t *testing.T) {
	if testing.Short() {
		t.Skip("runs the suite once more")
	}
	again := func(_ testing.TB, db driver.DB) driver.DB {
		return drivertest.NewUnsteady(db.(*drivertest.Unsteady).DB.(*drivertest.Memory).Another(), 2)
	}
	cfg := keyedtest.Config(drivertest.Config{
		Open: func(testing.TB) driver.DB {
			m := drivertest.NewMemory(true, driver.Limits{Durable: true, Shared: true})
			return drivertest.NewUnsteady(m, 1)
		},
		Reopen: again, Another: again,
	})
	inner := cfg.Open
	cfg.Open = func(tb testing.TB) storage.Storage {
		s := inner(tb)
		keyed.KeepFronts(s.(*keyed.Storage), 0) // until another handle ends them
		return s
	}
	storagetest.Run(t, cfg)
}

// TestSameBehaviourOfFronts is TestSameBehaviour with fronts of all backlogs.
func TestSameBehaviourOfFronts(t *testing.T) {
	cfg := config
	cfg.Open = func(tb testing.TB) storage.Storage {
		s := config.Open(tb)
		keyed.KeepFronts(s.(*keyed.Storage), 0)
		return s
	}
	storagetest.SameBehaviour(t, cfg)
}

func BenchmarkStorage(b *testing.B) { storagetest.Benchmark(b, config.Open) }
