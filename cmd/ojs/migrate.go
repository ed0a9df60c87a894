package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/ojsengine/ojs/storage/postgres"
	"github.com/ojsengine/ojs/storage/sqlite"
)

type migrateVerb struct {
	Status migrateStatusVerb `cmd:"" default:"withargs" help:"Say whether the schema is up to date."`
	Up     migrateUpVerb     `cmd:"" help:"Make the schema, or bring it up to date."`
	SQL    migrateSQLVerb    `cmd:"" name:"sql" help:"Print the SQL of the schema of PostgreSQL."`
}

type migrateStatusVerb struct{}

// schemaStatus is what a schema is, in JSON.
type schemaStatus struct {
	Storage kind   `json:"storage"`
	Status  string `json:"status"` // current, older, newer or missing
	Text    string `json:"text"`
}

// Run says whether the schema is up to date. The exit code is 5 if it is not.
func (migrateStatusVerb) Run(c *call) error {
	status, err := c.schemaStatus()
	if err != nil {
		return err
	}
	if status.Status != "current" {
		c.code = exitFindings
	}
	return c.page(status.Status, status, func() []string {
		lines := []string{status.Status + ": " + clean(status.Text)}
		if status.Status == "older" || status.Status == "missing" {
			lines = append(lines, "fix: ojs migrate up")
		}
		return lines
	})
}

// schemaStatus opens the storage to see whether its schema is that of this program.
func (c *call) schemaStatus() (schemaStatus, error) {
	k, _, err := c.address()
	if err != nil {
		return schemaStatus{}, err
	}
	s := schemaStatus{Storage: k, Status: "current", Text: "the schema is that of this program"}
	if _, err = c.store(); err == nil {
		return s, nil
	}
	s.Text = plainError(err)
	for _, is := range []struct {
		err  error
		text string
	}{{postgres.ErrMissing, "missing"}, {sqlite.ErrMissing, "missing"}, {postgres.ErrOlder, "older"},
		{sqlite.ErrOlder, "older"}, {postgres.ErrNewer, "newer"}, {sqlite.ErrNewer, "newer"}} {
		if errors.Is(err, is.err) {
			s.Status = is.text
			return s, nil
		}
	}
	return s, err
}

type migrateUpVerb struct{}

func (migrateUpVerb) Help() string {
	return "Stop programs of an older version before, if the notes of the release say so."
}

// Run makes the schema or brings it up to date.
func (migrateUpVerb) Run(c *call) error {
	k, path, err := c.address()
	if err != nil {
		return err
	}
	text := "the schema is up to date"
	switch k {
	case onPostgres:
		err = migratePostgres(c.ctx, c.flags.Storage, c.flags.Schema)
	case onSQLite:
		file, exists := os.OpenFile(path, os.O_CREATE|os.O_EXCL, 0o600) // SQLite would let others read it
		if exists == nil {
			text = "made " + path
			err = file.Close()
		}
		if err != nil {
			return err
		}
		var st *sqlite.Storage
		if st, err = sqlite.Open(c.ctx, path); err == nil {
			err = st.Close()
		}
	case onMemory:
		err = usageError{errors.New("the storage in memory has no schema")}
	}
	if err != nil {
		return err
	}
	return c.done("current", text)
}

func migratePostgres(ctx context.Context, address, schema string) error {
	pool, opts, err := poolOf(ctx, address, schema)
	if err != nil {
		return err
	}
	defer pool.Close()
	return postgres.Migrate(ctx, pool, opts...)
}

type migrateSQLVerb struct {
	From int    `default:"1" placeholder:"VERSION" help:"The first version to print."`
	Dir  string `placeholder:"DIR" help:"Write each step to a file in this directory instead."`
}

func (migrateSQLVerb) Help() string {
	return `Run each step in a transaction, such as by psql --single-transaction -v ON_ERROR_STOP=1. The files
are also for goose, golang-migrate and Atlas. No storage is asked.`
}

// Run prints the steps of the schema.
func (v *migrateSQLVerb) Run(c *call) error {
	var opts []postgres.Option
	if c.flags.Schema != "" {
		opts = append(opts, postgres.WithSchema(c.flags.Schema))
	}
	steps, err := postgres.Schema(opts...)
	if err != nil {
		return err
	}
	if v.From < 1 || v.From > len(steps) {
		return usageError{fmt.Errorf("--from is %d: the versions are 1 to %d", v.From, len(steps))}
	}
	for _, step := range steps[v.From-1:] {
		if v.Dir != "" {
			if err := os.WriteFile(filepath.Join(v.Dir, step.Name), []byte(step.SQL), 0o644); err != nil {
				return err
			}
			continue
		}
		if _, err := fmt.Fprintf(c.out, "-- %s\n%s\n", step.Name, strings.TrimSpace(step.SQL)); err != nil {
			return err
		}
	}
	return nil
}
