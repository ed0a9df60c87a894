package postgres_test

import (
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/ojsengine/ojs/internal/test/upgradetest"
	"github.com/ojsengine/ojs/storage"
	"github.com/ojsengine/ojs/storage/postgres"
)

// Everything that is in a schema of an older version goes on, and programs of that
// version do not.
func TestUpgrade(t *testing.T) {
	script, err := os.ReadFile("testdata/version3.sql")
	must(t, err)
	for _, by := range []int{3, 11} { // how far in a migration of its own
		pool := connect(t)
		name := schema(t, pool)
		must(t, postgres.MakeVersion(t.Context(), pool, name, 3))
		_, err = pool.Exec(t.Context(), strings.ReplaceAll(string(script), "{schema}", name))
		must(t, err)
		must(t, postgres.MakeVersion(t.Context(), pool, name, by))
		s, _ := open(t, name)
		checkCounts(t, pool, name)
		upgradetest.Check(t, s)
		checkCounts(t, pool, name)
		var oldest, version int
		must(t, pool.QueryRow(t.Context(), "SELECT max(oldest), max(version) FROM "+name+".migration").
			Scan(&oldest, &version))
		if oldest != version {
			t.Errorf("programs for version %d may run beside version %d", oldest, version)
		}
	}
}

// Claims tell the versions apart of jobs that version 13 has stored.
func TestVersionsAfterUpgrade(t *testing.T) {
	pool := connect(t)
	name := schema(t, pool)
	must(t, postgres.MakeVersion(t.Context(), pool, name, 13))
	for i, document := range []string{`NULL`, `'{"type_version":"2.0"}'`, `'{"type_version":'`} {
		_, err := pool.Exec(t.Context(), fmt.Sprintf(`WITH j AS (
				INSERT INTO %s.job (seq, created, lease, id, job) VALUES (%d, 1, 1, 'old%d', %s))
			INSERT INTO %s.stage (seq, place, version, attempt, priority, state, queue, type)
				VALUES (%d, 1, 1, 0, 0, 3, 'q', 'x')`, name, i, i, document, name, i))
		must(t, err)
	}
	execAll(t, pool, fmt.Sprintf("SELECT setval('%s.place', 3)", name))
	s, _ := open(t, name)
	for _, want := range []struct{ pattern, id string }{{"x@<2.0", ""}, {"x@2.0", "old1"}, {"x@", "old0"}} {
		c := storage.Claim{Types: []string{want.pattern}, Max: 9}
		claimed, err := s.Claim(t.Context(), time.Now(), c, nil)
		must(t, err)
		var id string
		for _, r := range claimed {
			id += r.ID
		}
		if id != want.id {
			t.Errorf("%s takes %q, not %q", want.pattern, id, want.id)
		}
	}
}

// A claim of version 11 that is undone after the migration gives its job back to the
// place that it had.
func TestUnclaimAfterUpgrade(t *testing.T) {
	pool := connect(t)
	name := schema(t, pool)
	must(t, postgres.MakeVersion(t.Context(), pool, name, 11))
	addOld(t, pool, name, 2, 3, ", lease_until", ", NULL")
	_, err := pool.Exec(t.Context(), "UPDATE "+name+`.job SET state = 4, other_place = place, place = nextval('`+name+`.place'),
		lease_until = 9000000000000000000, wake = 9000000000000000000, attempt = 2, version = 4
		WHERE id = 'old1'`)
	must(t, err)
	_, err = pool.Exec(t.Context(), "UPDATE "+name+".job SET finished = NULL")
	must(t, err)
	s, _ := open(t, name)
	n, err := s.Unclaim(t.Context(), time.Now(), []storage.Held{{ID: "old1", Version: 4}})
	if err != nil || n != 1 {
		t.Fatal(n, err)
	}
	claimed, err := s.Claim(t.Context(), time.Now(), storage.Claim{Max: 1}, nil)
	if err != nil || len(claimed) != 1 || claimed[0].ID != "old1" {
		t.Errorf("%v, %v", claimed, err)
	}
	checkCounts(t, pool, name)
}

// Each migration has the number of its place.
func TestMigrations(t *testing.T) { must(t, postgres.CheckMigrations()) }
