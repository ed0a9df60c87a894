package storagetest

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/ojsengine/ojs"
	"github.com/ojsengine/ojs/storage"
)

// reopened is a durable storage that is closed and opened again between calls. A case
// that passes on the storage has to pass on a reopened one: what a storage keeps has its
// effect, and not only its value, after it was opened again.
//
// Claims are those of remote workers. Attempts of others end with their process, and are
// handed on when the storage is opened again.
type reopened struct {
	cfg *Config
	tb  testing.TB

	mu     sync.RWMutex // held for reading by calls, for writing while there is no storage
	s      storage.Storage
	calls  int
	now    time.Time // of the latest call
	closed bool
}

// reopening is a config whose storages are opened again between calls.
func (cfg *Config) reopening() Config {
	again := *cfg
	again.Notices = false // listeners end with the storage
	again.Open = func(tb testing.TB) storage.Storage {
		return &reopened{cfg: cfg, tb: tb, s: cfg.Open(tb), now: epoch}
	}
	again.Reopen = func(_ testing.TB, s storage.Storage) storage.Storage {
		r := s.(*reopened)
		r.mu.Lock()
		defer r.mu.Unlock()
		r.open()
		return r
	}
	inner := func(s storage.Storage) storage.Storage { return s.(*reopened).current() }
	if cfg.Plant != nil && cfg.Mend != nil {
		again.Plant = func(tb testing.TB, s storage.Storage, id string) { cfg.Plant(tb, inner(s), id) }
		again.Mend = func(tb testing.TB, s storage.Storage, id string) { cfg.Mend(tb, inner(s), id) }
	}
	named := func(f func(testing.TB, storage.Storage, storage.Kind, string),
	) func(testing.TB, storage.Storage, storage.Kind, string) {
		if f == nil {
			return nil
		}
		return func(tb testing.TB, s storage.Storage, kind storage.Kind, name string) {
			f(tb, inner(s), kind, name)
		}
	}
	again.PlantNamed, again.MendNamed = named(cfg.PlantNamed), named(cfg.MendNamed)
	return again
}

func (r *reopened) open() { r.s = r.cfg.Reopen(r.tb, r.s) }

// current is the storage that is open now.
func (r *reopened) current() storage.Storage {
	r.mu.RLock()
	defer r.mu.RUnlock()
	return r.s
}

// before opens the storage again if the call, which is about to begin, is one before
// which that happens: every third of the first, or every thirtieth of some more. It
// returns the storage to call, and a function for the end of the call.
func (r *reopened) before(now time.Time) (s storage.Storage, end func()) {
	r.mu.Lock()
	r.calls++
	if n := r.calls; !r.closed && n < 400 && (n%30 == 0 || n < 10 && n%3 == 0) {
		r.open()
	}
	if !now.IsZero() {
		r.now = now
	}
	r.mu.Unlock()
	r.mu.RLock()
	return r.s, r.mu.RUnlock
}

// Close compares everything before the storage is opened again with everything after it.
func (r *reopened) Close() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closed {
		return r.s.Close()
	}
	r.closed = true
	var diff string
	r.s, diff = r.cfg.reopenedAs(context.Background(), r.s, r.now, func() storage.Storage {
		return r.cfg.Reopen(r.tb, r.s)
	})
	if diff != "" {
		r.tb.Errorf("%s", diff)
	}
	return r.s.Close()
}

// Capabilities implements storage.Storage.
func (r *reopened) Capabilities() storage.Capabilities { return r.current().Capabilities() }

func remote(c *storage.Claim) *storage.Claim {
	if c == nil {
		return nil
	}
	to := *c
	to.Remote = true
	return &to
}

// Insert implements storage.Storage.
func (r *reopened) Insert(
	ctx context.Context, now time.Time, batch []storage.Insert, dst []storage.Inserted,
) ([]storage.Inserted, error) {
	if len(batch) > 0 && batch[0].Claim != nil {
		batch[0].Claim = remote(batch[0].Claim) // of the scribbler's copy
	}
	s, end := r.before(now)
	defer end()
	return s.Insert(ctx, now, batch, dst)
}

