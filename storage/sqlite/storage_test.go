package sqlite_test

import (
	"context"
	"fmt"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/ojsengine/ojs/storage"
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
	Notices:      true,
	SettleClaims: true,
	Quarantine:   true,
	// The args are no JSON with a brace before them.
	Plant: change("UPDATE job SET args = CAST(X'7B' || coalesce(args, X'6E756C6C') AS BLOB) WHERE id = '%s'"),
	Mend:  change("UPDATE quarantined_job SET args = substr(args, 2) WHERE id = '%s'"),
	PlantNamed: changeNamed("UPDATE cron SET entry = CAST(X'7B' || entry AS BLOB) WHERE name = '%s'",
		"UPDATE queue_state SET state = '{' || state WHERE queue = '%s'"),
	MendNamed: changeNamed("UPDATE quarantine SET body = substr(body, 2) WHERE name = '%s'",
		"UPDATE quarantine SET body = substr(body, 2) WHERE name = '%s'"),
}

// changeNamed makes a function that runs a statement about a recurring entry, or another
// about the state of a queue.
func changeNamed(cron, queue string) func(tb testing.TB, s storage.Storage, k storage.Kind, name string) {
	return func(tb testing.TB, s storage.Storage, kind storage.Kind, name string) {
		tb.Helper()
		sql := cron
		if kind == storage.KindQueue {
			sql = queue
		}
		if strings.HasPrefix(sql, "UPDATE quarantine ") {
			sql += " AND kind = '" + string(kind) + "'"
		}
		change(sql)(tb, s, name)
	}
}

// change makes a function that runs a statement about a job in the file of a storage.
func change(sql string) func(tb testing.TB, s storage.Storage, id string) {
	return func(tb testing.TB, s storage.Storage, id string) {
		tb.Helper()
		path, _ := files.Load(s)
		if err := sqlite.Exec(path.(string), fmt.Sprintf(sql, id)); err != nil {
			tb.Fatal(err)
		}
	}
}

func TestStorage(t *testing.T) { storagetest.Run(t, config) }

func TestEngine(t *testing.T) { storagetest.RunEngine(t, config) }

func TestSameBehaviour(t *testing.T) { storagetest.SameBehaviour(t, config) }

func BenchmarkStorage(b *testing.B) { storagetest.Benchmark(b, open) }
