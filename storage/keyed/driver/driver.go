// Package driver is what an ordered key-value store has to offer so that package keyed
// can keep jobs in it. A driver knows no jobs: it gets, scans and commits bytes. Package
// keyed implements the contract of package storage over it.
//
// drivertest.Run proves a driver in seconds, without jobs. storagetest.Run proves the
// storage that keyed.Open makes of it. examples/bbolt is a driver to copy from.
//
// # Keys and values
//
// Keys are compared byte by byte. They are 1 to MaxKey bytes long. Values may be empty,
// and an empty value is another thing than none.
//
// # Transactions
//
// A transaction reads the store as it was at one moment, and does not see its own writes:
// package keyed keeps these until Commit, so that a driver never merges. Commit makes all
// writes at once.
//
// There are two ways to isolate transactions, and a driver takes the one of its store:
//
//   - One at a time: Begin waits until the transaction that writes has ended (bbolt,
//     SQLite, pebble behind a Gate). Commit never returns ErrConflict.
//   - The first wins: Begin does not wait. Commit returns ErrConflict if another
//     transaction has written what this one has read since it began (etcd, FoundationDB,
//     TiKV). Package keyed then runs its calls again on the new state.
//
// A driver may detect conflicts more coarsely than key by key. One version for all keys
// is enough. A store with conflict ranges uses the keys that Get and Scan have returned
// and the gaps between them: a scan that ended after five pairs conflicts with writes up
// to the fifth.
package driver

import (
	"context"
	"errors"
)

// DB is a store that is open. Its methods are safe for concurrent use.
type DB interface {
	// Begin begins a transaction. With write unset it only reads, and runs beside any
	// others, though a Commit may wait for it to end. It reads what every Commit has
	// written that returned before Begin was called, in this process or in another. A
	// context that has ended, or ends while Begin waits, fails the call with its error.
	Begin(ctx context.Context, write bool) (Tx, error)

	// Limits says what the store is and what fits into a transaction. It does not change.
	Limits() Limits

	// Close waits for the transactions under way. From its call on, Begin fails with
	// ErrClosed, also one that waits. Closing twice is no error.
	Close() error
}

// Watcher is the ability of a DB to say that another handle of its store has written. It
// is optional. Without it, package keyed looks each second what others have done.
type Watcher interface {
	// Watch has changed called soon after a Commit of another handle, in this process or
	// in another, until Close. Several commits may cause one call.
	Watch(changed func())
}

// Limits are those of a store. The zero value is a store in memory without limits.
type Limits struct {
	Durable bool // what is committed outlives the process

	// Writes is the most writes in a transaction, and Bytes the most bytes of their keys
	// and values. Zero: any number. Package keyed puts fewer calls into a transaction
	// then, and refuses a call that does not fit by itself.
	Writes, Bytes int

	// Shared says that other handles of the store may write, in this process or in
	// others.
	Shared bool

	// Unsure says that Commit may return ErrUnknown. Package keyed then writes a token
	// with each transaction, and reads it before it runs a transaction again.
	Unsure bool
}

// Tx is a transaction. One goroutine uses it. It ends with Commit or Discard.
type Tx interface {
	// Get appends the values of keys to dst, in their order, nil for a key that is not
	// there. A key may be there twice. A store far away reads them in one round trip. The
	// values are valid until the transaction ends, and the caller does not change them.
	// So are the keys.
	Get(keys [][]byte, dst [][]byte) ([][]byte, error)

	// Scan appends up to max pairs with from <= key < to to dst: the first of the range
	// in the order of their keys, or if reverse is set the last of it in the reverse
	// order. Nothing is appended if max is 0 or from is not before to. to may be longer
	// than MaxKey. The Value of a pair is never nil. The pairs are valid until the
	// transaction ends, and the caller does not change them.
	Scan(from, to []byte, max int, reverse bool, dst []Pair) ([]Pair, error)

	// Peek is a Scan in the order of the keys that conflicts with no other transaction (a
	// snapshot read): package keyed reads with Get what it takes of the result. A driver
	// without conflict ranges calls Scan.
	Peek(from, to []byte, max int, dst []Pair) ([]Pair, error)

	// Commit makes the writes, all or none, and ends a transaction that Begin was asked
	// to let write. Their keys are in order and each is there once. The driver copies
	// what it keeps of them. Without writes Commit verifies what was read: that a key is
	// absent must be as true as that it is there. Transactions one at a time have nothing
	// to verify. A transaction that only reads is ended by Discard.
	//
	// The error is nil if the writes are made, and durable if the store is. After
	// ErrConflict and ErrRetry nothing is made, and package keyed runs the transaction
	// again. After ErrUnknown the writes may be made, now or later: a driver returns it
	// only if it cannot find out. After any other error nothing is made.
	Commit(writes []Pair) error

	// Discard ends the transaction without a trace. After Commit it does nothing.
	Discard()
}

// Writer is the ability of a transaction that writes to do so before its Commit. It is
// optional, and for stores without Limits of size whose transactions are one at a time.
// With it, keyed.Storage.Within makes several calls in one transaction, and what else its
// caller does in it.
type Writer interface {
	// Write makes writes as Commit does and leaves the transaction open. The transaction
	// sees them, and no other does before its Commit, which may be one without writes.
	// Pairs that were read before are not valid after it. It is not called on a
	// transaction that only reads.
	Write(writes []Pair) error
}

// Pair is a key and its value. In a Commit a nil Value deletes the key.
type Pair struct{ Key, Value []byte }

// Errors of drivers. They may be wrapped.
var (
	ErrConflict = errors.New("driver: another transaction came first")
	ErrRetry    = errors.New("driver: the store does not answer now") // also of Begin, Get and Scan
	ErrUnknown  = errors.New("driver: the transaction may have been made")
	ErrClosed   = errors.New("driver: the store is closed")
)

// MaxKey is how many bytes a key has at most. Package keyed hashes longer names.
const MaxKey = 1024