// Claim implements storage.Storage.
func (r *reopened) Claim(
	ctx context.Context, now time.Time, c storage.Claim, dst []storage.Record,
) ([]storage.Record, error) {
	c.Remote = true
	s, end := r.before(now)
	defer end()
	return s.Claim(ctx, now, c, dst)
}

// Settle implements storage.Storage.
func (r *reopened) Settle(
	ctx context.Context, now time.Time, changes []storage.Change, dst []storage.Settled,
) ([]storage.Settled, error) {
	s, end := r.before(now)
	defer end()
	return s.Settle(ctx, now, changes, dst)
}

// Extend implements storage.Storage.
func (r *reopened) Extend(ctx context.Context, now time.Time, xs []storage.Extension) ([]string, error) {
	s, end := r.before(now)
	defer end()
	return s.Extend(ctx, now, xs)
}

// Due implements storage.Storage.
func (r *reopened) Due(
	ctx context.Context, now time.Time, most int, buf []storage.Record,
) (storage.Due, error) {
	s, end := r.before(now)
	defer end()
	return s.Due(ctx, now, most, buf)
}

// ClaimedBy implements storage.Storage.
func (r *reopened) ClaimedBy(ctx context.Context, worker string) ([]storage.Record, error) {
	s, end := r.before(time.Time{})
	defer end()
	return s.ClaimedBy(ctx, worker)
}

// Get implements storage.Storage.
func (r *reopened) Get(ctx context.Context, id string) (storage.Record, error) {
	s, end := r.before(time.Time{})
	defer end()
	return s.Get(ctx, id)
}

// List implements storage.Storage.
func (r *reopened) List(ctx context.Context, q storage.Query) (storage.Page, error) {
	s, end := r.before(time.Time{})
	defer end()
	return s.List(ctx, q)
}

// Counts implements storage.Storage.
func (r *reopened) Counts(ctx context.Context) ([]storage.Count, error) {
	s, end := r.before(time.Time{})
	defer end()
	return s.Counts(ctx)
}

// Delete implements storage.Storage.
func (r *reopened) Delete(ctx context.Context, ids []string) (int, error) {
	s, end := r.before(time.Time{})
	defer end()
	return s.Delete(ctx, ids)
}

// Prune implements storage.Storage.
func (r *reopened) Prune(ctx context.Context, p storage.Prune) (storage.Pruned, error) {
	s, end := r.before(p.Now)
	defer end()
	return s.Prune(ctx, p)
}

// SetQueueState implements storage.Storage.
func (r *reopened) SetQueueState(
	ctx context.Context, queue string, to ojs.QueueState,
) (ojs.QueueState, error) {
	s, end := r.before(time.Time{})
	defer end()
	return s.SetQueueState(ctx, queue, to)
}

// QueueStates implements storage.Storage.
func (r *reopened) QueueStates(ctx context.Context) (map[string]ojs.QueueState, error) {
	s, end := r.before(time.Time{})
	defer end()
	return s.QueueStates(ctx)
}

// PutDocuments implements storage.Storage.
func (r *reopened) PutDocuments(
	ctx context.Context, kind storage.Kind, list []storage.Document,
) ([]uint64, error) {
	s, end := r.before(time.Time{})
	defer end()
	return s.PutDocuments(ctx, kind, list)
}

// Documents implements storage.Storage.
func (r *reopened) Documents(
	ctx context.Context, kind storage.Kind, q storage.DocumentQuery,
) ([]storage.Document, error) {
	s, end := r.before(time.Time{})
	defer end()
	return s.Documents(ctx, kind, q)
}

// DueDocuments implements storage.Storage.
func (r *reopened) DueDocuments(
	ctx context.Context, kind storage.Kind, now time.Time, after *storage.Document, most int,
) ([]storage.Document, time.Time, error) {
	s, end := r.before(now)
	defer end()
	return s.DueDocuments(ctx, kind, now, after, most)
}

