// Package bbolt is a storage in a file of go.etcd.io/bbolt, an ordered key-value store.
// It is the example to copy from: it implements the contract of package storage with
// exported packages only, and any ordered store with transactions can take bbolt's place.
// docs/storage.md builds it step by step.
//
// Each call is one transaction, and bbolt runs one transaction that writes at a time:
// atomicity, fencing and strong uniqueness come from that. The bucket jobs has the
// records. The other buckets are indexes; tx.entries in jobs.go says which entries a job
// has in them. A job changes only through tx.change, which replaces all of its entries,
// so an index cannot disagree with a record.
//
// Limits: One process has the file open at a time. Each call that may write waits for the
// disk. The storage is no storage.Notifier, so engines that share a Storage do not hear
// of each other at once. A record that does not decode fails the calls that meet it.
package bbolt

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"iter"
	"time"

	bolt "go.etcd.io/bbolt"
	bolterrors "go.etcd.io/bbolt/errors"

	"github.com/ojsengine/ojs"
	"github.com/ojsengine/ojs/storage"
)

// The buckets, each with the fields of its keys and values. A job's seq is its number in
// the order of insertion, which never changes. It is given a new place each time it comes
// to where it is. Both are drawn from the sequence of the bucket jobs.
const (
	metaBucket   = "meta"   // the names below
	jobsBucket   = "jobs"   // seq: place, record
	idBucket     = "id"     // id: seq
	equalBucket  = "equal"  // fingerprint, seq
	readyBucket  = "ready"  // queue, priority, place: what a claim asks of an available job, see readyValue
	oldestBucket = "oldest" // queue, place: seq, of the available jobs
	wakeBucket   = "wake"   // WakeAt, place: seq, of the jobs that have a WakeAt
	deadBucket   = "dead"   // place: seq, of the dead letters
	// state, dead letter or not, FinishedAt, place: seq, of the finished jobs that may be
	// pruned
	endedBucket = "ended"
	keptBucket  = "kept"  // KeptUntil, seq, of the finished jobs that have a KeptUntil
	countBucket = "count" // state, queue: number of jobs
	sizeBucket  = "size"  // state, dead letter or not: number of entries of ended
	queueBucket = "queue" // queue: its state, unless that is active
	cronBucket  = "cron"  // name: recurring entry
	runBucket   = "run"   // NextRun, name, of the recurring entries that have a NextRun

	formatKey = "format" // version of the layout of the buckets
	floorKey  = "floor"  // highest version that a deleted job had
	prunedKey = "pruned" // Now of the latest Prune: jobs that are kept for longer are not in the bucket ended
)

const format = 1

// Storage implements storage.Storage, storage.QueueStore and storage.CronStore.
type Storage struct{ db *bolt.DB }

var (
	_ storage.QueueStore = (*Storage)(nil)
	_ storage.CronStore  = (*Storage)(nil)
)

// Open opens the storage in a file, and makes the file if there is none. If options is
// nil, it waits one second for another process to close the file. It refuses databases of
// other programs and of newer formats.
func Open(path string, options *bolt.Options) (*Storage, error) {
	if options == nil {
		options = &bolt.Options{Timeout: time.Second}
	}
	db, err := bolt.Open(path, 0o600, options)
	if err != nil {
		return nil, fmt.Errorf("bbolt: opening %s: %w", path, err)
	}
	if err := db.Update(prepare); err != nil {
		return nil, errors.Join(fmt.Errorf("bbolt: opening %s: %w", path, err), db.Close())
	}
	return &Storage{db}, nil
}

func prepare(btx *bolt.Tx) error {
	first, _ := btx.Cursor().First()
	if meta := btx.Bucket([]byte(metaBucket)); first != nil &&
		(meta == nil || number(meta.Get([]byte(formatKey))) != format) {
		return fmt.Errorf("this is no database of jobs, or not one of format %d", format)
	}
	for _, name := range []string{
		metaBucket, jobsBucket, idBucket, equalBucket, readyBucket, oldestBucket, wakeBucket, deadBucket,
		endedBucket, keptBucket, countBucket, sizeBucket, queueBucket, cronBucket, runBucket,
	} {
		if _, err := btx.CreateBucketIfNotExists([]byte(name)); err != nil {
			return err
		}
	}
	return btx.Bucket([]byte(metaBucket)).Put([]byte(formatKey), key{}.number(format))
}

// Capabilities implements storage.Storage.
func (s *Storage) Capabilities() storage.Capabilities {
	return storage.Capabilities{Name: "bbolt", Durable: true, Unique: storage.Strong,
		Mechanism: "one write transaction at a time", Then: true}
}

