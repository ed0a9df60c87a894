package sqlite_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/ojsengine/ojs/internal/upgradetest"
	"github.com/ojsengine/ojs/storage/sqlite"
)

// Everything that is in a file of an older version goes on.
func TestUpgrade(t *testing.T) {
	script, err := os.ReadFile("testdata/version2.sql")
	must(t, err)
	path := filepath.Join(t.TempDir(), "jobs.db")
	must(t, sqlite.Old(path, 2, string(script)))
	s, err := sqlite.Open(t.Context(), path)
	must(t, err)
	defer func() { must(t, s.Close()) }()
	upgradetest.Check(t, s)
}

// Each migration has the number of its place.
func TestMigrations(t *testing.T) { must(t, sqlite.CheckMigrations()) }
