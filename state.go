package ojs

// State is one of the eight states of a job (OJS core, section 6).
type State string

// The eight states. A job waits in scheduled until its time, in pending until it is
// activated, in available until a worker is free, in retryable until its next attempt is
// due. It runs in active and ends in one of the last three.
const (
	StateScheduled State = "scheduled"
	StateAvailable State = "available"
	StatePending   State = "pending"
	StateActive    State = "active"
	StateRetryable State = "retryable"
	StateCompleted State = "completed"
	StateCancelled State = "cancelled"
	StateDiscarded State = "discarded"
)

// AllStates returns every state, the waiting ones first and the terminal ones last.
func AllStates() []State {
	return []State{
		StateScheduled, StateAvailable, StatePending, StateActive,
		StateRetryable, StateCompleted, StateCancelled, StateDiscarded,
	}
}

// Valid reports whether s is one of the eight states.
func (s State) Valid() bool {
	switch s {
	case StateScheduled, StateAvailable, StatePending, StateActive,
		StateRetryable, StateCompleted, StateCancelled, StateDiscarded:
		return true
	}
	return false
}

// Terminal reports whether a job in this state has ended: completed, cancelled or
// discarded. Only a call brings a job back, and only from discarded.
func (s State) Terminal() bool {
	return s == StateCompleted || s == StateCancelled || s == StateDiscarded
}

// Waiting reports whether a job in this state has yet to run: scheduled, available,
// pending or retryable.
func (s State) Waiting() bool {
	return s == StateScheduled || s == StateAvailable || s == StatePending || s == StateRetryable
}

// CanBecome reports whether the transition from s to the state to is one of the closed
// table of OJS core, section 6.3:
//
//	scheduled  to  available (its time came), cancelled, discarded (expired)
//	pending    to  available (activated), scheduled (before its time), cancelled, discarded (expired)
//	available  to  active (claimed), cancelled, discarded (expired, dropped), scheduled (rate limit)
//	active     to  completed, retryable, discarded, cancelled
//	retryable  to  available (its time came), cancelled, discarded (expired)
//	discarded  to  available (replayed, attempt 0)
//
// Nothing else is a transition, a state to itself included.
func (s State) CanBecome(to State) bool {
	switch s {
	case StateScheduled, StateRetryable:
		return to == StateAvailable || to == StateCancelled || to == StateDiscarded
	case StatePending:
		return to == StateAvailable || to == StateScheduled || to == StateCancelled || to == StateDiscarded
	case StateAvailable:
		return to == StateActive || to == StateCancelled || to == StateDiscarded || to == StateScheduled
	case StateActive:
		return to == StateCompleted || to == StateRetryable || to == StateDiscarded || to == StateCancelled
	case StateDiscarded:
		return to == StateAvailable
	}
	return false
}
