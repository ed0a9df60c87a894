package draft

import (
	"context"

	"github.com/ojsengine/ojs"
)

type queueStateKey struct{}

// WithQueueState returns a context for a call that sets the state of a queue: the call
// stores in *was the state that it has replaced.
func WithQueueState(ctx context.Context, was *ojs.QueueState) context.Context {
	return context.WithValue(ctx, queueStateKey{}, was)
}

// TellQueueState stores the state where WithQueueState says, if it does.
func TellQueueState(ctx context.Context, was ojs.QueueState) {
	if to, _ := ctx.Value(queueStateKey{}).(*ojs.QueueState); to != nil {
		*to = was
	}
}
