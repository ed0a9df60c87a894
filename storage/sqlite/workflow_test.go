package sqlite_test

import (
	"path/filepath"
	"testing"

	"github.com/ojsengine/ojs/internal/test/workflowtest"
	"github.com/ojsengine/ojs/storage"
	"github.com/ojsengine/ojs/storage/sqlite"
)

func TestWorkflowsOutliveTheirEngine(t *testing.T) {
	path := filepath.Join(t.TempDir(), "jobs.db")
	openFile := func() *sqlite.Storage {
		s, err := sqlite.Open(t.Context(), path, sqlite.WithSynchronous(sqlite.Normal))
		must(t, err)
		return s
	}
	first := openFile()
	workflowtest.OutliveTheirEngine(t, first, func() []storage.Storage {
		must(t, first.Close())
		second, third := openFile(), openFile()
		t.Cleanup(func() { must(t, second.Close()); must(t, third.Close()) })
		return []storage.Storage{second, third}
	})
}

func TestWorkflowsInOneStep(t *testing.T) {
	workflowtest.Groups(t, func(t *testing.T) storage.Storage {
		s, err := sqlite.Open(t.Context(), filepath.Join(t.TempDir(), "jobs.db"))
		must(t, err)
		t.Cleanup(func() { must(t, s.Close()) })
		return s
	})
}
