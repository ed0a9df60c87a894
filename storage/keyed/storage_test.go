package keyed_test

import (
	"sync"
	"testing"

	"github.com/ojsengine/ojs/storage"
	"github.com/ojsengine/ojs/storage/keyed"
	"github.com/ojsengine/ojs/storage/keyed/driver"
	"github.com/ojsengine/ojs/storage/keyed/drivertest"
	"github.com/ojsengine/ojs/storage/storagetest"
)

// stores are the stores of the storages that the tests have opened.
var stores sync.Map

func open(tb testing.TB, db driver.DB) storage.Storage {
	s, err := keyed.Open(db, "keyed")
	if err != nil {
		tb.Fatal(err)
	}
	stores.Store(s, db)
	return s
}

// abilities are those of every storage of this package.
var abilities = storagetest.Config{
	Then: true, Queues: true, Crons: true, Orders: true, Versions: true, Values: true, Logs: true,
	Notices:   true,
	DependsOn: true, Ordering: true, Groups: true, Fairness: true, Limits: true,
}

// config is a storage over a store in memory that outlives its handles. wrap wraps each
// handle of the store.
func config(firstWins bool, wrap func(db driver.DB) driver.DB) storagetest.Config {
	if wrap == nil {
		wrap = func(db driver.DB) driver.DB { return db }
	}
	c := abilities
	c.Open = func(tb testing.TB) storage.Storage {
		limits := driver.Limits{Durable: true, Shared: firstWins}
		return open(tb, wrap(drivertest.NewMemory(firstWins, limits)))
	}
	again := func(tb testing.TB, s storage.Storage) storage.Storage {
		db, _ := stores.Load(s)
		if u, ok := db.(*drivertest.Unsteady); ok {
			db = u.DB
		}
		return open(tb, wrap(db.(*drivertest.Memory).Another()))
	}
	c.Reopen = func(tb testing.TB, s storage.Storage) storage.Storage {
		if err := s.Close(); err != nil {
			tb.Fatal(err)
		}
		return again(tb, s)
	}
	if firstWins {
		c.Another = again
	}
	return c
}

func TestStorage(t *testing.T) { storagetest.Run(t, config(false, nil)) }

func TestEngine(t *testing.T) { storagetest.RunEngine(t, config(false, nil)) }

func TestSameBehaviour(t *testing.T) { storagetest.SameBehaviour(t, config(false, nil)) }

// TestUnsteady runs the suite over a store whose transactions fail, conflict and have
// unknown outcomes, with several handles.
func TestUnsteady(t *testing.T) {
	if testing.Short() {
		t.Skip("runs the suite once more")
	}
	storagetest.Run(t, config(true, func(db driver.DB) driver.DB { return drivertest.NewUnsteady(db, 1) }))
}

func BenchmarkStorage(b *testing.B) { storagetest.Benchmark(b, config(false, nil).Open) }
