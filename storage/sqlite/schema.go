package sqlite

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"

	zombiezen "zombiezen.com/go/sqlite"
	"zombiezen.com/go/sqlite/sqlitex"

	"github.com/ojsengine/ojs/storage/sqlite/internal/legacy"
)

// applicationID marks a file as one of ours: "ojsJ".
const applicationID = 0x6f6a734a

// checkFile refuses a file that is not ours by its first bytes, before SQLite is let near
// it.
func checkFile(path string) error {
	f, err := os.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	} else if err != nil {
		return err
	}
	defer f.Close()
	var header [100]byte // of every SQLite file
	switch n, err := io.ReadFull(f, header[:]); {
	case n == 0:
		return nil
	case err != nil || string(header[:16]) != "SQLite format 3\x00":
		return ErrForeign
	}
	if id := binary.BigEndian.Uint32(header[68:]); id != applicationID {
		return fmt.Errorf("%w: its application id is %#x", ErrForeign, id)
	}
	return nil
}

// makeFile makes an empty file of a mode, unless there is one. SQLite gives the files
// beside it the same mode.
func makeFile(path string, mode os.FileMode) error {
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|os.O_EXCL, mode)
	if errors.Is(err, fs.ErrExist) {
		return nil
	} else if err != nil {
		return err
	}
	return errors.Join(f.Chmod(mode), f.Close())
}

// foreign tells a file that SQLite cannot read from other failures.
func foreign(err error) error {
	switch zombiezen.ErrCode(err).ToPrimary() {
	case zombiezen.ResultNotADB:
		return fmt.Errorf("%w: %w", ErrForeign, err)
	case zombiezen.ResultCorrupt:
		return fmt.Errorf("%w: %w", ErrCorrupt, err)
	}
	return err
}

// schema is the version of the file: that it has the table. keyed.Open checks the layout
// of the table.
const schema = legacy.Newest + 1

// migrate makes the table, in one transaction, which one process at a time has. The file
// is marked as ours in the same transaction, before the journal is a write-ahead log: the
// first page of a file that has tables always says so. With asIs an older file is
// refused; otherwise migrate reports it, with the tables of legacy.Newest.
func migrate(conn *zombiezen.Conn, asIs bool) (old bool, err error) {
	end, err := sqlitex.ImmediateTransaction(conn)
	if err != nil {
		return false, err
	}
	defer end(&err)
	version, err := number(conn, "PRAGMA user_version")
	switch {
	case err != nil:
		return false, err
	case version > schema:
		return false, fmt.Errorf("%w: its schema is %d, this program knows up to %d", ErrNewer, version,
			schema)
	case version == schema:
		return false, nil
	case asIs && version == 0:
		return false, fmt.Errorf("%w: open it without WithoutMigration, or start the program whose file "+
			"it is", ErrMissing)
	case asIs:
		return false, fmt.Errorf("%w: its schema is %d, and this program needs %d: open it with a program of this "+
			"version that migrates it, after older programs have ended", ErrOlder, version, schema)
	}
	if version > 0 {
		if err := legacy.Upgrade(conn, version, legacy.Newest); err != nil {
			return false, err
		}
		return true, run(conn, table)
	}
	return false, run(conn, table, fmt.Sprintf("PRAGMA application_id = %d", applicationID),
		fmt.Sprintf("PRAGMA user_version = %d", schema))
}

// configure sets what holds for a connection that writes.
func configure(conn *zombiezen.Conn, cfg config) error {
	return run(conn,
		"PRAGMA journal_mode = wal",
		"PRAGMA synchronous = "+string(cfg.synchronous),
		"PRAGMA journal_size_limit = 67108864") // a log that a long listing has made large shrinks again
}

// run runs statements that return nothing of interest.
func run(conn *zombiezen.Conn, queries ...string) error {
	for _, query := range queries {
		if _, err := number(conn, query); err != nil {
			return err
		}
	}
	return nil
}

func number(conn *zombiezen.Conn, query string) (int, error) {
	stmt, _, err := conn.PrepareTransient(query)
	if err != nil {
		return 0, err
	}
	_, err = stmt.Step()
	n := stmt.ColumnInt(0)
	return n, errors.Join(err, stmt.Finalize())
}
