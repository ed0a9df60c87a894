package postgres

import (
	"context"
	"embed"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"strconv"
	"strings"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/ojsengine/ojs/internal/fail"
)

// The schema has a version: the number of migrations that it went through. Each migration
// is a script that checks, under a lock, that it is the next one, and records itself.
// Migrate runs scripts in one transaction; Schema returns them for other tools.
//
// Invariants:
//
//  1. A script that has been released never changes.
//  2. A script runs in a transaction and resolves names in pg_catalog only.
//  3. After each step every table may be in a publication of logical replication: it has
//     a key, or its replica identity is FULL.
//  4. Programs run on the version they know. A script that programs of an older version
//     cannot run beside says so in migration.oldest.

//go:embed migrations/*.sql
var migrations embed.FS

// Migration is one step of the schema.
type Migration struct {
	Version int    // of the schema afterwards
	Name    string // of a file, such as "0001_jobs.up.sql"; names sort by version
	SQL     string // to be run in one transaction
}

// Schema returns the steps that make the schema, the oldest first, for tools and people
// who run SQL themselves. Of the options only WithSchema counts.
//
//	steps, err := postgres.Schema(postgres.WithSchema("ojs"))
//	for _, m := range steps {
//		err = os.WriteFile(m.Name, []byte(m.SQL), 0o644)
//	}
//
// The names and the texts are such that goose, golang-migrate, Atlas and psql run them
// (psql --single-transaction -v ON_ERROR_STOP=1 -f FILE). This is the contract:
//
//   - A file runs once, in one transaction, after the file before it. In another order it
//     fails and changes nothing.
//   - A file changes only the schema that it names, and restores search_path. It contains
//     no placeholder. There are no files that undo a step.
//   - Released files never change. New versions add files.
func Schema(opts ...Option) ([]Migration, error) {
	cfg, err := configure(opts)
	if err != nil {
		return nil, err
	}
	return steps(cfg.schema)
}

// steps are the migrations of a schema.
func steps(schema string) ([]Migration, error) {
	files, err := fs.Glob(migrations, "migrations/*.sql")
	if err != nil {
		return nil, err
	}
	list := make([]Migration, len(files))
	for i, name := range files {
		body, err := migrations.ReadFile(name)
		if err != nil {
			return nil, err
		}
		check := checkStep
		if i == 0 {
			check = checkFirst
		}
		file := strings.TrimSuffix(path.Base(name), ".sql") + ".up.sql"
		list[i] = Migration{Version: i + 1, Name: file, SQL: strings.NewReplacer(
			"{schema}", `"`+schema+`"`, "{name}", schema, "{before}", strconv.Itoa(i), "{version}",
			strconv.Itoa(i+1),
		).Replace(beginStep + check + identify + "\n" + string(body) + identify + endStep)}
	}
	return list, nil
}

const (
	beginStep = `-- +goose Up
-- +goose StatementBegin
-- Version {version} of the schema {name}. Run this in one transaction.
SELECT pg_catalog.set_config('ojs.search_path', pg_catalog.current_setting('search_path'), true);
SET LOCAL search_path = pg_catalog, pg_temp;
SELECT pg_advisory_xact_lock(hashtextextended('{name} migrate', 3131961357));
`
	checkStep = `DO $check$ BEGIN
	IF (SELECT coalesce(max(version), 0) FROM {schema}.migration) <> {before} THEN
		RAISE EXCEPTION 'ojs: version {version} of the schema {name} comes after version {before}, and it is of version %',
			(SELECT coalesce(max(version), 0) FROM {schema}.migration);
	END IF;
END $check$;
`
	checkFirst = `DO $check$ BEGIN
	IF NOT EXISTS (SELECT FROM pg_namespace WHERE nspname = '{name}') THEN
		CREATE SCHEMA {schema};
	END IF;
	IF NOT EXISTS (SELECT FROM pg_class WHERE relnamespace = '{schema}'::regnamespace AND relname = 'migration') THEN
		CREATE TABLE {schema}.migration (version integer PRIMARY KEY, at timestamptz NOT NULL DEFAULT now());
	ELSIF EXISTS (SELECT FROM {schema}.migration) THEN
		RAISE EXCEPTION 'ojs: the schema {name} is there';
	END IF;
END $check$;
`
	identify = `
DO $identify$ DECLARE
	bare regclass;
BEGIN -- PostgreSQL refuses to change rows of a published table without a key, unless it is told this. It costs nothing without logical replication.
	FOR bare IN SELECT c.oid FROM pg_class c
		WHERE relnamespace = '{schema}'::regnamespace AND relkind = 'r' AND relpersistence = 'p' AND relreplident = 'd'
		AND NOT EXISTS (SELECT FROM pg_index i WHERE i.indrelid = c.oid AND i.indisprimary)
	LOOP
		EXECUTE format('ALTER TABLE %s REPLICA IDENTITY FULL', bare);
	END LOOP;
END $identify$;
`
	endStep = `
INSERT INTO {schema}.migration (version) VALUES ({version});
SELECT pg_catalog.set_config('search_path', pg_catalog.current_setting('ojs.search_path'), true);
-- +goose StatementEnd
`
)

