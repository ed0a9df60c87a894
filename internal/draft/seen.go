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

type depthsKey struct{}

// WithDepths returns a context for an enqueue that bounds queues beyond what its engine
// says of them: depth is how many jobs that have not ended a queue may have, 0 any
// number.
func WithDepths(ctx context.Context, depth func(queue string) int) context.Context {
	return context.WithValue(ctx, depthsKey{}, depth)
}

// DepthOf returns the bound of a queue by WithDepths, 0 if there is none.
func DepthOf(ctx context.Context, queue string) int {
	if depth, ok := ctx.Value(depthsKey{}).(func(queue string) int); ok {
		return depth(queue)
	}
	return 0
}

// WithoutSeen hides what WithSeen and WithDepths have added to ctx from hooks, whose
// enqueues are their own.
func WithoutSeen(ctx context.Context) context.Context {
	for _, key := range []any{seenKey{}, depthsKey{}} {
		if ctx.Value(key) != nil {
			ctx = context.WithValue(ctx, key, nil)
		}
	}
	return ctx
}
