package draft

import (
	"context"

	"github.com/ojsengine/ojs/storage"
)

type seenKey struct{}

// WithSeen returns a context for an enqueue that shows each job that it has stored, or
// the equal one that was there, with the place of its draft. The record is the enqueue's:
// the function must not keep or change it. A record that was stored just now lacks what
// the storage has set.
func WithSeen(ctx context.Context, see func(i int, rec *storage.Record)) context.Context {
	return context.WithValue(ctx, seenKey{}, see)
}

// SeenBy returns what WithSeen has added to ctx, nil if nothing.
func SeenBy(ctx context.Context) func(i int, rec *storage.Record) {
	see, _ := ctx.Value(seenKey{}).(func(i int, rec *storage.Record))
	return see
}

type boundsKey struct{}

// Bound is how many jobs that have not ended a queue may have, and what happens to an
// enqueue beyond that: it fails, unless one of the flags is set.
type Bound struct {
	MaxDepth   int // 0: any number
	DropOldest bool
	Blocks     bool // it waits for room until its context ends
	// Until is called when the enqueue waits for room. Once its channel is closed, the
	// wait ends, and nothing else does. nil: it never ends so.
	Until func() <-chan struct{}
}

// WithBounds returns a context for an enqueue that bounds queues beyond what its engine
// says of them.
func WithBounds(ctx context.Context, bound func(queue string) Bound) context.Context {
	return context.WithValue(ctx, boundsKey{}, bound)
}

// BoundOf returns the bound of a queue by WithBounds, zero if there is none.
func BoundOf(ctx context.Context, queue string) Bound {
	if bound, ok := ctx.Value(boundsKey{}).(func(queue string) Bound); ok {
		return bound(queue)
	}
	return Bound{}
}

// WithoutSeen hides what WithSeen and WithBounds have added to ctx from hooks, whose
// enqueues are their own.
func WithoutSeen(ctx context.Context) context.Context {
	for _, key := range []any{seenKey{}, boundsKey{}} {
		if ctx.Value(key) != nil {
			ctx = context.WithValue(ctx, key, nil)
		}
	}
	return ctx
}