// Migrate makes the schema, or brings it up to date, in one transaction. It waits for
// other processes that migrate, and does nothing if the schema is up to date. Of the
// options only WithSchema counts. The role needs CREATE on the database, or has to own
// the schema.
//
// A schema of a newer version fails it with ErrNewer.
func Migrate(ctx context.Context, pool *pgxpool.Pool, opts ...Option) error {
	s, err := newStorage(pool, opts)
	if err != nil {
		return err
	}
	return wrap(s.migrate(ctx))
}

func (s *Storage) migrate(ctx context.Context) error {
	all, err := steps(s.config.schema)
	if err != nil {
		return err
	}
	// Processes that run already may lock the tables in another order, and the database
	// then picks one of the two to fail.
	return again(func() error {
		return s.begun(ctx, tuned{s: s}, func(t *tx) { t.migrate(all) })
	})
}

// migrate takes the steps that a schema lacks.
func (t *tx) migrate(all []Migration) {
	t.send(t.s.nameLock("migrate"))
	version := t.version()
	if version > len(all) {
		fail.With(t.s.newer(version, len(all)))
	}
	for _, m := range all[version:] {
		if _, err := t.on.(inTx).Exec(t.ctx, m.SQL); err != nil {
			fail.With(fmt.Errorf("migration %s: %w", m.Name, err))
		}
	}
}

// schemaThereSQL looks into the catalog: to_regclass may answer with what its session
// knew before another process migrated.
var schemaThereSQL = define("schemaThere", `SELECT EXISTS (SELECT FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
		WHERE n.nspname = $1 AND c.relname = 'migration')`)

var migratedSQL = define("migrated", `SELECT coalesce(max(version), 0) FROM {schema}.migration`)

// version is that of the schema, 0 if there is none.
func (t *tx) version() (version int) {
	var some bool
	if t.query(schemaThereSQL, one(&some), t.s.config.schema); some {
		t.query(migratedSQL, one(&version))
	}
	return version
}

// ready makes sure that the schema is of the version that this program knows.
func (s *Storage) ready(ctx context.Context) error {
	all, err := steps(s.config.schema)
	if err != nil {
		return err
	}
	s.known = len(all)
	var version int
	err = s.within(ctx, func(ctx context.Context) error {
		return again(func() error {
			return fail.Caught(func() { version = s.with(ctx, bare{s.pool}).version() })
		})
	})
	switch {
	case err != nil:
		return err
	case version > len(all):
		return s.newer(version, len(all))
	case version == len(all):
		return nil
	case s.config.asIs:
		return s.older(version, len(all))
	}
	err = s.migrate(ctx)
	if isCode(err, insufficientPrivilege) {
		return errors.Join(s.older(version, len(all)), err)
	}
	return err
}

func (s *Storage) newer(version, known int) error {
	return fmt.Errorf("%w: %s is of version %d, and this program knows %d: run a program built with a newer release of this package",
		ErrNewer, s.config.schema, version, known)
}

func (s *Storage) older(version, known int) error {
	if version == 0 {
		return fmt.Errorf("%w: %s: run postgres.Migrate, or the files of postgres.Schema, as a role that may create it, or name another with postgres.WithSchema",
			ErrMissing, s.config.schema)
	}
	return fmt.Errorf("%w: %s is of version %d, and this program needs %d: run postgres.Migrate, or the files of postgres.Schema from %04d on, as the owner of the schema, and stop older programs before",
		ErrOlder, s.config.schema, version, known, version+1)
}

var besideSQL = define("beside",
	`SELECT max(version), coalesce(max(oldest), 0), pg_is_in_recovery() FROM {schema}.migration`)

// checkVersion refuses all calls from now on if the schema has been migrated to a version
// that this program cannot run beside, and allows them otherwise. It fails on a server
// that has become a standby, whose connections hear nothing.
func (t *tx) checkVersion() {
	var oldest, version int
	var standby bool
	if t.query(besideSQL, one(&version, &oldest, &standby)); standby {
		fail.With(fmt.Errorf("%w: it has become a standby", ErrReadOnly))
	}
	var refusal error
	if oldest > t.s.known {
		refusal = t.s.newer(version, t.s.known)
	}
	t.s.refusal.Store(&refusal)
}
