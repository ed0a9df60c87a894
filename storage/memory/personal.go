package memory

import (
	"context"
	"time"

	"github.com/ojsengine/ojs/storage"
)

// personal is the storage as one engine uses it.
type personal struct {
	*Storage
	self any
}

// Bind implements storage.Binder.
func (s *Storage) Bind(caller any, asked storage.Storage) storage.Storage {
	if asked != storage.Storage(s) {
		return nil
	}
	return &personal{s, caller}
}

// Insert implements storage.Storage.
func (p *personal) Insert(
	ctx context.Context, now time.Time, batch []storage.Insert, dst []storage.Inserted,
) ([]storage.Inserted, error) {
	return p.insert(ctx, p.self, now, batch, dst)
}

// Claim implements storage.Storage.
func (p *personal) Claim(
	ctx context.Context, now time.Time, c storage.Claim, dst []storage.Record,
) ([]storage.Record, error) {
	return p.claim(ctx, p.self, now, c, dst)
}

// Settle implements storage.Storage.
func (p *personal) Settle(
	ctx context.Context, now time.Time, changes []storage.Change, dst []storage.Settled,
) ([]storage.Settled, error) {
	return p.settle(ctx, p.self, now, changes, dst)
}

// SettleAndClaim implements storage.SettleClaimer.
func (p *personal) SettleAndClaim(ctx context.Context, now time.Time, to []*storage.Record,
	dst []storage.Settled, c storage.Claim, into []*storage.Record) ([]storage.Settled, int, error) {
	return p.settleAndClaim(ctx, p.self, now, to, dst, c, into)
}

// Unclaim implements storage.SettleClaimer.
func (p *personal) Unclaim(ctx context.Context, _ time.Time, held []storage.Held) (int, error) {
	return p.unclaim(ctx, p.self, held)
}

// Extend implements storage.Storage.
func (p *personal) Extend(
	ctx context.Context, now time.Time, extensions []storage.Extension,
) (lost []string, err error) {
	return p.extend(ctx, p.self, now, extensions)
}

// CancelAll implements storage.GroupStore.
func (p *personal) CancelAll(
	ctx context.Context, now time.Time, ids []string,
) (cancelled, moved []storage.Record, err error) {
	return p.cancelAll(ctx, p.self, now, ids)
}

// Revive implements storage.GroupStore.
func (p *personal) Revive(
	ctx context.Context, now time.Time, batch []storage.Insert,
) ([]storage.Record, error) {
	return p.revive(ctx, p.self, now, batch)
}

// Due implements storage.Storage.
func (p *personal) Due(
	ctx context.Context, now time.Time, limit int, buf []storage.Record,
) (storage.Due, error) {
	return p.comeDue(ctx, p.self, now, limit, buf)
}

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
	return s.insert(ctx, s.caller(ctx), now, batch, dst)
}

// Claim implements storage.Storage.
func (s *Storage) Claim(
	ctx context.Context, now time.Time, c storage.Claim, dst []storage.Record,
) ([]storage.Record, error) {
	return s.claim(ctx, s.caller(ctx), now, c, dst)
}

// Settle implements storage.Storage.
func (s *Storage) Settle(
	ctx context.Context, now time.Time, changes []storage.Change, dst []storage.Settled,
) ([]storage.Settled, error) {
	return s.settle(ctx, s.caller(ctx), now, changes, dst)
}

// SettleAndClaim implements storage.SettleClaimer.
func (s *Storage) SettleAndClaim(ctx context.Context, now time.Time, to []*storage.Record,
	dst []storage.Settled, c storage.Claim, into []*storage.Record) ([]storage.Settled, int, error) {
	return s.settleAndClaim(ctx, s.caller(ctx), now, to, dst, c, into)
}

// Unclaim implements storage.SettleClaimer.
func (s *Storage) Unclaim(ctx context.Context, _ time.Time, held []storage.Held) (int, error) {
	return s.unclaim(ctx, s.caller(ctx), held)
}

// Extend implements storage.Storage.
func (s *Storage) Extend(
	ctx context.Context, now time.Time, extensions []storage.Extension,
) (lost []string, err error) {
	return s.extend(ctx, s.caller(ctx), now, extensions)
}

// Due implements storage.Storage.
func (s *Storage) Due(
	ctx context.Context, now time.Time, limit int, buf []storage.Record,
) (storage.Due, error) {
	return s.comeDue(ctx, s.caller(ctx), now, limit, buf)
}

// CancelAll implements storage.GroupStore.
func (s *Storage) CancelAll(
	ctx context.Context, now time.Time, ids []string,
) (cancelled, moved []storage.Record, err error) {
	return s.cancelAll(ctx, s.caller(ctx), now, ids)
}

// Revive implements storage.GroupStore.
func (s *Storage) Revive(
	ctx context.Context, now time.Time, batch []storage.Insert,
) ([]storage.Record, error) {
	return s.revive(ctx, s.caller(ctx), now, batch)
}
