package postgres

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/ojsengine/ojs"
	"github.com/ojsengine/ojs/internal/fail"
	"github.com/ojsengine/ojs/storage"
)

// WithTx returns a context in which an enqueue is part of a transaction: the job exists
// if and only if the transaction commits. Lookups with the context see it before. The
// transaction stays the caller's to commit; an enqueue that fails leaves it usable.
//
//	err := pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error {
//		if _, err := tx.Exec(ctx, "INSERT INTO account ..."); err != nil {
//			return err
//		}
//		_, err := eng.Enqueue(postgres.WithTx(ctx, tx), "welcome", Welcome{Account: id})
//		return err
//	})
//
// The transaction has to be one of the storage's database, and read committed for a
// unique job, a bounded queue or an ordering key: otherwise it does not see jobs that
// others have enqueued since it began, and the enqueue fails with an *ojs.InvalidError of
// the field "tx". So does handler.Complete of a job with an ordering key. Like every
// pgx.Tx it is for one goroutine at a time.
//
// With handler.Complete a handler completes its job in the transaction. A cancel is part
// of the transaction, too. The events of an enqueue or a cancel are published when the
// call returns, even if the transaction is rolled back later. Other processes are
// notified by the commit. The commit also notifies them of records that do not decode and
// that the enqueue has moved to the quarantine: no log line names these, Quarantine lists
// them. A cancel or a replacement of a job that this engine runs ends the context of its
// handler before the commit, even if the transaction is rolled back later.
//
// A unique job keeps others with its fingerprint waiting until the transaction ends, as a
// bounded queue keeps other bounded enqueues, and a job with an ordering key the other
// enqueues of its key and the end of the job that has the turn. One EnqueueMany locks in
// an order that all have; two transactions that enqueue several times, in different
// orders, may wait for each other, and one of them fails with ErrDeadlock then. No number
// of jobs fills the server's lock table.
//
// If tx is nil, calls with the context fail with an *ojs.InvalidError of the field "tx".
//
// WithSQLTx is the same for transactions over database/sql.
//
// An engine over another storage refuses changes in the context with ojs.ErrUnsupported.
func WithTx(ctx context.Context, tx pgx.Tx) context.Context {
	return storage.WithTx(ctx, tx)
}

// Joins implements storage.Transactor.
func (s *Storage) Joins(tx any) bool {
	return ofCaller(tx) != nil
}

// ofCaller is a transaction of WithTx or WithSQLTx, or nil.
func ofCaller(tx any) transaction {
	switch tx := tx.(type) {
	case pgx.Tx:
		return inTx{Tx: tx}
	case SQLTx:
		return inSQLTx{tx}
	}
	return nil
}

func txOf(ctx context.Context) transaction { return ofCaller(storage.Tx(ctx)) }

// tx makes the statements of a call: in a transaction, or each in one of its own. Its
// functions do not return errors: they fail (package fail). The functions of Storage that
// make a tx return the error.
type tx struct {
	s      *Storage
	ctx    context.Context
	on     querier
	notice storage.Notice // what the call has done
}

func (s *Storage) with(ctx context.Context, on querier) *tx { return &tx{s: s, ctx: ctx, on: on} }

// pooled makes statements with the pool, each in a transaction of its own.
func (s *Storage) pooled(ctx context.Context) *tx { return s.with(ctx, tuned{s: s}) }

// in is the transaction of the context, or pooled.
func (s *Storage) in(ctx context.Context) *tx {
	if of := txOf(ctx); of != nil {
		return s.with(ctx, of)
	}
	return s.pooled(ctx)
}

// joined reports whether the transaction is the caller's.
func (t *tx) joined() bool { return txOf(t.ctx) != nil }

// send makes statements.
func (t *tx) send(list ...sent) {
	if len(list) > 0 {
		fail.If(t.on.query(t.ctx, list...))
	}
}

// query makes a statement. read reads its rows; nil drops them.
func (t *tx) query(of statement, read func(rowSet) error, args ...any) {
	t.send(t.s.sent(of, read, args...))
}

func (t *tx) exec(of statement, args ...any) { t.query(of, nil, args...) }

// tune has the planner work as the statements were written for, until the transaction of
// the storage's own ends. In one of the caller's it works as its owner wants it to.
func (t *tx) tune() {
	if !t.joined() {
		t.exec(tuneSQL)
	}
}

// run makes a call, of which f makes the statements.
func (t *tx) run(f func(*tx)) error {
	if err := t.s.enter(t.ctx); err != nil {
		return err
	}
	defer t.s.mu.RUnlock()
	return wrap(fail.Caught(func() { f(t) }))
}

// ask makes a call whose result f returns.
func ask[R any](t *tx, f func(*tx) R) (result R, err error) {
	if err = t.run(func(t *tx) { result = f(t) }); err != nil {
		var none R
		return none, err
	}
	return result, nil
}

// apart refuses a call that does not join a transaction of the caller's.
func (t *tx) apart() {
	if t.joined() {
		fail.With(fmt.Errorf("%w: postgres: this call cannot be part of a transaction: use a context without it",
			ojs.ErrUnsupported))
	}
}

// again has f make statements, and make them anew while the database undoes them (again).
func (t *tx) again(f func()) { fail.If(again(func() error { return fail.Caught(f) })) }

// begun runs f in a transaction of its own, which f's failure undoes.
func (s *Storage) begun(ctx context.Context, q querier, f func(*tx)) error {
	own, err := q.begin(ctx)
	if err != nil {
		return undone{err}
	}
	ended := false
	defer func() {
		if !ended { // f has panicked
			_ = own.rollback(ctx)
		}
	}()
	err = fail.Caught(func() { f(s.with(ctx, own)) })
	ended = true
	if err == nil {
		return own.commit(ctx)
	}
	failed := own.rollback(ctx)
	switch {
	case errors.As(failed, new(unconfirmed)):
		return failed
	case failed != nil && !errors.Is(failed, pgx.ErrTxClosed):
		err = errors.Join(err, failed)
	}
	return undone{err}
}

// transact runs f in a transaction of its own, in its time, and again if the database
// undoes it (again).
func (s *Storage) transact(ctx context.Context, q querier, f func(*tx)) error {
	return again(func() error {
		return s.within(ctx, func(ctx context.Context) error { return s.begun(ctx, q, f) })
	})
}

// atomically makes a call: f, in one tuned transaction, and the notice that f fills.
func (s *Storage) atomically(ctx context.Context, f func(*tx)) error {
	return s.in(ctx).run(func(*tx) {
		fail.If(s.atOnce(ctx, func(t *tx) {
			t.tune()
			f(t)
		}))
	})
}

// atOnce makes f in one transaction, that of the context or one of its own, and tells the
// notice that f fills.
func (s *Storage) atOnce(ctx context.Context, f func(*tx)) error {
	var n storage.Notice
	store := func(ctx context.Context) error {
		return s.around(ctx, func() error {
			return s.begun(ctx, s.in(ctx).on, func(t *tx) {
				f(t)
				if n = t.notice; t.joined() { // the commit notifies every process, this one too
					t.tellAtCommit(&n)
				}
			})
		})
	}
	if txOf(ctx) != nil { // whose time is its owner's; and what else it has locked would be in the way again
		return store(ctx)
	}
	err := again(func() error { return s.within(ctx, store) })
	if err == nil {
		s.tell(ctx, &n)
	}
	return err
}
