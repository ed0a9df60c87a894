package engine

import "time"

// NextDeadline tells tests when the engine has something to do next.
func NextDeadline[T any](e *Engine[T]) (time.Time, bool) {
	e.core.mu.Lock()
	defer e.core.mu.Unlock()
	if e.core.run == nil {
		return time.Time{}, false
	}
	return e.core.run.sched.Next()
}
