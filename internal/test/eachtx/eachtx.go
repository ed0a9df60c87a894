// Package eachtx makes calls of a storage each in a transaction of its own, for tests
// that such calls behave as others do.
package eachtx

import (
	"context"
	"time"

	"github.com/ojsengine/ojs/storage"
)

// Storage makes the calls that enqueue, end and read jobs by Within, which calls f in a
// transaction of the storage.
type Storage struct {
	storage.Storage
	Within func(ctx context.Context, f func(ctx context.Context) error) error
}

// Unwrap returns the storage inside: see storage.As.
func (s Storage) Unwrap() storage.Storage { return s.Storage }

// Insert implements storage.Storage.
func (s Storage) Insert(ctx context.Context, now time.Time, batch []storage.Insert,
	dst []storage.Inserted) (out []storage.Inserted, err error) {
	out = dst
	err = s.Within(ctx, func(ctx context.Context) (err error) {
		out, err = s.Storage.Insert(ctx, now, batch, dst)
		return err
	})
	return out, err
}

// Settle implements storage.Storage.
func (s Storage) Settle(ctx context.Context, now time.Time, changes []storage.Change,
	dst []storage.Settled) (out []storage.Settled, err error) {
	out = dst
	err = s.Within(ctx, func(ctx context.Context) (err error) {
		out, err = s.Storage.Settle(ctx, now, changes, dst)
		return err
	})
	return out, err
}

// Get implements storage.Storage.
func (s Storage) Get(ctx context.Context, id string) (rec storage.Record, err error) {
	err = s.Within(ctx, func(ctx context.Context) (err error) {
		rec, err = s.Storage.Get(ctx, id)
		return err
	})
	return rec, err
}

// List implements storage.Storage.
func (s Storage) List(ctx context.Context, q storage.Query) (page storage.Page, err error) {
	err = s.Within(ctx, func(ctx context.Context) (err error) {
		page, err = s.Storage.List(ctx, q)
		return err
	})
	return page, err
}
