package sqlite_test

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/ojsengine/ojs/internal/test/upgradetest"
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

// Without a migration an older file is refused and stays as it was, and none is made.
func TestWithoutMigration(t *testing.T) {
	script, err := os.ReadFile("testdata/version2.sql")
	must(t, err)
	path := filepath.Join(t.TempDir(), "jobs.db")
	must(t, sqlite.Old(path, 2, string(script)))
	before, err := os.ReadFile(path)
	must(t, err)
	if _, err := sqlite.Open(t.Context(), path, sqlite.WithoutMigration()); !errors.Is(err, sqlite.ErrOlder) {
		t.Errorf("an older file: %v", err)
	}
	if after, err := os.ReadFile(path); err != nil || !bytes.Equal(before, after) {
		t.Errorf("the file has changed: %v", err)
	}
	s, err := sqlite.Open(t.Context(), path)
	must(t, err)
	must(t, s.Close())
	s, err = sqlite.Open(t.Context(), path, sqlite.WithoutMigration())
	must(t, err)
	must(t, s.Close())
	empty := filepath.Join(t.TempDir(), "empty.db")
	must(t, os.WriteFile(empty, nil, 0o600))
	_, err = sqlite.Open(t.Context(), empty, sqlite.WithoutMigration())
	if !errors.Is(err, sqlite.ErrMissing) || errors.Is(err, sqlite.ErrOlder) {
		t.Errorf("an empty file: %v", err)
	}
	none := filepath.Join(t.TempDir(), "none.db")
	if _, err := sqlite.Open(t.Context(), none, sqlite.WithoutMigration()); err == nil {
		t.Error("a file that is not there was opened")
	}
	if _, err := os.Stat(none); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("a file was made: %v", err)
	}
}
