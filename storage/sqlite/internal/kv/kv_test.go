package kv_test

import (
	"path/filepath"
	"sync"
	"testing"

	"github.com/ojsengine/ojs/storage"
	"github.com/ojsengine/ojs/storage/keyed"
	"github.com/ojsengine/ojs/storage/keyed/driver"
	"github.com/ojsengine/ojs/storage/keyed/drivertest"
	"github.com/ojsengine/ojs/storage/sqlite/internal/kv"
	"github.com/ojsengine/ojs/storage/storagetest"
)

// paths are the files of the stores that are open, to open them again.
var paths sync.Map

func open(tb testing.TB, path string) driver.DB {
	tb.Helper()
	db, err := kv.Open(path)
	if err != nil {
		tb.Fatal(err)
	}
	paths.Store(db, path)
	return db
}

func again(tb testing.TB, db driver.DB) driver.DB {
	path, _ := paths.Load(db)
	return open(tb, path.(string))
}

var stores = drivertest.Config{
	Open:   func(tb testing.TB) driver.DB { return open(tb, filepath.Join(tb.TempDir(), "jobs.db")) },
	Reopen: again, Another: again,
}

func TestDriver(t *testing.T) { drivertest.Run(t, stores) }

// BenchmarkStorage is to be compared with that of package sqlite, by processor time.
func BenchmarkStorage(b *testing.B) {
	storagetest.Benchmark(b, func(tb testing.TB) storage.Storage {
		s, err := keyed.Open(stores.Open(tb), "kv")
		if err != nil {
			tb.Fatal(err)
		}
		return s
	})
}
