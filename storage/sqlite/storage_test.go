package sqlite_test

import (
	"context"
	"path/filepath"
	"sync"
	"testing"

	"github.com/ojsengine/ojs/storage"
	"github.com/ojsengine/ojs/storage/keyed/driver"
	"github.com/ojsengine/ojs/storage/keyed/drivertest"
	"github.com/ojsengine/ojs/storage/keyed/keyedtest"
	"github.com/ojsengine/ojs/storage/sqlite"
	"github.com/ojsengine/ojs/storage/storagetest"
)

// files are the files of the storages that are open, to open them again.
var files sync.Map

func open(tb testing.TB) storage.Storage {
	return reopen(tb, filepath.Join(tb.TempDir(), "jobs.db"))
}

func reopen(tb testing.TB, path string) storage.Storage {
	// No rule of the suite depends on the wait for the disk, and it takes much time.
	s, err := sqlite.Open(context.Background(), path, sqlite.WithSynchronous(sqlite.Normal))
	if err != nil {
		tb.Fatal(err)
	}
	files.Store(s, path)
	return s
}

var config = storagetest.Config{
	Open: open,
	Reopen: func(tb testing.TB, s storage.Storage) storage.Storage {
		if err := s.Close(); err != nil {
			tb.Fatal(err)
		}
		path, _ := files.Load(s)
		return reopen(tb, path.(string))
	},
	Another: func(tb testing.TB, s storage.Storage) storage.Storage {
		path, _ := files.Load(s)
		return reopen(tb, path.(string))
	},
	Notices: true, Quarantine: true, SettleClaims: true,
}

func init() {
	keyedtest.Damages(&config, func(s storage.Storage) driver.DB { return s.(*sqlite.Storage).DB() })
}

// openDriver opens the store of a file.
func openDriver(tb testing.TB, path string) driver.DB {
	db, err := sqlite.OpenDriver(path)
	if err != nil {
		tb.Fatal(err)
	}
	files.Store(db, path)
	return db
}

func againDriver(tb testing.TB, db driver.DB) driver.DB {
	path, _ := files.Load(db)
	return openDriver(tb, path.(string))
}

func TestDriver(t *testing.T) {
	drivertest.Run(t, drivertest.Config{
		Open: func(tb testing.TB) driver.DB {
			return openDriver(tb, filepath.Join(tb.TempDir(), "jobs.db"))
		},
		Reopen: againDriver, Another: againDriver,
	})
}

func TestStorage(t *testing.T) {
	t.Parallel()
	storagetest.Run(t, config)
}

func TestEngine(t *testing.T) { storagetest.RunEngine(t, config) }

func TestSameBehaviour(t *testing.T) { storagetest.SameBehaviour(t, config) }

func BenchmarkStorage(b *testing.B) { storagetest.Benchmark(b, open) }
