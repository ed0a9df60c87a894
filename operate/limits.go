package operate

import (
	"context"
	"time"

	"github.com/ojsengine/ojs"
	"github.com/ojsengine/ojs/internal/draft"
	"github.com/ojsengine/ojs/storage"
)

// LimitName names a limit: that of a key, a queue or a type.
type LimitName = storage.LimitName

// Limit is the state of a limit.
type Limit = storage.Limit

// LimitOfKey names the limit of a RateLimit.Key.
func LimitOfKey(key string) LimitName { return LimitName{Kind: storage.LimitKey, Name: key} }

// LimitOfQueue names the limit of a queue over all engines.
func LimitOfQueue(name string) LimitName { return LimitName{Kind: storage.LimitQueue, Name: name} }

// LimitOfType names the limit of a job type over all engines.
func LimitOfType(name string) LimitName { return LimitName{Kind: storage.LimitType, Name: name} }

// Limits are the limits that the storage counts, for all engines on it. Methods are safe
// for concurrent use.
type Limits struct{ op *Operator }

// LimitQuery selects limits.
type LimitQuery struct {
	Kind  storage.LimitKind // the zero Kind: storage.LimitKey
	After string            // limits whose names come after this one
	Limit int               // most limits to return; 0: 100
}

const defaultLimitPage = 100

// List returns limits by name: the keys with jobs that are active or available, with a
// setting or with a block, or the queues or types with a setting or a block.
func (l *Limits) List(ctx context.Context, q LimitQuery) ([]Limit, error) {
	if q.Kind == "" {
		q.Kind = storage.LimitKey
	}
	if q.Limit == 0 {
		q.Limit = defaultLimitPage
	}
	return l.op.eng.Store.ListLimits(ctx, l.op.eng.Now(), q.Kind, q.After, q.Limit)
}

// Get returns the state of a limit, or ojs.ErrNotFound if it has neither jobs that are
// active or available nor a setting nor a block.
func (l *Limits) Get(ctx context.Context, name LimitName) (Limit, error) {
	return l.op.eng.Store.GetLimit(ctx, l.op.eng.Now(), name)
}

// Set gives a limit bounds, with effect at once on every engine. Running jobs go on. The
// bounds of a key replace those of its jobs, up or down: each that is set, of
// Concurrency, Rate and Throttle. They end at until; the zero time is never. The key,
// queue or type need not have any jobs yet. Set and Block log a warning about a queue or
// type that is unknown, as Queues.Pause and Queues.PauseType do.
func (l *Limits) Set(ctx context.Context, name LimitName, bounds ojs.RateLimit, until time.Time) error {
	reason := "set"
	if !bounds.Bounds() {
		reason = "cleared"
	}
	return l.change(ctx, name, until, reason, func(s storage.Storage, now time.Time) error {
		return s.SetLimit(ctx, now, name, bounds, until)
	})
}

// Clear removes the bounds that Set has given.
func (l *Limits) Clear(ctx context.Context, name LimitName) error {
	return l.Set(ctx, name, ojs.RateLimit{}, time.Time{})
}

// Block lets no job of a limit start before a time. A block that lasts longer stays. The
// zero time ends a block.
func (l *Limits) Block(ctx context.Context, name LimitName, until time.Time) error {
	reason := "blocked"
	if until.IsZero() {
		reason = "unblocked"
	}
	return l.change(ctx, name, until, reason, func(s storage.Storage, now time.Time) error {
		return s.BlockLimit(ctx, now, name, until)
	})
}

// change makes a change of a limit. A key may get its jobs later, so it is not looked
// for.
func (l *Limits) change(ctx context.Context, name LimitName, until time.Time, reason string,
	do func(storage.Storage, time.Time) error) error {
	if err := draft.CheckTx(ctx, l.op.eng.Store); err != nil {
		return err
	}
	err := do(l.op.eng.Store, l.op.eng.Now())
	l.op.eng.LimitSet(name, until, reason, err)
	if err == nil && name.Kind != storage.LimitKey {
		l.op.known(ctx, name)
	}
	return err
}
