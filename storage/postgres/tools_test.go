package postgres_test

import (
	"context"
	"log/slog"
	"path"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/ojsengine/ojs"
	"github.com/ojsengine/ojs/storage"
	"github.com/ojsengine/ojs/storage/postgres"
)

// migrators imitate how tools run a file, and then note it in a table of theirs, whose
// name has no schema.
var migrators = map[string]func(t *testing.T, pool *pgxpool.Pool, m postgres.Migration, note string){
	// The text between annotations is one Exec, in a transaction that also has the note.
	"goose": func(t *testing.T, pool *pgxpool.Pool, m postgres.Migration, note string) {
		if number, _, ok := strings.Cut(m.Name, "_"); !ok || path.Ext(m.Name) != ".sql" || len(number) != 4 {
			t.Fatalf("%s is no name for goose", m.Name)
		}
		_, up, ok := strings.Cut(m.SQL, "-- +goose Up\n")
		_, up, begins := strings.Cut(up, "-- +goose StatementBegin\n")
		up, rest, ends := strings.Cut(up, "-- +goose StatementEnd\n")
		if !ok || !begins || !ends || strings.TrimSpace(rest) != "" {
			t.Fatalf("%s is not annotated", m.Name)
		}
		must(t, pgx.BeginFunc(t.Context(), pool, func(tx pgx.Tx) error {
			_, err := tx.Exec(t.Context(), up)
			must(t, err)
			_, err = tx.Exec(t.Context(), note)
			return err
		}))
	},
	// One Exec without a transaction, and the note by itself.
	"golang-migrate": func(t *testing.T, pool *pgxpool.Pool, m postgres.Migration, note string) {
		if !regexp.MustCompile(`^([0-9]+)_(.*)\.(down|up)\.(.*)$`).MatchString(m.Name) {
			t.Fatalf("%s is no name for golang-migrate", m.Name)
		}
		execAll(t, pool, m.SQL, note)
	},
	// Statement by statement, in a transaction that also has the note.
	"Atlas": func(t *testing.T, pool *pgxpool.Pool, m postgres.Migration, note string) {
		must(t, pgx.BeginFunc(t.Context(), pool, func(tx pgx.Tx) error {
			for _, statement := range append(statementsOf(m.SQL), note) {
				_, err := tx.Exec(t.Context(), statement)
				must(t, err)
			}
			return nil
		}))
	},
}

// statementsOf splits a script at semicolons outside of comments and quotes.
func statementsOf(script string) (list []string) {
	part := regexp.MustCompile(`(?s)--[^\n]*|'[^']*'|\$[a-z]*\$|;|.`)
	var b strings.Builder
	quote := ""
	for _, token := range part.FindAllString(script, -1) {
		switch {
		case quote != "":
			if token == quote {
				quote = ""
			}
		case len(token) > 1 && token[0] == '$':
			quote = token
		case token == ";":
			list = append(list, b.String())
			b.Reset()
			continue
		}
		b.WriteString(token)
	}
	return list
}

// The files of the schema are named and annotated for the tools of applications. After
// an imitation of each tool has run them as they are, Open finds the schema complete.
func TestSchemaByTools(t *testing.T) {
	pool := connect(t)
	for tool, run := range migrators {
		t.Run(tool, func(t *testing.T) {
			name := schema(t, pool)
			notes := name + "_notes"
			execAll(t, pool, "CREATE TABLE "+notes+" (at timestamptz)")
			t.Cleanup(func() {
				_, err := pool.Exec(context.Background(), "DROP TABLE "+notes)
				must(t, err)
			})
			files, err := postgres.Schema(postgres.WithSchema(name))
			must(t, err)
			for _, m := range files {
				run(t, pool, m, "INSERT INTO "+notes+" VALUES (now())")
			}
			made := func() (versions int, last time.Time) {
				must(t, pool.QueryRow(t.Context(), "SELECT count(*), max(at) FROM "+name+".migration").
					Scan(&versions, &last))
				return versions, last
			}
			versions, last := made()
			logged := make(lines, 100)
			s, _ := open(t, name, postgres.WithLogger(slog.New(logged)))
			e := startShop(t, s)
			e.well(1)
			if n, at := made(); n != versions || n != len(files) || !at.Equal(last) || len(logged) > 0 {
				t.Errorf("Open has found %d migrations until %v, and left %d until %v; it logged %d lines",
					versions, last, n, at, len(logged))
			}
			checkCounts(t, pool, name)
		})
	}
}

// While one schema of a database is migrated, another of a newer version works and a
// third is made. The first keeps its jobs and goes on when its migration has ended.
func TestSchemasOfTwoVersions(t *testing.T) {
	pool := connect(t)
	name := schema(t, pool)
	const before = 13
	must(t, postgres.MakeVersion(t.Context(), pool, name, before))
	execAll(t, pool, strings.ReplaceAll(`WITH j AS (
			INSERT INTO {schema}.job (seq, created, lease, id) VALUES (1, 1, 1, 'old'))
		INSERT INTO {schema}.stage (seq, place, version, attempt, priority, state, queue, type)
			VALUES (1, 1, 1, 0, 0, 3, 'q', 'x')`, "{schema}", name),
		"SELECT setval('"+name+".place', 1)")
	beside, other := open(t, "")
	e := startShop(t, beside)
	e.well(1)
	files, err := postgres.Schema(postgres.WithSchema(name))
	must(t, err)
	must(t, pgx.BeginFunc(t.Context(), pool, func(tx pgx.Tx) error {
		for i, m := range files[before:] {
			_, err := tx.Exec(t.Context(), m.SQL)
			must(t, err)
			e.well(2 + i) // while the transaction has its locks
		}
		open(t, "")
		return nil
	}))
	s, _ := open(t, name)
	claimed, err := s.Claim(t.Context(), time.Now(), storage.Claim{Max: 2}, nil)
	if err != nil || len(claimed) != 1 || claimed[0].ID != "old" {
		t.Errorf("%d jobs of the older version are claimed: %v", len(claimed), err)
	}
	page, err := beside.List(t.Context(), storage.Query{States: []ojs.State{ojs.StateAvailable}})
	if err != nil || len(page.Records) != 0 {
		t.Errorf("the other schema has jobs that are not its own: %v, %v", page.Records, err)
	}
	checkCounts(t, pool, name)
	checkCounts(t, pool, other)
}
