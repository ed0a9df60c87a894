package postgres_test

import (
	"os"
	"strings"
	"testing"

	"github.com/ojsengine/ojs/internal/upgradetest"
	"github.com/ojsengine/ojs/storage/postgres"
)

// Everything that is in a schema of an older version goes on.
func TestUpgrade(t *testing.T) {
	script, err := os.ReadFile("testdata/version3.sql")
	must(t, err)
	pool := connect(t)
	name := schema(t, pool)
	must(t, postgres.MakeVersion(t.Context(), pool, name, 3))
	_, err = pool.Exec(t.Context(), strings.ReplaceAll(string(script), "{schema}", name))
	must(t, err)
	s, _ := open(t, name)
	checkCounts(t, pool, name)
	upgradetest.Check(t, s)
	checkCounts(t, pool, name)
}

// Each migration has the number of its place.
func TestMigrations(t *testing.T) { must(t, postgres.CheckMigrations()) }
