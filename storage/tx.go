package storage

import (
	"context"
	"reflect"

	"github.com/ojsengine/ojs"
)

// Transactor is the ability to make calls part of a transaction of the caller's, which
// their context carries. It is optional; see As. An engine refuses to change a storage
// that lacks it in such a context, since the change would not be part of the transaction.
type Transactor interface {
	// Joins reports whether calls with the transaction take part in it: whether it is of
	// a kind that the storage knows.
	Joins(tx any) bool
}

type txKey struct{}

// noTx is the transaction of a context that was given none.
type noTx struct{}

// WithTx returns a context that carries a transaction. A storage that is a Transactor has
// a function of its own for it, with the type of its transactions, which programs call.
// If tx is nil, or a nil pointer, calls with the context fail: see CheckTx.
func WithTx(ctx context.Context, tx any) context.Context {
	if v := reflect.ValueOf(tx); !v.IsValid() || v.Kind() == reflect.Pointer && v.IsNil() {
		tx = noTx{}
	}
	return context.WithValue(ctx, txKey{}, tx)
}

// Tx returns the transaction that WithTx was given, nil if there was no WithTx.
func Tx(ctx context.Context) any { return ctx.Value(txKey{}) }

// CheckTx returns an *ojs.InvalidError of the field "tx" if WithTx was given nil. Engines
// check each change, and a Transactor checks each call: a job that is meant to be part of
// a transaction is not stored outside of it.
func CheckTx(ctx context.Context) error {
	if _, none := Tx(ctx).(noTx); none {
		return &ojs.InvalidError{Code: ojs.InvalidCodeOption, Field: "tx",
			Reason: "is nil: give WithTx a transaction that has begun"}
	}
	return nil
}
