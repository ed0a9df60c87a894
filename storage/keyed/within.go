package keyed

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"sync/atomic"

	"github.com/ojsengine/ojs"
	"github.com/ojsengine/ojs/storage"
	"github.com/ojsengine/ojs/storage/keyed/driver"
)

// Calls within a transaction of the caller.
//
//  1. Within begins a transaction of the driver and calls f. The driver makes all other
//     transactions that write wait until f returns.
//  2. A call with the context of f runs in that transaction with an overlay of its own.
//     At its end driver.Writer writes the changes. A call that fails writes nothing, so
//     that the transaction stays usable, and the caller may undo a part by savepoints.
//  3. Listeners hear of all calls after the commit.

var _ storage.Transactor = (*Storage)(nil)

// joined is the transaction of a Within, as its context carries it.
type joined struct {
	s       *Storage
	tx      driver.Tx
	overlay overlay
	over    atomic.Bool
	broken  error            // of a Write: the transaction cannot be committed
	notices []storage.Notice // of its calls, for after the commit
}

var errOver = errors.New("ojs: the transaction of the context has ended")

// Within runs f in a transaction of the store, which needs transactions that are a
// [driver.Writer]. Calls of the storage with the context of f are part of it, and f may
// use tx for what the driver lets it do besides. If f returns nil, all of it is
// committed. An error, a panic and runtime.Goexit undo it.
//
// Every other write waits until f returns, so that f must be short. A write of f itself
// without its context fails at once with an *ojs.InvalidError of the field "ctx". The
// context and tx are for one goroutine at a time, and end with f. Get and List with the
// context see the writes of the transaction. A call that is refused leaves it usable.
//
// Within returns the error of f as it is, or else that of the commit. If ctx ends before
// the transaction has begun, Within returns its error and f is not called. With a context
// of another transaction it returns ojs.ErrUnsupported.
func (s *Storage) Within(ctx context.Context, f func(ctx context.Context, tx driver.Tx) error) error {
	if err := storage.CheckTx(ctx); err != nil {
		return err
	}
	if tx := storage.Tx(ctx); tx != nil {
		return fmt.Errorf("%w: storage %s: the context carries a transaction already (%T)",
			ojs.ErrUnsupported, s.name, tx)
	}
	if f == nil {
		return &ojs.InvalidError{Code: ojs.InvalidCodeOption, Field: "f", Reason: "is nil"}
	}
	if err := s.refuseWithin(); err != nil {
		return err
	}
	dtx, err := s.begin(ctx, true)
	if err != nil {
		return err
	}
	defer dtx.Discard()
	if _, ok := dtx.(driver.Writer); !ok {
		return fmt.Errorf("%w: storage %s has no transactions of callers", ojs.ErrUnsupported, s.name)
	}
	j := &joined{s: s, tx: dtx}
	if err := j.run(ctx, f); err != nil {
		return err
	}
	if j.broken != nil {
		return j.broken
	}
	if err := dtx.Commit(nil); err != nil {
		return err
	}
	for _, n := range j.notices {
		s.listeners.TellFrom(nil, n)
	}
	return nil
}

// run calls f.
func (j *joined) run(ctx context.Context, f func(context.Context, driver.Tx) error) error {
	self := goroutine()
	j.s.lent.Store(&self)
	defer func() {
		j.over.Store(true)
		j.s.lent.Store(nil)
	}()
	return f(storage.WithTx(ctx, j), j.tx)
}

// refuseWithin refuses a call that a function of Within makes without its context. The
// call would wait for the function.
func (s *Storage) refuseWithin() error {
	if by := s.lent.Load(); by == nil || *by != goroutine() {
		return nil
	}
	return &ojs.InvalidError{Code: ojs.InvalidCodeOption, Field: "ctx",
		Reason: "is not the one that the function of Within was given: the call would wait for the function that makes it"}
}

// goroutine names the goroutine that calls it.
func goroutine() string {
	var head [64]byte // goroutine 7 [running]:
	name, _, _ := strings.Cut(string(head[:runtime.Stack(head[:], false)]), " [")
	return name
}

// Joins implements storage.Transactor.
func (s *Storage) Joins(tx any) bool {
	j, ok := tx.(*joined)
	return ok && j.s == s
}

// joins returns the transaction of the storage that a context carries, nil if none.
func (s *Storage) joins(ctx context.Context) (*joined, error) {
	switch tx := storage.Tx(ctx); {
	case tx == nil:
		return nil, nil
	case !s.Joins(tx):
		return nil, storage.CheckTx(ctx)
	case tx.(*joined).over.Load():
		return nil, errOver
	default:
		return tx.(*joined), nil
	}
}

// change makes a call that may write.
func (j *joined) change(c *call) error {
	o, mark := &j.overlay, 0
	o.reset(j.tx)
	defer o.reset(nil)
	r := c.run(&tx{o: o, s: j.s}, &mark)
	if r.err != nil {
		o.rollback(mark)
	}
	if changes := o.changes(); len(changes) > 0 {
		if err := j.tx.(driver.Writer).Write(changes); err != nil {
			j.broken = err
			return err
		}
	}
	raise(r.err)
	if len(r.aside) > 0 { // whether the call fails or not
		j.notices = append(j.notices, storage.Notice{Quarantined: r.aside})
	}
	if r.err == nil && !r.notice.Empty() {
		j.notices = append(j.notices, r.notice)
	}
	return r.err
}
