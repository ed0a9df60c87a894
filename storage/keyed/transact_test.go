package keyed_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ojsengine/ojs"
	"github.com/ojsengine/ojs/internal/test/pace"
	"github.com/ojsengine/ojs/storage"
	"github.com/ojsengine/ojs/storage/keyed"
	"github.com/ojsengine/ojs/storage/keyed/driver"
	"github.com/ojsengine/ojs/storage/keyed/drivertest"
)

var background = context.Background()

var now = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

// counting counts the transactions of a store. While it is held, Begin of a transaction
// that writes waits.
type counting struct {
	driver.DB
	writes atomic.Int64
	began  chan struct{}
	hold   chan struct{}
}

func (c *counting) Begin(ctx context.Context, write bool) (driver.Tx, error) {
	if write {
		c.writes.Add(1)
		select {
		case c.began <- struct{}{}:
		default:
		}
		<-c.hold
	}
	return c.DB.Begin(ctx, write)
}

func job(id string) storage.Insert {
	var in storage.Insert
	in.Record.ID, in.Record.Type, in.Record.Queue, in.Record.State = id, "x", "q", ojs.StateAvailable
	in.Record.CreatedAt, in.Record.Lease = now, time.Minute
	return in
}

// insertAll inserts jobs at the same time, while the transaction of a first call is under
// way. It returns the errors of the others.
func insertAll(t *testing.T, c *counting, s *keyed.Storage, calls ...func() error) []error {
	t.Helper()
	c.began, c.hold = make(chan struct{}, 1), make(chan struct{})
	var wg sync.WaitGroup
	wg.Go(func() { _, _ = s.Insert(background, now, []storage.Insert{job("first")}, nil) })
	<-c.began
	errs := make([]error, len(calls))
	for i, call := range calls {
		wg.Go(func() { errs[i] = call() })
	}
	pace.Until(t, "the calls wait", func() bool { return s.Waiting() == len(calls) })
	close(c.hold)
	wg.Wait()
	return errs
}

func openCounting(t *testing.T, l driver.Limits) (*counting, *keyed.Storage) {
	t.Helper()
	c := &counting{DB: drivertest.NewMemory(false, l), hold: make(chan struct{})}
	close(c.hold)
	s, err := keyed.Open(c, "keyed")
	if err != nil {
		t.Fatal(err)
	}
	return c, s
}

func TestCallsShareATransaction(t *testing.T) {
	c, s := openCounting(t, driver.Limits{})
	insert := func(ctx context.Context, id string) func() error {
		return func() error {
			_, err := s.Insert(ctx, now, []storage.Insert{job(id), job(id + " too")}, nil)
			return err
		}
	}
	before := c.writes.Load()
	ended, cancel := context.WithCancel(background)
	var calls []func() error
	for i := range 20 {
		calls = append(calls, insert(background, fmt.Sprint("job", i)))
	}
	calls = append(calls, insert(background, "job5"), insert(background, "first"), func() error {
		defer cancel()
		return insert(ended, "late")()
	})
	errs := insertAll(t, c, s, calls...)
	failed := 0
	for _, err := range errs {
		var duplicate *ojs.DuplicateError
		if errors.As(err, &duplicate) {
			failed++
		} else if err != nil {
			t.Error(err)
		}
	}
	if failed != 2 {
		t.Errorf("%d calls failed with a duplicate, want the two with ids that are there", failed)
	}
	if n := c.writes.Load() - before; n != 2 {
		t.Errorf("%d transactions, want one for the first call and one for the others", n)
	}
	counts, err := s.Counts(background)
	if err != nil || len(counts) != 1 || counts[0].N != 1+2*21 {
		t.Errorf("%v, %v: a call that fails must leave nothing, and the others everything", counts, err)
	}
}

