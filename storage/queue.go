package storage

import (
	"context"

	"github.com/ojsengine/ojs"
)

// QueueStore pauses and drains queues, for every engine on the storage and for as long as
// the storage lasts [fields-7]. Claim and Insert obey the states: a paused queue takes
// jobs and hands out none, and a draining one hands out its jobs and takes none [queue-1,
// queue-2, queue-4, settleclaim-10].
type QueueStore interface {
	// SetQueueState sets the state of a queue, which need not have any jobs, and returns
	// the one before [queue-1, queue-3]. A state that is none fails the call with an
	// error that is ojs.ErrInvalid [queue-3].
	SetQueueState(ctx context.Context, queue string, to ojs.QueueState) (ojs.QueueState, error)

	// QueueStates returns the queues that are not active [queue-3].
	QueueStates(ctx context.Context) (map[string]ojs.QueueState, error)
}
