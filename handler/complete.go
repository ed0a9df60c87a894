package handler

import (
	"context"

	"github.com/ojsengine/ojs/internal/attempt"
)

// Complete completes the attempt's job in a transaction of yours, which ctx carries. The
// handler's writes in that transaction and the end of its job are then one commit: an
// effect in that database is made exactly once.
//
//	func pay(ctx context.Context, job *ojs.Job[Payment]) error {
//		return pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error {
//			if _, err := tx.Exec(ctx, "UPDATE account ...", job.Args.Cents); err != nil {
//				return err
//			}
//			return handler.Complete(postgres.WithTx(ctx, tx))
//		})
//	}
//
// Call it last before the commit, and commit before the handler returns. The job gets the
// result of SetResult, and the jobs of Then are stored in the transaction too. If the
// handler returns without an error although the transaction has not been committed, the
// attempt fails. If the transaction is rolled back and the handler returns an error, that
// error decides, as always. If the job is completed although the handler returns an
// error, for example since the answer to the commit was lost, it stays completed, and the
// engine logs the error at WARN.
//
// If the attempt has lost its job, Complete writes nothing and returns the cause, such as
// ojs.ErrLeaseLost: roll back. After a call that returned nil, the engine does not renew
// the lease, since the transaction has the job's row. SaveCheckpoint, Heartbeat and Then
// are refused with ojs.ErrUnsupported. After a rollback the handler may call Complete
// again in another transaction. A cancel by an operator waits for the transaction.
//
// In the context of a BatchFunc, Complete completes all jobs of the batch; with
// JobContext it completes one.
//
// Outside of an attempt, Complete returns ErrNoAttempt. A context without a transaction
// is an *ojs.InvalidError of the field "tx". A transaction that the engine's storage
// cannot join is refused with ojs.ErrUnsupported: only a storage.Transactor can, such as
// storage/postgres and, in its Within, storage/sqlite.
func Complete(ctx context.Context) error {
	a := attempt.From(ctx)
	if a == nil {
		return ErrNoAttempt
	}
	return a.Complete(ctx)
}
