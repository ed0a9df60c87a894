package main

import (
	"os"

	zombiezen "zombiezen.com/go/sqlite"
	"zombiezen.com/go/sqlite/sqlitex"
)

// sqliteFile is the file of a storage.
type sqliteFile struct{ path string }

// bloat finds a file that is mostly empty, and a log that is not shortened.
func (f *sqliteFile) bloat(spareBytes int64) (found []finding, err error) {
	conn, err := zombiezen.OpenConn(f.path, zombiezen.OpenReadOnly)
	if err != nil {
		return nil, err
	}
	defer func() { _ = conn.Close() }() // it has only read
	n := make(map[string]int64)
	for _, name := range []string{"page_count", "freelist_count", "page_size"} {
		err := sqlitex.ExecuteTransient(conn, "PRAGMA "+name, &sqlitex.ExecOptions{
			ResultFunc: func(stmt *zombiezen.Stmt) error {
				n[name] = stmt.ColumnInt64(0)
				return nil
			}})
		if err != nil {
			return nil, err
		}
	}
	if free := n["freelist_count"]; free*n["page_size"] > spareBytes && free*2 > n["page_count"] {
		found = append(found, finding{Fault: "more than half of the file is free",
			Fix: "stop its programs, then: sqlite3 " + f.path + " VACUUM"})
	}
	if info, err := os.Stat(f.path + "-wal"); err == nil && info.Size() > spareBytes {
		found = append(found, finding{Fault: "the log " + f.path + "-wal has " +
			number(int(info.Size()>>20)) + " MiB",
			Fix: "end transactions that read for long: they keep the log"})
	}
	return found, nil
}
