package engine

import (
	"context"
	"sync"
	"time"

	"github.com/benbjohnson/clock"

	"github.com/ojsengine/ojs/storage"
)

// ownCalls tells a storage whose calls it gets, so that an engine does not hear of what
// it has done itself.
type ownCalls struct {
	storage.Storage
	self *core
}

// Unwrap lets storage.As look through.
func (s ownCalls) Unwrap() storage.Storage { return s.Storage }

// own is the storage whose calls are the engine's own, and so are not told to it.
func (c *core) own(s storage.Storage) storage.Storage {
	p, binds := s.(storage.Binder)
	if binds {
		if mine := p.Bind(c, s); mine != nil {
			return mine
		}
	}
	if _, ok := storage.As[storage.Notifier](s); !ok {
		return s
	}
	own := ownCalls{s, c}
	if steps, ok := s.(storage.SettleClaimer); ok && !binds { // or they are those of a storage inside of s
		return ownSteps{own, steps}
	}
	return own
}

// ownSteps is ownCalls of a storage that stores and claims in one step.
type ownSteps struct {
	ownCalls
	steps storage.SettleClaimer
}

func (s ownSteps) SettleAndClaim(ctx context.Context, now time.Time, to []*storage.Record, dst []storage.Settled, c storage.Claim, into []*storage.Record) ([]storage.Settled, int, error) {
	return s.steps.SettleAndClaim(s.mine(ctx), now, to, dst, c, into)
}

func (s ownSteps) Unclaim(ctx context.Context, now time.Time, held []storage.Held) (int, error) {
	return s.steps.Unclaim(s.mine(ctx), now, held)
}

func (s ownCalls) mine(ctx context.Context) context.Context {
	if storage.Caller(ctx) == s.self {
		return ctx
	}
	return storage.WithCaller(ctx, s.self)
}

func (s ownCalls) Insert(ctx context.Context, now time.Time, batch []storage.Insert, dst []storage.Inserted) ([]storage.Inserted, error) {
	return s.Storage.Insert(s.mine(ctx), now, batch, dst)
}

func (s ownCalls) Claim(ctx context.Context, now time.Time, c storage.Claim, dst []storage.Record) ([]storage.Record, error) {
	return s.Storage.Claim(s.mine(ctx), now, c, dst)
}

func (s ownCalls) Settle(ctx context.Context, now time.Time, changes []storage.Change, dst []storage.Settled) ([]storage.Settled, error) {
	return s.Storage.Settle(s.mine(ctx), now, changes, dst)
}

func (s ownCalls) Extend(ctx context.Context, now time.Time, extensions []storage.Extension) ([]string, error) {
	return s.Storage.Extend(s.mine(ctx), now, extensions)
}

func (s ownCalls) Due(ctx context.Context, now time.Time, max int, buf []storage.Record) (storage.Due, error) {
	return s.Storage.Due(s.mine(ctx), now, max, buf)
}

// listening is an engine's subscription to the notices of its storage. It is open during
// every Run, Wait and Fetch.
type listening struct {
	mu    sync.Mutex // guards the fields below
	users int
	stop  func()
}

// listen keeps the subscription open until release is called. No lock is held.
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
	return func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		if l.users--; l.users == 0 {
			l.stop()
		}
	}
}

// hear takes in what others have done.
func (c *core) hear(n storage.Notice) {
	c.mu.Lock()
	if n.Available || n.Everything {
		c.available(unknown)
	}
	c.wakeAt(n.Due)
	if c.run != nil && n.Everything {
		c.run.keeper.wantDue()
	}
	if c.run != nil && (n.Crons || n.Everything) {
		c.run.keeper.wantCron()
	}
	for _, t := range n.Taken {
		c.takenAway(t.Held, t.Cause)
	}
	if len(n.Ended) > 0 && c.run != nil {
		c.run.keeper.ended(len(n.Ended))
	}
	c.mu.Unlock()
	for _, id := range n.Ended {
		c.waiters.ended(id, nil)
	}
	if n.Everything {
		c.waiters.all()
	}
	c.setAside(n.Quarantined)
}

// following is the wall clock, as the users of a storage have agreed to read it.
type following struct {
	clock.Clock
	storage.Clocked
}

func (f following) Now() time.Time                  { return f.Clock.Now().Add(f.ClockOffset()) }
func (f following) Since(t time.Time) time.Duration { return f.Now().Sub(t) }
func (f following) Until(t time.Time) time.Duration { return t.Sub(f.Now()) }

func (f following) WithDeadline(ctx context.Context, d time.Time) (context.Context, context.CancelFunc) {
	return f.Clock.WithDeadline(ctx, d.Add(-f.ClockOffset()))
}