func TestCallsThatDoNotFit(t *testing.T) {
	c, s := openCounting(t, driver.Limits{Writes: 40})
	insert := func(prefix string, n int) error {
		batch := make([]storage.Insert, n)
		for i := range batch {
			batch[i] = job(fmt.Sprint(prefix, i))
		}
		_, err := s.Insert(background, now, batch, nil)
		return err
	}
	var calls []func() error
	for i := range 6 {
		calls = append(calls, func() error { return insert(fmt.Sprint("job", i, "."), 5) })
	}
	calls = append(calls, func() error { return insert("large", 50) })
	errs := insertAll(t, c, s, calls...)
	for _, err := range errs[:6] {
		if err != nil {
			t.Error(err)
		}
	}
	if err := errs[6]; err == nil || !strings.Contains(err.Error(), "fewer jobs") {
		t.Errorf("a call that is too large for the store returned %v", err)
	}
	counts, err := s.Counts(background)
	if err != nil || len(counts) != 1 || counts[0].N != 31 {
		t.Errorf("%v, %v: want the first job and 30 others", counts, err)
	}
}

func TestOpenRefusesAnotherStore(t *testing.T) {
	db := drivertest.NewMemory(false, driver.Limits{})
	tx, err := db.Begin(background, true)
	if err != nil {
		t.Fatal(err)
	}
	if err := tx.Commit([]driver.Pair{{Key: []byte("k"), Value: []byte("v")}}); err != nil {
		t.Fatal(err)
	}
	if _, err := keyed.Open(db, "keyed"); err == nil {
		t.Error("a store with other keys was opened")
	}
}

func TestCallsThatPanic(t *testing.T) {
	_, s := openCounting(t, driver.Limits{})
	if _, err := s.Insert(background, now, []storage.Insert{job("a")}, nil); err != nil {
		t.Fatal(err)
	}
	func() {
		defer func() {
			if p := recover(); p == nil || !strings.Contains(fmt.Sprint(p), "in Where") {
				t.Errorf("recovered %v", p)
			}
		}()
		_, _ = s.List(background, storage.Query{Where: func(*storage.Record) bool { panic("in Where") }})
	}()
	if page, err := s.List(background, storage.Query{}); err != nil || len(page.Records) != 1 {
		t.Errorf("after a panic List returned %d jobs, %v", len(page.Records), err)
	}
}

// late makes one transaction later than its Commit returns: when the transaction after it
// has read so many times. That one has to run again then.
type late struct {
	driver.DB
	armed bool
	reads int
	first driver.Tx
	pairs []driver.Pair
}

type lateTx struct {
	driver.Tx
	l     *late
	reads int
}

func (l *late) Begin(ctx context.Context, write bool) (driver.Tx, error) {
	tx, err := l.DB.Begin(ctx, write)
	if !write || err != nil {
		return tx, err
	}
	return &lateTx{Tx: tx, l: l}, nil
}

func (t *lateTx) Get(keys [][]byte, dst [][]byte) ([][]byte, error) {
	if t.reads++; t.l.first != nil && t.reads == t.l.reads {
		err := t.l.first.Commit(t.l.pairs)
		t.l.first = nil
		return nil, errors.Join(driver.ErrRetry, err)
	}
	return t.Tx.Get(keys, dst)
}

func (t *lateTx) Commit(writes []driver.Pair) error {
	if !t.l.armed {
		return t.Tx.Commit(writes)
	}
	t.l.armed, t.l.first, t.l.pairs = false, t.Tx, nil
	for _, p := range writes {
		t.l.pairs = append(t.l.pairs, driver.Pair{Key: bytes.Clone(p.Key), Value: bytes.Clone(p.Value)})
	}
	t.Tx = nil
	return driver.ErrUnknown
}

func (t *lateTx) Discard() {
	if t.Tx != nil {
		t.Tx.Discard()
	}
}

// A call whose last run was cut short returns what the run returned that is made.
func TestResultOfTheRunThatIsMade(t *testing.T) {
	for reads, cut := 1, true; cut; reads++ {
		l := &late{DB: drivertest.NewMemory(true, driver.Limits{Unsure: true}), reads: reads}
		s, err := keyed.Open(l, "keyed")
		if err != nil {
			t.Fatal(err)
		}
		ids := []string{"a", "b", "c"}
		_, err = s.Insert(background, now, []storage.Insert{job("a"), job("b"), job("c")}, nil)
		if err != nil {
			t.Fatal(err)
		}
		l.armed = true
		cancelled, _, err := s.CancelAll(background, now, ids)
		if err != nil || len(cancelled) != len(ids) {
			t.Errorf("the second run ended at its read %d: %d jobs cancelled, %v", reads, len(cancelled), err)
		}
		cut = l.first == nil
		if !cut {
			l.first.Discard()
		}
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
	}
}
