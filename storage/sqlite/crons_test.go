package sqlite_test

import (
	"path/filepath"
	"testing"
	"time"

	"github.com/ojsengine/ojs/internal/document"
	"github.com/ojsengine/ojs/storage"
	"github.com/ojsengine/ojs/storage/sqlite"
)

// The entries of an older file are due at the times that they name, to the nanosecond;
// versions go on where they were.
func TestUpgradeCrons(t *testing.T) {
	path := filepath.Join(t.TempDir(), "jobs.db")
	must(t, sqlite.Old(path, 2, `INSERT INTO cron VALUES
		('whole', 7, CAST('{"Name":"whole","Type":"x","Args":"1","NextRun":"2026-01-02T03:04:05Z"}' AS BLOB)),
		('part', 9, CAST('{"Name":"part","Type":"x","Args":"1","NextRun":"2026-01-02T03:04:05.00000012Z"}' AS BLOB)),
		('never', 1, CAST('{"Name":"never","Type":"x","Args":"1"}' AS BLOB)),
		('bad', 1, CAST('{"Name' AS BLOB)),
		('worse', 1, x'ff')`))
	s, err := sqlite.Open(t.Context(), path)
	must(t, err)
	defer func() { must(t, s.Close()) }()
	at := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	due, next, err := document.Of(s).DueCrons(t.Context(), at, nil, 10)
	must(t, err)
	if len(due) != 1 || due[0].Name != "whole" || due[0].Version != 7 || !next.Equal(at.Add(120)) {
		t.Errorf("due %+v, then %v", due, next)
	}
	versions, err := document.Of(s).SetCrons(t.Context(),
		[]storage.Cron{{Name: "whole", Version: 7, NextRun: at.Add(time.Hour)}, {Name: "new"}})
	must(t, err)
	if versions[0] <= 9 || versions[1] <= versions[0] {
		t.Errorf("versions %v", versions)
	}
	part := &storage.Cron{Name: "part", NextRun: at.Add(120)}
	_, next, err = document.Of(s).DueCrons(t.Context(), at.Add(120), part, 10)
	if err != nil || !next.Equal(at.Add(time.Hour)) {
		t.Errorf("next %v, %v", next, err)
	}
}
