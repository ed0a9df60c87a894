// Package legacy reads files of the versions 1 to 16 of package sqlite, which had a table
// for each kind of what it stored.
package legacy

import (
	"embed"
	"errors"
	"fmt"
	"io/fs"
	"strings"

	zombiezen "zombiezen.com/go/sqlite"
)

//go:embed migrations/*.sql
var migrations embed.FS

// Newest is the last of the versions.
const Newest = 16

// Upgrade brings the tables of a version to those of another, in the transaction of its
// caller. Version 0 has no tables.
func Upgrade(conn *zombiezen.Conn, version, to int) error {
	files, err := fs.Glob(migrations, "migrations/*.sql")
	if err != nil {
		return err
	}
	for _, name := range files[version:to] {
		script, err := migrations.ReadFile(name)
		if err != nil {
			return err
		}
		if err := runScript(conn, string(script)); err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
	}
	return runScript(conn, fmt.Sprintf("PRAGMA user_version = %d", to))
}

// runScript runs statement by statement. That a statement may end in a comment is all
// that the parser does not know.
func runScript(conn *zombiezen.Conn, script string) error {
	for script = strings.TrimSpace(script); script != ""; {
		stmt, trailing, err := conn.PrepareTransient(script)
		if err != nil {
			return err
		}
		if stmt != nil {
			_, err = stmt.Step()
			err = errors.Join(err, stmt.Finalize())
		}
		if err != nil {
			return err
		}
		script = strings.TrimSpace(script[len(script)-trailing:])
	}
	return nil
}
