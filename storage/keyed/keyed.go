// Package keyed is the whole contract of package storage over an ordered key-value store.
// The store is a [driver.DB], of about a hundred lines: examples/bbolt is one to copy
// from, and docs/storage.md builds it.
//
//	func Open(path string) (*keyed.Storage, error) {
//		db, err := bbolt.Open(path, 0o600, nil)
//		if err != nil {
//			return nil, err
//		}
//		s, err := keyed.Open(mydriver{db}, "bbolt")
//		if err != nil {
//			return nil, errors.Join(err, db.Close())
//		}
//		return s, nil
//	}
//
// # Transactions
//
// A call is made in one transaction. Calls that come while one commits share the next
// (transact.go). The driver reads a snapshot, and an overlay keeps what the transaction
// has written (overlay.go). After a conflict all calls of a transaction run again, so a
// call keeps nothing from one run to the next.
//
// # Layout
//
// table has the tables with the fields of their keys and values, and layout the version
// of all of them. job has the value of a job. entries.of (jobs.go) says which entries a
// job has in which table. A job changes only through tx.change, which writes the entries
// that differ, so that an index cannot disagree with a record.
package keyed

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"github.com/ojsengine/ojs"
	"github.com/ojsengine/ojs/internal/fail"
	"github.com/ojsengine/ojs/internal/notify"
	"github.com/ojsengine/ojs/storage"
	"github.com/ojsengine/ojs/storage/keyed/driver"
)

// layout is the version of the tables.
const layout = 5

// table is the first byte of a key. A job's seq is its number in the order of insertion,
// which never changes. It is given a new place each time it comes to where it is. The
// values of the tables are stored: none of them may ever change.
type table byte

const (
	metaTable      table = iota + 1 // name: number. The names are below
	jobTable                        // seq: job
	idTable                         // id: seq
	equalTable                      // fingerprint, seq
	readyTable                      // queue, type, rank: readyJob, of the available jobs that claims look at
	availableTable                  // queue, rank: seq, of the available jobs
	wakeTable                       // kind (below), WakeAt, place: seq, and the worker of an active job
	deadTable                       // place: seq, of the dead letters
	endedTable                      // group, FinishedAt, place: seq, of the finished jobs
	keptTable                       // released or not, until, seq, of the finished jobs with such a time
	countTable                      // state, queue, type: number of jobs
	sizeTable                       // group: number of entries of ended
	queueTable                      // queue: its state, unless that is active
	documentTable                   // kind, name: due time or the zero time, version, bytes of the document
	dueTable                        // kind, due time, name, of the documents that have a due time
	heldTable                       // queue, type, rest of the lane, rank: readyJob, of other available jobs
	lineTable                       // ordering key, seq, of the jobs that wait for their turn
	turnTable                       // ordering key, seq, of the jobs of a line that do not
	edgeTable                       // seq, seq of a job that waits for it: since
	fairTable                       // queue, priority, fairness key, round, seq, of the available jobs
	roundTable                      // queue, priority, round: number of its jobs
	servedTable                     // queue, priority: the latest round of which a job was claimed
	limitTable                      // kind, name: counter, see tx.keep
	startTable                      // kind, name, number: time
	closedTable                     // key of a rate limit, bounds, of which a claim has to tell
	asideTable                      // number: aside, of the records in the quarantine
	asideIDTable                    // id or name: number of the record in the quarantine
	_                               // unused
	_                               // unused
	logTable                        // seq, version: log
	laneTable                       // key of a rate limit, bounds, rest of the lane: lane
	openTable                       // time, key of a rate limit: time alone may open its lanes then
	handleTable                     // name: number of the handle
	frontTable                      // scope, queue or type, rank, queue, type: see fronts.go
	stateTable                      // state, queue, type, seq: seq, of the jobs in a rare state
	failTable                       // type of the error, FinishedAt, place: seq, of the discarded jobs
	timeTable                       // state, queue, type, time, place: seq, of rare states
	workflowTable                   // id of the workflow, seq: seq, of its jobs
	keeperTable                     // seq: seq, of the records of workflows
	deadOfTable                     // queue, type, place: seq, of the dead letters
)

// Kinds of jobs in the table wake.
const (
	waits    byte = iota // it waits, and has a WakeAt
	leased               // it is active
	unleased             // it is active, and nothing ends its claim: it has no WakeAt
)

