package postgres

import (
	"context"

	"github.com/jackc/pgx/v5"

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
		return inTx{tx}
	case SQLTx:
		return inSQLTx{tx}
	}
	return nil
}

func txOf(ctx context.Context) transaction { return ofCaller(storage.Tx(ctx)) }

// in is what a call of the context speaks to: its transaction, or the pool.
func (s *Storage) in(ctx context.Context) querier {
	if tx := txOf(ctx); tx != nil {
		return tx
	}
	return tuned{s}
}

// atomically makes a call: f, in one transaction, and the notice that f fills.
func (s *Storage) atomically(
	ctx context.Context, f func(context.Context, transaction, *storage.Notice) error,
) error {
	if err := s.enter(ctx); err != nil {
		return err
	}
	defer s.mu.RUnlock()
	var n storage.Notice
	return wrap(s.atOnce(ctx, &n, func(ctx context.Context, tx transaction) error {
		if txOf(ctx) == nil {
			if err := tx.exec(ctx, s.sql[tuneSQL]); err != nil {
				return err
			}
		}
		return f(ctx, tx, &n)
	}))
}

// atOnce makes f in one transaction, that of the context or one of its own, and tells the
// notice that f fills.
func (s *Storage) atOnce(
	ctx context.Context, n *storage.Notice, f func(context.Context, transaction) error,
) error {
	store := func(ctx context.Context) error {
		return s.around(ctx, func() error {
			*n = storage.Notice{}
			return begun(ctx, s.in(ctx), func(tx transaction) error {
				err := f(ctx, tx)
				if err == nil && txOf(ctx) != nil { // the commit notifies every process, this one too
					err = s.tellAtCommit(ctx, tx, n)
				}
				return err
			})
		})
	}
	if txOf(ctx) != nil { // whose time is its owner's; and what else it has locked would be in the way again
		return store(ctx)
	}
	err := again(func() error { return s.within(ctx, store) })
	if err == nil {
		s.tell(ctx, n)
	}
	return err
}
