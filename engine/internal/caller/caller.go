// Package caller tells a storage whose calls it gets, so that an engine hears what others
// do, and does not hear of what it has done itself.
package caller

import (
	"context"
	"time"

	"github.com/ojsengine/ojs/internal/locks"
	"github.com/ojsengine/ojs/storage"
)

// callerStorage is a storage whose calls have a caller.
type callerStorage struct {
	storage.Storage
	caller any
}

// Unwrap lets storage.As look through.
func (s callerStorage) Unwrap() storage.Storage { return s.Storage }

// Bind returns the storage whose calls are the caller's own, and so are not told to it.
func Bind(c any, s storage.Storage) storage.Storage {
	p, binds := s.(storage.Binder)
	if binds {
		if bound := p.Bind(c, s); bound != nil {
			return bound
		}
	}
	if _, ok := storage.As[storage.Notifier](s); !ok {
		return s
	}
	asCaller := callerStorage{s, c}
	if steps, ok := s.(storage.SettleClaimer); ok && !binds { // or they are those of a storage inside of s
		return callerSteps{asCaller, steps}
	}
	return asCaller
}

// callerSteps is callerStorage of a storage that stores and claims in one step.
type callerSteps struct {
	callerStorage
	steps storage.SettleClaimer
}

func (s callerSteps) SettleAndClaim(ctx context.Context, now time.Time, to []*storage.Record,
	dst []storage.Settled, c storage.Claim, into []*storage.Record) ([]storage.Settled, int, error) {
	return s.steps.SettleAndClaim(s.withCaller(ctx), now, to, dst, c, into)
}

func (s callerSteps) Unclaim(ctx context.Context, now time.Time, held []storage.Held) (int, error) {
	return s.steps.Unclaim(s.withCaller(ctx), now, held)
}

func (s callerStorage) withCaller(ctx context.Context) context.Context {
	if storage.Caller(ctx) == s.caller {
		return ctx
	}
	return storage.WithCaller(ctx, s.caller)
}

func (s callerStorage) Insert(
	ctx context.Context, now time.Time, batch []storage.Insert, dst []storage.Inserted,
) ([]storage.Inserted, error) {
	return s.Storage.Insert(s.withCaller(ctx), now, batch, dst)
}

func (s callerStorage) Claim(
	ctx context.Context, now time.Time, c storage.Claim, dst []storage.Record,
) ([]storage.Record, error) {
	return s.Storage.Claim(s.withCaller(ctx), now, c, dst)
}

func (s callerStorage) Settle(
	ctx context.Context, now time.Time, changes []storage.Change, dst []storage.Settled,
) ([]storage.Settled, error) {
	return s.Storage.Settle(s.withCaller(ctx), now, changes, dst)
}

func (s callerStorage) Extend(
	ctx context.Context, now time.Time, extensions []storage.Extension,
) ([]string, error) {
	return s.Storage.Extend(s.withCaller(ctx), now, extensions)
}

func (s callerStorage) Due(
	ctx context.Context, now time.Time, max int, buf []storage.Record,
) (storage.Due, error) {
	return s.Storage.Due(s.withCaller(ctx), now, max, buf)
}

// Listener hears what others do on a storage, by a subscription to its notices that is
// open while the Listener has users. It is safe for concurrent use.
type Listener struct {
	Store  storage.Storage
	Caller any // whose own calls are not told
	Hear   func(storage.Notice)

	mu    locks.Mutex // guards the fields below
	users int
	stop  func()
}

// Listen adds a user until release is called.
func (l *Listener) Listen() (release func()) {
	n, ok := storage.As[storage.Notifier](l.Store)
	if !ok {
		return func() {}
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.users++; l.users == 1 {
		l.stop = n.Notify(l.Caller, l.Hear)
	}
	return l.release
}

func (l *Listener) release() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.users--; l.users == 0 {
		l.stop()
	}
}
