package sqlite

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"sync/atomic"

	zombiezen "zombiezen.com/go/sqlite"

	"github.com/ojsengine/ojs"
	"github.com/ojsengine/ojs/storage"
)

// Within runs f in a transaction of the storage. Calls with the context of f are part of
// it, and so are the statements that f makes on conn, which may be about tables of yours
// in the same file. If f returns nil, all of it is committed. An error, a panic and
// runtime.Goexit undo it.
//
//	err := store.Within(ctx, func(ctx context.Context, conn *sqlite.Conn) error {
//		if err := sqlitex.Execute(conn, "INSERT INTO account ...", nil); err != nil {
//			return err
//		}
//		_, err := eng.Enqueue(ctx, "welcome", Welcome{Account: id})
//		return err
//	})
//
// In a handler, handler.Complete with the context of f completes the job in the
// transaction: the handler's writes and the end of its job are one commit.
//
// Every other write to the file waits until f returns, in this process and in others. So
// f must be short. Writes that still wait when f has run for the busy timeout
// (WithBusyTimeout) fail, in this process with ErrWithin. If f itself makes a change of
// the storage without its context, the change fails at once with an *ojs.InvalidError of
// the field "ctx", since it would wait for f. The context and conn are for one goroutine
// at a time, and end with f. Get and List with the context see the writes of the
// transaction. An enqueue or a cancel that is refused leaves the transaction usable.
//
// Your tables may have any names but those of the storage's own (docs/storages.md).
// BEGIN, COMMIT, ROLLBACK and pragmas are the storage's: f uses savepoints. Events of an
// enqueue or a cancel are published when the call returns, even if the transaction is
// undone later.
//
// Within returns the error of f as it is, or else that of the commit. If ctx ends before
// the transaction has begun, Within returns its error and f is not called. With a context
// of another transaction it returns ojs.ErrUnsupported.
func (s *Storage) Within(ctx context.Context, f func(ctx context.Context, conn *zombiezen.Conn) error) error {
	if err := storage.CheckTx(ctx); err != nil {
		return err
	}
	if tx := storage.Tx(ctx); tx != nil {
		return fmt.Errorf("%w: sqlite: the context carries a transaction already (%T)",
			ojs.ErrUnsupported, tx)
	}
	if f == nil {
		return &ojs.InvalidError{Code: ojs.InvalidCodeOption, Field: "f", Reason: "is nil"}
	}
	if err := s.refuseWithin(); err != nil {
		return err
	}
	if err := s.enter(ctx); err != nil {
		return err
	}
	defer s.mu.RUnlock()

	j := &joined{store: s}
	var result error
	handed, back := make(chan *tx), make(chan error)
	c := newCall(func(t *tx) error {
		handed <- t
		err := s.writer.lend(back)
		if err == nil && t.conn.AutocommitEnabled() {
			err = errEnded
		}
		t.written = true // so that an error undoes it all
		return err
	})
	c.alone = true
	if err := s.writer.send(ctx, c); err != nil {
		return err
	}
	select {
	case j.t = <-handed:
		result = j.run(ctx, f, back)
		<-c.ended
	case <-c.ended: // the transaction did not begin
	case <-ctx.Done():
		if c.state.CompareAndSwap(pending, givenUp) {
			return ctx.Err()
		}
		select {
		case j.t = <-handed:
			result = j.run(ctx, f, back)
			<-c.ended
		case <-c.ended:
		}
	}
	switch {
	case result != nil:
		return result
	case c.err == nil:
		for _, n := range j.notices {
			s.hub.Tell(context.Background(), n)
		}
	}
	return wrap(c.err)
}

// ErrWithin is the error of a call that has waited for a function of Within longer than
// the busy timeout. If the function waits for the call, the call needs the context that
// the function was given.
var ErrWithin = errors.New("ojs: sqlite: a function of Within runs, and writes wait for it: keep it short, and use its context for what it waits for")

var (
	errEnded      = errors.New("ojs: sqlite: a statement of Within has ended the transaction, which is the storage's to end")
	errUnfinished = errors.New("ojs: sqlite: the function of Within did not return")
	errOver       = errors.New("ojs: sqlite: the transaction of the context has ended")
)

// joined is the transaction of a Within, as its context carries it. The writer waits for
// the goroutine that has called Within, which has the transaction meanwhile.
type joined struct {
	store   *Storage
	t       *tx
	over    atomic.Bool
	notices []storage.Notice // of its calls, for after the commit
}

// run calls f and gives the transaction back to the writer.
func (j *joined) run(
	ctx context.Context, f func(context.Context, *zombiezen.Conn) error, back chan<- error,
) (err error) {
	err = errUnfinished
	self := goroutine()
	j.store.lent.Store(&self)
	defer func() {
		j.over.Store(true)
		j.store.lent.Store(nil)
		back <- err
	}()
	err = f(storage.WithTx(ctx, j), j.t.conn)
	return err
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
	return ok && j.store == s
}

// joins returns the transaction of the storage that a context carries, nil if none.
func (s *Storage) joins(ctx context.Context) *joined {
	if j, ok := storage.Tx(ctx).(*joined); ok && j.store == s {
		return j
	}
	return nil
}

// write makes a call that changes something.
func (j *joined) write(ctx context.Context, f func(*tx) error) error {
	if err := j.usable(ctx); err != nil {
		return err
	}
	var n storage.Notice
	err := j.t.try(func(t *tx) error {
		t.notice = &n
		return f(t)
	})
	if err == nil && !n.Empty() {
		j.notices = append(j.notices, n)
	}
	if len(j.t.quarantined) > 0 {
		j.notices = append(j.notices, storage.Notice{Quarantined: j.t.quarantined})
	}
	return wrap(err)
}

// read makes a call that changes nothing.
func (j *joined) read(ctx context.Context, f func(*zombiezen.Conn) error) error {
	if err := j.usable(ctx); err != nil {
		return err
	}
	return wrap(f(j.t.conn))
}

func (j *joined) usable(ctx context.Context) error {
	if j.over.Load() {
		return errOver
	}
	return ctx.Err()
}
