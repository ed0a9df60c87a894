package bbolt_test

import (
	"path/filepath"
	"strings"
	"sync"
	"testing"

	bolt "go.etcd.io/bbolt"

	"github.com/ojsengine/ojs/examples/bbolt"
	"github.com/ojsengine/ojs/storage"
	"github.com/ojsengine/ojs/storage/storagetest"
)

// paths are the files of the storages that are open, by storage, to open them again.
var paths sync.Map

func open(tb testing.TB, path string) storage.Storage {
	tb.Helper()
	// The tests do not depend on the wait for the disk, which takes most of their time.
	s, err := bbolt.Open(path, &bolt.Options{NoSync: true})
	if err != nil {
		tb.Fatal(err)
	}
	paths.Store(s, path)
	return s
}

var config = storagetest.Config{
	Open: func(tb testing.TB) storage.Storage {
		return until(step(), open(tb, filepath.Join(tb.TempDir(), "jobs.db")))
	},
	Reopen: func(tb testing.TB, s storage.Storage) storage.Storage {
		if err := s.Close(); err != nil {
			tb.Fatal(err)
		}
		path, _ := paths.Load(s)
		return open(tb, path.(string))
	},
	Then:   true,
	Queues: step() >= 11,
	Crons:  step() >= 11,
}

func TestStorage(t *testing.T) { storagetest.Run(t, config) }

func TestEngine(t *testing.T) { storagetest.RunEngine(t, config) }

func TestSameBehaviour(t *testing.T) { storagetest.SameBehaviour(t, config) }

func TestOpen(t *testing.T) {
	t.Run("refuses other databases", func(t *testing.T) {
		path := filepath.Join(t.TempDir(), "other.db")
		edit(t, path, func(tx *bolt.Tx) error {
			_, err := tx.CreateBucket([]byte("users"))
			return err
		})
		refused(t, path, "no database of jobs")
	})
	t.Run("refuses newer formats", func(t *testing.T) {
		path := filepath.Join(t.TempDir(), "jobs.db")
		if err := open(t, path).Close(); err != nil {
			t.Fatal(err)
		}
		edit(t, path, func(tx *bolt.Tx) error {
			return tx.Bucket([]byte("meta")).Put([]byte("format"), []byte{0, 0, 0, 0, 0, 0, 0, 2})
		})
		refused(t, path, "not one of format 1")
	})
	t.Run("refuses a file that is open", func(t *testing.T) {
		path := filepath.Join(t.TempDir(), "jobs.db")
		s := open(t, path)
		defer s.Close()
		refused(t, path, "timeout")
	})
}

func edit(t *testing.T, path string, f func(tx *bolt.Tx) error) {
	t.Helper()
	db, err := bolt.Open(path, 0o600, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	if err := db.Update(f); err != nil {
		t.Fatal(err)
	}
}

func refused(t *testing.T, path, why string) {
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
