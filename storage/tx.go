package storage

import "context"

// Transactor is the ability to make calls part of a transaction of the caller's, which
// their context carries. It is optional; see As. An engine refuses to change a storage
// that lacks it in such a context, since the change would not be part of the transaction.
type Transactor interface {
	// Joins reports whether calls with the transaction take part in it: whether it is of
	// a kind that the storage knows.
	Joins(tx any) bool
}

type txKey struct{}

// WithTx returns a context that carries a transaction. A storage that is a Transactor has
// a function of its own for it, with the type of its transactions, which programs call.
func WithTx(ctx context.Context, tx any) context.Context { return context.WithValue(ctx, txKey{}, tx) }

// Tx returns the transaction that WithTx was given, nil if none.
func Tx(ctx context.Context) any { return ctx.Value(txKey{}) }
