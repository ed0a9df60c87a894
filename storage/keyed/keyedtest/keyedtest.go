// Package keyedtest has the suite of storages prove a storage over a driver:
//
//	func TestStorage(t *testing.T) {
//		storagetest.Run(t, keyedtest.Config(drivertest.Config{
//			Open: func(tb testing.TB) driver.DB { return open(tb) },
//		}))
//	}
package keyedtest

import (
	"bytes"
	"context"
	"errors"
	"sync"
	"testing"

	"github.com/ojsengine/ojs/storage"
	"github.com/ojsengine/ojs/storage/keyed"
	"github.com/ojsengine/ojs/storage/keyed/driver"
	"github.com/ojsengine/ojs/storage/keyed/drivertest"
	"github.com/ojsengine/ojs/storage/storagetest"
)

// Config returns the configuration of the suite for storages over stores that cfg opens,
// with all abilities of package keyed.
func Config(cfg drivertest.Config) storagetest.Config {
	var stores sync.Map // by storage
	open := func(tb testing.TB, db driver.DB) storage.Storage {
		s, err := keyed.Open(db, "keyed")
		if err != nil {
			tb.Fatal(err)
		}
		stores.Store(s, db)
		return s
	}
	store := func(s storage.Storage) driver.DB {
		db, _ := stores.Load(s)
		return db.(driver.DB)
	}
	c := storagetest.Config{
		Open:    func(tb testing.TB) storage.Storage { return open(tb, cfg.Open(tb)) },
		Notices: true, Quarantine: true, SettleClaims: true,
	}
	Damages(&c, store)
	if cfg.Reopen != nil {
		c.Reopen = func(tb testing.TB, s storage.Storage) storage.Storage {
			if err := s.Close(); err != nil {
				tb.Fatal(err)
			}
			return open(tb, cfg.Reopen(tb, store(s)))
		}
	}
	if cfg.Another != nil {
		c.Another = func(tb testing.TB, s storage.Storage) storage.Storage {
			return open(tb, cfg.Another(tb, store(s)))
		}
	}
	return c
}

// Damages has a configuration damage and mend records in the stores of its storages.
func Damages(c *storagetest.Config, store func(storage.Storage) driver.DB) {
	c.Plant = func(tb testing.TB, s storage.Storage, id string) { damage(tb, store(s), id, 1) }
	c.Mend = func(tb testing.TB, s storage.Storage, id string) { damage(tb, store(s), id, newer) }
	c.PlantNamed = func(tb testing.TB, s storage.Storage, kind storage.Kind, name string) {
		damageNamed(tb, store(s), kind, name, false)
	}
	c.MendNamed = func(tb testing.TB, s storage.Storage, kind storage.Kind, name string) {
		damageNamed(tb, store(s), kind, name, true)
	}
}

// newer is a format that no version of package keyed knows.
const newer = 101

// damage changes the format of the record of a job, wherever it is stored, if that is the
// one given: from 1 to newer, or back. The record does not decode meanwhile.
func damage(tb testing.TB, db driver.DB, id string, format byte) {
	tb.Helper()
	record := append([]byte{format, byte(len(id))}, id...) // how the body of a record begins
	change(tb, db, func(p driver.Pair) (at int) { return bytes.Index(p.Value, record) }, newer+1-format)
}

// The tables of package keyed with states of queues, documents and the quarantine.
const queueTable, documentTable, asideTable = 13, 14, 26

// damageNamed damages a recurring entry or the state of a queue, or mends the one in the
// quarantine.
func damageNamed(tb testing.TB, db driver.DB, kind storage.Kind, name string, mend bool) {
	tb.Helper()
	k := append([]byte{documentTable, byte(len(kind))}, kind+storage.Kind(name)...)
	whole, damaged := `{"Name"`, `x"Name"`
	if kind == storage.KindQueue {
		k = append([]byte{queueTable, byte(len(name))}, name...)
		whole, damaged = "paused", "xaused"
	}
	if mend {
		whole, damaged = damaged, whole
	}
	change(tb, db, func(p driver.Pair) (at int) {
		if !mend && bytes.Equal(p.Key, k) || mend && p.Key[0] == asideTable && bytes.Contains(p.Value, k) {
			return bytes.LastIndex(p.Value, []byte(whole))
		}
		return -1
	}, damaged[0])
}

// change replaces a byte of each value in which find returns its place, not below 0.
func change(tb testing.TB, db driver.DB, find func(p driver.Pair) (at int), to byte) {
	tb.Helper()
	unknown := false
	for n := 0; ; n++ { // the store may be unsteady
		err := try(db, find, to)
		if err == nil || unknown && err == errNone {
			return
		}
		unknown = unknown || errors.Is(err, driver.ErrUnknown)
		if n == 100 {
			tb.Fatal(err)
		}
	}
}

var errNone = errors.New("keyedtest: the record is not stored")

func try(db driver.DB, find func(p driver.Pair) (at int), to byte) error {
	tx, err := db.Begin(context.Background(), true)
	if err != nil {
		return err
	}
	defer tx.Discard()
	pairs, err := tx.Scan([]byte{0}, []byte{255}, 1<<30, false, nil)
	if err != nil {
		return err
	}
	var writes []driver.Pair
	for _, p := range pairs {
		if at := find(p); at >= 0 {
			v := bytes.Clone(p.Value)
			v[at] = to
			writes = append(writes, driver.Pair{Key: p.Key, Value: v})
		}
	}
	if len(writes) == 0 {
		return errNone
	}
	return tx.Commit(writes)
}
