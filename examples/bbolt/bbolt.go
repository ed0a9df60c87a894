// Package bbolt keeps jobs in a file of go.etcd.io/bbolt, an ordered key-value store. It
// is a driver of package keyed, which has all the rules of jobs: the example to copy for
// another ordered store. docs/storage.md builds it.
//
// The jobs are in one bucket of the file, so that the file may hold other buckets too.
// One process has the file open at a time. Each transaction waits for the disk; calls
// that come at the same time share one.
package bbolt

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"time"

	bolt "go.etcd.io/bbolt"

	"github.com/ojsengine/ojs/storage/keyed"
	"github.com/ojsengine/ojs/storage/keyed/driver"
)

// Open opens the storage in a file, and makes the file if there is none. If options is
// nil, it waits one second for another process to close the file.
func Open(path string, options *bolt.Options) (*keyed.Storage, error) {
	db, err := OpenDriver(path, options)
	if err != nil {
		return nil, err
	}
	s, err := keyed.Open(db, "bbolt")
	if err != nil {
		return nil, errors.Join(fmt.Errorf("bbolt: opening %s: %w", path, err), db.Close())
	}
	return s, nil
}

// bucket is the bucket with all keys.
var bucket = []byte("ojs")

// OpenDriver opens a file as a store.
func OpenDriver(path string, options *bolt.Options) (driver.DB, error) {
	if options == nil {
		options = &bolt.Options{Timeout: time.Second}
	}
	db, err := bolt.Open(path, 0o600, options)
	if err != nil {
		return nil, fmt.Errorf("bbolt: opening %s: %w", path, err)
	}
	err = db.Update(func(tx *bolt.Tx) error {
		_, err := tx.CreateBucketIfNotExists(bucket)
		return err
	})
	if err != nil {
		return nil, errors.Join(fmt.Errorf("bbolt: opening %s: %w", path, err), db.Close())
	}
	return store{db, driver.NewGate()}, nil
}

// store implements driver.DB. One transaction writes at a time.
type store struct {
	db   *bolt.DB
	gate *driver.Gate
}

func (s store) Limits() driver.Limits { return driver.Limits{Durable: true} }

func (s store) Close() error { return s.gate.Close(s.db.Close) }

func (s store) Begin(ctx context.Context, write bool) (driver.Tx, error) {
	if err := s.gate.Enter(ctx, write); err != nil {
		return nil, err
	}
	t, err := s.db.Begin(write)
	if err != nil {
		s.gate.Leave(write)
		return nil, err
	}
	return &tx{Tx: t, s: s, in: t.Bucket(bucket), write: write}, nil
}

type tx struct {
	*bolt.Tx
	s     store
	in    *bolt.Bucket
	write bool
	ended bool
}

func (t *tx) Get(keys [][]byte, dst [][]byte) ([][]byte, error) {
	for _, k := range keys {
		dst = append(dst, t.in.Get(k))
	}
	return dst, nil
}

func (t *tx) Scan(from, to []byte, max int, reverse bool, dst []driver.Pair) ([]driver.Pair, error) {
	c := t.in.Cursor()
	k, v := c.Seek(from)
	next, in := c.Next, func() bool { return bytes.Compare(k, to) < 0 }
	if reverse {
		if k, _ = c.Seek(to); k == nil {
			k, v = c.Last()
		} else {
			k, v = c.Prev()
		}
		next, in = c.Prev, func() bool { return bytes.Compare(k, from) >= 0 }
	}
	for ; k != nil && max > 0 && in(); k, v = next() {
		dst = append(dst, driver.Pair{Key: k, Value: v})
		max--
	}
	return dst, nil
}

func (t *tx) Peek(from, to []byte, max int, dst []driver.Pair) ([]driver.Pair, error) {
	return t.Scan(from, to, max, false, dst)
}

func (t *tx) Commit(writes []driver.Pair) (err error) {
	defer t.Discard()
	if len(writes) == 0 {
		return nil // nothing that was read has changed
	}
	for _, w := range writes {
		if w.Value == nil {
			err = t.in.Delete(w.Key)
		} else {
			err = t.in.Put(w.Key, w.Value)
		}
		if err != nil {
			return err
		}
	}
	return t.Tx.Commit()
}

func (t *tx) Discard() {
	if !t.ended {
		t.ended = true
		_ = t.Rollback() // nothing, after Commit
		t.s.gate.Leave(t.write)
	}
}
