package storagetest

import (
	"context"
	"errors"
	"time"

	"github.com/benbjohnson/clock"

	"github.com/ojsengine/ojs/storage"
)

// ErrFault is what a Faulty storage fails with unless its Fault names another error.
var ErrFault = errors.New("storagetest: injected fault")

// Fault is what happens to one call of a storage.
type Fault struct {
	Before error         // the call fails with it and does nothing
	After  error         // the call does its work and fails with it all the same
	Delay  time.Duration // the call takes this much longer, before its work, on the clock of Faulty
}

// Faulty is a storage whose calls fail, or take their time, or fail after they have done
// their work: what networks do. It is for testing what lies above a storage. Optional
// abilities are those of the storage inside, without faults.
type Faulty struct {
	storage.Storage
	// Next says what happens to a call, named by its method. It is called by many
	// goroutines at once.
	Next func(call string) Fault
	// Clock is what Delay goes by; nil: the system's.
	Clock clock.Clock
}

// Unwrap returns the storage inside.
func (f *Faulty) Unwrap() storage.Storage { return f.Storage }

// call does a call under its fault.
func call[R any](f *Faulty, ctx context.Context, name string, none R, do func() (R, error)) (R, error) {
	fault := f.Next(name)
	if fault.Delay > 0 {
		c := f.Clock
		if c == nil {
			c = wall
		}
		t := c.Timer(fault.Delay)
		defer t.Stop()
		select {
		case <-t.C:
		case <-ctx.Done():
			return none, ctx.Err()
		}
	}
	if fault.Before != nil {
		return none, fault.Before
	}
	r, err := do()
	if fault.After != nil {
		return none, fault.After
	}
	return r, err
}

// Insert implements storage.Storage.
func (f *Faulty) Insert(ctx context.Context, now time.Time, batch []storage.Insert,
	dst []storage.Inserted) ([]storage.Inserted, error) {
	return call(f, ctx, "Insert", dst, func() ([]storage.Inserted, error) {
		return f.Storage.Insert(ctx, now, batch, dst)
	})
}

// Claim implements storage.Storage.
func (f *Faulty) Claim(ctx context.Context, now time.Time, c storage.Claim,
	dst []storage.Record) ([]storage.Record, error) {
	return call(f, ctx, "Claim", dst, func() ([]storage.Record, error) {
		return f.Storage.Claim(ctx, now, c, dst)
	})
}

// Settle implements storage.Storage.
func (f *Faulty) Settle(ctx context.Context, now time.Time, changes []storage.Change,
	dst []storage.Settled) ([]storage.Settled, error) {
	return call(f, ctx, "Settle", dst, func() ([]storage.Settled, error) {
		return f.Storage.Settle(ctx, now, changes, dst)
	})
}

// Extend implements storage.Storage.
func (f *Faulty) Extend(ctx context.Context, now time.Time,
	extensions []storage.Extension) ([]string, error) {
	return call(f, ctx, "Extend", nil, func() ([]string, error) {
		return f.Storage.Extend(ctx, now, extensions)
	})
}

// Due implements storage.Storage.
func (f *Faulty) Due(ctx context.Context, now time.Time, max int, buf []storage.Record) (storage.Due, error) {
	return call(f, ctx, "Due", storage.Due{}, func() (storage.Due, error) {
		return f.Storage.Due(ctx, now, max, buf)
	})
}

// Get implements storage.Storage.
func (f *Faulty) Get(ctx context.Context, id string) (storage.Record, error) {
	return call(f, ctx, "Get", storage.Record{}, func() (storage.Record, error) {
		return f.Storage.Get(ctx, id)
	})
}

// List implements storage.Storage.
func (f *Faulty) List(ctx context.Context, q storage.Query) (storage.Page, error) {
	return call(f, ctx, "List", storage.Page{}, func() (storage.Page, error) {
		return f.Storage.List(ctx, q)
	})
}

// Counts implements storage.Storage.
func (f *Faulty) Counts(ctx context.Context) ([]storage.Count, error) {
	return call(f, ctx, "Counts", nil, func() ([]storage.Count, error) { return f.Storage.Counts(ctx) })
}

// Delete implements storage.Storage.
func (f *Faulty) Delete(ctx context.Context, ids []string) (int, error) {
	return call(f, ctx, "Delete", 0, func() (int, error) { return f.Storage.Delete(ctx, ids) })
}

// Prune implements storage.Storage.
func (f *Faulty) Prune(ctx context.Context, p storage.Prune) (storage.Pruned, error) {
	return call(f, ctx, "Prune", storage.Pruned{}, func() (storage.Pruned, error) {
		return f.Storage.Prune(ctx, p)
	})
}
