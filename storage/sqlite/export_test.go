package sqlite

import (
	"context"
	"fmt"
	"time"

	zombiezen "zombiezen.com/go/sqlite"
	"zombiezen.com/go/sqlite/sqlitex"

	"github.com/ojsengine/ojs/storage/keyed/driver"
	"github.com/ojsengine/ojs/storage/sqlite/internal/legacy"
)

var ctx = context.Background()

// DB returns the driver.
func (s *Storage) DB() driver.DB { return s.store }

// Plans returns SQLite's plan of each statement of transactions.
func (s *Storage) Plans() (map[string]string, error) {
	plans := make(map[string]string)
	for _, sql := range []string{pin, get, scan, scanBack, put, remove} {
		err := s.query("EXPLAIN QUERY PLAN "+sql, func(stmt *zombiezen.Stmt) {
			plans[sql] += stmt.ColumnText(3) + "\n"
		})
		if err != nil {
			return nil, err
		}
	}
	return plans, nil
}

// query runs a statement on a connection that reads.
func (s *Storage) query(sql string, f func(*zombiezen.Stmt)) error {
	t, err := s.store.Begin(ctx, false)
	if err != nil {
		return err
	}
	defer t.Discard()
	stmt, err := t.(*tx).Prepare(sql)
	if err != nil {
		return err
	}
	for {
		more, err := stmt.Step()
		if err != nil || !more {
			return ended(stmt, err)
		}
		f(stmt)
	}
}

// Pages returns how many pages the file has.
func (s *Storage) Pages() (n int, err error) {
	err = s.query("PRAGMA page_count", func(stmt *zombiezen.Stmt) { n = stmt.ColumnInt(0) })
	return n, err
}

// Keys returns how many keys begin with a byte.
func (s *Storage) Keys(table byte) (n int, err error) {
	sql := fmt.Sprintf("SELECT count(*) FROM ojs_kv WHERE k >= x'%02x' AND k < x'%02x'", table, table+1)
	err = s.query(sql, func(stmt *zombiezen.Stmt) { n = stmt.ColumnInt(0) })
	return n, err
}

// Pin is a statement that need not find anything.
const Pin = pin

// Old makes a file with the schema of an older version, and runs a script in it.
func Old(path string, version int, script string) error {
	conn, err := zombiezen.OpenConn(path, zombiezen.OpenReadWrite, zombiezen.OpenCreate)
	if err != nil {
		return err
	}
	defer conn.Close()
	if err := legacy.Upgrade(conn, 0, version); err != nil {
		return err
	}
	script += fmt.Sprintf("; PRAGMA application_id = %d", applicationID)
	return sqlitex.ExecuteScript(conn, script, nil)
}

// Exec runs a statement in a file, as another program might.
func Exec(path, sql string) error {
	conn, err := zombiezen.OpenConn(path, zombiezen.OpenReadWrite, zombiezen.OpenCreate)
	if err != nil {
		return err
	}
	defer conn.Close()
	return run(conn, sql)
}

// Each calls f with each row of a statement.
func Each(path, sql string, f func(*zombiezen.Stmt)) error {
	conn, err := zombiezen.OpenConn(path, zombiezen.OpenReadOnly)
	if err != nil {
		return err
	}
	defer conn.Close()
	return sqlitex.Execute(conn, sql, &sqlitex.ExecOptions{ResultFunc: func(stmt *zombiezen.Stmt) error {
		f(stmt)
		return nil
	}})
}

// Schema is the version of files.
const Schema = schema

// TurnTaken reports whether a process holds the turn lock of a file, as the next one to
// write. It reports false on systems without such locks.
func TurnTaken(path string) (bool, error) {
	t, err := openTurn(path, 0o600)
	if err != nil {
		return false, err
	}
	defer t.close()
	return !t.lock(), nil
}

// Writing holds the lock on writing a file until it is told to release it.
func Writing(path string) (release func() error, err error) {
	conn, err := zombiezen.OpenConn(path, zombiezen.OpenReadWrite)
	if err != nil {
		return nil, err
	}
	return conn.Close, run(conn, "BEGIN IMMEDIATE")
}

// OpenDriver opens a file as a store, as Open does.
func OpenDriver(path string) (driver.DB, error) {
	db := newStore(path, config{synchronous: Normal, busy: time.Minute, readers: 4, poll: time.Millisecond})
	err := db.connectAll(ctx)
	if err == nil {
		db.watching.Go(func() { db.watch(func(bool) {}) })
	}
	return db, err
}
