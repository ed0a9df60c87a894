// Package kv is a driver of package keyed over one table of an SQLite file.
package kv

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	zombiezen "zombiezen.com/go/sqlite"
	"zombiezen.com/go/sqlite/sqlitex"

	"github.com/ojsengine/ojs/storage/keyed/driver"
)

// readers is how many transactions read at once.
const readers = 4

// Store implements driver.DB. One connection writes, and others read snapshots.
type Store struct {
	writer chan *conn // holds the connection unless a transaction has it
	reader chan *conn

	mu     sync.Mutex
	closed bool
	ended  chan struct{}
}

// conn is a connection with its statements.
type conn struct {
	*zombiezen.Conn
	idle                             chan *conn
	arena                            []byte // what the transaction has read
	begin, pin, commit, rollback     *zombiezen.Stmt
	get, scan, scanBack, put, delete *zombiezen.Stmt
}

// Open opens a file, and makes it if there is none.
func Open(path string) (s *Store, err error) {
	s = &Store{writer: make(chan *conn, 1), reader: make(chan *conn, readers), ended: make(chan struct{})}
	defer func() {
		if err != nil {
			err = fmt.Errorf("opening %s: %w", path, errors.Join(err, s.Close()))
		}
	}()
	for i := range 1 + readers {
		begin, idle := "BEGIN", s.reader
		if i == 0 {
			begin, idle = "BEGIN IMMEDIATE", s.writer
		}
		c, err := connect(path, begin)
		if err != nil {
			return s, err
		}
		c.idle = idle
		idle <- c
	}
	return s, nil
}

func connect(path, begin string) (*conn, error) {
	z, err := zombiezen.OpenConn(path, zombiezen.OpenReadWrite, zombiezen.OpenCreate)
	if err != nil {
		return nil, err
	}
	c := &conn{Conn: z}
	z.SetBusyTimeout(10 * time.Second)
	for _, sql := range []string{
		"PRAGMA journal_mode = wal", "PRAGMA synchronous = normal",
		"CREATE TABLE IF NOT EXISTS kv (k BLOB PRIMARY KEY, v BLOB NOT NULL) WITHOUT ROWID, STRICT",
	} {
		if err := sqlitex.ExecuteTransient(z, sql, nil); err != nil {
			return nil, errors.Join(err, z.Close())
		}
	}
	for _, p := range []struct {
		stmt **zombiezen.Stmt
		sql  string
	}{
		{&c.begin, begin}, {&c.pin, "SELECT 1 FROM kv LIMIT 1"},
		{&c.commit, "COMMIT"}, {&c.rollback, "ROLLBACK"},
		{&c.get, "SELECT v FROM kv WHERE k = ?"},
		{&c.scan, "SELECT k, v FROM kv WHERE k >= ? AND k < ? ORDER BY k LIMIT ?"},
		{&c.scanBack, "SELECT k, v FROM kv WHERE k >= ? AND k < ? ORDER BY k DESC LIMIT ?"},
		{&c.put, "REPLACE INTO kv VALUES (?, ?)"},
		{&c.delete, "DELETE FROM kv WHERE k = ?"},
	} {
		if *p.stmt, err = z.Prepare(p.sql); err != nil {
			return nil, errors.Join(err, z.Close())
		}
	}
	return c, nil
}

func exec(stmt *zombiezen.Stmt) error {
	_, err := stmt.Step()
	return errors.Join(err, stmt.Reset())
}

// Limits implements driver.DB.
func (s *Store) Limits() driver.Limits { return driver.Limits{Durable: true, Shared: true} }

// Begin implements driver.DB.
func (s *Store) Begin(ctx context.Context, write bool) (driver.Tx, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	idle := s.reader
	if write {
		idle = s.writer
	}
	var c *conn
	select {
	case c = <-idle:
	case <-s.ended:
		return nil, driver.ErrClosed
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	s.mu.Lock()
	closed := s.closed
	s.mu.Unlock()
	if closed {
		idle <- c
		return nil, driver.ErrClosed
	}
	err := exec(c.begin)
	if err == nil && !write { // a snapshot begins with the first read
		err = exec(c.pin)
	}
	t := &tx{conn: c}
	c.arena = c.arena[:0]
	if err != nil {
		t.Discard()
		return nil, err
	}
	return t, nil
}

// Close implements driver.DB.
func (s *Store) Close() (err error) {
	s.mu.Lock()
	if s.closed {
		s.mu.Unlock()
		return nil
	}
	s.closed = true
	close(s.ended)
	s.mu.Unlock()
	for range readers {
		err = errors.Join(err, (<-s.reader).Close())
	}
	return errors.Join(err, (<-s.writer).Close())
}

type tx struct {
	*conn // nil: it has ended
}

// column copies a column.
func (t *tx) column(stmt *zombiezen.Stmt, i int) []byte {
	n := stmt.ColumnLen(i)
	if n > cap(t.arena)-len(t.arena) {
		t.arena = make([]byte, 0, max(n, 16<<10))
	}
	at := len(t.arena)
	t.arena = t.arena[:at+n]
	stmt.ColumnBytes(i, t.arena[at:])
	return t.arena[at : at+n : at+n]
}

func (t *tx) Get(keys [][]byte, dst [][]byte) ([][]byte, error) {
	for _, k := range keys {
		t.get.BindBytes(1, k)
		found, err := t.get.Step()
		var v []byte
		if found {
			v = t.column(t.get, 0)
		}
		if err := errors.Join(err, t.get.Reset()); err != nil {
			return dst, err
		}
		dst = append(dst, v)
	}
	return dst, nil
}

func (t *tx) Scan(from, to []byte, max int, reverse bool, dst []driver.Pair) ([]driver.Pair, error) {
	stmt := t.scan
	if reverse {
		stmt = t.scanBack
	}
	stmt.BindBytes(1, from)
	stmt.BindBytes(2, to)
	stmt.BindInt64(3, int64(max))
	for {
		more, err := stmt.Step()
		if err != nil || !more {
			return dst, errors.Join(err, stmt.Reset())
		}
		dst = append(dst, driver.Pair{Key: t.column(stmt, 0), Value: t.column(stmt, 1)})
	}
}

func (t *tx) Peek(from, to []byte, max int, dst []driver.Pair) ([]driver.Pair, error) {
	return t.Scan(from, to, max, false, dst)
}

func (t *tx) Commit(writes []driver.Pair) error {
	defer t.Discard()
	for _, w := range writes {
		stmt := t.put
		if w.Value == nil {
			stmt = t.delete
		} else {
			stmt.BindBytes(2, w.Value)
		}
		stmt.BindBytes(1, w.Key)
		if err := exec(stmt); err != nil {
			return err
		}
	}
	return exec(t.commit)
}

func (t *tx) Discard() {
	if t.conn == nil {
		return
	}
	if !t.AutocommitEnabled() {
		_ = exec(t.rollback)
	}
	t.idle <- t.conn
	t.conn = nil
}
