package bbolt_test

import (
	"flag"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	bolt "go.etcd.io/bbolt"

	"github.com/ojsengine/ojs/examples/bbolt"
	"github.com/ojsengine/ojs/storage/keyed"
	"github.com/ojsengine/ojs/storage/keyed/driver"
	"github.com/ojsengine/ojs/storage/keyed/drivertest"
	"github.com/ojsengine/ojs/storage/keyed/keyedtest"
	"github.com/ojsengine/ojs/storage/storagetest"
)

// The tests of package keyed make more runs of the random operations of storagetest. Here
// the driver alone is new.
func TestMain(m *testing.M) {
	if os.Getenv("RAPID_CHECKS") == "" {
		_ = flag.Set("rapid.checks", "10") // the command line comes after
	}
	os.Exit(m.Run())
}

// paths are the files of the stores that are open, to open them again.
var paths sync.Map

// The tests do not depend on the wait for the disk, which takes most of their time.
var fast = &bolt.Options{NoSync: true}

func openDriver(tb testing.TB, path string) driver.DB {
	tb.Helper()
	db, err := bbolt.OpenDriver(path, fast)
	if err != nil {
		tb.Fatal(err)
	}
	paths.Store(db, path)
	return db
}

var stores = drivertest.Config{
	Open: func(tb testing.TB) driver.DB { return openDriver(tb, filepath.Join(tb.TempDir(), "jobs.db")) },
	Reopen: func(tb testing.TB, db driver.DB) driver.DB {
		path, _ := paths.Load(db)
		return openDriver(tb, path.(string))
	},
}

var config = keyedtest.Config(stores)

func TestDriver(t *testing.T) { drivertest.Run(t, stores) }

func TestStorage(t *testing.T) { storagetest.Run(t, config) }

func TestEngine(t *testing.T) { storagetest.RunEngine(t, config) }

func TestSameBehaviour(t *testing.T) { storagetest.SameBehaviour(t, config) }

func BenchmarkStorage(b *testing.B) { storagetest.Benchmark(b, config.Open) }

func TestOpen(t *testing.T) {
	open := func(t *testing.T, path string) *keyed.Storage {
		t.Helper()
		s, err := bbolt.Open(path, fast)
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	edit := func(t *testing.T, path string, f func(b *bolt.Bucket) error) {
		t.Helper()
		db, err := bolt.Open(path, 0o600, nil)
		if err != nil {
			t.Fatal(err)
		}
		defer db.Close()
		err = db.Update(func(tx *bolt.Tx) error {
			b, err := tx.CreateBucketIfNotExists([]byte("ojs"))
			if err != nil {
				return err
			}
			return f(b)
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	refused := func(t *testing.T, path, why string) {
		t.Helper()
		s, err := bbolt.Open(path, nil)
		if err == nil {
			s.Close()
			t.Fatal("opened")
		}
		if !strings.Contains(err.Error(), why) || !strings.Contains(err.Error(), path) {
			t.Error(err)
		}
	}
	t.Run("refuses other buckets", func(t *testing.T) {
		path := filepath.Join(t.TempDir(), "other.db")
		edit(t, path, func(b *bolt.Bucket) error { return b.Put([]byte("user 1"), []byte("Ann")) })
		refused(t, path, "something else than jobs")
	})
	t.Run("refuses newer layouts", func(t *testing.T) {
		path := filepath.Join(t.TempDir(), "jobs.db")
		if err := open(t, path).Close(); err != nil {
			t.Fatal(err)
		}
		edit(t, path, func(b *bolt.Bucket) error {
			k, v := b.Cursor().First() // the meta table comes first, and it has nothing else yet
			v = append([]byte{}, v...)
			v[len(v)-1]++
			return b.Put(k, v)
		})
		refused(t, path, "the layout has version 6, and this program knows 5")
	})
	t.Run("refuses a file that is open", func(t *testing.T) {
		path := filepath.Join(t.TempDir(), "jobs.db")
		s := open(t, path)
		defer s.Close()
		refused(t, path, "timeout")
	})
}
