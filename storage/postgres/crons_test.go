package postgres_test

import (
	"testing"
	"time"

	"github.com/ojsengine/ojs/internal/document"
	"github.com/ojsengine/ojs/storage"
	"github.com/ojsengine/ojs/storage/postgres"
)

// The entries of an older schema are due at the times that they name, to the
// nanosecond. Versions go on where they were.
func TestUpgradeCrons(t *testing.T) {
	pool := connect(t)
	name := schema(t, pool)
	must(t, postgres.MakeVersion(t.Context(), pool, name, 3))
	_, err := pool.Exec(t.Context(), `INSERT INTO `+name+`.cron VALUES
		('whole', 7, '{"Name":"whole","Type":"x","Args":"1","NextRun":"2026-01-02T03:04:05Z"}'),
		('part', 9, '{"Name":"part","Type":"x","Args":"1","NextRun":"2026-01-02T03:04:05.00000012Z"}'),
		('never', 1, '{"Name":"never","Type":"x","Args":"1"}'),
		('bad', 1, '{"Name'),
		('worse', 1, '\xff')`)
	must(t, err)
	s, _ := open(t, name)
	at := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	due, next, err := document.Of(s).DueCrons(t.Context(), at, nil, 10)
	must(t, err)
	if len(due) != 1 || due[0].Name != "whole" || due[0].Version != 7 || !next.Equal(at.Add(120)) {
		t.Errorf("due %+v, then %v", due, next)
	}
	versions, err := document.Of(s).SetCrons(t.Context(),
		[]storage.Cron{{Name: "whole", Version: 7, NextRun: at.Add(time.Hour)}, {Name: "new"}})
	must(t, err)
	if versions[0] <= 9 || versions[1] <= 9 || versions[0] == versions[1] {
		t.Errorf("versions %v", versions)
	}
	part := &storage.Cron{Name: "part", NextRun: at.Add(120)}
	_, next, err = document.Of(s).DueCrons(t.Context(), at.Add(120), part, 10)
	if err != nil || !next.Equal(at.Add(time.Hour)) {
		t.Errorf("next %v, %v", next, err)
	}
}
