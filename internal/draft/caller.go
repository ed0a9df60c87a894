package draft

import (
	"context"

	"github.com/ojsengine/ojs/storage"
)

// Caller follows an enqueue that it makes. The enqueue calls it one call at a time.
type Caller interface {
	// See gets each job that the enqueue has stored, or the equal one that was there,
	// with the place of its draft. The places rise, and the calls end before the enqueue
	// returns. The record is the enqueue's: the caller must not keep
	// or change it. A record that was stored just now lacks what the storage has set.
	See(i int, rec *storage.Record)

	// Bound is the bound of a queue beyond what the engine says of it.
	Bound(queue string) Bound

	// Until is for an enqueue that waits for room. Once the channel is closed, the wait
	// ends, and nothing else does.
	Until() <-chan struct{}
}

// Bound is how many jobs that have not ended a queue may have, and what happens to an
// enqueue beyond that: it fails, unless one of the flags is set.
type Bound struct {
	MaxDepth   int // 0: any number
	DropOldest bool
	Blocks     bool // it waits for room until its context ends
}

type callerKey struct{}

// WithCaller returns a context for an enqueue.
func WithCaller(ctx context.Context, c Caller) context.Context {
	return context.WithValue(ctx, callerKey{}, c)
}

// CallerOf returns what WithCaller has added to ctx, nil if nothing.
func CallerOf(ctx context.Context) Caller {
	c, _ := ctx.Value(callerKey{}).(Caller)
	return c
}

// BoundOf returns the bound of a queue by the caller, zero if there is none.
func BoundOf(ctx context.Context, queue string) Bound {
	if c := CallerOf(ctx); c != nil {
		return c.Bound(queue)
	}
	return Bound{}
}

// WithoutCaller hides what WithCaller has added to ctx from hooks, whose enqueues are
// their own.
func WithoutCaller(ctx context.Context) context.Context {
	if CallerOf(ctx) == nil {
		return ctx
	}
	return context.WithValue(ctx, callerKey{}, nil)
}
