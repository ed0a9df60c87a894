package drivertest

import (
	"bytes"
	"context"
	"fmt"
	"math/rand/v2"
	"sync"

	"github.com/ojsengine/ojs/storage/keyed/driver"
)

// Unsteady is a driver whose calls fail at random in every way that a store may fail: a
// storage over it must behave as over the driver inside.
type Unsteady struct {
	driver.DB

	mu   sync.Mutex // guards the fields below
	rnd  *rand.Rand
	late func() // makes the writes of a transaction whose outcome is unknown
}

// NewUnsteady returns db with failures drawn from a seed. In about a third of the
// transactions something fails. db must detect conflicts, or nothing is made late.
func NewUnsteady(db driver.DB, seed uint64) *Unsteady {
	return &Unsteady{DB: db, rnd: rand.New(rand.NewPCG(seed, 0))}
}

// Limits implements driver.DB.
func (u *Unsteady) Limits() driver.Limits {
	l := u.DB.Limits()
	l.Unsure = true
	return l
}

// oneIn draws whether something fails.
func (u *Unsteady) oneIn(n int) bool {
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.rnd.IntN(n) == 0
}

// arrive makes what is late.
func (u *Unsteady) arrive() {
	u.mu.Lock()
	late := u.late
	u.late = nil
	u.mu.Unlock()
	if late != nil {
		late()
	}
}

// Begin implements driver.DB. A late Commit may be made before the transaction begins,
// after it has begun, or after it has ended.
func (u *Unsteady) Begin(ctx context.Context, write bool) (driver.Tx, error) {
	if u.oneIn(20) {
		return nil, fmt.Errorf("begin: %w", driver.ErrRetry)
	}
	if !write || u.oneIn(3) {
		u.arrive()
	}
	t, err := u.DB.Begin(ctx, write)
	if err != nil {
		return nil, err
	}
	if u.oneIn(2) {
		u.arrive()
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	fails := -1
	if u.rnd.IntN(10) == 0 {
		fails = u.rnd.IntN(20)
	}
	return &unsteadyTx{Tx: t, u: u, fails: fails}, nil
}

// Close implements driver.DB.
func (u *Unsteady) Close() error {
	u.arrive()
	return u.DB.Close()
}

type unsteadyTx struct {
	driver.Tx
	u     *Unsteady
	fails int  // the read with this number
	late  bool // its Commit is made later
}

func (t *unsteadyTx) Discard() {
	if !t.late {
		t.Tx.Discard()
	}
}

// read counts a read, and fails it if that is drawn.
func (t *unsteadyTx) read() error {
	if t.fails--; t.fails == -1 {
		return fmt.Errorf("read: %w", driver.ErrRetry)
	}
	return nil
}

func (t *unsteadyTx) Get(keys [][]byte, dst [][]byte) ([][]byte, error) {
	if err := t.read(); err != nil {
		return dst, err
	}
	return t.Tx.Get(keys, dst)
}

func (t *unsteadyTx) Scan(from, to []byte, max int, reverse bool, dst []driver.Pair) ([]driver.Pair, error) {
	if err := t.read(); err != nil {
		return dst, err
	}
	return t.Tx.Scan(from, to, max, reverse, dst)
}

func (t *unsteadyTx) Commit(writes []driver.Pair) error {
	switch {
	case t.u.oneIn(10):
		t.Discard()
		return fmt.Errorf("commit: %w", driver.ErrConflict)
	case t.u.oneIn(10): // nothing is made
		t.Discard()
		return driver.ErrUnknown
	case t.u.oneIn(10): // it is made
		if err := t.Tx.Commit(writes); err != nil {
			return err
		}
		return driver.ErrUnknown
	case len(writes) > 0 && t.u.oneIn(10):
		return t.delay(writes)
	}
	err := t.Tx.Commit(writes)
	t.u.arrive()
	return err
}

// delay has the writes made later, unless something has come in between.
func (t *unsteadyTx) delay(writes []driver.Pair) error {
	t.u.mu.Lock()
	defer t.u.mu.Unlock()
	if t.u.late != nil || t.exclusive() {
		t.Discard()
		return driver.ErrUnknown
	}
	kept := make([]driver.Pair, len(writes))
	for i, w := range writes {
		kept[i] = driver.Pair{Key: bytes.Clone(w.Key), Value: bytes.Clone(w.Value)}
	}
	t.late = true
	t.u.late = func() { _ = t.Tx.Commit(kept) }
	return driver.ErrUnknown
}

// exclusive reports whether no other transaction may begin before this one has ended.
func (t *unsteadyTx) exclusive() bool {
	m, ok := t.u.DB.(*Memory)
	return !ok || !m.firstWins
}
