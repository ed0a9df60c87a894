package ojs

// QueueState is the state of a queue (OJS queue configuration).
type QueueState string

// The states of a queue.
const (
	QueueActive   QueueState = "active"   // accepts jobs and delivers them
	QueuePaused   QueueState = "paused"   // accepts jobs, delivers none
	QueueDraining QueueState = "draining" // delivers jobs, accepts none
)

// Valid reports whether s is one of the three states.
func (s QueueState) Valid() bool {
	return s == QueueActive || s == QueuePaused || s == QueueDraining
}
