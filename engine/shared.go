package engine

import (
	"context"
	"sync"
	"time"

	"github.com/ojsengine/ojs/storage"
)

// callerStorage tells a storage whose calls it gets, so that an engine does not hear of
// what it has done itself.
type callerStorage struct {
	storage.Storage
	caller *core
}

// Unwrap lets storage.As look through.
func (s callerStorage) Unwrap() storage.Storage { return s.Storage }

// bind returns the storage whose calls are the engine's own, and so are not told to it.
func (c *core) bind(s storage.Storage) storage.Storage {
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

// listening is a subscription to the notices of a storage that is open while it has
// users.
type listening struct {
	mu    sync.Mutex // guards the fields below
	users int
	stop  func()
}

func (l *listening) release() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.users--; l.users == 0 {
		l.stop()
	}
}

// listen has the engine hear of others until release is called, as every Run, Wait and
// Fetch does. No lock is held.
func (c *core) listen() (release func()) {
	n, ok := storage.As[storage.Notifier](c.store)
	if !ok {
		return func() {}
	}
	l := &c.listening
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.users++; l.users == 1 {
		l.stop = n.Notify(c, c.hear)
	}
	return l.release
}

// hear takes in what others have done.
func (c *core) hear(n storage.Notice) {
	if n.Available || n.Everything {
		c.available(unknown)
	}
	c.wakeAt(n.Due)
	if !n.Opens.IsZero() {
		c.offers.ring() // they ask when it opens
	}
	if r := c.run.Load(); r != nil {
		r.reopening.By(n.Opens)
		k := &r.maintenance
		if len(n.Ended) > 0 {
			k.ended(len(n.Ended))
		}
		if n.Everything {
			k.due.Poke()
		}
		if n.Values || n.Everything {
			k.holds.Poke()
		}
		if n.Crons || n.Everything {
			k.cron.Poke()
		}
	}
	for _, t := range n.Taken {
		c.takenAway(t.Held, t.Cause)
	}
	for _, id := range n.Ended {
		c.waiters.ended(id, nil)
	}
	if n.Everything {
		c.waiters.all()
	}
	c.setAside(n.Quarantined)
}
