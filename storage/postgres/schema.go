package postgres

import (
	"context"
	"embed"
	"fmt"
	"io/fs"
	"strings"

	"github.com/jackc/pgx/v5"
)

//go:embed migrations/*.sql
var migrations embed.FS

// migrate brings the schema up to date, in one transaction, which one process at a time has.
func (s *Storage) migrate(ctx context.Context) error {
	files, err := fs.Glob(migrations, "migrations/*.sql")
	if err != nil {
		return err
	}
	// Processes that run already may lock the tables in another order, and the database then picks one of the two to fail.
	return again(func() error {
		return pgx.BeginFunc(ctx, tuned{s}, func(tx pgx.Tx) error { return s.migrateIn(ctx, tx, files) })
	})
}

func (s *Storage) migrateIn(ctx context.Context, tx pgx.Tx, files []string) error {
	if _, err := tx.Exec(ctx, s.sql.lockName, []string{s.config.schema + " migrate"}); err != nil {
		return err
	}
	var schema, versions bool
	if err := tx.QueryRow(ctx, s.sql.schemaThere, quoted(s.config.schema)).Scan(&schema, &versions); err != nil {
		return err
	}
	if !schema { // which may be there, made by somebody with the right to
		if _, err := tx.Exec(ctx, s.sql.makeSchema); err != nil {
			return err
		}
	}
	if !versions {
		if _, err := tx.Exec(ctx, s.sql.makeVersions); err != nil {
			return err
		}
	}
	var version int
	if err := tx.QueryRow(ctx, s.sql.migrated).Scan(&version); err != nil {
		return err
	}
	if version > len(files) {
		return fmt.Errorf("%w: %s is of version %d, and this program knows %d", ErrNewer, s.config.schema, version, len(files))
	}
	for i, name := range files[version:] {
		script, err := migrations.ReadFile(name)
		if err != nil {
			return err
		}
		if _, err := tx.Exec(ctx, strings.ReplaceAll(string(script), "{schema}", quoted(s.config.schema))); err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		if _, err := tx.Exec(ctx, s.sql.addMigration, version+i+1); err != nil {
			return err
		}
	}
	return nil
}
