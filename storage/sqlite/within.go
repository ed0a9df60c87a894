package sqlite

import (
	"context"
	"errors"

	zombiezen "zombiezen.com/go/sqlite"

	"github.com/ojsengine/ojs/storage/keyed/driver"
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
// f must be short. Writes that have waited for it for the busy timeout (WithBusyTimeout)
// fail, in this process with ErrWithin. If f itself makes a change of the storage without
// its context, the change fails at once with an *ojs.InvalidError of the field "ctx",
// since it would wait for f. The context and conn are for one goroutine at a time, and
// end with f. Get and List with the context see the writes of the transaction. An enqueue
// or a cancel that is refused leaves the transaction usable.
//
// Your tables may have any names but that of the storage's own, ojs_kv.
// BEGIN, COMMIT, ROLLBACK and pragmas are the storage's: f uses savepoints. At the end of
// f its statements of Prepare and Prep are reset, and so is its SetInterrupt. f finalizes
// those of PrepareTransient. After a full disk the transaction is undone. Events of an
// enqueue or a cancel are published when the call returns, even if the transaction is
// undone later.
//
// Within returns the error of f as it is, or else that of the commit. If ctx ends before
// the transaction has begun, Within returns its error and f is not called. With a context
// of another transaction it returns ojs.ErrUnsupported.
func (s *Storage) Within(ctx context.Context, f func(ctx context.Context, conn *zombiezen.Conn) error) error {
	if f == nil {
		return s.keyed.Within(ctx, nil)
	}
	return s.keyed.Within(ctx, func(ctx context.Context, t driver.Tx) error {
		s.store.lent.Store(true)
		defer s.store.lent.Store(false)
		return f(ctx, t.(*tx).Conn)
	})
}

// ErrWithin is the error of a call that has waited for a function of Within longer than
// the busy timeout. If the function waits for the call, the call needs the context that
// the function was given.
var ErrWithin = errors.New("ojs: sqlite: a function of Within runs, and writes wait for it: keep it short, and use its context for what it waits for")

var errEnded = errors.New("ojs: sqlite: a statement of Within has ended the transaction, which is the storage's to end")
