package memory

import (
	"context"
	"time"

	"github.com/ojsengine/ojs/storage"
)

// personal is the storage for one caller, such as an engine, which is not told of what it
// does itself. Calls that others hear of are methods of personal. The methods of Storage
// with the same names are for the caller that is in their context.
type personal struct {
	*Storage
	by any // the caller; nil: unknown
}

// Bind implements storage.Binder.
func (s *Storage) Bind(caller any, asked storage.Storage) storage.Storage {
	if asked != storage.Storage(s) {
		return nil
	}
	return personal{s, caller}
}

// as is the storage for the caller in ctx.
func (s *Storage) as(ctx context.Context) personal { return personal{s, s.caller(ctx)} }

// caller returns the caller of a call in ctx. It is nil without listeners.
func (s *Storage) caller(ctx context.Context) any {
	if !s.hub.HasListeners() {
		return nil
	}
	return storage.Caller(ctx)
}

// Insert implements storage.Storage.
func (s *Storage) Insert(
	ctx context.Context, now time.Time, batch []storage.Insert, dst []storage.Inserted,
) ([]storage.Inserted, error) {
	return s.as(ctx).Insert(ctx, now, batch, dst)
}

// Claim implements storage.Storage.
func (s *Storage) Claim(
	ctx context.Context, now time.Time, c storage.Claim, dst []storage.Record,
) ([]storage.Record, error) {
	return s.as(ctx).Claim(ctx, now, c, dst)
}

// Settle implements storage.Storage.
func (s *Storage) Settle(
	ctx context.Context, now time.Time, changes []storage.Change, dst []storage.Settled,
) ([]storage.Settled, error) {
	return s.as(ctx).Settle(ctx, now, changes, dst)
}

// SettleAndClaim implements storage.SettleClaimer.
func (s *Storage) SettleAndClaim(ctx context.Context, now time.Time, to []*storage.Record,
	dst []storage.Settled, c storage.Claim, into []*storage.Record) ([]storage.Settled, int, error) {
	return s.as(ctx).SettleAndClaim(ctx, now, to, dst, c, into)
}

// Unclaim implements storage.SettleClaimer.
func (s *Storage) Unclaim(ctx context.Context, now time.Time, held []storage.Held) (int, error) {
	return s.as(ctx).Unclaim(ctx, now, held)
}

// Extend implements storage.Storage.
func (s *Storage) Extend(
	ctx context.Context, now time.Time, extensions []storage.Extension,
) (lost []string, err error) {
	return s.as(ctx).Extend(ctx, now, extensions)
}

// Due implements storage.Storage.
func (s *Storage) Due(
	ctx context.Context, now time.Time, limit int, buf []storage.Record,
) (storage.Due, error) {
	return s.as(ctx).Due(ctx, now, limit, buf)
}

// CancelAll implements storage.Storage.
func (s *Storage) CancelAll(
	ctx context.Context, now time.Time, ids []string,
) (cancelled, moved []storage.Record, err error) {
	return s.as(ctx).CancelAll(ctx, now, ids)
}

// Revive implements storage.Storage.
func (s *Storage) Revive(
	ctx context.Context, now time.Time, batch []storage.Insert,
) ([]storage.Record, error) {
	return s.as(ctx).Revive(ctx, now, batch)
}