// CancelAll implements storage.Storage.
func (r *reopened) CancelAll(
	ctx context.Context, now time.Time, ids []string,
) (cancelled []storage.Record, moved []storage.Record, err error) {
	s, end := r.before(now)
	defer end()
	return s.CancelAll(ctx, now, ids)
}

// Revive implements storage.Storage.
func (r *reopened) Revive(
	ctx context.Context, now time.Time, batch []storage.Insert,
) ([]storage.Record, error) {
	s, end := r.before(now)
	defer end()
	return s.Revive(ctx, now, batch)
}

// Logs implements storage.Storage.
func (r *reopened) Logs(ctx context.Context, id string) ([]storage.Log, error) {
	s, end := r.before(time.Time{})
	defer end()
	return s.Logs(ctx, id)
}

// SetLimit implements storage.Storage.
func (r *reopened) SetLimit(
	ctx context.Context, now time.Time, name storage.LimitName, bounds ojs.RateLimit, until time.Time,
) error {
	s, end := r.before(now)
	defer end()
	return s.SetLimit(ctx, now, name, bounds, until)
}

// BlockLimit implements storage.Storage.
func (r *reopened) BlockLimit(
	ctx context.Context, now time.Time, name storage.LimitName, until time.Time,
) error {
	s, end := r.before(now)
	defer end()
	return s.BlockLimit(ctx, now, name, until)
}

// GetLimit implements storage.Storage.
func (r *reopened) GetLimit(
	ctx context.Context, now time.Time, name storage.LimitName,
) (storage.Limit, error) {
	s, end := r.before(now)
	defer end()
	return s.GetLimit(ctx, now, name)
}

// ListLimits implements storage.Storage.
func (r *reopened) ListLimits(
	ctx context.Context, now time.Time, kind storage.LimitKind, after string, most int,
) ([]storage.Limit, error) {
	s, end := r.before(now)
	defer end()
	return s.ListLimits(ctx, now, kind, after, most)
}

// Quarantined implements storage.Quarantiner.
func (r *reopened) Quarantined(
	ctx context.Context, after string, limit int,
) ([]storage.Quarantined, error) {
	s, end := r.before(time.Time{})
	defer end()
	a, _ := storage.As[storage.Quarantiner](s)
	return a.Quarantined(ctx, after, limit)
}

// CountQuarantined implements storage.Quarantiner.
func (r *reopened) CountQuarantined(ctx context.Context) (int, error) {
	s, end := r.before(time.Time{})
	defer end()
	a, _ := storage.As[storage.Quarantiner](s)
	return a.CountQuarantined(ctx)
}

// ReleaseQuarantined implements storage.Quarantiner.
func (r *reopened) ReleaseQuarantined(ctx context.Context, key string) error {
	s, end := r.before(time.Time{})
	defer end()
	a, _ := storage.As[storage.Quarantiner](s)
	return a.ReleaseQuarantined(ctx, key)
}

// DeleteQuarantined implements storage.Quarantiner.
func (r *reopened) DeleteQuarantined(ctx context.Context, key string) error {
	s, end := r.before(time.Time{})
	defer end()
	a, _ := storage.As[storage.Quarantiner](s)
	return a.DeleteQuarantined(ctx, key)
}

// SettleAndClaim implements storage.SettleClaimer.
func (r *reopened) SettleAndClaim(
	ctx context.Context, now time.Time, to []*storage.Record, dst []storage.Settled,
	c storage.Claim, into []*storage.Record,
) ([]storage.Settled, int, error) {
	c.Remote = true
	s, end := r.before(now)
	defer end()
	return s.(storage.SettleClaimer).SettleAndClaim(ctx, now, to, dst, c, into)
}

// Unclaim implements storage.SettleClaimer.
func (r *reopened) Unclaim(ctx context.Context, now time.Time, held []storage.Held) (int, error) {
	s, end := r.before(now)
	defer end()
	return s.(storage.SettleClaimer).Unclaim(ctx, now, held)
}
