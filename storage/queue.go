package storage

import (
	"context"

	"github.com/ojsengine/ojs"
)

// QueueStore is the ability to pause and drain queues, for every engine on the storage and for as long as the storage
// lasts. A storage that has it obeys the states in Claim and Insert. It is optional; see As.
type QueueStore interface {
	// SetQueueState sets the state of a queue, which need not have any jobs, and returns the one before. A state that is none
	// fails the call with an error that is ojs.ErrInvalid.
	SetQueueState(ctx context.Context, queue string, to ojs.QueueState) (ojs.QueueState, error)

	// QueueStates returns the queues that are not active.
	QueueStates(ctx context.Context) (map[string]ojs.QueueState, error)
}