// Close implements storage.Storage. It waits for the calls that are under way.
func (s *Storage) Close() error { return s.db.Close() }

// tx is the transaction of one call.
type tx struct{ *bolt.Tx }

// failure is how the functions of tx fail: refuse panics with it, and transact returns it
// as the call's error, after bbolt has undone the transaction.
type failure struct{ error }

func refuse(err error) { panic(failure{err}) }

// must returns r, the result of a function, unless the function has failed.
func must[R any](r R, err error) R {
	check(err)
	return r
}

func check(err error) {
	if err != nil {
		refuse(err)
	}
}

// transact makes a call in a transaction that begin begins: db.Update, which commits what
// f changes unless f fails, or db.View, which lets f read one state of the storage.
func transact[R any](ctx context.Context, begin func(func(*bolt.Tx) error) error, f func(t tx) R) (r R,
	err error) {
	if err := ctx.Err(); err != nil {
		return r, err
	}
	err = begin(func(btx *bolt.Tx) (err error) {
		defer func() {
			switch p := recover().(type) {
			case nil:
			case failure:
				err = p.error
			default:
				panic(p)
			}
		}()
		r = f(tx{btx})
		return nil
	})
	if errors.Is(err, bolterrors.ErrDatabaseNotOpen) {
		err = fmt.Errorf("%w: bbolt storage", ojs.ErrClosed)
	}
	if err != nil {
		return *new(R), err
	}
	return r, nil
}

func (t tx) in(bucket string) *bolt.Bucket          { return t.Bucket([]byte(bucket)) }
func (t tx) get(bucket string, k key) []byte        { return t.in(bucket).Get(k) }
func (t tx) put(bucket string, k key, value []byte) { check(t.in(bucket).Put(k, value)) }
func (t tx) delete(bucket string, k key)            { check(t.in(bucket).Delete(k)) }
func (t tx) count(bucket string, k key) int         { return int(number(t.get(bucket, k))) }

// next returns a number above all that it has returned in the life of the file.
func (t tx) next() int64 { return int64(must(t.in(jobsBucket).NextSequence())) }

// add changes a counter. Counters of zero are not stored.
func (t tx) add(bucket string, k key, by int) {
	if n := t.count(bucket, k) + by; n != 0 {
		t.put(bucket, k, key{}.number(int64(n)))
	} else {
		t.delete(bucket, k)
	}
}

// scan yields the entries whose keys begin with prefix, in the order of their keys, from
// prefix and from on, each with what follows the prefix in its key. The transaction must
// not change the bucket before the scan ends: collect, then change.
func (t tx) scan(bucket string, prefix, from key) iter.Seq2[[]byte, []byte] {
	return func(yield func(rest, value []byte) bool) {
		c := t.in(bucket).Cursor()
		for k, v := c.Seek(append(bytes.Clone(prefix), from...)); k != nil && bytes.HasPrefix(k, prefix); k,
			v = c.Next() {
			if !yield(k[len(prefix):], v) {
				return
			}
		}
	}
}

// first returns the first entry whose key begins with prefix, nil if there is none.
func (t tx) first(bucket string, prefix key) (rest, value []byte) {
	for rest, value := range t.scan(bucket, prefix, nil) {
		return rest, value
	}
	return nil, nil
}

// key is a key or a value of several fields. The bytes of each field sort as its values
// do, except for strings: a string stands behind its length, so that the key of one is
// not the beginning of another's.
type key []byte

func (k key) number(n int64) key { return binary.BigEndian.AppendUint64(k, uint64(n)^1<<63) }

func (k key) string(s string) key { return append(binary.AppendUvarint(k, uint64(len(s))), s...) }

// time appends seconds and nanoseconds: nanoseconds alone would end in the year 2262.
func (k key) time(t time.Time) key {
	return binary.BigEndian.AppendUint32(k.number(t.Unix()), uint32(t.Nanosecond()))
}

const timeLen = 12 // bytes of a time

// number returns the number at the beginning of b, 0 if b is nil.
func number(b []byte) int64 {
	if b == nil {
		return 0
	}
	return int64(binary.BigEndian.Uint64(b) ^ 1<<63)
}

// timeOf returns the time at the beginning of b, the zero time if b is nil.
func timeOf(b []byte) time.Time {
	if b == nil {
		return time.Time{}
	}
	return time.Unix(number(b), int64(binary.BigEndian.Uint32(b[8:]))).UTC()
}

// cut returns the string at the beginning of b, and what follows it.
func cut(b []byte) (s string, rest []byte) {
	n, size := binary.Uvarint(b)
	return string(b[size : size+int(n)]), b[size+int(n):]
}
