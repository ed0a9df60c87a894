package attempt

import "context"

// Awaited says, by the id of a job that is enqueued, which stored jobs are to wait for it
// (storage.Insert.AwaitedBy).
type Awaited map[string][]string

type awaitedKey struct{}

// WithAwaited returns a context for the enqueue of jobs that stored ones are to wait for.
func WithAwaited(ctx context.Context, a Awaited) context.Context {
	return context.WithValue(ctx, awaitedKey{}, a)
}

// AwaitedOf returns what WithAwaited has added to ctx, nil if nothing.
func AwaitedOf(ctx context.Context) Awaited {
	a, _ := ctx.Value(awaitedKey{}).(Awaited)
	return a
}
