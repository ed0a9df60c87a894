package main

import (
	"context"
	"database/sql"
	"fmt"
	"net/url"
	"time"

	_ "modernc.org/sqlite" // the driver "sqlite": pure Go
)

// openSQLite opens a file in WAL mode through database/sql, for contenders that take such
// a handle. One connection is what goqite asks for, and backlite is faster with it too:
// SQLite has one writer, and more connections than one only wait for it.
func openSQLite(path string, sync synchronous) (*sql.DB, error) {
	q := url.Values{"_pragma": {"journal_mode(WAL)", "synchronous(" + string(sync) + ")",
		"busy_timeout(10000)"}, "_txlock": {"immediate"}}
	db, err := sql.Open("sqlite", "file:"+path+"?"+q.Encode())
	if err != nil {
		return nil, err
	}
	db.SetMaxOpenConns(1)
	return db, nil
}

// emptied waits until a table has no rows: where jobs are deleted when they complete,
// that is when the last one has. It is asked when every handler has returned, so that it
// does not disturb what is measured for long.
func emptied(ctx context.Context, db *sql.DB, table string) error {
	for {
		var left bool
		if err := db.QueryRowContext(ctx, "SELECT EXISTS (SELECT 1 FROM "+table+")").Scan(&left); err != nil {
			return fmt.Errorf("%s: %w", table, err)
		}
		if !left {
			return nil
		}
		wall.Sleep(time.Millisecond)
	}
}