// Names in the meta table.
const (
	layoutName  = "layout"   // the version of the layout
	placeName   = "place"    // the last seq or place that was given
	setName     = "set"      // how many queues and types something was set for; tx.settingsOver
	sweptName   = "swept"    // the key of a rate limit that was looked at last (tx.forget)
	asideName   = "aside"    // how many records are in the quarantine
	floorName   = "floor"    // highest version that a deleted job had
	tokenName   = "token/"   // and a handle: the transaction that it has committed last
	versionName = "version/" // and a kind: the last version of a document
)

// Storage implements storage.Storage, storage.Notifier, storage.SettleClaimer and
// storage.Quarantiner, and storage.Transactor for the transactions of its Within.
type Storage struct {
	db        driver.DB
	limits    driver.Limits
	name      string
	token     key // of this handle, in the meta table
	listeners notify.Hub
	ended     chan struct{} // closed by Close

	polling sync.Once // whether others have written to a store that they share

	lent   atomic.Pointer[string] // the goroutine of the Within under way; nil: none
	handle atomic.Int64           // its number, see Enter; 0: none

	manyBacklogs int64 // but for tests manyBacklogs

	mu      sync.Mutex // guards the fields below
	closed  bool
	waiting []*call // for the next transaction
	leading bool    // a goroutine makes transactions

	// used by the goroutine that leads
	tokens  int64 // of the transactions of this handle
	overlay overlay
}

var (
	_ storage.Notifier      = (*Storage)(nil)
	_ storage.SettleClaimer = (*Storage)(nil)
)

// Open makes a storage of a store. Its Close closes the store. name is that of its
// Capabilities, such as "bbolt". Open refuses a store that holds anything else or that a
// newer version has written. It does not close the store then.
func Open(db driver.DB, name string) (*Storage, error) {
	handle := fmt.Sprintf("%016x", rand.Uint64())
	s := &Storage{db: db, limits: db.Limits(), name: name, ended: make(chan struct{}),
		manyBacklogs: manyBacklogs, token: newKey(metaTable).text(tokenName + handle)}
	err := s.do(context.Background(), func(t *tx) {
		switch version := t.number(meta(layoutName)); {
		case version == layout:
		case version != 0 && version < layout:
			fail.With(fmt.Errorf("the layout has version %d, and this program reads version %d only: "+
				"copy the jobs with the program that wrote them", version, layout))
		case version != 0:
			fail.With(fmt.Errorf("the layout has version %d, and this program knows %d: update this program",
				version, layout))
		default:
			if pairs := fail.Must(t.o.tx.Scan([]byte{0}, []byte{255}, 1, false, nil)); len(pairs) > 0 {
				fail.With(fmt.Errorf("the store holds something else than jobs, such as the key %q",
					pairs[0].Key))
			}
			t.putNumber(meta(layoutName), layout)
		}
	})
	if err != nil {
		return nil, fmt.Errorf("ojs: storage %s: %w", name, err)
	}
	return s, nil
}

// Capabilities implements storage.Storage.
func (s *Storage) Capabilities() storage.Capabilities {
	return storage.Capabilities{
		Name: s.name, Durable: s.limits.Durable,
		Unique: storage.Strong, Mechanism: "transactions of an ordered store"}
}

// Close implements storage.Storage. It waits for the calls that are under way.
func (s *Storage) Close() error {
	if err := s.refuseWithin(); err != nil {
		return err
	}
	s.mu.Lock()
	if !s.closed {
		close(s.ended)
	}
	s.closed = true
	s.mu.Unlock()
	return s.db.Close()
}

// Notify implements storage.Notifier. Of what other handles of the store do it knows
// nothing, so that it says that there may be anything: after each of their commits if the
// driver is a driver.Watcher, or else each second.
func (s *Storage) Notify(self any, f func(storage.Notice)) (stop func()) {
	if s.limits.Shared {
		s.polling.Do(func() {
			if w, ok := s.db.(driver.Watcher); ok {
				w.Watch(s.tellAll)
			} else {
				go s.poll()
			}
		})
	}
	return s.listeners.Notify(self, f)
}

// tellAll says that there may be anything.
func (s *Storage) tellAll() { s.listeners.TellFrom(nil, storage.Notice{Everything: true}) }

func (s *Storage) poll() {
	ticker := wall.Ticker(time.Second)
	defer ticker.Stop()
	for {
		select {
		case <-ticker.C:
			s.tellAll()
		case <-s.ended:
			return
		}
	}
}

// errClosed is the error of calls after Close.
func (s *Storage) errClosed() error { return fmt.Errorf("%w: storage %s", ojs.ErrClosed, s.name) }
